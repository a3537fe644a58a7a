"""Gathers a comparison's folder of runs into `results/<name>.json`, a page `<name>.md`, pictures and the runs' logs.

    python benchmarks/evidence.py RUNS [--name omniglot] [--config benchmarks/omniglot.yaml [MORE_RUNS.yaml]]

Works while the comparison still runs: only complete runs count, and all files say how many of how many there are. With
`--config` they are the runs of these files, however they were started; otherwise those of the last `amb compare`.
No value is chosen on the test images: where a run held out no classes to choose its epoch on (MoCo has none to hold
out), the last epoch alone is reported.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import evidence_logs
import evidence_page
import evidence_pictures
import grids
import measure

from adaptive_memory_bank.lab.compare.ceiling import shares_of_the_way
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
KEPT_OPTIONS = ("model", "width", "image_size", "embedding_dim", "lr", "warmup_epochs", "memory_start", "momentum")
EARLY = (5, 10, 15)  # epochs at which MoCo is looked at, too: the paper's claim is an early gain, of 4 points at 15
FROZEN = "efficientnet_weights"  # what a backbone's features are worth before any training


def gather(comparison: Comparison, name: str, plan: dict[str, Any]) -> dict[str, Any]:
    """Everything that the page shows, and every run by itself, in the order of the plan."""
    complete = [run for run in comparison.runs if run.is_complete]
    if not complete:
        raise ValueError(f"`{name}` holds no complete run yet.")
    names = [*plan.get("runs", {}), *(run.folder.name for run in complete)]
    complete.sort(key=lambda run: names.index(run.folder.name))
    command = "\n".join(shlex.join(measure.portable(shlex.split(line))) for line in comparison.command.splitlines())
    return {
        "name": name,
        "title": comparison.title,
        "command": command,
        "complete": len(complete),
        "planned": len(plan.get("runs", complete)),
        "failed": sorted(run.folder.name for run in comparison.runs if run.status == "failed"),
        "seeds": sorted({run.seed for run in complete}),
        "epochs": sorted({run.result.epochs for run in complete}),
        "versions": _all_versions([_packages(run) for run in complete]),
        "commits": dict(Counter(commit for run in complete if (commit := run.result.versions.get("commit")))),
        "machine": complete[0].result.machine,
        "tables": [_table(section, at) for section in comparison.sections for at in section.conditions],
        "plan": {**plan, "command": command} if plan else {},
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
        "options": options_of(run),
        "commit": run.result.versions.get("commit"),
        "packages": _packages(run),
        "last": _rounded(run.metrics),
        **chosen,
        "curves": {name: _rounded(curve) for name, curve in curves if name in KEPT_CURVES},
    }


def _packages(run: Run) -> dict[str, str]:
    """Versions of Python and of the packages that a run was made with."""
    return {name: number for name, number in run.result.versions.items() if name != "commit"}


def _all_versions(each: Sequence[dict[str, str]]) -> dict[str, str]:
    """Of all runs: a grid that takes days meets a new release now and then."""
    numbers = {name: sorted({known[name] for known in each if name in known}) for known in each for name in known}
    return {name: " and ".join(found) for name, found in numbers.items()}


def options_of(run: Run) -> dict[str, Any]:
    """How a run was trained: its configuration, or what `restore.py` put into its result."""
    found = run.config() or run.result.other.get("options", {})
    known = {name: found[name] for name in KEPT_OPTIONS if found.get(name) is not None}
    size = re.search(r"(\d+) px", run.result.told or "")  # an image size that was left to the data
    return {**({"image_size": int(size[1])} if size else {}), **known}


def _is_chosen(run: Run) -> bool:
    return run.result.chosen_on == "validation"


def _rounded(values: Any) -> dict[Any, float]:
    return {key: round(value, 6) for key, value in values.items()}


def _table(section: Section, at: Condition) -> dict[str, Any]:
    names = [name for name in section.names if any(run.is_complete for run in section.of(name, at))]
    picks = _picks(section)
    references = {"plain": section.reference, "none": section.baseline}
    references = {role: name for role, name in references.items() if name in names}
    differences = {
        role: {pick: _differences(section, names, name, at=at, pick=pick) for pick in picks}
        for role, name in references.items()
    }
    ways = shares_of_the_way(section, at=at, pick=picks[0])
    return {
        "setting": section.title,
        "condition": section.describe(at),
        "batch_size": at.batch_size,
        "memory": at.memory,
        "metric": section.headline.name,
        "picks": picks,
        "references": references,
        "without_memory": [name for name in section.without_memory if name in names],
        "ceilings": [name for name in section.ceilings if name in names],
        "published": {name: section.published[name] for name in names if name in section.published},
        "frozen": _frozen([run for name in names for run in section.of(name, at)]),
        "rows": [
            {
                "variant": name,
                "seeds": len(section.values(name, section.headline, at=at, pick="last")),
                "trained": _trained(section.of(name, at)),
                "values": _values(section, name, at=at, picks=picks),
                "differences": {
                    role: {pick: known[name] for pick, known in by_pick.items() if name in known}
                    for role, by_pick in differences.items()
                },
                "way": ways.get(name),
            }
            for name in names
        ],
    }


def _picks(section: Section) -> tuple[str, ...]:
    """Which epochs are shown. The chosen one may be only where no test image had a say in it."""
    complete = [run for run in section.runs if run.is_complete]
    if all(_is_chosen(run) for run in complete):
        return ("chosen", "last")
    least = min((run.result.epochs or 0 for run in complete), default=0)
    early = EARLY if section.task == "moco" else ()
    return ("last", *(f"epoch {epoch}" for epoch in early if epoch < least))


def _trained(runs: Sequence[Run]) -> dict[str, Any]:
    """What a row shares, and the median time of its runs: one of them may have been stopped for a while."""
    complete = [run for run in runs if run.is_complete]
    first = complete[0]
    # A resumed run knows only the seconds since, but the seconds in steps of all its parts.
    seconds = [max(run.result.seconds or 0, run.result.train_seconds or 0) for run in complete]
    return {
        **options_of(first),
        "batch_size": first.result.batch_size,
        "memory": first.memory,
        "memory_rows": first.result.memory_size,
        "epochs": first.result.epochs,
        "minutes": median(seconds) / 60,
    }


def _frozen(runs: Sequence[Run]) -> dict[str, float]:
    """The scores of the backbone's own features on the same test images, where they were measured; empty elsewhere."""
    found = measure.read(FROZEN) or {}
    options = [options_of(run) for run in runs if run.is_complete and run.result.data == found.get("data")]
    sizes = {str(each.get("image_size")) for each in options if each.get("model") == found.get("model")}
    return found["frozen"].get(sizes.pop(), {}) if len(sizes) == 1 else {}


def _values(section: Section, name: str, *, at: Condition, picks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Mean and standard deviation over seeds of every metric, for every pick where it has one."""
    spreads = {
        f"{pick} {metric.name}": Spread.of(section.values(name, metric, at=at, pick=pick).values())
        for metric in KEPT_METRICS
        for pick in (picks if metric.is_score else ("last",))
    }
    return {key: {"mean": s.mean, "std": s.std, "seeds": s.count} for key, s in spreads.items() if s is not None}


def _differences(
    section: Section, names: Sequence[str], against: str, *, at: Condition, pick: str
) -> dict[str, dict[str, Any]]:
    """To one variant, paired over seeds, with intervals that hold for all variants of the table together."""
    pairs = [paired_difference(section, name, against, at=at, pick=pick) for name in names if name != against]
    known = [pair for pair in pairs if pair is not None]
    comparisons = sum(pair.half_width is not None for pair in known)  # those of one seed have no interval to hold
    return {pair.name: _described(replace(pair, comparisons=max(1, comparisons))) for pair in known}


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
    """JSON with one line for the plan and for every run, so that a later commit shows which runs came."""
    long = ("plan", "runs")
    head = json.dumps({key: value for key, value in content.items() if key not in long}, indent=2, ensure_ascii=False)
    plan = json.dumps(content["plan"], ensure_ascii=False)
    runs = ",\n".join("    " + json.dumps(run, ensure_ascii=False) for run in content["runs"])
    return f'{head[:-2]},\n  "plan": {plan},\n  "runs": [\n{runs}\n  ]\n}}\n'


def write(folder: Path, name: str, results: Path) -> list[Path]:
    """Write all files of a comparison and return their paths."""
    comparison = read_comparison([folder])
    content = gather(comparison, name, read_json_object(folder / RunFolder.PLAN))
    results.mkdir(parents=True, exist_ok=True)
    path, page, logs = results / f"{name}.json", results / f"{name}.md", evidence_logs.archive_of(name, results)
    packed = evidence_logs.pack([run.folder for run in comparison.runs if run.is_complete], logs)
    path.write_text(to_json({**content, "logs": len(packed)}), encoding="utf-8")
    pictures = evidence_pictures.draw(comparison, name, results)
    page.write_text(evidence_page.render(measure.read(name, results)), encoding="utf-8")  # as later readers have it
    return [path, page, *pictures, *([logs] if packed else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder that `amb compare --out` named")
    parser.add_argument("--name", help="of the files; default: the folder's")
    parser.add_argument("--results", type=Path, default=measure.RESULTS)
    files = "file of the comparison, and others that add seeds to it; default: the plan that the folder holds"
    parser.add_argument("--config", type=Path, nargs="+", help=files)
    options = parser.parse_args()
    name = options.name or options.runs.resolve().name
    with grids.planned_by(options.config, options.runs) if options.config else nullcontext(options.runs) as folder:
        for path in write(folder, name, options.results):
            print(path)


if __name__ == "__main__":
    main()
