"""The folder of a run: what DESIGN calls "what a run leaves behind", written so that a crash never halves a file."""

import json
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from adaptive_memory_bank.lab.runs.config import RunConfig, save_config

try:
    import fcntl
except ImportError:  # Windows: single runs work, parallel ones may race for the shared list
    fcntl = None  # type: ignore[assignment]

PACKAGES = ("adaptive-memory-bank", "torch", "pytorch-lightning", "timm", "lightly", "pytorch-metric-learning", "wandb")


class RunFolder:
    """Paths and files of one run.

    Args:
        path: `<out>/<run>`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, config: RunConfig) -> "RunFolder":
        """A new folder below `out`, with the configuration in it."""
        out = Path(config.out)
        folder = cls(out / config.run_name) if config.run_name else cls(_free_name(out, default_name(config)))
        if folder.config_file.exists():
            raise ValueError(
                f"`run_name`: {folder.path} holds a run already. Go on with it (`--resume {folder.path}`) or choose "
                "another name."
            )
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        save_config(config, folder.config_file)
        return folder

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """The folder of an earlier run."""
        folder = cls(Path(path))
        if not folder.config_file.is_file():
            raise ValueError(f"{path} is no run: it has no config.yaml.")
        return folder

    @property
    def config_file(self) -> Path:
        """What the run was told."""
        return self.path / "config.yaml"

    @property
    def metrics_file(self) -> Path:
        """One line per logged step or epoch."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Folder of `last.ckpt`, `previous.ckpt` and `best.ckpt`."""
        return self.path / "checkpoints"

    def read_result(self) -> dict[str, Any]:
        """The run's own object; empty when there is none yet."""
        path = self.path / "result.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return found

    def write_result(self, result: dict[str, Any]) -> None:
        """Write the run's own object and bring the list of all runs next to it up to date."""
        write_json(self.path / "result.json", result)
        out = self.path.parent
        with _locked(out / ".results.lock"):
            entries = {entry.get("run"): entry for entry in _read_list(out / "results.json")}
            entries[self.path.name] = result
            write_json(out / "results.json", list(entries.values()))


def data_name(config: RunConfig) -> str:
    """The dataset's name; of `npz:PATH` that of the file."""
    return Path(config.data.split(":", 1)[1]).stem if ":" in config.data else config.data


def default_name(config: RunConfig) -> str:
    """Task, data, adapter and seed, as a folder's name."""
    words = (config.task, data_name(config), config.name or config.adapter, f"s{config.seed}")
    return re.sub(r"[^\w.@=-]+", "-", "-".join(words))


def _free_name(out: Path, name: str) -> Path:
    number = 1
    while (out / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return out / (name if number == 1 else f"{name}-{number}")


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _read_list(path: Path) -> list[dict[str, Any]]:
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return []
    return entries


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One writer at a time: comparisons run several trainings side by side."""
    with path.open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def describe_machine() -> dict[str, Any]:
    """Versions and machine, for whoever reads the numbers later."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "versions": versions,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
