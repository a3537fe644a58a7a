"""Parts of a step that never read a value back, which would make a GPU wait.

Fake tensors have shapes and a device but no values: whatever depends on values, or mixes devices, raises. They can
pretend to be on a GPU where there is none. Not covered yet: taking a batch (rows that are not finite) and finding the
rows related to a query.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from adaptive_memory_bank import Moments
from adaptive_memory_bank.adapters import ADAPTERS
from adaptive_memory_bank.losses.pairs import Margins
from adaptive_memory_bank.losses.supcon import _mean_above_zero
from adaptive_memory_bank.losses.supcon_sums import losses_within_batch
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
    adapter, ring = ADAPTERS[name].load()(), LazyRing(20, 4, torch.float32)
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
