"""One rank of two: trains inside DistributedDataParallel and saves what its banks hold. Run by test_distributed.py."""

import copy
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lightly.loss import NTXentLoss
from lightly.models.modules.memory_bank import MemoryBankModule as LightlyBank
from pytorch_metric_learning.losses import SupConLoss
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from adaptive_memory_bank.integrations.lightly import MemoryBankModule, swap_memory_bank
from adaptive_memory_bank.integrations.pml import CrossBatchMemory

STEPS, BATCH, DIM = 7, 4, 5


class Model(nn.Module):
    """An encoder whose BatchNorm makes DDP broadcast buffers at every forward pass, and a bank of every kind."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, DIM), nn.BatchNorm1d(DIM))
        self.shared = swap_memory_bank(NTXentLoss(memory_bank_size=(30, DIM), gather_distributed=True), "axbn")
        self.own = MemoryBankModule((30, DIM), "identity", feature_dim_first=False)
        self.lightly = LightlyBank((30, DIM), feature_dim_first=False)
        self.memory = CrossBatchMemory(SupConLoss(), DIM, 30, adapter="identity")

    def forward(self, images, labels):
        rows = F.normalize(self.encoder(images), dim=1)
        self.own(rows, update=True)
        self.lightly(rows, update=True)
        return self.shared(rows, rows.detach()) + self.memory(rows, labels), rows.detach()


def train_under_ddp(rank):
    torch.manual_seed(rank)  # ranks draw different random rows and see different images
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    embeddings = []
    for _ in range(STEPS):
        loss, rows = model(torch.randn(BATCH, 6), torch.arange(BATCH) % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        embeddings.append(rows)
    bank = model.module.shared.memory_bank
    return {
        "embeddings": torch.cat(embeddings),
        "shared": bank.bank,
        "shared_state": {k: v for k, v in bank.state_dict().items() if isinstance(v, torch.Tensor)},
        "own": model.module.own.bank,
        "lightly": model.module.lightly.bank,
        "memory": model.module.memory.embedding_memory,
    }


def gathered_criterion(rank):
    """lightly's criterion with a bank of all ranks' keys, fused and not, from different random rows on each rank."""
    torch.manual_seed(rank)
    fused = swap_memory_bank(NTXentLoss(memory_bank_size=(20, DIM), gather_distributed=True), "auto")
    apart = swap_memory_bank(copy.deepcopy(fused), "auto", fused=False)
    steps = []
    for _ in range(STEPS):
        queries, keys = torch.randn(2, BATCH, DIM)
        for criterion in (fused, apart):
            leaf = queries.clone().requires_grad_()
            loss = criterion(leaf, keys)
            loss.backward()
            steps.append((loss.detach(), leaf.grad))
    return {"fused": steps[::2], "apart": steps[1::2], "rows": fused.memory_bank.bank}


def wrapped_memory(rank, masked):
    """PML's wrapper gathers; the size is no multiple of the gathered batch."""
    memory = CrossBatchMemory(SupConLoss(), DIM, 19, adapter="axbn")
    wrapped = DistributedLossWrapper(memory)
    generator = torch.Generator().manual_seed(rank)
    losses, gradients = [], []
    for _ in range(STEPS):
        rows = torch.randn(BATCH, DIM, generator=generator, requires_grad=True)
        labels = torch.randint(3, (BATCH,), generator=generator)
        mask = torch.rand(BATCH, generator=generator) < 0.5 if masked else None
        loss = wrapped(rows, labels, enqueue_mask=mask)
        loss.backward()
        losses.append(loss.item())
        gradients.append(rows.grad)
    return {
        "losses": losses,
        "gradients": torch.stack(gradients),
        "rows": memory.embedding_memory,
        "labels": memory.label_memory,
        "position": memory.queue_idx,
    }


def main(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    results = {"ddp": train_under_ddp(rank), "gathered": gathered_criterion(rank)}
    for masked in (False, True):
        results[f"wrapped_{masked}"] = wrapped_memory(rank, masked)
    torch.save(results, folder / f"rank{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
