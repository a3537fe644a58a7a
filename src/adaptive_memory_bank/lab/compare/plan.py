"""Plan: from a comparison's options to the list of its trainings."""

import hashlib
import json
import re
from argparse import ArgumentError
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from adaptive_memory_bank.lab.compare.config import (
    CompareConfig,
    Setting,
    TaskName,
    Variant,
    check_compare,
    settings_of,
    variants_of,
)
from adaptive_memory_bank.lab.runs.config import RunConfig
from adaptive_memory_bank.lab.runs.files import DamagedFileError, read_json_object, write_json
from adaptive_memory_bank.lab.runs.folder import RunFolder, data_name
from adaptive_memory_bank.lab.runs.options import parse_options
from adaptive_memory_bank.lab.runs.variants import NONE
from adaptive_memory_bank.lab.training.tasks import TASKS

# Options that the comparison sets for each run.
OWN_FIELDS = frozenset({"seed", "out", "run_name", "name", "resume"})


@dataclass(frozen=True)
class PlannedRun:
    """One training of a comparison.

    Attributes:
        name: Folder below the comparison's own. It ends in a digest of all options, so that a run made with other
            options is never taken for this one.
        config: The options of the task.
        given: Names of those that somebody asked for, and that no data may change.
        setting: The table it belongs to.
        variant: The row it belongs to.
        batch_size: Batch size of the grid; None where there is no grid, and for a variant that sets its own.
        memory: Memory size of the grid; None where there is no grid, for a variant that sets its own, and without
            memory.
    """

    name: str
    config: RunConfig
    given: frozenset[str]
    setting: str
    variant: str
    batch_size: int | None
    memory: float | None

    @property
    def folder(self) -> Path:
        """Its folder."""
        return Path(self.config.out) / self.name

    def position(self) -> dict[str, Any]:
        """Its position in the comparison, as the plan's file has it."""
        own = {name: getattr(self, name) for name in ("setting", "variant", "batch_size", "memory")}
        return {**own, "seed": self.config.seed}

    def __str__(self) -> str:
        memory = None if self.memory is None else f"memory {self.memory:g}"
        batch = None if self.batch_size is None else f"batch {self.batch_size}"
        return ", ".join(filter(None, (self.setting, self.variant, batch, memory, f"seed {self.config.seed}")))


def plan_runs(config: CompareConfig) -> list[PlannedRun]:
    """List the trainings of a comparison, one seed after the other, so that the first complete tables come early.

    Raises:
        ValueError: For any option that the comparison or the task does not know or accept.
    """
    check_compare(config)
    planned: dict[str, PlannedRun] = {}
    settings = settings_of(config, TASKS[config.task].config.data)
    batch_sizes: list[int | None] = [*config.batch_sizes] or [None]
    memories: list[float | None] = [*config.memories] or [None]
    for seed, setting, batch, memory in product(config.seeds, settings, batch_sizes, memories):
        for variant in variants_of(config):
            run = _plan_run(config, setting, variant, seed=seed, batch=batch, memory=memory)
            planned[run.name] = run  # a run that does not depend on the grid serves all of it
    plan_hash = _plan_hash(Path(config.out), list(planned))
    for run in planned.values():
        run.config.group = run.config.group or f"{_slug(data_name(run.config))}-{config.task}-{plan_hash}"
    return list(planned.values())


def _plan_hash(out: Path, names: list[str]) -> str:
    """What tells comparisons of the same data apart on W&B; one that was moved or extended keeps its own."""
    before: dict[str, Any] = {}
    with suppress(DamagedFileError):  # the plan is about to be written anew
        before = read_json_object(out / RunFolder.PLAN)
    if "hash" in before and not set(names).isdisjoint(before.get("runs", {})):
        return str(before["hash"])
    return _hash(sorted(names))


def _plan_run(
    config: CompareConfig, setting: Setting, variant: Variant, *, seed: int, batch: int | None, memory: float | None
) -> PlannedRun:
    grid = {key: value for key, value in (("batch_size", batch), ("memory", memory)) if value is not None}
    own = {**variant.options, **setting.variants.get(variant.name, {})}
    options = {**config.options, **setting.options, **grid, **own}
    batch = None if "batch_size" in own else batch
    memory = None if "memory" in own else memory
    given = frozenset(options)
    if "preset" not in options:
        options = {**TASKS[config.task].quick, **options}
    if options.get("adapter") == NONE.name:
        options.pop("memory", None)
        memory = None
    run = _make(config.task, options, where=f"{setting.name}, {variant.name}", seed=seed)
    parts = (setting.name, variant.name, batch and f"b{batch}", memory and f"m{memory:g}", f"s{seed}")
    name = "-".join([*(_slug(str(part)) for part in parts if part), _digest(run)])
    run.out, run.run_name, run.name = config.out, name, variant.name
    return PlannedRun(name, run, given, setting.name, variant.name, batch, memory)


def _make(task: TaskName, options: dict[str, Any], *, where: str, seed: int) -> RunConfig:
    """Read options as the task's own command line would, checks included."""
    own = sorted(OWN_FIELDS.intersection(options))
    if own:
        raise ValueError(f"{where}: a comparison sets `{own[0]}` itself; leave it out.")
    try:
        return parse_options(TASKS[task].config, {**options, "seed": seed})
    except (ArgumentError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def _digest(run: RunConfig) -> str:
    """Six letters that change with any option that could change the numbers."""
    decisive = {key: value for key, value in asdict(run).items() if key not in run.machine_fields}
    return _hash([run.task, decisive])


def _hash(content: object) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _slug(text: str) -> str:
    """A name that is safe in a path."""
    return re.sub(r"[^\w.@=+*-]+", "-", text.removeprefix("npz:").rpartition("/")[2]).strip("-.")[:60] or "x"


def write_plan(config: CompareConfig, planned: list[PlannedRun], *, command: str) -> None:
    """Leave the plan in the folder, so that tables and reports know names, order and positions."""
    content = {
        "title": config.title,
        "command": command,
        "reference": config.reference,
        "settings": list(dict.fromkeys(run.setting for run in planned)),
        "variants": [variant.name for variant in variants_of(config)],
        "published": {setting.name: setting.published for setting in config.settings if setting.published},
        "hash": _plan_hash(Path(config.out), [run.name for run in planned]),
        "runs": {run.name: run.position() for run in planned},
    }
    write_json(Path(config.out) / RunFolder.PLAN, content)
