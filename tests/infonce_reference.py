"""What the tests of MemoryInfoNCELoss share: a loss on a small bank, batches, and banks of one and of many blocks."""

import pytest
import torch

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemoryInfoNCELoss, walk


@pytest.fixture(autouse=True, params=["one block", "many blocks"])
def blocks(request, monkeypatch):
    if request.param == "many blocks":
        monkeypatch.setitem(walk.BLOCK_BYTES, "cpu", 7 * 4 * (5 + 4))


def make(size=12, dim=5, adapter="identity", dtype=torch.float32, **options):
    return MemoryInfoNCELoss(AdaptiveMemoryBank(size, dim, adapter, dtype=dtype), **options)


def views(step, count=4, dim=5):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(2, count, dim, generator=generator).unbind()
