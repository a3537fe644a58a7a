"""What the two-line swap costs: a step of lightly's and pytorch-metric-learning's losses on their memory and on ours.

    python benchmarks/queue_step.py [--rounds 25] [--threads 2] [--only lightly]

How it is measured: `contest.py`. Ratios are to the original, which adapts nothing. Beside it the original with the
literal XBN formula, which rewrites every row at every step: what a user would otherwise write. The names of adapters
stand for the swap as README shows it, which is computed block by block where the loss is known; "not fused" is the same
swap where it is not: `fused=False`, or a subclass of a loss. A miner keeps a hundredth of the negatives here in large
banks, and a tenth in small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import contest
import torch
import torch.nn.functional as F
from contest import BATCHES, SOME, Aim, Case, LiteralXBN, Step, train_step
from lightly.loss import NTXentLoss as LightlyNTXentLoss
from lightly.models.modules.memory_bank import MemoryBankModule
from pytorch_metric_learning.losses import (
    ContrastiveLoss,
    CrossBatchMemory,
    MultiSimilarityLoss,
    NTXentLoss,
    SupConLoss,
)
from pytorch_metric_learning.miners import MultiSimilarityMiner, PairMarginMiner
from torch import Tensor, nn

from adaptive_memory_bank.integrations import pml
from adaptive_memory_bank.integrations.lightly import swap_memory_bank

ORIGINAL, LITERAL, AUTO, NOT_FUSED = "original", "original + literal XBN", "auto", "auto, not fused"
EVERYONE = (ORIGINAL, LITERAL, "identity", "xbn", "axbn", AUTO, NOT_FUSED)
SPARE_MIB = 64.0  # that a step may take beside the bank


class LiteralQueue(MemoryBankModule):  # type: ignore[misc]  # lightly is not typed
    """lightly's queue with the paper's formula written down."""

    def forward(self, output: Tensor, labels: Tensor | None = None, update: bool = False) -> Any:
        """Realign to the keys, then go on as ever."""
        if update:
            moved = (self.bank - self.bank.mean(0)) * (output.std(0) / self.bank.std(0)) + output.mean(0)
            self.bank.copy_(F.normalize(moved, dim=1))
        return super().forward(output, labels, update)


class OwnSupConLoss(SupConLoss):  # type: ignore[misc]  # PML is not typed
    """A loss of one's own, as far as anyone can tell: it is never fused."""


def lightly_steps(size: int, batch: int = 256, dim: int = 128) -> dict[str, Step]:
    """MoCo's loss, with a full queue of unit rows."""
    memory = F.normalize(torch.randn(size, dim), dim=1)
    queries, keys = torch.randn(BATCHES * batch, dim), torch.randn(BATCHES * batch, dim)
    steps = {}
    for name in EVERYONE:
        loss = LightlyNTXentLoss(temperature=0.1, memory_bank_size=(size, dim))
        if name == LITERAL:
            loss.memory_bank = LiteralQueue((size, dim))
        elif name != ORIGINAL:
            swap_memory_bank(loss, name.split(",")[0], fused=name != NOT_FUSED)
        loss.memory_bank(memory, update=True)
        steps[name] = train_step(loss, queries, keys, batch=batch)
    return steps


def pml_memory(name: str, make_loss: Callable[[], nn.Module], sizes: tuple[int, int], miner: nn.Module | None) -> Any:
    """The memory of a contestant, for ``sizes`` (dim, rows)."""
    if name in (ORIGINAL, LITERAL):
        return (LiteralXBN if name == LITERAL else CrossBatchMemory)(make_loss(), *sizes, miner=miner)
    loss = OwnSupConLoss(0.1) if name == NOT_FUSED else make_loss()
    return pml.CrossBatchMemory(loss, *sizes, miner=miner, adapter=name.split(",")[0])


def pml_steps(
    make_loss: Callable[[], nn.Module],
    make_miner: Callable[[], nn.Module] | None,
    size: int,
    dim: int,
    names: Sequence[str] = (ORIGINAL, AUTO),
    batch: int = 64,
) -> dict[str, Step]:
    """Cross-batch memory, full, in P x K batches of four images a class."""
    rows, labels = contest.labelled_rows(size, batch, dim, SOME)
    steps = {}
    for name in names:
        memory = pml_memory(name, make_loss, (dim, size), make_miner() if make_miner else None)
        memory.add_to_memory(rows[:size].clone(), labels[:size], size)
        steps[name] = train_step(memory, rows[size:], labels[size:], batch=batch)
    return steps


def lightly_case(size: int, fused: float, not_fused: float) -> Case:
    name = f"lightly NTXentLoss, queue {size:,} x 128, batch 256"
    return Case(name, partial(lightly_steps, size), [Aim(AUTO, ORIGINAL, fused), Aim(NOT_FUSED, ORIGINAL, not_fused)])


def pml_case(
    loss: Callable[[], nn.Module], miner: Callable[[], nn.Module] | None, size: int, dim: int, *aims: Aim
) -> Case:
    names = EVERYONE if any(aim.ours == NOT_FUSED for aim in aims) else (ORIGINAL, AUTO)
    with_miner = f" + {type(miner()).__name__}" if miner else ""
    name = f"PML {type(loss()).__name__}{with_miner}, {size:,} x {dim}, batch 64"
    return Case(name, partial(pml_steps, loss, miner, size, dim, names), aims)


SUPCON, MARGINS = partial(SupConLoss, 0.1), partial(PairMarginMiner, 0.2, 0.8)
LARGE, SMALL = Aim(AUTO, ORIGINAL, 0.35), Aim(AUTO, ORIGINAL, 1.0)
PAIRS = [(ContrastiveLoss, MARGINS), (NTXentLoss, MARGINS), (MultiSimilarityLoss, MultiSimilarityMiner)]
ALL_PAIRS = [(SUPCON, None), (ContrastiveLoss, None)]
CASES = [
    lightly_case(4_096, 1.0, 1.15),
    lightly_case(65_536, 0.30, 1.10),
    pml_case(SUPCON, MARGINS, 30_000, 512, LARGE, Aim(NOT_FUSED, ORIGINAL, 1.10)),
    pml_case(SUPCON, MARGINS, 2_048, 128, SMALL, Aim(NOT_FUSED, ORIGINAL, 1.15)),
    *(pml_case(loss, miner, 30_000, 512, LARGE) for loss, miner in (*PAIRS, *ALL_PAIRS)),
    # PML's NTXentLoss without a miner compares every positive with every negative: gigabytes, but here it fits.
    *(pml_case(loss, miner, 2_048, 128, SMALL) for loss, miner in (*PAIRS, *ALL_PAIRS, (NTXentLoss, None))),
    pml_case(SUPCON, MARGINS, 60_000, 512, Aim(AUTO, None, SPARE_MIB, "MiB")),
]


if __name__ == "__main__":
    contest.main("queue_step", __doc__, CASES)
