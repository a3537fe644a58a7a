"""Trainings of a second, and what is left of them: all that decides the future, and all that was measured."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_memory_bank.lab.data.sources.glyphs import glyphs
from adaptive_memory_bank.lab.runs.checkpoints import read_checkpoint
from adaptive_memory_bank.lab.runs.folder import LAST

SHORT: dict[str, Any] = {
    "batch_size": 16,
    "epochs": 2,
    "embedding_dim": 16,
    "log_every": 3,
    "checkpoint_every": 4,
    "drift_every": 3,
    "probe_size": 8,
    "threads": 1,
    "wandb": "disabled",
    "quiet": True,
}


def write_tiny(path: Path, *, images_per_class: int = 8) -> str:
    """24 + 12 characters x 8 images of 16 x 16; returns what `--data` calls them."""
    data = glyphs(train_classes=24, test_classes=12, images_per_class=images_per_class).resized(16)
    np.savez(
        path,
        train_images=data.train.images,
        train_labels=data.train.labels.numpy(),
        test_images=data.query.images,
        test_labels=data.query.labels.numpy(),
    )
    return f"npz:{path}"


def final_state(folder: Path) -> dict[str, Any]:
    """Weights, bank, filter, optimiser, generators, progress, scores; without anything of a clock."""
    state = read_checkpoint(folder / "checkpoints" / LAST)
    state.pop("journal")  # bytes of a file with times in it
    for values in state["callbacks"].values():
        for name in ("latest", "window", "epoch"):
            values.get(name, {}).pop("time/step_ms", None)
        values.pop("train_seconds", None)
    return state


def read_metric_lines(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl, without the clock's."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]
