"""Other embeddings in the place of the stored rows: what changes, and what stays."""

import math

import pytest
import torch

from adaptive_memory_bank import AdaptiveMemoryBank, Moments
from reference import NaiveAdapter, NaiveBank

NAMES = ("identity", "xbn", "ema", "axbn", "auto")


def batch(step, count=8):
    generator = torch.Generator().manual_seed(step)
    return 0.3 * step + torch.randn(count, 3, generator=generator), torch.arange(count) // 4 + step


def filled(steps, name="xbn", **options):
    bank = AdaptiveMemoryBank(20, 3, name, **options)
    for step in range(steps):
        bank.update(*batch(step))
    return bank


@pytest.mark.parametrize("steps", [1, 2, 3, 5])  # filling, just past the first lap, later
def test_rows_are_read_back_as_given_and_their_moments_are_exact(steps):
    bank = filled(steps)
    rows, labels, filter_state = 7 + 3 * batch(99, len(bank))[0], bank.labels, str(bank.adapter.state_dict())
    position = bank.cursor, len(bank)
    bank.replace(rows)
    assert torch.equal(bank.embeddings, rows)
    assert torch.equal(bank.labels, labels)
    assert (bank.cursor, len(bank)) == position
    assert str(bank.adapter.state_dict()) == filter_state
    for field, value in Moments.of(rows)._asdict().items():
        torch.testing.assert_close(getattr(bank.moments, field), value)


@pytest.mark.parametrize("name", NAMES)
def test_going_on_equals_the_literal_formula_on_the_new_rows(name):
    bank, naive = filled(0, name), NaiveBank(20, 3, NaiveAdapter(name))
    for step in range(30):
        bank.update(*batch(step % 7))
        naive.update(*batch(step % 7))
        if step % 4 == 1:
            rows = 2 * batch(step % 5, len(bank))[0] - 1
            bank.replace(rows)
            naive.rows[naive.held] = rows.double().numpy()
        naive.assert_equals(bank)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_rows_of_any_precision_are_stored_in_that_of_the_bank(dtype):
    bank = filled(4, dtype=dtype)
    rows = batch(9, 20)[0].double()
    bank.replace(rows)
    stored = rows.to(bank.compute_dtype).to(dtype)
    assert torch.equal(bank.embeddings, stored.to(bank.compute_dtype))
    torch.testing.assert_close(bank.moments.std, bank.embeddings.std(0))


def test_no_gradient_and_no_memory_is_shared_with_the_rows():
    bank, rows = filled(3), batch(9, 20)[0].requires_grad_()
    bank.replace(rows)
    assert not bank.embeddings.requires_grad
    before = bank.embeddings
    rows.data.zero_()
    assert torch.equal(bank.embeddings, before)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_where_a_row_is_not_finite_the_stored_one_stays(value):
    bank = filled(3)
    before, rows = bank.embeddings, batch(9, 20)[0]
    rows[4, 1] = value
    bank.replace(rows)
    assert torch.equal(bank.embeddings[4], before[4])
    others = torch.arange(20) != 4
    assert torch.equal(bank.embeddings[others], rows[others])
    assert bank.moments.mean.isfinite().all()
    assert bank.rejected_rows == 1


def test_an_empty_bank_takes_no_rows():
    bank = filled(0)
    bank.replace(torch.empty(0, 3))
    assert len(bank) == 0
    assert bank.moments.mean.eq(0).all()


def test_refuses_rows_that_do_not_fit():
    bank = filled(1)
    before = bank.embeddings
    with pytest.raises(ValueError, match="`rows` must be as many as the bank holds, 8, got 20"):
        bank.replace(torch.zeros(20, 3))
    with pytest.raises(ValueError, match=r"`rows` must have shape \(B, 3\) but has shape \(8, 4\)"):
        bank.replace(torch.zeros(8, 4))
    with pytest.raises(TypeError, match="`rows` must be a floating point tensor"):
        bank.replace(torch.zeros(8, 3, dtype=torch.int64))
    assert torch.equal(bank.embeddings, before)


def test_replacing_no_rows_keeps_the_frame_that_waits_for_them():
    torch.manual_seed(0)
    bank = AdaptiveMemoryBank(size=8, dim=2, adapter="xbn", dtype=torch.bfloat16)
    rows = 1000 + torch.randn(4, 2)
    bank.adapt(rows)
    bank.replace(torch.empty(0, 2))
    bank.enqueue(rows)
    torch.testing.assert_close(bank.embeddings, rows, rtol=0, atol=0.02)  # stored as it is, 1000 has steps of 4
