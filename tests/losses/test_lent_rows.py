"""Memory for the rows of a bank that is used again, but never while someone holds it."""

import copy

import pytest
import torch

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses.lent_rows import LentRows


@pytest.fixture
def bank():
    torch.manual_seed(0)
    bank = AdaptiveMemoryBank(6, 3, "xbn")
    bank.update(torch.randn(4, 3))
    return bank


def test_the_rows_are_those_of_the_bank_while_it_fills_and_later(bank):
    lent = LentRows()
    for _ in range(4):
        assert torch.equal(lent.read(bank), bank.embeddings)
        bank.update(torch.randn(3, 3))


@pytest.mark.parametrize("hold", [lambda rows: rows, lambda rows: rows[1:], lambda rows: rows.T, torch.Tensor.detach])
def test_rows_that_someone_holds_stay_as_they_are(bank, hold):
    lent = LentRows()
    held = hold(lent.read(bank))
    before = held.clone()
    bank.update(10 + torch.randn(4, 3))
    address = lent.read(bank).data_ptr()
    assert torch.equal(held, before)
    assert lent.read(bank).data_ptr() == address  # which nobody held


def test_a_graph_holds_rows_until_its_backward_pass(bank):
    lent, queries = LentRows(), torch.randn(2, 3, requires_grad=True)
    address = lent.read(bank).data_ptr()
    loss = (queries @ lent.read(bank).T).sum()
    expected = bank.embeddings.sum(0).expand(2, 3)
    bank.update(torch.randn(4, 3))
    assert lent.read(bank).data_ptr() != address
    loss.backward()
    torch.testing.assert_close(queries.grad, expected)


def test_memory_of_another_shape_or_precision_is_made_anew(bank):
    lent = LentRows()
    lent.read(bank)
    assert lent.read(bank.double()).dtype == torch.float64
    other = AdaptiveMemoryBank(5, 2)
    other.update(torch.ones(5, 2))
    assert lent.read(other).shape == (5, 2)


def test_a_copy_has_memory_of_its_own(bank):
    lent = LentRows()
    address = lent.read(bank).data_ptr()
    assert copy.deepcopy(lent).read(bank).data_ptr() != address
