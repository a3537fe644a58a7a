"""Mean and M2 of rows that come and go, against those of the rows that are there."""

import pytest
import torch

from adaptive_memory_bank.running import Rows, Sums


@pytest.mark.parametrize("level", [0.0, 1000.0])
@pytest.mark.parametrize("share_of_gaps", [None, 0.0, 0.3, 1.0])
def test_following_equals_measuring_what_is_left(level, share_of_gaps):
    generator = torch.Generator().manual_seed(0)
    values = level + torch.randn(200, 3, generator=generator)
    gaps = None if share_of_gaps is None else torch.rand(200, generator=generator) < share_of_gaps

    def rows(start, stop):
        return Rows(values[start:stop], None if gaps is None else gaps[start:stop])

    sums = Sums(torch.zeros(3), torch.zeros(3), 0 if gaps is None else torch.tensor(0))
    for step in range(20):  # ten at a time, of which the last forty are held
        before = max(10 * step - 40, 0)
        sums = sums.moved(rows(10 * step, 10 * step + 10), rows(before, before + 10) if step >= 4 else None)
        left = rows(max(10 * step - 30, 0), 10 * step + 10)
        held = left.values if left.gaps is None else left.values[~left.gaps]
        assert int(sums.held) == len(held)
        if len(held):
            exact = held.double()
            torch.testing.assert_close(sums.mean, exact.mean(0).float())
            torch.testing.assert_close(sums.m2, ((exact - exact.mean(0)) ** 2).sum(0).float(), rtol=2e-3, atol=1e-4)
    whole = Sums.of((rows(start, start + 30) for start in range(0, 200, 30)), rows(0, 200).held, like=torch.zeros(3))
    kept = values.double() if gaps is None else values[~gaps].double()
    if len(kept):
        torch.testing.assert_close(whole.m2, ((kept - kept.mean(0)) ** 2).sum(0).float(), rtol=1e-3, atol=1e-4)


def test_one_row_that_is_left_has_no_spread():
    two, gap = Rows(torch.tensor([[0.1], [0.7]]), None), Rows(torch.zeros(1, 1), torch.tensor([True]))
    sums = Sums.of([two], torch.tensor(2), like=torch.zeros(1)).moved(gap, Rows(two.values[:1], torch.tensor([False])))
    assert sums.mean.item() == pytest.approx(0.7)
    assert sums.m2.item() == 0
