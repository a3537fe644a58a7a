"""Gathers a comparison's folder of runs into `results/<name>.json`, a page `<name>.md` and pictures.

    python benchmarks/evidence.py RUNS [--name omniglot]

Works while the comparison still runs: only complete runs count, and all files say how many of how many there are.
No value is chosen on the test images: where a run held out no classes to choose its epoch on (MoCo has none to hold
out), the last epoch alone is reported.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import evidence_page
import evidence_pictures
import measure

from adaptive_memory_bank.lab.compare.comparison import Comparison, Condition, Section
from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.statistics import Difference, Spread, paired_difference
from adaptive_memory_bank.lab.runs.files import read_json_object
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.metrics import COST, METRICS
from adaptive_memory_bank.lab.runs.results import Run

KEPT_METRICS = [metric for metric in METRICS if {"table", "evidence"}.intersection(metric.shown)]
KEPT_CURVES = {m.name for m in METRICS if "evidence" in m.shown or m.curve not in (None, COST)}
KEPT_FACTS = ("task", "data", "adapter", "batch_size", "epochs", "chosen_on", "seconds_per_step", "seconds")
KEPT_FACTS += ("train_seconds", "date")
EARLY = 15  # the epoch at which the paper compares MoCo with and without XBN


def gather(comparison: Comparison, name: str, planned: Sequence[str]) -> dict[str, Any]:
    """Everything that the page shows, and every run by itself, in the order of the plan."""
    complete = [run for run in comparison.runs if run.is_complete]
    if not complete:
        raise ValueError(f"`{name}` holds no complete run yet.")
    names = [*planned, *(run.folder.name for run in complete)]
    complete.sort(key=lambda run: names.index(run.folder.name))
    return {
        "name": name,
        "title": comparison.title,
        "command": comparison.command,
        "complete": len(complete),
        "planned": len(planned or complete),
        "failed": sorted(run.folder.name for run in comparison.runs if run.status == "failed"),
        "seeds": sorted({run.seed for run in complete}),
        "epochs": sorted({run.result.epochs for run in complete}),
        "versions": complete[0].result.versions,
        "machine": complete[0].result.machine,
        "tables": [_table(section, at) for section in comparison.sections for at in section.conditions],
        "runs": [_run(run) for run in complete],
    }


def _run(run: Run) -> dict[str, Any]:
    curves = run.history().items()
    chosen = {"chosen_epoch": run.result.best_epoch, "chosen": _rounded(run.best)} if _is_chosen(run) else {}
    return {
        "run": run.folder.name,
        "setting": run.setting,
        "variant": run.name,
        "memory": run.memory,
        "memory_rows": run.result.memory_size,
        "seed": run.seed,
        **{name: getattr(run.result, name) for name in KEPT_FACTS},
        "last": _rounded(run.metrics),
        **chosen,
        "curves": {name: _rounded(curve) for name, curve in curves if name in KEPT_CURVES},
    }


def _is_chosen(run: Run) -> bool:
    return run.result.chosen_on == "validation"


def _rounded(values: Any) -> dict[Any, float]:
    return {key: round(value, 6) for key, value in values.items()}


def _table(section: Section, at: Condition) -> dict[str, Any]:
    names = [name for name in section.names if any(run.is_complete for run in section.of(name, at))]
    # The chosen epoch may be shown only where no test image had a say in it.
    chosen = all(_is_chosen(run) for run in section.runs if run.is_complete)
    picks = ("chosen", "last") if chosen else ("last",)
    differences = {pick: _differences(section, names, at=at, pick=pick) for pick in picks}
    return {
        "setting": section.title,
        "condition": section.describe(at),
        "batch_size": at.batch_size,
        "memory": at.memory,
        "metric": section.headline.name,
        "picks": picks,
        "reference": section.reference,
        "published": {name: section.published[name] for name in names if name in section.published},
        "rows": [
            {
                "variant": name,
                "seeds": len(section.values(name, section.headline, at=at, pick="last")),
                "values": _values(section, name, at=at, picks=picks),
                "difference": {pick: differences[pick][name] for pick in picks if name in differences[pick]},
            }
            for name in names
        ],
    }


def _values(section: Section, name: str, *, at: Condition, picks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Mean and standard deviation over seeds of every metric, for every pick where it has one."""
    found: dict[str, Iterable[float]] = {}
    for metric in KEPT_METRICS:
        for pick in picks if metric.is_score else ("last",):
            found[f"{pick} {metric.name}"] = section.values(name, metric, at=at, pick=pick).values()
    if section.task == "moco":
        curves = [run.history().get("val/knn", {}) for run in section.of(name, at) if run.is_complete]
        early = [curve[EARLY - 1] for curve in curves if EARLY - 1 in curve and max(curve) >= EARLY]
        found[f"epoch {EARLY} val/knn"] = early
    spreads = {key: Spread.of(list(values)) for key, values in found.items()}
    return {key: {"mean": s.mean, "std": s.std, "seeds": s.count} for key, s in spreads.items() if s is not None}


def _differences(section: Section, names: Sequence[str], *, at: Condition, pick: str) -> dict[str, dict[str, Any]]:
    """To plain memory, paired over seeds, with intervals that hold for all variants of the table together."""
    others = [name for name in names if section.reference not in (None, name)]
    pairs = [paired_difference(section, name, str(section.reference), at=at, pick=pick) for name in others]
    known = [pair for pair in pairs if pair is not None]
    return {pair.name: _described(replace(pair, comparisons=len(known))) for pair in known}


def _described(difference: Difference) -> dict[str, Any]:
    ends = {"low": difference.low, "high": difference.high}
    return {
        "mean": difference.mean,
        **{name: end if math.isfinite(end) else None for name, end in ends.items()},
        "seeds": difference.seeds,
        "comparisons": difference.comparisons,
        "beyond_noise": difference.is_beyond_noise,
    }


def to_json(content: dict[str, Any]) -> str:
    """JSON with one line for every run, so that a later commit shows which runs came."""
    head = json.dumps({key: value for key, value in content.items() if key != "runs"}, indent=2, ensure_ascii=False)
    runs = ",\n".join("    " + json.dumps(run, ensure_ascii=False) for run in content["runs"])
    return f'{head[:-2]},\n  "runs": [\n{runs}\n  ]\n}}\n'


def write(folder: Path, name: str, results: Path) -> list[Path]:
    """Write all files of a comparison and return their paths."""
    comparison = read_comparison([folder])
    content = gather(comparison, name, list(read_json_object(folder / RunFolder.PLAN).get("runs", {})))
    results.mkdir(parents=True, exist_ok=True)
    path, page = results / f"{name}.json", results / f"{name}.md"
    path.write_text(to_json(content), encoding="utf-8")
    pictures = evidence_pictures.draw(comparison, name, results)
    page.write_text(evidence_page.render(measure.read(name, results)), encoding="utf-8")  # as later readers have it
    return [path, page, *pictures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder that `amb compare --out` named")
    parser.add_argument("--name", help="of the files; default: the folder's")
    parser.add_argument("--results", type=Path, default=measure.RESULTS)
    options = parser.parse_args()
    for path in write(options.runs, options.name or options.runs.resolve().name, options.results):
        print(path)


if __name__ == "__main__":
    main()
