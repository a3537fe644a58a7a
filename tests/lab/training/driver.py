"""A run in a process of its own that sends itself a signal before a given step.

Run by `runpy.run_path` with `words` (of the command line), `number` and `step` (of the signal) and `output` (a file).
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any

from adaptive_memory_bank.lab.commands.main import main
from adaptive_memory_bank.lab.training.step import TrainingModule


def signalled(training_step: Callable[..., Any], number: int, step: int) -> Callable[..., Any]:
    def signalled_step(self, batch, batch_idx):
        if self.trainer.global_step == step:
            os.kill(os.getpid(), number)
        return training_step(self, batch, batch_idx)

    return signalled_step


if __name__ == "__main__":
    given = globals()
    os.environ.pop("WANDB_SERVICE", None)  # that of the tests would outlive a kill and hold the run
    multiprocessing.set_start_method("fork", force=True)  # or a fork server's child forks its workers from there
    TrainingModule.training_step = signalled(TrainingModule.training_step, given["number"], given["step"])
    sys.stdout = sys.stderr = open(given["output"], "w", buffering=1)  # noqa: SIM115  open until the process ends
    sys.exit(main(given["words"]))
