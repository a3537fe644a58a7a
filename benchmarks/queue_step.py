"""What the two-line swap costs: a step of lightly's and pytorch-metric-learning's losses on their memory and on ours.

    python benchmarks/queue_step.py [--rounds 25] [--threads 2]

The losses are the originals; only the memory differs. All contestants of a case take turns in one process, on the same
batches; ratios are of minima to the original memory, which adapts nothing. Beside it the original with the literal XBN
formula, which rewrites every row at every step: what a user would otherwise write.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import measure
import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss
from lightly.models.modules.memory_bank import MemoryBankModule
from loss_step import CLASSES, LiteralXBN, embeddings
from pytorch_metric_learning.losses import CrossBatchMemory, SupConLoss
from pytorch_metric_learning.miners import PairMarginMiner
from torch import Tensor, nn

from adaptive_memory_bank.integrations import pml
from adaptive_memory_bank.integrations.lightly import swap_memory_bank

BATCHES = 16  # different ones, in turn
ADAPTERS = ("identity", "xbn", "axbn", "auto")
ORIGINAL, LITERAL = "original", "original + literal XBN"
Batches = Iterator[tuple[Tensor, Tensor]]


class LiteralQueue(MemoryBankModule):  # type: ignore[misc]  # lightly is not typed
    """lightly's queue with the paper's formula written down."""

    def forward(self, output: Tensor, labels: Tensor | None = None, update: bool = False) -> Any:
        """Realign to the keys, then go on as ever."""
        if update:
            moved = (self.bank - self.bank.mean(0)) * (output.std(0) / self.bank.std(0)) + output.mean(0)
            self.bank.copy_(F.normalize(moved, dim=1))
        return super().forward(output, labels, update)


def lightly_steps(size: int, batch: int = 256, dim: int = 128) -> dict[str, Callable[[], None]]:
    """MoCo's loss, with a full queue of unit rows."""
    memory = F.normalize(torch.randn(size, dim), dim=1)
    pairs = [(torch.randn(batch, dim), torch.randn(batch, dim)) for _ in range(BATCHES)]
    contestants = {}
    for name in (ORIGINAL, LITERAL, *ADAPTERS):
        loss = NTXentLoss(temperature=0.1, memory_bank_size=(size, dim))
        if name == LITERAL:
            loss.memory_bank = LiteralQueue((size, dim))
        if name in ADAPTERS:
            swap_memory_bank(loss, name)
        loss.memory_bank(memory, update=True)
        contestants[name] = step(loss, cycle(pairs))
    return contestants


def pml_steps(size: int, batch: int = 64, dim: int = 512) -> dict[str, Callable[[], None]]:
    """Cross-batch memory with SupCon and a pair-margin miner, full, in P x K batches of four images a class."""
    drawn = torch.randint(CLASSES, (BATCHES * batch // 4,)).repeat_interleave(4)
    labels = torch.cat([torch.randint(CLASSES, (size,)), drawn])
    rows = embeddings(len(labels), dim, 0.5, labels)
    batches = list(zip(rows[size:].split(batch), labels[size:].split(batch), strict=True))
    contestants = {}
    for name in (ORIGINAL, LITERAL, *ADAPTERS):
        kind, options = (pml.CrossBatchMemory, {"adapter": name}) if name in ADAPTERS else (CrossBatchMemory, {})
        kind = LiteralXBN if name == LITERAL else kind
        loss = kind(SupConLoss(0.1), dim, size, miner=PairMarginMiner(0.2, 0.8), **options)
        loss.add_to_memory(rows[:size].clone(), labels[:size], size)
        contestants[name] = step(loss, cycle(batches))
    return contestants


def step(loss: nn.Module, batches: Batches) -> Callable[[], None]:
    """Forward and backward of the next batch at each call."""

    def run() -> None:
        rows, other = next(batches)
        loss(rows.clone().requires_grad_(), other).backward()

    return run


CASES = {
    "lightly NTXentLoss, queue 4,096 x 128, batch 256": lambda: lightly_steps(4_096),
    "lightly NTXentLoss, queue 65,536 x 128, batch 256": lambda: lightly_steps(65_536),
    "PML CrossBatchMemory + miner, 30,000 x 512, batch 64": lambda: pml_steps(30_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    cases = {}
    for case, make in CASES.items():
        found = measure.interleaved(make(), rounds=options.rounds)
        base = found[ORIGINAL]["min_ms"]
        cases[case] = {name: {**times, "of_original": times["min_ms"] / base} for name, times in found.items()}
        for name, times in cases[case].items():
            print(f"{case:<55} {name:<24} {times['min_ms']:8.2f} ms  x{times['of_original']:.2f}")
    facts = measure.facts("lightly", "pytorch-metric-learning", "adaptive-memory-bank")
    print(measure.write("queue_step", {**facts, "seed": 0, "rounds": options.rounds, "cases": cases}))


if __name__ == "__main__":
    main()
