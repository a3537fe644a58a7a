"""Rows of a block that a bound leaves without pairs are left out, where that pays."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from adaptive_memory_bank.losses.walk import Block, rows_above


def block_of(*logits, factors=True):
    logits = torch.tensor(logits)
    rows = torch.arange(len(logits)).float()[:, None].expand(-1, 3).clone()
    return Block(rows, rows[:, :1] + 1 if factors else None, logits)


@pytest.mark.parametrize("above", [0.5, torch.tensor([0.5, 0.9])])
@pytest.mark.parametrize("factors", [True, False])
def test_few_rows_are_gathered(above, factors):
    block = block_of([0.1, 0.2], [0.6, 0.0], [0.5, 0.5], [0.0, 0.1], factors=factors)
    few = rows_above(block, above)
    assert few.logits.tolist() == block.logits[[1]].tolist()
    assert few.rows.tolist() == [[1.0, 1.0, 1.0]]
    assert few.factors is None if block.factors is None else few.factors.tolist() == [[2.0]]


def test_a_bound_of_each_query_is_its_own():
    block = block_of([0.6, 0.0], [0.0, 0.6], [0.0, 0.95], [0.0, 0.0])
    assert rows_above(block, torch.tensor([0.7, 0.9])).rows[:, 0].tolist() == [2.0]


def test_no_row_may_be_left():
    assert len(rows_above(block_of([0.1, 0.2], [0.3, 0.4]), 0.4).rows) == 0


def test_many_rows_are_not_worth_gathering():
    block = block_of([0.6, 0.2], [0.6, 0.0], [0.0, 0.5])
    assert rows_above(block, 0.5) is block


def test_a_query_that_is_not_finite_hides_no_row():
    block = block_of([torch.nan, 0.9], [torch.nan, 0.0])
    assert rows_above(block, 0.5) is block


def test_a_gpu_is_not_asked():
    with FakeTensorMode(), torch.device("cuda"):
        block = Block(torch.empty(4, 3), None, torch.empty(4, 2))
        assert rows_above(block, 0.5) is block
