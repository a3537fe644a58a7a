"""Parts of a step that never read a value back, which would make a GPU wait.

Fake tensors have shapes and a device but no values: whatever depends on values, or mixes devices, raises. They can
pretend to be on a GPU where there is none. Not covered yet: taking a batch (rows that are not finite) and finding the
rows related to a query; losses are given a choice of related rows.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from adaptive_memory_bank import Moments
from adaptive_memory_bank.adapters import ADAPTERS
from adaptive_memory_bank.losses.compare import Queries, compare
from adaptive_memory_bank.losses.contrastive_sums import Contrastive, Euclidean
from adaptive_memory_bank.losses.multi_similarity_sums import MultiSimilarity
from adaptive_memory_bank.losses.ntxent_sums import NTXent
from adaptive_memory_bank.losses.pairs import ALL_PAIRS, HardPairs, Margins
from adaptive_memory_bank.losses.related import RelatedRows
from adaptive_memory_bank.losses.supcon import _mean_above_zero
from adaptive_memory_bank.losses.supcon_sums import SupCon, losses_within_batch
from adaptive_memory_bank.losses.walk import Workspace
from adaptive_memory_bank.ring import LazyRing


@pytest.fixture(autouse=True)
def pretended_gpu():
    with FakeTensorMode(), torch.device("cuda"):
        yield


def test_a_value_that_is_read_would_be_noticed():
    labels = torch.zeros(8, dtype=torch.int64)
    with pytest.raises(DynamicOutputShapeException):
        torch.unique(labels)
    with pytest.raises(Exception, match=r"data-dependent|_local_scalar_dense"):
        bool(labels.sum() > 0)


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("labelled", [False, True])
def test_measuring_a_batch_filtering_and_realigning(name, labelled):
    adapter, ring = ADAPTERS[name](), LazyRing(20, 4, torch.float32)
    adapter.reset(4)
    for _ in range(4):  # fills the ring, wraps, and folds
        rows, labels = torch.randn(8, 4), torch.zeros(8, dtype=torch.int64) if labelled else None
        target = adapter.observe(Moments.of(rows, labels))
        if target is not None:
            ring.realign(target)
        assert ring.next_slots(8).device.type == "cuda"
        ring.write(rows, labels)
    assert ring.read().shape == (20, 4)
    assert ring.moments.std.device.type == "cuda"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_supervised_loss_within_a_batch(device):
    rows, labels = torch.randn(8, 4, device=device), torch.zeros(8, dtype=torch.int64, device=device)
    rows.requires_grad_(device == "cpu")  # autograd's engine asks for a true GPU; values are missing on either
    losses, pairs = losses_within_batch(rows, labels, temperature=0.1, margins=Margins.of(0.2, 0.8))
    loss = _mean_above_zero(losses, pairs)
    assert (loss.device.type, pairs.shape) == (device, (2,))
    if rows.requires_grad:
        loss.backward()
        assert rows.grad.shape == rows.shape


@pytest.mark.parametrize("mining", [ALL_PAIRS, Margins.of(0.2, 0.8), HardPairs(0.1)], ids=["all", "margins", "hard"])
@pytest.mark.parametrize(
    "loss", [SupCon(0.1), NTXent(0.001), Contrastive(Euclidean(), 0.0, 1.0), MultiSimilarity(2.0, 50.0, 0.5)]
)
def test_the_losses_of_pairs_of_a_batch_and_a_bank(loss, mining, monkeypatch):
    ring = LazyRing(20, 4, torch.float32)
    ring.write(torch.randn(20, 4), torch.zeros(20, dtype=torch.int64))
    unit, labels = torch.randn(8, 4), torch.zeros(8, dtype=torch.int64)
    related = RelatedRows(torch.arange(5), labels[:5, None] == labels, torch.empty(5, 8), [0, 5], 20)
    monkeypatch.setattr(RelatedRows, "of", lambda *_: related)
    sums = loss.sums(unit, gradient=True)
    pairs = compare(ring, Queries(unit, labels, labels), sums=sums, mining=mining, workspace=Workspace())
    value, gradient = loss.combine(ring, pairs, sums)
    assert (value.shape, gradient.shape) == ((), (8, 4))
    assert {value.device.type, gradient.device.type, pairs.positive.device.type, pairs.negative.device.type} == {"cuda"}
