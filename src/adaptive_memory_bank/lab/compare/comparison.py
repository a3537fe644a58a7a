"""Runs sorted into what may be compared with what: settings, conditions, variants, seeds."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_memory_bank.lab.runs.folder import RunFolder, read_json_object
from adaptive_memory_bank.lab.runs.metrics import RECALL_8, RECALL_10, Column, columns_of
from adaptive_memory_bank.lab.runs.results import Run, read_result, read_results
from adaptive_memory_bank.lab.runs.variants import FRESH, NAMES, NONE, PLAIN_MEMORY

Pick = str
"""Which epoch's value is meant: `chosen` or `last`."""


class Condition(NamedTuple):
    """One point of the grid: everything in it is alike but the variant and the seed."""

    batch_size: int | None
    memory: float | None

    def __str__(self) -> str:
        parts = [f"batch {self.batch_size}"] if self.batch_size is not None else []
        return ", ".join(parts + ([f"memory {show_memory(self.memory)}"] if self.memory is not None else []))


def show_memory(memory: float) -> str:
    """Write a memory size: a share up to 1 in percent, anything else in rows.

    Example:
        >>> show_memory(0.5), show_memory(4096)
        ('50 %', '4,096 rows')
    """
    return f"{100 * memory:g} %" if isinstance(memory, float) and memory <= 1 else f"{memory:,g} rows"


@dataclass(frozen=True)
class Section:
    """The runs of one setting, and the questions asked of them.

    Attributes:
        title: Name of the setting.
        task: `retrieval` or `moco`.
        runs: Every run of the setting, failed ones too.
        names: Variants in the order of tables, ceilings last.
        reference: The variant that stands for plain memory; None where no run has it.
        published: Values others have published for the first column, in percent, by variant.
    """

    title: str
    task: str
    runs: tuple[Run, ...]
    names: tuple[str, ...]
    reference: str | None
    published: Mapping[str, float] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns for which some run has a value; Recall@8 stands in on sets that are not scored at 10."""
        known = [c for c in columns_of(self.task) if any(c.chosen(run) is not None for run in self.runs)]
        return tuple(column for column in known if column is not RECALL_8 or RECALL_10 not in known)

    @property
    def column(self) -> Column:
        """The column that decides."""
        return columns_of(self.task)[0]

    @property
    def without_memory(self) -> tuple[str, ...]:
        """The variants that train without memory."""
        return self._with_adapter(NONE.name)

    @property
    def baseline(self) -> str | None:
        """The first variant without memory, one with the batch size of the others where there is one."""
        usual = self._batch_sizes(set(self.names).difference(self.without_memory))
        alike = [name for name in self.without_memory if self._batch_sizes([name]) <= usual]
        return next(iter(alike or self.without_memory), None)

    @property
    def ceilings(self) -> tuple[str, ...]:
        """The variants whose memory is kept fresh at any cost; they stand apart."""
        return self._with_adapter(FRESH.name)

    @property
    def plain(self) -> str | None:
        """The variant with plain memory: the reference, or the first one where something else is the reference."""
        plain = self._with_adapter(*PLAIN_MEMORY)
        return self.reference if self.reference in plain else next(iter(plain), None)

    @property
    def adapters(self) -> tuple[str, ...]:
        """The variants that are judged against the reference: those with a memory that nothing re-embeds."""
        others = {*self.without_memory, *self.ceilings, self.reference}
        return tuple(name for name in self.names if name not in others)

    def _with_adapter(self, *adapters: str) -> tuple[str, ...]:
        return tuple(name for name in self.names if all(run.adapter in adapters for run in self.of(name)))

    def _batch_sizes(self, names: Iterable[str]) -> set[Any]:
        return {run.result.batch_size for name in names for run in self.of(name)}

    @property
    def conditions(self) -> list[Condition]:
        """The points of the grid.

        A run without memory belongs to every memory size of its batch size, and a run that sets its own batch size
        (None, next to runs that have one) to every batch size.
        """
        batch_sizes = {run.batch_size for run in self.runs} - {None} or {None}
        with_memory = {
            Condition(batch_size, run.memory)
            for run in self.runs
            if run.memory is not None
            for batch_size in (batch_sizes if run.batch_size is None else [run.batch_size])
        }
        alone = {Condition(size, None) for size in batch_sizes - {at.batch_size for at in with_memory}}
        return sorted(with_memory | alone, key=lambda at: (at.batch_size or 0, at.memory or 0))

    def describe(self, at: Condition) -> str:
        """Name a condition with what all its runs share, also where the grid does not vary it."""
        runs = [run for name in self.names for run in self.of(name, at)]
        with_memory = [run for run in runs if run.adapter != NONE.name]
        batch = _shared(with_memory or runs, "batch_size") if at.batch_size is None else None
        memory = _shared(with_memory, "memory_size") if at.memory is None else None
        epochs = _shared(runs, "epochs")
        parts = (
            str(at),
            batch and f"batch {batch}",
            memory and f"memory {show_memory(memory)}",
            epochs and f"{epochs} epoch{'s' * (epochs != 1)}",
        )
        return ", ".join(part for part in parts if part)

    def of(self, name: str, at: Condition | None = None) -> list[Run]:
        """List the runs of a variant, at one condition or at all."""
        runs = [run for run in self.runs if run.name == name]
        if at is not None:
            runs = [run for run in runs if run.batch_size in (None, at.batch_size) and run.memory in (None, at.memory)]
        return runs

    def memory_start(self, at: Condition) -> float | None:
        """Epochs before the memory is used, where all runs of a condition share them; None where it is used at once."""
        runs = [run for name in self.names for run in self.of(name, at) if run.adapter != NONE.name and run.is_complete]
        configs = [run.config() for run in runs]
        starts = {config.get("warmup_epochs", 0) + config.get("memory_start", 0) for config in configs}
        return (starts.pop() or None) if len(starts) == 1 else None

    def values(self, name: str, column: Column, *, at: Condition, pick: Pick = "chosen") -> dict[int, float]:
        """Values of a variant's complete runs by seed."""
        read = column.chosen if pick == "chosen" else column.last
        found = {run.seed: read(run) for run in self.of(name, at) if run.is_complete}
        return {seed: value for seed, value in sorted(found.items()) if value is not None}


def _shared(runs: Iterable[Run], key: str) -> Any:
    """The value that all runs have, or None."""
    values = {getattr(run.result, key) for run in runs}
    return values.pop() if len(values) == 1 else None


@dataclass(frozen=True)
class Comparison:
    """Everything a table or a report is made from."""

    title: str
    sections: tuple[Section, ...]
    command: str = ""

    @property
    def runs(self) -> list[Run]:
        """Every run, section by section."""
        return [run for section in self.sections for run in section.runs]


@dataclass(frozen=True)
class _Folder:
    path: Path
    plan: Mapping[str, Any]
    runs: tuple[Run, ...]


def read_comparison(folders: Iterable[Path | str]) -> Comparison:
    """Read the runs below some folders and sort them.

    A folder is what `--out` named, or the folder of a single run. Where a comparison left its plan (`compare.json`),
    only the runs of that plan count. Folders that hold the same runs (same variant, condition and seed) are kept apart.

    Raises:
        ValueError: Where a folder does not exist or holds no results.
    """
    read = [_read_folder(Path(folder)) for folder in folders]
    if not read:
        raise ValueError("`folders` must name at least one folder of runs.")
    groups = _on_one_grid([folder.runs for folder in read])
    if _collide(groups):
        names = [folder.path.name for folder in read]
        groups = [
            tuple(replace(run, setting=f"{run.setting} ({name})") for run in group)
            for name, group in zip(names, groups, strict=True)
        ]
    runs = [run for group in groups for run in group]
    plans = [folder.plan for folder in read]
    titles = list(dict.fromkeys(str(plan["title"]) for plan in plans if plan.get("title")))
    commands = list(dict.fromkeys(str(plan["command"]) for plan in plans if plan.get("command")))
    return Comparison(" · ".join(titles) or _default_title(runs), _sections(runs, plans), "\n".join(commands))


def _read_folder(path: Path) -> _Folder:
    if not path.is_dir():
        raise ValueError(f"`{path}` is not a folder.")
    alone = read_result(RunFolder(path)) if not (path / RunFolder.LIST).exists() else None
    root = path if alone is None else path.parent
    results = read_results(path) if alone is None else {path.name: alone}
    plan = read_json_object(root / RunFolder.PLAN)
    places: Mapping[str, Any] = plan.get("runs", {})
    if places and root is path:
        results = {name: result for name, result in results.items() if name in places}
    if not results:
        expected = f"expected `{RunFolder.LIST}` or runs with a `{RunFolder.RESULT}`"
        raise ValueError(f"`{path}` holds no results: {expected}.")
    runs = [Run.placed(root / name, result, places.get(name, {})) for name, result in results.items()]
    return _Folder(path.resolve(), plan, _told_apart(runs))


def _place(run: Run) -> tuple[object, ...]:
    return run.task, run.setting, run.name, run.batch_size, run.memory, run.seed


def _told_apart(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Give runs that claim the same place (say, made by hand with two learning rates) their folder's name."""
    taken = Counter(map(_place, runs))
    return tuple(replace(r, name=f"{r.name} ({r.folder.name})") if taken[_place(r)] > 1 else r for r in runs)


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
    keys = [set(map(_place, group)) for group in groups]
    return len(set().union(*keys)) < sum(map(len, keys))


def _sections(runs: Sequence[Run], plans: Sequence[Mapping[str, Any]]) -> tuple[Section, ...]:
    published: dict[str, Mapping[str, float]] = {}
    for plan in plans:
        published.update(plan.get("published", {}))
    order = [name for plan in plans for name in plan.get("variants", [])] or list(NAMES)
    references = [plan["reference"] for plan in plans if plan.get("reference")]
    sections = []
    for task, setting in dict.fromkeys((run.task, run.setting) for run in runs):
        members = tuple(run for run in runs if (run.task, run.setting) == (task, setting))
        names = _ordered(members, order)
        members = tuple(sorted(members, key=lambda run: (names.index(run.name), run.seed)))
        reference = _reference(members, names, references)
        sections.append(Section(setting, task, members, names, reference, published.get(setting, {})))
    return tuple(sections)


def _ordered(runs: Sequence[Run], order: Sequence[str]) -> tuple[str, ...]:
    ceilings = {run.name for run in runs if run.adapter == FRESH.name}
    places = {name: order.index(name) if name in order else len(order) for name in (run.name for run in runs)}
    return tuple(sorted(places, key=lambda name: (name in ceilings, places[name])))


def _reference(runs: Iterable[Run], names: Sequence[str], wished: Sequence[str]) -> str | None:
    plain = {run.name for run in runs if run.adapter in PLAIN_MEMORY}
    candidates = [name for name in wished if name in names] + [name for name in names if name in plain]
    return candidates[0] if candidates else None


def _default_title(runs: Iterable[Run]) -> str:
    return "Adapters compared on " + ", ".join(dict.fromkeys(run.setting for run in runs))
