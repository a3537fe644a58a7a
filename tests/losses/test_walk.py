"""What the sums over a walk share."""

import pytest
import torch

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses.soft_sum import SAFE_EXPONENT, SMALLEST_TERM, SoftSum, exponentiate
from adaptive_memory_bank.losses.walk import WeightedRows, Workspace, walk

BATCH, DIM = 3, 4


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, DIM, 3 * (DIM + 1), 50])  # none, few, one a thread too few, just enough, many
def test_weighted_rows_are_added_once_each_however_threads_share_them(
    threads: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    total, expected = WeightedRows(torch.empty(BATCH, DIM)), torch.zeros(BATCH, DIM)
    factors = torch.rand(BATCH)
    for some in (count, 5):  # blocks of different lengths, with a rescaling in between
        rows, weights = torch.randn(some, DIM), torch.randn(some, BATCH)
        total.mul_(factors)
        total.add(weights, rows)
        expected = expected * factors[:, None]
        for row, row_weights in zip(rows, weights, strict=True):
            for query in range(BATCH):
                expected[query] += row_weights[query] * row
    torch.testing.assert_close(total.sum(), expected)
    torch.testing.assert_close(total.sum(), expected)  # asking changes nothing


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [30, 31])
def test_a_walk_has_the_same_products_however_threads_share_the_rows(
    threads: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    bank = AdaptiveMemoryBank(count, DIM, "identity")
    rows, queries = torch.randn(count, DIM), torch.randn(BATCH, DIM)
    bank.update(rows)
    (block,) = walk(bank.ring, queries, Workspace())
    torch.testing.assert_close(block.logits, torch.nn.functional.normalize(rows, dim=1) @ queries.T)


def test_exponentials_of_all_logits_there_are_keep_to_rounding() -> None:
    logits = torch.linspace(-SAFE_EXPONENT, SAFE_EXPONENT, 1001)
    exact = logits.double().exp()
    exponentiate(logits)
    torch.testing.assert_close(logits.double(), exact, rtol=5e-6, atol=0)  # half a step of float32 at 50 is 2e-6


def test_what_adds_nothing_has_no_exponential_that_counts() -> None:
    logits = torch.tensor([SoftSum.nothing, -SAFE_EXPONENT, 0.0, torch.nan])
    exponentiate(logits)
    assert logits[0] == 0
    assert logits[1] > SMALLEST_TERM
    assert logits[2] == 1
    assert logits[3].isnan()
