"""The parts of a walk that all sums share."""

import pytest
import torch

from adaptive_memory_bank.losses.walk import add_weighted_rows

BATCH, DIM = 3, 4


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, DIM, 3 * (DIM + 1), 50])  # none, few, one a thread too few, just enough, many
def test_weighted_rows_are_added_once_each_however_threads_share_them(
    threads: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows, weights = torch.randn(count, DIM), torch.randn(count, BATCH)
    before = torch.randn(BATCH, DIM)
    total = before.clone()
    add_weighted_rows(total, weights, rows)
    expected = before.clone()
    for row, row_weights in zip(rows, weights, strict=True):
        for query in range(BATCH):
            expected[query] += row_weights[query] * row
    torch.testing.assert_close(total, expected)
