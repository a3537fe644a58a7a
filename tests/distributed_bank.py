"""What each of two gloo processes does in test_bank_distributed: a module, so that a new process can import it."""

import torch
import torch.distributed as dist

from adaptive_memory_bank import AdaptiveMemoryBank

SIZES = [(6, 6), (6, 6), (5, 2), (0, 3), (1, 0), (6, 6), (4, 6)]  # rows of rank 0 and rank 1, uneven ends included


def batch(step, rank):
    generator = torch.Generator().manual_seed(10 * step + rank)
    count = SIZES[step][rank]
    return step + torch.randn(count, 3, generator=generator), torch.randint(0, 3, (count,), generator=generator)


class Carry(torch.nn.Module):
    """Holds banks inside a model and lets data through."""

    def __init__(self, *banks):
        super().__init__()
        self.banks = torch.nn.ModuleList(banks)

    def forward(self, rows):
        return rows


def work(rank, folder, name, labelled):
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    gathered, local = AdaptiveMemoryBank(16, 3, name, gather_distributed=True), AdaptiveMemoryBank(16, 3, name)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), Carry(gathered, local))
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    for step in range(len(SIZES)):
        wrapped(torch.ones(2, 3)).sum().backward()  # before each forward, DDP broadcasts the buffers it sees
        rows, labels = batch(step, rank)
        gathered.update(rows, labels if labelled else None)
        local.update(rows)
    assert not list(wrapped.buffers())  # so there is nothing that DDP could broadcast
    torch.save({"gathered": gathered.state_dict(), "local": local.state_dict()}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
