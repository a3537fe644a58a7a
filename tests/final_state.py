"""All that decides the future of a run."""

from pathlib import Path
from typing import Any

from adaptive_memory_bank.lab.runs.checkpoints import read_checkpoint
from adaptive_memory_bank.lab.runs.folder import LAST


def final_state(folder: Path) -> dict[str, Any]:
    """Weights, bank, filter, optimiser, generators, progress, scores; without anything of a clock."""
    state = read_checkpoint(folder / "checkpoints" / LAST)
    state.pop("journal")  # bytes of a file with times in it
    for values in state["callbacks"].values():
        for name in ("latest", "window", "epoch"):
            values.get(name, {}).pop("time/step_ms", None)
        values.pop("train_seconds", None)
    return state
