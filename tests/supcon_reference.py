"""What the tests of MemorySupConLoss share: makers, PML's equivalent, and the loss in loops."""

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import CrossBatchMemory, SupConLoss

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemorySupConLoss, walk


@pytest.fixture(autouse=True, params=["one block", "many blocks"])
def blocks(request, monkeypatch):
    if request.param == "many blocks":
        monkeypatch.setitem(walk.BLOCK_BYTES, "cpu", 7 * 4 * (6 + 8))


def make(size, dim=6, adapter="identity", dtype=torch.float32, **options):
    return MemorySupConLoss(AdaptiveMemoryBank(size, dim, adapter, dtype=dtype), **options)


def pml(size, dim=6, temperature=0.1, miner=None):
    return CrossBatchMemory(SupConLoss(temperature), dim, size, miner=miner)


def random_batch(step, count=8, dim=6, classes=4):
    """Unnormalised, with a common mean, so that the miner keeps some pairs of either kind."""
    generator = torch.Generator().manual_seed(step)
    rows = 0.7 + torch.randn(count, dim, generator=generator)
    return rows, torch.randint(0, classes, (count,), generator=generator)


def value_and_gradient(loss, rows, labels):
    leaf = rows.clone().requires_grad_()
    value = loss(leaf, labels)
    value.backward()
    return value.detach(), leaf.grad


def assert_equal_step(ours, theirs, rows, labels, rtol=1e-5):
    (value, gradient), (expected, expected_gradient) = (value_and_gradient(x, rows, labels) for x in (ours, theirs))
    torch.testing.assert_close(value, expected, rtol=rtol, atol=1e-7)
    assert (gradient - expected_gradient).norm() <= rtol * expected_gradient.norm() + 1e-7
    return value


def naive(queries, labels, rows, row_labels, slots, temperature=0.1, pos_margin=0.2, neg_margin=0.8, mine=True):
    """The loss in loops, from the formula: one query, one row at a time."""
    losses = []
    for query, label, slot in zip(F.normalize(queries, dim=1), labels, slots, strict=True):
        positives, kept = [], []
        for j, (row, row_label) in enumerate(zip(F.normalize(rows, dim=1), row_labels, strict=True)):
            distance, logit = (query - row).detach().norm(), query @ row / temperature
            if row_label == label and j != slot and (not mine or distance > pos_margin):
                positives.append(logit)
                kept.append(logit)
            if row_label != label and (not mine or distance < neg_margin):
                kept.append(logit)
        if positives:
            losses.append(torch.stack(kept).logsumexp(0) - torch.stack(positives).mean())
    losses = [loss for loss in losses if loss > 0]
    return torch.stack(losses).mean() if losses else (queries * 0).sum()
