"""Judge: reads folders of runs and sorts the runs into what may be compared with what."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaptive_memory_bank.lab.compare.comparison import Comparison, Section
from adaptive_memory_bank.lab.runs.files import read_json_object
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.results import Run, read_result, read_results
from adaptive_memory_bank.lab.runs.variants import FRESH, NAMES, PLAIN_MEMORY


def read_comparison(folders: Iterable[Path | str]) -> Comparison:
    """Read the runs below some folders and sort them.

    A folder is what `--out` named, or the folder of a single run. Where a comparison left its plan (`compare.json`),
    only the runs of that plan count. Folders that hold the same runs (same variant, condition and seed) are kept apart.

    Raises:
        ValueError: Where a folder does not exist or holds no results.
    """
    paths = [Path(folder) for folder in folders]
    if not paths:
        raise ValueError("`folders` must name at least one folder of runs.")
    plans, groups = map(list, zip(*map(_read_folder, paths), strict=True))
    groups = _on_one_grid(groups)
    if _collide(groups):
        groups = [
            tuple(replace(run, setting=f"{run.setting} ({path.resolve().name})") for run in group)
            for path, group in zip(paths, groups, strict=True)
        ]
    runs = [run for group in groups for run in group]
    titles = list(dict.fromkeys(str(plan["title"]) for plan in plans if plan.get("title")))
    commands = list(dict.fromkeys(str(plan["command"]) for plan in plans if plan.get("command")))
    title = "Adapters compared on " + ", ".join(dict.fromkeys(run.setting for run in runs))
    return Comparison(" · ".join(titles) or title, _sections(runs, plans), "\n".join(commands))


def _read_folder(path: Path) -> tuple[Mapping[str, Any], tuple[Run, ...]]:
    """The plan (empty where there is none) and the runs."""
    if not path.is_dir():
        raise ValueError(f"`{path}` is not a folder.")
    alone = read_result(RunFolder(path)) if not (path / RunFolder.LIST).exists() else None
    root = path if alone is None else path.parent
    results = read_results(path) if alone is None else {path.name: alone}
    plan = read_json_object(root / RunFolder.PLAN, remedy="Delete it, or repeat the command, which writes it anew.")
    positions: Mapping[str, Any] = plan.get("runs", {})
    if positions and root is path:
        results = {name: result for name, result in results.items() if name in positions}
    if not results:
        expected = f"expected `{RunFolder.LIST}` or runs with a `{RunFolder.RESULT}`"
        raise ValueError(f"`{path}` holds no results: {expected}.")
    runs = [Run.placed(root / name, result, positions.get(name, {})) for name, result in results.items()]
    return plan, _with_unique_names(runs)


def _position(run: Run) -> tuple[object, ...]:
    return run.result.task, run.setting, run.name, run.batch_size, run.memory, run.seed


def _with_unique_names(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Give runs that have the same position (say, made by hand with two learning rates) their folder's name."""
    taken = Counter(map(_position, runs))
    return tuple(replace(r, name=f"{r.name} ({r.folder.name})") if taken[_position(r)] > 1 else r for r in runs)


def _on_one_grid(groups: list[tuple[Run, ...]]) -> list[tuple[Run, ...]]:
    """Give runs of a folder without a grid their own sizes where another folder has a grid.

    Next to a grid, "no size" would say that a run belongs to every size.
    """
    for key, measured in (("batch_size", "batch_size"), ("memory", "memory_size")):
        has_grid = [any(getattr(run, key) is not None for run in group) for group in groups]
        if any(has_grid):
            groups = [
                group if own else tuple(_with_own_size(run, key, measured) for run in group)
                for own, group in zip(has_grid, groups, strict=True)
            ]
    return groups


def _with_own_size(run: Run, key: str, measured: str) -> Run:
    size: dict[str, Any] = {key: getattr(run.result, measured) or None}
    return replace(run, **size)


def _collide(groups: Sequence[Iterable[Run]]) -> bool:
    keys = [set(map(_position, group)) for group in groups]
    return len(set().union(*keys)) < sum(map(len, keys))


def _sections(runs: Sequence[Run], plans: Sequence[Mapping[str, Any]]) -> tuple[Section, ...]:
    published = {name: values for plan in plans for name, values in plan.get("published", {}).items()}
    order = [name for plan in plans for name in plan.get("variants", [])] or list(NAMES)
    references = [plan["reference"] for plan in plans if plan.get("reference")]
    sections = []
    for task, setting in dict.fromkeys((run.result.task, run.setting) for run in runs):
        members = tuple(run for run in runs if (run.result.task, run.setting) == (task, setting))
        names = _ordered(members, order)
        members = tuple(sorted(members, key=lambda run: (names.index(run.name), run.seed)))
        reference = _reference(members, names, references)
        sections.append(Section(setting, task, members, names, reference, published.get(setting, {})))
    return tuple(sections)


def _ordered(runs: Sequence[Run], order: Sequence[str]) -> tuple[str, ...]:
    ceilings = {run.name for run in runs if run.adapter == FRESH.name}
    ranks = {name: order.index(name) if name in order else len(order) for name in (run.name for run in runs)}
    return tuple(sorted(ranks, key=lambda name: (name in ceilings, ranks[name])))


def _reference(runs: Iterable[Run], names: Sequence[str], wished: Sequence[str]) -> str | None:
    plain = {run.name for run in runs if run.adapter in PLAIN_MEMORY}
    candidates = [name for name in wished if name in names] + [name for name in names if name in plain]
    return candidates[0] if candidates else None
