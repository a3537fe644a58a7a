"""Several processes with lightly: `gather_distributed=True`, as without the swap.

torchrun --standalone --nproc-per-node 2 examples/recipes/ddp_lightly.py
"""

import copy

import torch
import torch.distributed as dist
from lightly.loss import NTXentLoss
from lightly.models.utils import deactivate_requires_grad, update_momentum
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from adaptive_memory_bank.integrations.lightly import swap_memory_bank


def main():
    dist.init_process_group("gloo")  # "nccl" on GPUs
    torch.manual_seed(0)  # lightly fills its queue with random rows, which must be the same everywhere
    encoder = nn.Linear(16, 8)
    key_encoder = copy.deepcopy(encoder)
    deactivate_requires_grad(key_encoder)
    criterion = NTXentLoss(temperature=0.1, memory_bank_size=(1024, 8), gather_distributed=True)
    swap_memory_bank(criterion, "auto")
    torch.manual_seed(1 + dist.get_rank())
    model = DistributedDataParallel(encoder)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        update_momentum(encoder, key_encoder, m=0.99)
        images = torch.randn(32, 16)
        keys = key_encoder(images + 0.1 * torch.randn_like(images))
        optimizer.zero_grad()
        criterion(model(images), keys).backward()
        optimizer.step()
    rows = criterion.memory_bank.bank
    everybodys = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, rows)
    same = all(torch.equal(rows, other) for other in everybodys)
    print(
        f"rank {dist.get_rank()}: {len(criterion.memory_bank.memory)} keys, the same on every rank: {same}", flush=True
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
