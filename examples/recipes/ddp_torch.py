"""Several processes in plain torch: every rank holds the same bank, of the rows of all ranks.

The loss stays outside of DistributedDataParallel, for it has nothing to average: the gradients of the encoder are.

    torchrun --standalone --nproc-per-node 2 examples/recipes/ddp_torch.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemorySupConLoss


def main():
    dist.init_process_group("gloo")  # "nccl" on GPUs
    torch.manual_seed(dist.get_rank())  # every rank draws its own images; DDP gives all of them rank 0's weights
    encoder = DistributedDataParallel(nn.Linear(16, 8))
    loss = MemorySupConLoss(AdaptiveMemoryBank(size=1024, dim=8, gather_distributed=True))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for _ in range(10):
        images, labels = torch.randn(32, 16), torch.arange(8).repeat_interleave(4)
        optimizer.zero_grad()
        loss(encoder(images), labels).backward()
        optimizer.step()
    rows = loss.bank.embeddings
    everybodys = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, rows)
    same = all(torch.equal(rows, other) for other in everybodys)
    print(f"rank {dist.get_rank()}: {len(rows)} rows, the same on every rank: {same}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
