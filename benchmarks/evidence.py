"""Gathers a comparison's folder of runs into `results/<name>.json`, a table `<name>.md` and pictures.

    python benchmarks/evidence.py RUNS [--name omniglot]

Works while the comparison still runs: only complete runs count, and all files say how many of how many there are.
No value is chosen on the test images: where a run held out no classes to choose its epoch on (MoCo has none to hold
out), the last epoch alone is reported.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import evidence_page
import evidence_pictures
import measure

from adaptive_memory_bank.lab.compare.comparison import Condition, Section
from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.statistics import Difference, Spread
from adaptive_memory_bank.lab.runs.folder import RunFolder, read_json_object
from adaptive_memory_bank.lab.runs.metrics import COST, METRICS
from adaptive_memory_bank.lab.runs.results import Run

KEPT_CURVES = {m.name for m in METRICS if "evidence" in m.shown or m.curve not in (None, COST)}
EARLY = 15  # the epoch at which the paper compares MoCo with and without XBN


def gather(folder: Path, name: str) -> dict[str, Any]:
    """Everything that the table and the pictures show, and every run by itself."""
    comparison, plan = read_comparison([folder]), read_json_object(folder / RunFolder.PLAN)
    order = {name: place for place, name in enumerate(plan.get("runs", {}))}
    complete = [run for run in comparison.runs if run.is_complete]
    complete.sort(key=lambda run: order.get(run.folder.name, len(order)))
    if not complete:
        raise ValueError(f"`{folder}` holds no complete run yet.")
    return {
        "name": name,
        "title": comparison.title,
        "command": comparison.command,
        "complete": len(complete),
        "planned": len(plan.get("runs", complete)),
        "failed": sorted(run.folder.name for run in comparison.runs if run.status == "failed"),
        "seeds": sorted({run.seed for run in complete}),
        "epochs": sorted({run.result.epochs for run in complete}),
        "versions": complete[0].result.versions,
        "machine": complete[0].result.machine,
        "tables": [_table(section, at) for section in comparison.sections for at in section.conditions],
        "runs": [_run(run) for run in complete],
    }


def _run(run: Run) -> dict[str, Any]:
    result, curves = run.result, run.history()
    return {
        "run": run.folder.name,
        "task": run.task,
        "data": run.data,
        "setting": run.setting,
        "variant": run.name,
        "adapter": run.adapter,
        "batch_size": result.batch_size,
        "memory": run.memory,
        "memory_rows": result.memory_size,
        "seed": run.seed,
        "epochs": result.epochs,
        "last": _rounded(run.metrics),
        "chosen_on": result.chosen_on,
        **({"chosen_epoch": result.best_epoch, "chosen": _rounded(run.best)} if _is_chosen(run) else {}),
        "seconds_per_step": result.seconds_per_step,
        "seconds": result.seconds,
        "train_seconds": result.train_seconds,
        "date": result.date,
        "curves": {key: _rounded(curves[key]) for key in curves if key in KEPT_CURVES},
    }


def _is_chosen(run: Run) -> bool:
    return run.result.chosen_on == "validation"


def _rounded(values: Any) -> dict[Any, float]:
    return {key: round(value, 6) for key, value in values.items()}


def picks_of(section: Section) -> tuple[str, ...]:
    """Which epochs' values may be shown: the chosen one only where no test image had a say in it."""
    return ("chosen", "last") if all(_is_chosen(run) for run in section.runs if run.is_complete) else ("last",)


def _table(section: Section, at: Condition) -> dict[str, Any]:
    names = [name for name in section.names if any(run.is_complete for run in section.of(name, at))]
    picks = picks_of(section)
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
    """Mean and standard deviation over seeds of every column, for every pick; and of what has no pick."""
    found: dict[str, dict[str, Any]] = {}
    for metric in (metric for metric in METRICS if {"table", "evidence"}.intersection(metric.shown)):
        for pick in picks if metric.is_score else ("last",):
            _add(found, f"{pick} {metric.name}", section.values(name, metric, at=at, pick=pick).values())
    runs = [run for run in section.of(name, at) if run.is_complete]
    if section.task == "moco":
        curves = [run.history().get("val/knn", {}) for run in runs]
        early = [curve[EARLY - 1] for curve in curves if EARLY - 1 in curve and max(curve) >= EARLY]
        _add(found, f"epoch {EARLY} val/knn", early)
    return found


def _add(found: dict[str, dict[str, Any]], key: str, values: Any) -> None:
    spread = Spread.of(list(values))
    if spread is not None:
        found[key] = {"mean": spread.mean, "std": spread.std, "seeds": spread.count}


def _differences(section: Section, names: Sequence[str], *, at: Condition, pick: str) -> dict[str, dict[str, Any]]:
    """To plain memory, paired over seeds, with intervals that hold for all variants of the table together."""
    reference = section.reference
    if reference is None:
        return {}
    base = section.values(reference, section.headline, at=at, pick=pick)
    pairs: dict[str, tuple[float, ...]] = {}
    for name in names:
        ours = section.values(name, section.headline, at=at, pick=pick)
        shared = [seed for seed in ours if seed in base]
        if shared and name != reference:
            pairs[name] = tuple(ours[seed] - base[seed] for seed in shared)
    return {name: _described(Difference(name, reference, values, len(pairs))) for name, values in pairs.items()}


def _described(difference: Difference) -> dict[str, Any]:
    return {
        "mean": difference.mean,
        "low": difference.low if math.isfinite(difference.low) else None,
        "high": difference.high if math.isfinite(difference.high) else None,
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
    content = gather(folder, name)
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{name}.json"
    path.write_text(to_json(content), encoding="utf-8")
    content = json.loads(path.read_text(encoding="utf-8"))  # what later readers have
    pictures = evidence_pictures.draw(content, results)
    page = results / f"{name}.md"
    page.write_text(evidence_page.render(content, [picture.name for picture in pictures]), encoding="utf-8")
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
