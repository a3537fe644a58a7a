"""What each of two gloo processes does in test_losses: a module, so that a new process can import it."""

import torch
import torch.distributed as dist

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemorySupConLoss

SIZES = [(4, 4), (3, 5), (2, 1), (7, 6), (4, 4), (4, 4)]  # uneven batches, around the ring, more than the bank at once


def batch(step, rank):
    generator = torch.Generator().manual_seed(10 * step + rank)
    count = SIZES[step][rank]
    rows = 0.5 + torch.randn(count, 3, generator=generator, dtype=torch.float64)
    if (step, rank) == (4, 0):
        rows[1] = torch.nan  # a gap in the bank: the rows behind it are served one place earlier
    return rows, torch.randint(0, 3, (count,), generator=generator)


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    bank = AdaptiveMemoryBank(11, 3, "xbn", dtype=torch.float64, gather_distributed=True)
    loss = MemorySupConLoss(bank, mine=False)
    torch.save([loss(*batch(step, rank)) for step in range(len(SIZES))], f"{folder}/{rank}.pt")
    dist.destroy_process_group()
