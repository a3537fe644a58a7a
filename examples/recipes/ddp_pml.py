"""Several processes with pytorch-metric-learning: each compares its own batch with the memory of all.

torchrun --standalone --nproc-per-node 2 examples/recipes/ddp_pml.py
"""

import torch
import torch.distributed as dist
from pytorch_metric_learning.losses import SupConLoss
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from adaptive_memory_bank.integrations.pml import CrossBatchMemory


def main():
    dist.init_process_group("gloo")  # "nccl" on GPUs
    torch.manual_seed(dist.get_rank())
    encoder = DistributedDataParallel(nn.Linear(16, 8))
    memory = CrossBatchMemory(SupConLoss(), embedding_size=8, memory_size=1024, adapter="auto", gather_distributed=True)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for _ in range(10):
        images, labels = torch.randn(32, 16), torch.arange(8).repeat_interleave(4)
        optimizer.zero_grad()
        memory(encoder(images), labels).backward()
        optimizer.step()
    rows = memory.bank.embeddings
    everybodys = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, rows)
    same = all(torch.equal(rows, other) for other in everybodys)
    print(f"rank {dist.get_rank()}: {len(rows)} rows, the same on every rank: {same}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
