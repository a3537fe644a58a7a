"""Time and memory of one loss step (forward, backward, enqueue) of the fused losses, and of what they replace.

    python benchmarks/loss_step.py [--rounds 25] [--threads 2] [--only infonce] [--out benchmarks/results]

How it is measured: `contest.py`. The floor is the pair of matrix products that no exact implementation can avoid:
similarities, and the gradient's product with the same rows; late in training, when mining leaves few pairs, the second
one can be made of few rows. "early" batches are as in early training: nearly collapsed, so that the miner keeps most
negatives; "late" ones are spread out, and it keeps few.
"""

from __future__ import annotations

from functools import partial

import contest
import torch
import torch.nn.functional as F
from contest import BATCHES, EARLY, LATE, Aim, Case, LiteralXBN, Step, train_step
from lightly.loss import NTXentLoss
from pytorch_metric_learning.losses import CrossBatchMemory, SupConLoss
from pytorch_metric_learning.miners import PairMarginMiner

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemoryInfoNCELoss, MemorySupConLoss

OURS, PML, LITERAL = "MemorySupConLoss, AXBN", "PML XBM + miner", "PML XBM + miner + literal XBN"
FLOOR = "floor: two matrix products"
INFONCE, WITH_IDS, LIGHTLY = "MemoryInfoNCELoss, XBN", "MemoryInfoNCELoss, XBN, ids", "lightly NTXentLoss, plain queue"
SPARE_MIB = 64.0  # that a step may take beside the bank


def supcon_steps(size: int, common: float, batch: int = 64, dim: int = 512) -> dict[str, Step]:
    """Supervised loss with a miner, on a full memory."""
    rows, labels = contest.labelled_rows(size, batch, dim, common)
    queries, memory = rows[size:], rows[:size].clone()
    ours = MemorySupConLoss(AdaptiveMemoryBank(size, dim, "axbn"))
    ours.bank.enqueue(memory, labels[:size])
    steps = {OURS: train_step(ours, queries, labels[size:], batch=batch)}
    for name, kind in ((PML, CrossBatchMemory), (LITERAL, LiteralXBN)):
        theirs = kind(SupConLoss(0.1), dim, size, miner=PairMarginMiner(0.2, 0.8))
        theirs.add_to_memory(memory, labels[:size], size)
        steps[name] = train_step(theirs, queries, labels[size:], batch=batch)
    unit = F.normalize(queries[:batch], dim=1)
    steps[FLOOR] = lambda: (unit @ memory.T) @ memory
    return steps


def infonce_steps(size: int, batch: int = 256, dim: int = 128) -> dict[str, Step]:
    """MoCo's loss, on a full queue."""
    memory = F.normalize(torch.randn(size, dim), dim=1)
    queries, keys = torch.randn(BATCHES * batch, dim), torch.randn(BATCHES * batch, dim)
    ids = torch.randint(5 * size, (size + len(queries),))  # the bank is a fifth of the data set
    plain, with_ids = (MemoryInfoNCELoss(AdaptiveMemoryBank(size, dim, "xbn")) for _ in range(2))
    plain.bank.enqueue(memory)
    with_ids.bank.enqueue(memory, ids[:size])
    theirs = NTXentLoss(temperature=0.1, memory_bank_size=(size, dim))
    theirs.memory_bank.bank.copy_(memory)
    unit = F.normalize(queries[:batch], dim=1)
    return {
        INFONCE: train_step(plain, queries, keys, batch=batch),
        WITH_IDS: train_step(with_ids, queries, keys, ids[size:], batch=batch),
        LIGHTLY: train_step(theirs, queries, keys, batch=batch),
        FLOOR: lambda: (unit @ memory.T) @ memory,
    }


def supcon_aims(phase: str, size: int) -> list[Aim]:
    aims = [Aim(OURS, PML, 1 / 3), Aim(OURS, LITERAL, 1 / 4), Aim(OURS, PML, 1 / 2, "MiB")]
    aims.append(Aim(OURS, FLOOR, {"early": 1.45, "late": 1.0}[phase]))
    return [*aims, Aim(OURS, None, SPARE_MIB, "MiB")] if size == 60_000 else aims


CASES = [
    *(
        Case(
            f"supcon, batch 64, dim 512, bank {size:,}, {phase}",
            partial(supcon_steps, size, common),
            supcon_aims(phase, size),
        )
        for size in (30_000, 60_000)
        for phase, common in (("early", EARLY), ("late", LATE))
    ),
    *(
        Case(
            f"infonce, batch 256, dim 128, bank {size:,}",
            partial(infonce_steps, size),
            [Aim(INFONCE, LIGHTLY, 0.8), Aim(WITH_IDS, INFONCE, 1.05)],
        )
        for size in (4_096, 65_536)
    ),
]


if __name__ == "__main__":
    contest.main("loss_step", __doc__, CASES)
