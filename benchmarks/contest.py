"""Contests of loss steps, for `loss_step.py` and `queue_step.py`: who takes part, what is aimed at, what came of it.

All contestants of a case take turns in one process, on the same batches, so that whatever else the machine does hits
all of them; ratios are of minima (medians are in the JSON). One process does not tell all: where its memory happens to
lie decides how much of it goes back to the system between steps, and small steps may take half as long in the next one.
So each case is run in several new processes, and an aim is judged by the median of their ratios, with the least and the
most beside it. Processors differ, too: each maker's have a file of their own, `<name>_amd.json` or `<name>_intel.json`,
and the page shows them side by side. "Peak MiB" is the most that is allocated at any moment of the first step, beyond
what was there before it; memory that a loss takes then and keeps is part of it. On a busy machine, read the CPU times
of a run with ``--threads 1``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import measure
import torch
import torch.nn.functional as F
from markers import table
from pytorch_metric_learning.losses import CrossBatchMemory
from torch import Tensor, nn

CLASSES = 11_318  # Stanford Online Products, training half
BATCHES = 16  # different ones, in turn
EARLY, SOME, LATE = 0.825, 0.78, 0.5  # common parts of embeddings with which a miner keeps most negatives, some, none
Step = Callable[[], object]


@dataclass(frozen=True)
class Aim:
    """A ratio of two contestants that is aimed at, or, against nobody, a number of MiB."""

    ours: str
    against: str | None
    at_most: float
    what: str = "ms"


@dataclass(frozen=True)
class Case:
    """Some contestants on the same batches."""

    name: str
    contestants: Callable[[], dict[str, Step]]
    aims: Sequence[Aim]


class LiteralXBN(CrossBatchMemory):  # type: ignore[misc]  # PML is not typed
    """PML's memory with the paper's formula written down: every row is rewritten at every step."""

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Realign, then go on as ever."""
        batch, memory = embeddings.detach(), self.embedding_memory
        self.embedding_memory = (memory - memory.mean(0)) * (batch.std(0) / memory.std(0)) + batch.mean(0)
        loss: Tensor = super().forward(embeddings, labels)
        return loss


def labelled_rows(size: int, batch: int, dim: int, common: float) -> tuple[Tensor, Tensor]:
    """Rows and labels of a full memory, and after them of batches with four images of each class, as samplers draw.

    Rows lie around class centres around a common mean; different classes have a cosine near ``common^2``.
    """
    classes = min(CLASSES, size // 3)
    drawn = torch.randint(classes, (BATCHES * batch // 4,)).repeat_interleave(4)
    labels = torch.cat([torch.randint(classes, (size,)), drawn])
    mean, centres = F.normalize(torch.randn(dim), dim=0), F.normalize(torch.randn(classes, dim), dim=1)
    spread = 0.7 * centres[labels] + 0.7 * F.normalize(torch.randn(len(labels), dim), dim=1)
    return common * mean + (1 - common**2) ** 0.5 * spread, labels


def train_step(loss: nn.Module, queries: Tensor, *others: Tensor, batch: int) -> Step:
    """Forward and backward of the next batch of (M, dim) queries and (M, ...) labels, or keys and ids, at each call."""
    batches = cycle(zip(*(rows.split(batch) for rows in (queries, *others)), strict=True))

    def step() -> None:
        leaf, *partners = next(batches)
        loss(leaf.clone().requires_grad_(), *partners).backward()

    return step


Measured = dict[str, dict[str, float]]
"""Of each contestant the times of a step, and its peak of memory."""


def run(case: Case, rounds: int, processes: int = 1) -> dict[str, Any]:
    """Measure a case in so many new processes, or in this one, and judge it by its aims."""
    found = [measured(case, rounds)] if processes == 1 else [_in_new_process(case, rounds) for _ in range(processes)]
    names, keys = found[0], next(iter(found[0].values()))
    typical = {name: {key: median(one[name][key] for one in found) for key in keys} for name in names}
    return {"case": case.name, "measured": typical, "targets": [judge(aim, *found) for aim in case.aims]}


def _in_new_process(case: Case, rounds: int) -> Measured:
    settings = torch.get_num_threads(), torch.initial_seed()
    with ProcessPoolExecutor(1, get_context("spawn"), _prepare, settings) as pool:
        return pool.submit(measured, case, rounds).result()


def _prepare(threads: int, seed: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(seed)


def measured(case: Case, rounds: int) -> Measured:
    """Measure a case in this process."""
    contestants = case.contestants()
    peaks = {name: measure.peak_mib(step) for name, step in contestants.items()}
    times = measure.interleaved(contestants, rounds=rounds)
    return {name: {**times[name], "peak_mib": peaks[name]} for name in contestants}


def judge(aim: Aim, *found: Measured) -> dict[str, Any]:
    """How an aim compares with what was measured: medians over processes, and of the ratio least and most."""
    keys = {"ratio": "min_ms", "ratio_of_medians": "median_ms", "ratio_of_cpu": "min_cpu_ms"}
    if aim.what == "MiB":
        keys = {"ratio": "peak_mib"}
    ratios = {
        name: [one[aim.ours][key] / (one[aim.against][key] if aim.against else 1) for one in found]
        for name, key in keys.items()
    }
    typical = {name: median(values) for name, values in ratios.items()}
    least_and_most = [min(ratios["ratio"]), max(ratios["ratio"])]
    return {**asdict(aim), **typical, "least_and_most": least_and_most, "met": typical["ratio"] <= aim.at_most}


def show(results: Sequence[dict[str, Any]]) -> str:
    """Everything that was measured, then the aims."""
    rows = [
        [result["case"], name, *(f"{row[key]:.1f}" for key in ("min_ms", "median_ms", "min_cpu_ms", "peak_mib"))]
        for result in results
        for name, row in result["measured"].items()
    ]
    measured = table(["case", "contestant", "min ms", "median ms", "min CPU ms", "peak MiB"], rows)
    return f"{measured}\n\n{show_aims(results)}\n"


def show_aims(results: Sequence[dict[str, Any]]) -> str:
    """The aims, and whether they were reached."""
    rows = []
    for result in results:
        for row in result["targets"]:
            cpu = f"{row['ratio_of_cpu']:.3f}" if "ratio_of_cpu" in row else ""
            numbers = [_ratio(row), cpu, f"<= {row['at_most']:.3f}", "yes" if row["met"] else "**no**"]
            rows.append([result["case"], _who(row), row["what"], *numbers])
    return table(["case", "ours / theirs", "of", "ratio", "of CPU time", "aim", "reached"], rows)


def show_aims_by_processor(files: Sequence[dict[str, Any]]) -> str:
    """The aims, with what each processor reached: bold where it missed."""
    aims: dict[tuple[str, ...], dict[str, str]] = {}
    for found in files:
        for result in found["results"]:
            for row in result["targets"]:
                shown = aims.setdefault((result["case"], _who(row), row["what"], f"<= {row['at_most']:.3f}"), {})
                shown[found["cpu"]] = _ratio(row) if row["met"] else f"**{_ratio(row)}**"
    cpus = [found["cpu"] for found in files]
    rows = [[*aim, *(shown.get(cpu, "-") for cpu in cpus)] for aim, shown in aims.items()]
    return table(["case", "ours / theirs", "of", "aim", *cpus], rows)


def _who(row: dict[str, Any]) -> str:
    return row["ours"] + (f" / {row['against']}" if row["against"] else "")


def _ratio(row: dict[str, Any]) -> str:
    least, most = row["least_and_most"]
    return f"{row['ratio']:.3f}" + (f" ({least:.2f} to {most:.2f})" if most > least else "")


def main(name: str, description: str | None, cases: Sequence[Case]) -> None:
    """Run all cases and write ``<name>_<maker>.json`` and ``.md``, of the processor's maker."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--processes", type=int, default=5, help="new ones for each case")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--out", type=Path, default=measure.RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    load = os.getloadavg()
    results = [run(case, options.rounds, options.processes) for case in cases if options.only in case.name]
    facts = measure.facts("pytorch-metric-learning", "lightly", "adaptive-memory-bank")
    settings = {"seed": options.seed, "rounds": options.rounds, "processes": options.processes}
    loads = {"load_average_before_and_after": [load, os.getloadavg()]}
    name = f"{name}_{measure.maker(facts['cpu'])}"
    print(measure.write(name, {**facts, **settings, **loads, "results": results}, options.out))
    (options.out / f"{name}.md").write_text(f"`{facts['command']}`\n\n{show(results)}")
    print(show(results))
