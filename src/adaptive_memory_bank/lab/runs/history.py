"""The curves of a run: what `metrics.jsonl` says about every epoch."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

Curve = dict[int, float]
"""Value of one metric by epoch."""


def read_history(run: Path) -> dict[str, Curve]:
    """Read the last value of every metric in every epoch of a run.

    A run that was killed may have left half a line, and a resumed one repeats an epoch: broken lines are skipped and
    the later value wins.

    Args:
        run: Folder of the run. Without a `metrics.jsonl` the history is empty.

    Returns:
        For every metric name, its value by epoch, epochs in rising order.
    """
    curves: dict[str, Curve] = {}
    for line in _lines(run / "metrics.jsonl"):
        epoch = line.get("epoch")
        if not is_number(epoch):
            continue
        for name, value in line.items():
            if name not in ("epoch", "step") and is_number(value):
                curves.setdefault(name, {})[int(epoch)] = float(value)
    return {name: dict(sorted(curve.items())) for name, curve in curves.items()}


def epochs_logged(run: Path) -> int:
    """Count the epochs a run has behind it."""
    ended = (line for line in _lines(run / "metrics.jsonl") if "train/loss_epoch" in line)
    return max((int(line["epoch"]) + 1 for line in ended if is_number(line.get("epoch"))), default=0)


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a JSON value is a finite number (`true` is not, neither is `NaN`)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
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
