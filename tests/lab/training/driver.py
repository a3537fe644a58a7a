"""A run in a process of its own that sends a signal before a given step, to itself or to W&B's service.

Run by `runpy.run_path` with `words` (of the command line), `number`, `step` and `victim` (of the signal), `output` (a
file), `environment` (variables) and `patience` (seconds to let W&B finish).
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adaptive_memory_bank.lab.commands.main import main
from adaptive_memory_bank.lab.tracking import wandb_run
from adaptive_memory_bank.lab.training.step import TrainingModule


def signalled(training_step: Callable[..., Any], number: int, step: int, victim: str) -> Callable[..., Any]:
    def signalled_step(self, batch, batch_idx):
        if self.trainer.global_step == step:
            for process in [os.getpid()] if victim == "self" else children(victim):
                os.kill(process, number)
        return training_step(self, batch, batch_idx)

    return signalled_step


def children(name: str) -> list[int]:
    """The processes that this one started under a name."""
    stats = [path.read_text().rsplit(")", 1) for path in Path("/proc").glob("[0-9]*/stat")]
    return [
        int(head.split()[0])
        for head, rest in stats
        if head.endswith(f"({name}") and int(rest.split()[1]) == os.getpid()
    ]


if __name__ == "__main__":
    given = globals()
    os.environ.pop("WANDB_SERVICE", None)  # that of the tests would outlive a kill and hold the run
    multiprocessing.set_start_method("fork", force=True)  # or a fork server's child forks its workers from there
    os.environ.update(given["environment"])
    wandb_run.FINISH_PATIENCE = given["patience"]
    TrainingModule.training_step = signalled(
        TrainingModule.training_step, given["number"], given["step"], given["victim"]
    )
    sys.stdout = sys.stderr = open(given["output"], "w", buffering=1)  # noqa: SIM115  open until the process ends
    sys.exit(main(given["words"]))
