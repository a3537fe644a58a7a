"""What finished runs say of themselves: `result.json` of every run, `results.json` of a folder of runs."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from adaptive_memory_bank.lab.runs.history import Curve, is_number, read_history

RESULT_FILE = "result.json"
RESULTS_FILE = "results.json"


@dataclass(frozen=True)
class Run:
    """One training and where it stands in a comparison.

    Attributes:
        folder: Folder of the run.
        task: `retrieval` or `moco`.
        data: Name of the data set.
        name: What the run is called in tables: its adapter, or the name of its variant.
        setting: The group of runs that may be compared with each other, usually the data set.
        seed: Random seed; runs with the same seed are paired.
        batch_size: Rows in a batch, as the comparison's grid has it.
        memory: Size of the memory, as the comparison's grid has it; None for a run without memory.
        status: `complete`, `failed`, `interrupted` or `running`.
        metrics: Values of the last epoch.
        best: Values of the chosen epoch.
        details: The whole object as the run wrote it.
    """

    folder: Path
    task: str
    data: str
    name: str
    setting: str
    seed: int
    batch_size: int | None
    memory: float | None
    status: str
    metrics: Mapping[str, float]
    best: Mapping[str, float]
    details: Mapping[str, Any] = field(repr=False)

    @property
    def adapter(self) -> str:
        """Name of the adapter; `none` is a run without memory."""
        return str(self.details.get("adapter", "none"))

    @property
    def is_complete(self) -> bool:
        """Whether the run came to its end, so that its numbers count."""
        return self.status == "complete"

    def history(self) -> dict[str, Curve]:
        """Read the curves of the run."""
        return read_history(self.folder)

    def config(self) -> dict[str, Any]:
        """Read the configuration the run was made with (empty where it left none)."""
        path = self.folder / "config.yaml"
        loaded = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
        return loaded if isinstance(loaded, dict) else {}

    @classmethod
    def from_details(cls, folder: Path, details: Mapping[str, Any], place: Mapping[str, Any]) -> "Run":
        """Read a run's own object; `place` says where a comparison put it, and wins over what the run knows."""
        adapter = str(details.get("adapter", "none"))
        memory = place.get("memory", details.get("memory_size"))
        return cls(
            folder=folder,
            task=str(details.get("task", "retrieval")),
            data=str(details.get("data", "")),
            name=str(place.get("variant") or details.get("name") or adapter),
            setting=str(place.get("setting") or details.get("data", "")),
            seed=int(place.get("seed", details.get("seed", 0))),
            batch_size=place.get("batch_size", details.get("batch_size")),
            memory=None if adapter == "none" or not memory else memory,
            status=str(details.get("status", "complete")),
            metrics=_numbers(details.get("metrics")),
            best=_numbers(details.get("best")),
            details=details,
        )


def read_details(out: Path) -> dict[str, dict[str, Any]]:
    """Read every run's object below a folder, by the name of the run's folder.

    Runs in parallel cannot share one list, so a run's own `result.json` is the truth; `results.json` adds the runs
    whose folders are gone.
    """
    listed = _read_json(out / RESULTS_FILE) or []
    found = {str(entry.get("run") or f"run-{index}"): entry for index, entry in enumerate(listed)}
    for path in sorted(out.glob(f"*/{RESULT_FILE}")):
        entry = _read_json(path)
        if isinstance(entry, dict):
            found[path.parent.name] = {**entry, "run": path.parent.name}
    return found


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty where there is no such file or it holds something else."""
    content = _read_json(path)
    return content if isinstance(content, dict) else {}


def _numbers(values: object) -> dict[str, float]:
    items: Iterable[tuple[str, Any]] = values.items() if isinstance(values, Mapping) else ()
    return {str(name): float(value) for name, value in items if is_number(value)}


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except json.JSONDecodeError as error:
        raise ValueError(f"`{path}` is not valid JSON ({error}).") from error
