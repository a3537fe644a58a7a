"""Time and memory of one loss step (forward, backward, enqueue) of the fused losses, and of what they replace.

    python benchmarks/loss_step.py [--rounds 15] [--threads 2] [--out benchmarks/results]

All contestants of a case take turns in one process, on the same batches, so that whatever else the machine does hits
all of them; ratios are of minima (medians are in the JSON). "Peak extra memory" is the most that is allocated at any
moment of the first step, beyond what was there before it, as PyTorch's profiler sees the allocator; memory that a loss
takes then and keeps is part of it. On a busy machine, read the CPU times of a run with ``--threads 1``.

The floor is the pair of matrix products that no exact implementation can avoid: similarities, and the gradient's
product with the same rows. "early" batches are as in early training: nearly collapsed, so that the miner keeps most
negatives; "late" ones are spread out, and it keeps few.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import cycle
from pathlib import Path

import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss
from pytorch_metric_learning.losses import CrossBatchMemory, SupConLoss
from pytorch_metric_learning.miners import PairMarginMiner
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemoryInfoNCELoss, MemorySupConLoss

CLASSES = 11_318  # Stanford Online Products, training half
BATCHES = 16  # different ones, in turn
Step = Callable[[], object]

# (case prefix, ours, theirs, what, at most)
TARGETS = [
    ("supcon", "MemorySupConLoss, AXBN", "PML XBM + miner", "ms", 1 / 3),
    ("supcon", "MemorySupConLoss, AXBN", "PML XBM + miner + literal XBN", "ms", 1 / 4),
    ("supcon", "MemorySupConLoss, AXBN", "floor: two matrix products", "ms", 1.5),
    ("supcon", "MemorySupConLoss, AXBN", "PML XBM + miner", "MiB", 1 / 2),
    ("infonce", "MemoryInfoNCELoss, XBN", "lightly NTXentLoss, plain queue", "ms", 0.8),
    ("infonce", "MemoryInfoNCELoss, XBN, ids", "MemoryInfoNCELoss, XBN", "ms", 1.05),
]


NOTE = (
    "What separates a step from the floor: each row is realigned and measured once, each similarity mined, "
    "exponentiated and summed (about 0.3 of the floor), and some 2 ms of small operations, whatever the size of the "
    "bank: adapting, enqueueing, finding the positives, autograd. At 30,000 rows these 2 ms are what misses the target."
)


class LiteralXBN(CrossBatchMemory):
    """PML's memory with the paper's formula written down: every row is rewritten at every step."""

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # type: ignore[override]
        """Realign, then go on as ever."""
        batch, memory = embeddings.detach(), self.embedding_memory
        self.embedding_memory = (memory - memory.mean(0)) * (batch.std(0) / memory.std(0)) + batch.mean(0)
        return super().forward(embeddings, labels)


def embeddings(count: int, dim: int, common: float, labels: Tensor) -> Tensor:
    """Rows around class centres around a common mean; different classes have a cosine near ``common^2``."""
    mean, centres = F.normalize(torch.randn(dim), dim=0), F.normalize(torch.randn(CLASSES, dim), dim=1)
    spread = 0.7 * centres[labels] + 0.7 * F.normalize(torch.randn(count, dim), dim=1)
    return common * mean + (1 - common**2) ** 0.5 * spread


def train_step(loss: torch.nn.Module, queries: Tensor, *others: Tensor, batch: int) -> Step:
    """Take the next batch of (M, dim) queries and (M, ...) labels, or keys and ids, at each call."""
    batches = cycle(zip(*(rows.split(batch) for rows in (queries, *others)), strict=True))

    def step() -> None:
        leaf, *partners = next(batches)
        loss(leaf.clone().requires_grad_(), *partners).backward()

    return step


def supcon_steps(size: int, common: float, batch: int = 64, dim: int = 512) -> tuple[dict[str, Step], MemorySupConLoss]:
    per_class = 4  # as P x K samplers draw
    drawn = torch.randint(CLASSES, (BATCHES * batch // per_class,)).repeat_interleave(per_class)
    labels = torch.cat([torch.randint(CLASSES, (size,)), drawn])
    rows = embeddings(len(labels), dim, common, labels)
    queries, memory = rows[size:], rows[:size].clone()
    ours = MemorySupConLoss(AdaptiveMemoryBank(size, dim, "axbn"))
    ours.bank.enqueue(memory, labels[:size])
    steps = {"MemorySupConLoss, AXBN": train_step(ours, queries, labels[size:], batch=batch)}
    for name, kind in (("PML XBM + miner", CrossBatchMemory), ("PML XBM + miner + literal XBN", LiteralXBN)):
        theirs = kind(SupConLoss(0.1), dim, size, miner=PairMarginMiner(0.2, 0.8))
        theirs.add_to_memory(memory, labels[:size], size)
        steps[name] = train_step(theirs, queries, labels[size:], batch=batch)
    unit = F.normalize(queries[:batch], dim=1)
    steps["floor: two matrix products"] = lambda: (unit @ memory.T) @ memory
    return steps, ours


def infonce_steps(size: int, batch: int = 256, dim: int = 128) -> dict[str, Step]:
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
        "MemoryInfoNCELoss, XBN": train_step(plain, queries, keys, batch=batch),
        "MemoryInfoNCELoss, XBN, ids": train_step(with_ids, queries, keys, ids[size:], batch=batch),
        "lightly NTXentLoss, plain queue": train_step(theirs, queries, keys, batch=batch),
        "floor: two matrix products": lambda: (unit @ memory.T) @ memory,
    }


def interleaved(steps: dict[str, Step], rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each step, the contestants taking turns; and MiB at its peak."""
    peaks = {name: peak_mib(step) for name, step in steps.items()}
    wall: dict[str, list[float]] = {name: [] for name in steps}
    cpu: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 2):
        for name, step in steps.items():
            start, cpu_start = time.perf_counter(), time.process_time()
            step()
            if turn >= 2:  # the first turns warm up
                wall[name].append(1e3 * (time.perf_counter() - start))
                cpu[name].append(1e3 * (time.process_time() - cpu_start))
    return {
        name: {
            "min_ms": min(wall[name]),
            "median_ms": statistics.median(wall[name]),
            "min_cpu_ms": min(cpu[name]),
            "peak_mib": peaks[name],
        }
        for name in steps
    }


def peak_mib(step: Step) -> float:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / 2**20


def judged(case: str, measured: dict[str, dict[str, float]]) -> list[dict[str, object]]:
    """Ratios to the targets of a case."""
    verdicts: list[dict[str, object]] = []
    for prefix, ours, theirs, what, at_most in TARGETS:
        if case.startswith(prefix):
            key = "min_ms" if what == "ms" else "peak_mib"
            ratio = measured[ours][key] / measured[theirs][key]
            verdict = {"ours": ours, "against": theirs, "what": what, "ratio": ratio, "at_most": at_most}
            if what == "ms":
                verdict["ratio_of_medians"] = measured[ours]["median_ms"] / measured[theirs]["median_ms"]
                verdict["ratio_of_cpu"] = measured[ours]["min_cpu_ms"] / measured[theirs]["min_cpu_ms"]
            verdicts.append({**verdict, "met": ratio <= at_most})
    return verdicts


def run(rounds: int) -> list[dict[str, object]]:
    results: list[dict[str, object]] = []
    for size in (30_000, 60_000):
        for phase, common in (("early", 0.825), ("late", 0.5)):
            case = f"supcon, batch 64, dim 512, bank {size:,}, {phase}"
            steps, loss = supcon_steps(size, common)
            measured = interleaved(steps, rounds)
            kept = loss.last_pairs._asdict()
            results.append({"case": case, "pairs_kept": kept, "measured": measured, "targets": judged(case, measured)})
    for size in (4_096, 65_536):
        case = f"infonce, batch 256, dim 128, bank {size:,}"
        measured = interleaved(infonce_steps(size), rounds)
        results.append({"case": case, "measured": measured, "targets": judged(case, measured)})
    return results


def table(results: list[dict[str, object]]) -> str:
    lines = ["| case | contestant | min ms | median ms | min CPU ms | peak MiB |", "|---|---|---|---|---|---|"]
    for result in results:
        for name, row in result["measured"].items():  # type: ignore[attr-defined]
            numbers = f"{row['min_ms']:.1f} | {row['median_ms']:.1f} | {row['min_cpu_ms']:.1f} | {row['peak_mib']:.1f}"
            lines.append(f"| {result['case']} | {name} | {numbers} |")
    lines += ["", "| case | ours / against | ratio | of CPU time | target | met |", "|---|---|---|---|---|---|"]
    for result in results:
        for row in result["targets"]:  # type: ignore[attr-defined]
            against = f"{row['ours']} / {row['against']} ({row['what']})"
            cpu = f"{row['ratio_of_cpu']:.3f}" if "ratio_of_cpu" in row else ""
            verdict = f"{row['ratio']:.3f} | {cpu} | <= {row['at_most']:.3f} | {'yes' if row['met'] else '**no**'}"
            lines.append(f"| {result['case']} | {against} | {verdict} |")
    return "\n".join([*lines, "", NOTE, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    load = os.getloadavg()
    results = run(options.rounds)
    libraries = ("torch", "pytorch-metric-learning", "lightly", "adaptive-memory-bank")
    report = {
        "command": f"python benchmarks/loss_step.py {' '.join(sys.argv[1:])}".strip(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in libraries}},
        "threads": options.threads,
        "seed": options.seed,
        "rounds": options.rounds,
        "load_average_before_and_after": [load, os.getloadavg()],
        "results": results,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "loss_step.json").write_text(json.dumps(report, indent=2) + "\n")
    (options.out / "loss_step.md").write_text(f"`{report['command']}`\n\n{table(results)}")
    print(table(results))


if __name__ == "__main__":
    main()
