"""Plan: the options of a comparison."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adaptive_memory_bank.lab.runs.config import AdapterName
from adaptive_memory_bank.lab.runs.variants import COMPARED, NAMES, NONE
from adaptive_memory_bank.lab.training.tasks import TASKS

SEEDS = (0, 1, 2)

if TYPE_CHECKING:
    TaskName = str
else:
    TaskName = Literal[tuple(TASKS)]


@dataclass
class Variant:
    """One thing to compare: a name, and the options of the task that define it.

    Args:
        name: Its name in tables.
        options: Options of the task, e.g. `{adapter: identity, batch_weight: 1}`.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Setting:
    """One table: runs that are compared with each other, usually those on one data set.

    Args:
        name: Its name.
        options: Options of the task for all its runs, e.g. `{data: sop, memory: 0.5}`.
        variants: Further options for some variants here, by the variant's name.
        published: Published values of the metric that decides, in percent, by the variant's name.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    published: dict[str, float] = field(default_factory=dict)


@dataclass
class CompareConfig:
    """A comparison: every variant, in every setting, with every batch size and memory size, for every seed.

    Args:
        task: What to train.
        data: Dataset (see `amb datasets`), `folder:PATH` (a folder per class) or `npz:PATH`; default: the task's own.
        adapters: What to compare, by name or as `package.module:Class`. `none` trains without memory; `fresh`
            re-embeds its memory every few steps, for what perfect freshness would give.
        variants: What to compare, as names with options of the task; instead of `adapters`.
        none_batch_sizes: Also train without memory with these batch sizes, as further rows of every table: is a
            memory worth more than a larger batch?
        settings: Several data sets or protocols at once; instead of `data`.
        seeds: Random seeds; every variant is trained with each of them, so that they can be paired.
        batch_sizes: Batch sizes to compare at; default: the task's own.
        memories: Memory sizes to compare at, as shares of the training set or as rows; default: the task's own.
        options: Options of the task for every run.
        reference: Name of the variant that the others are compared with; default: the first with plain memory.
        title: Title of the report.
        jobs: How many trainings run at a time; default: one per core, or per GPU where there are any.
        out: Folder for the runs, their results and the report.
    """

    task: TaskName = "retrieval"
    data: str | None = None
    adapters: list[AdapterName] = field(default_factory=lambda: list(COMPARED))
    variants: list[Variant] = field(default_factory=list)
    none_batch_sizes: list[int] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    seeds: list[int] = field(default_factory=lambda: list(SEEDS))
    batch_sizes: list[int] = field(default_factory=list)
    memories: list[float] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    reference: str | None = None
    title: str | None = None
    jobs: int | None = None
    out: str = "runs"


def check_compare(config: CompareConfig) -> None:
    """Check what can be checked without the task.

    Raises:
        ValueError: Naming the option and what it should be.
    """
    _check_list("adapters", config.adapters)
    _check_list("seeds", config.seeds)
    for name in ("batch_sizes", "memories", "none_batch_sizes"):
        _check_list(name, getattr(config, name), may_be_empty=True)
    _check_list("variants", [variant.name for variant in variants_of(config)])
    _check_list("settings", [setting.name for setting in config.settings], may_be_empty=True)
    if config.jobs is not None and config.jobs < 1:
        raise ValueError(f"`jobs` must be a positive integer, got {config.jobs}.")
    names = [variant.name for variant in variants_of(config)]
    chosen = [name for name in names if name not in {variant.name for variant in _larger_batches(config)}]
    if config.reference is not None and config.reference not in chosen:
        raise ValueError(f"`reference` must be one of {', '.join(chosen)}, got {config.reference!r}.")
    # By `--adapters` a file may be run in parts: it may speak of those that are left out this time.
    known = names if config.variants else list(dict.fromkeys([*names, *NAMES]))
    for setting in config.settings:
        unknown = [name for name in (*setting.variants, *setting.published) if name not in known]
        if unknown:
            raise ValueError(f"`settings` {setting.name!r} must speak of {', '.join(known)}, got {unknown[0]!r}.")


def _check_list(name: str, values: list[Any], *, may_be_empty: bool = False) -> None:
    if not values and not may_be_empty:
        raise ValueError(f"`{name}` must hold at least one entry, got [].")
    repeated = [value for index, value in enumerate(values) if value in values[:index]]
    if repeated:
        raise ValueError(f"`{name}` must not repeat entries, got {repeated[0]!r} twice.")


def variants_of(config: CompareConfig) -> list[Variant]:
    """The variants; by default one for each adapter. Larger batches without memory follow those without memory."""
    variants = config.variants or [Variant(adapter, {"adapter": adapter}) for adapter in config.adapters]
    without = [index for index, variant in enumerate(variants) if variant.options.get("adapter") == NONE.name]
    after = max(without, default=-1) + 1
    return [*variants[:after], *_larger_batches(config), *variants[after:]]


def _larger_batches(config: CompareConfig) -> list[Variant]:
    sizes = config.none_batch_sizes
    return [Variant(f"{NONE.name}, batch {size}", {"adapter": NONE.name, "batch_size": size}) for size in sizes]


def settings_of(config: CompareConfig, default_data: str) -> list[Setting]:
    """The settings; by default one, named after the data set."""
    data = config.data or str(config.options.get("data", default_data))
    kind, colon, path = data.partition(":")
    return config.settings or [Setting(Path(path).stem or kind if colon else data, {"data": data})]


def usable_cores() -> int:
    """Cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
