"""What a run says of itself: `result.json` in its folder, and the list `results.json` of all runs beside it."""

import os
import platform
import shutil
import subprocess
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock

from adaptive_memory_bank.lab.runs.config import RunConfig
from adaptive_memory_bank.lab.runs.files import DamagedFileError, read_json, read_json_object, read_yaml, write_json
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.history import Curve, is_number, read_history
from adaptive_memory_bank.lab.runs.variants import NONE

PACKAGES = ("adaptive-memory-bank", "torch", "pytorch-lightning", "timm", "lightly", "pytorch-metric-learning", "wandb")


@dataclass(frozen=True)
class RunResult:
    """The object of one run in `result.json` and `results.json`: its options, and what is listed here.

    A missing key has its default.

    Attributes:
        run: Name of the run's folder; None on ranks that write nothing.
        folder: Path of the run's folder as the run knew it.
        adapter: Name of the adapter; `none` is a run without memory.
        name: Label in tables and dashboards.
        batch_size: Images per step and process.
        memory_size: Rows of the memory.
        metrics: Values of the last epoch; None for one that is not finite.
        best: Values of the chosen epoch, named `best/...`.
        best_epoch: The chosen epoch, from 0.
        chosen_on: What chose it: `validation` or `evaluation`.
        told: What it trains on, and which options were fitted to that.
        seconds_per_step: Mean over all training steps.
        train_seconds: All training steps together.
        seconds: The whole run, evaluation included, since it was last started.
        status: `running`, `complete`, `interrupted` or `failed`.
        error: Why it failed.
        versions: Of Python and the packages that matter; in a checkout also the commit of the code.
        other: Keys of the file that are not among these.
    """

    run: str | None = None
    folder: str | None = None
    task: str = "retrieval"
    data: str = ""
    adapter: str = NONE.name
    name: str | None = None
    seed: int = 0
    batch_size: int | None = None
    memory_size: int | None = None
    epochs: int | None = None
    preset: str | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    best: Mapping[str, float | None] = field(default_factory=dict)
    best_epoch: int | None = None
    chosen_on: str | None = None
    told: str | None = None
    seconds_per_step: float | None = None
    train_seconds: float | None = None
    seconds: float | None = None
    status: str = "complete"
    error: str | None = None
    wandb_id: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str | None = None
    date: str | None = None
    other: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, config: RunConfig, folder: Path | None, **known: Any) -> "RunResult":
        """What is known of a run by its options, on this machine, now."""
        shared = ("task", "data", "adapter", "seed", "batch_size", "epochs", "preset")
        return cls(
            run=None if folder is None else folder.name,
            folder=None if folder is None else str(folder),
            **{name: getattr(config, name) for name in shared},
            name=config.name or config.adapter,
            versions=_versions(),
            machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            **known,
        )

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "RunResult":
        """Read a run's object, of this version or another."""
        names = {f.name for f in fields(cls)} - {"other"}
        known = {key: value for key, value in entry.items() if key in names}
        return cls(**known, other={key: value for key, value in entry.items() if key not in names})

    def to_json(self) -> dict[str, Any]:
        """The object as the file holds it; `error` only where there is one."""
        entry = asdict(self)
        other = entry.pop("other")
        if self.error is None:
            del entry["error"]
        return {**entry, **other}


def read_result(folder: RunFolder) -> RunResult | None:
    """A run's own object; None where it has not written one.

    Where `result.json` is damaged, the list beside the run has the same object: that is taken, with a warning.
    """
    try:
        entry = read_json_object(folder.result_file)
    except DamagedFileError as error:
        warnings.warn(f"{error} Using {folder.list_file} instead.", stacklevel=2)
        entry = next((each for each in _listed(folder.list_file) if each.get("run") == folder.path.name), {})
    return RunResult.from_json(entry) if entry else None


def write_result(folder: RunFolder, result: RunResult) -> None:
    """Write a run's own object, and bring the list of all runs beside it up to date."""
    entry = result.to_json()
    write_json(folder.result_file, entry)
    # One writer at a time: comparisons run several trainings side by side.
    with FileLock(folder.path.parent / ".results.lock"):
        entries = {other.get("run"): other for other in _listed(folder.list_file)}
        entries[folder.path.name] = entry
        write_json(folder.list_file, list(entries.values()))


def read_results(out: Path) -> dict[str, RunResult]:
    """Read every run's object below a folder, by the name of the run's folder.

    A run's own `result.json` is the truth; `results.json` adds the runs whose folders are gone.
    """
    listed = _listed(out / RunFolder.LIST)
    found = {str(entry.get("run") or f"run-{index}"): entry for index, entry in enumerate(listed)}
    results = {name: RunResult.from_json(entry) for name, entry in found.items()}
    for path in sorted(out.glob(f"*/{RunFolder.RESULT}")):
        if own := read_result(RunFolder(path.parent)):
            results[path.parent.name] = replace(own, run=path.parent.name)
    return results


def _listed(path: Path) -> list[dict[str, Any]]:
    """The objects of a list of runs; where it is damaged, with a warning, those that the runs themselves hold."""
    try:
        entries = read_json(path)
    except DamagedFileError as error:
        warnings.warn(f"{error} Using the {RunFolder.RESULT} of every run instead.", stacklevel=2)
        entries = [_own_entry(file) for file in sorted(path.parent.glob(f"*/{RunFolder.RESULT}"))]
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _own_entry(file: Path) -> dict[str, Any] | None:
    with suppress(DamagedFileError):
        if entry := read_json_object(file):
            return {**entry, "run": file.parent.name}
    return None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    commit = code_commit()
    return {**versions, "commit": commit} if commit else versions


@cache
def code_commit(folder: Path = Path(__file__).parent) -> str | None:
    """The commit that the code in a folder is at, with `+` where files have changed since; None outside a checkout."""
    if shutil.which("git") is None or not _git(folder, "ls-files", "."):  # an environment inside another checkout
        return None
    return _git(folder, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+") or None


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


@dataclass(frozen=True)
class Run:
    """One training and its position in a comparison.

    Attributes:
        result: What the run says of itself.
        name: What the run is called in tables: its adapter, or the name of its variant.
        setting: The group of runs that may be compared with each other, usually the data set.
        seed: Random seed; runs with the same seed are paired.
        batch_size: Rows in a batch, as the comparison's grid has it.
        memory: Size of the memory, as the comparison's grid has it; None for a run without memory.
    """

    folder: Path
    result: RunResult = field(repr=False)
    name: str
    setting: str
    seed: int
    batch_size: int | None
    memory: float | None

    @classmethod
    def placed(cls, folder: Path, result: RunResult, position: Mapping[str, Any]) -> "Run":
        """A run where a comparison's plan puts it; the plan wins over what the run knows."""
        memory = position.get("memory", result.memory_size)
        return cls(
            folder=folder,
            result=result,
            name=str(position.get("variant") or result.name or result.adapter),
            setting=str(position.get("setting") or result.data),
            seed=int(position.get("seed", result.seed)),
            batch_size=position.get("batch_size", result.batch_size),
            memory=None if result.adapter == NONE.name or not memory else memory,
        )

    @property
    def adapter(self) -> str:
        """Name of the adapter; `none` is a run without memory."""
        return self.result.adapter

    @property
    def status(self) -> str:
        """`complete`, `failed`, `interrupted` or `running`."""
        return self.result.status

    @property
    def is_complete(self) -> bool:
        """Whether the run came to its end, so that its numbers count."""
        return self.status == "complete"

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """Finite values of the last epoch."""
        return _numbers(self.result.metrics)

    @cached_property
    def best(self) -> Mapping[str, float]:
        """Finite values of the chosen epoch."""
        return _numbers(self.result.best)

    def history(self) -> dict[str, Curve]:
        """Read the curves of the run."""
        return read_history(self.folder)

    def config(self) -> dict[str, Any]:
        """Read the configuration the run was made with (empty where it left none)."""
        path = RunFolder(self.folder).config_file
        return read_yaml(path) if path.exists() else {}


def _numbers(values: Mapping[str, object]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if is_number(value)}
