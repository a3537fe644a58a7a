"""Judge: runs sorted into what may be compared with what: settings, conditions, variants, seeds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adaptive_memory_bank.lab.runs.metrics import BY_NAME, Metric, shown_in
from adaptive_memory_bank.lab.runs.results import Run
from adaptive_memory_bank.lab.runs.variants import FRESH, NONE, PLAIN_MEMORY
from adaptive_memory_bank.lab.training.tasks import TASKS

Pick = str
"""Which epoch's value is meant: `chosen`, `last`, or `epoch 5`, counted from 1."""


class Condition(NamedTuple):
    """One point of the grid: its runs differ only in variant and seed."""

    batch_size: int | None
    memory: float | None

    def __str__(self) -> str:
        parts = [f"batch {self.batch_size}"] if self.batch_size is not None else []
        return ", ".join(parts + ([f"memory {show_memory(self.memory)}"] if self.memory is not None else []))


def headline_of(task: str) -> Metric:
    """The metric that decides in a task."""
    if task not in TASKS:
        raise ValueError(f"`task` must be one of {', '.join(TASKS)}, got {task!r}.")
    return BY_NAME[TASKS[task].headline]


def show_memory(memory: float) -> str:
    """Write a memory size: a share up to 1 in percent, anything else in rows.

    Example:
        >>> show_memory(0.5), show_memory(4096)
        ('50 %', '4,096 rows')
    """
    return f"{100 * memory:g} %" if isinstance(memory, float) and memory <= 1 else f"{memory:,g} rows"


@dataclass(frozen=True)
class Section:
    """The runs of one setting, and what can be asked about them.

    Attributes:
        title: Name of the setting.
        task: `retrieval` or `moco`.
        runs: Every run of the setting, failed ones too.
        names: Variants in the order of tables, ceilings last.
        reference: The variant that stands for plain memory; None where no run has it.
        published: Values others have published for the metric that decides, in percent, by variant.
    """

    title: str
    task: str
    runs: tuple[Run, ...]
    names: tuple[str, ...]
    reference: str | None
    published: Mapping[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of its tables: those that some run has, but no replacement of one that is there."""
        known = [m for m in shown_in("table") if any(m.chosen(run) is not None for run in self.runs)]
        names = {metric.name for metric in known}
        return tuple(metric for metric in known if metric.instead_of not in names)

    @property
    def headline(self) -> Metric:
        """The metric that decides."""
        return headline_of(self.task)

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
        """List the runs of a variant, at one condition or at all of them."""
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

    def values(self, name: str, metric: Metric, *, at: Condition, pick: Pick = "chosen") -> dict[int, float]:
        """Values of a variant's complete runs by seed."""
        found = {run.seed: _value(run, metric, pick) for run in self.of(name, at) if run.is_complete}
        return {seed: value for seed, value in sorted(found.items()) if value is not None}


def _value(run: Run, metric: Metric, pick: Pick) -> float | None:
    if pick.startswith("epoch "):
        return run.history().get(metric.name, {}).get(int(pick.removeprefix("epoch ")) - 1)
    return metric.chosen(run) if pick == "chosen" else metric.last(run)


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
