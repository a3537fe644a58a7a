"""`metrics.jsonl`, what a run measured: written line by line, read as curves over epochs."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from adaptive_memory_bank.lab.runs.files import append_text
from adaptive_memory_bank.lab.runs.folder import RunFolder

Curve = dict[int, float]
"""Value of one metric by epoch."""


class MetricsFile:
    """Appends one JSON object a line; lines wait in memory until `flush`.

    `position()` belongs into a checkpoint: `rewind(position)` drops what was written after it, so that a resumed run
    leaves the same file as one that was never stopped.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[str] = []

    def write(self, metrics: Mapping[str, Any], step: int | None) -> None:
        """Add a line."""
        line = {"epoch": metrics.get("epoch"), "step": step}
        self._lines.append(json.dumps({**line, **finite_or_none(metrics), "epoch": line["epoch"]}) + "\n")

    def flush(self) -> None:
        """Write what waits."""
        if self._lines:
            append_text(self.path, "".join(self._lines))
            self._lines.clear()

    def position(self) -> int:
        """Bytes of the file, everything written."""
        self.flush()
        return self.path.stat().st_size if self.path.exists() else 0

    def rewind(self, position: int) -> None:
        """Forget lines that were written after `position`."""
        if self.path.exists():
            os.truncate(self.path, min(position, self.path.stat().st_size))


def read_history(run: Path) -> dict[str, Curve]:
    """Read the last value of every metric in every epoch of a run.

    A run that was killed may have left half a line, and a resumed one repeats an epoch: broken lines are skipped and
    the later value wins. Epochs are in rising order; without a `metrics.jsonl` there are none.
    """
    curves: dict[str, Curve] = {}
    for line in _lines(run):
        epoch = line.get("epoch")
        if not is_number(epoch):
            continue
        for name, value in line.items():
            if name not in ("epoch", "step") and is_number(value):
                curves.setdefault(name, {})[int(epoch)] = float(value)
    return {name: dict(sorted(curve.items())) for name, curve in curves.items()}


def epochs_logged(run: Path) -> int:
    """Count the epochs a run has finished."""
    ended = (line for line in _lines(run) if "train/loss_epoch" in line)
    return max((int(line["epoch"]) + 1 for line in ended if is_number(line.get("epoch"))), default=0)


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a JSON value is a finite number (`true` is not, neither is `NaN`)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def finite_or_none(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: None takes its place.

    Example:
        >>> finite_or_none({"a": 1.5, "b": float("nan")})
        {'a': 1.5, 'b': None}
    """
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in metrics.items()
    }


def _lines(run: Path) -> Iterator[dict[str, Any]]:
    path = RunFolder(run).metrics_file
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            if isinstance(line, dict):
                yield line
