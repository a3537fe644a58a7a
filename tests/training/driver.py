"""A run in a process of its own that sends itself a signal before a given step.

Run by `runpy.run_path` with `words` (of the command line), `number` and `step` (of the signal) and `output` (a file).
"""

import multiprocessing
import os
import sys

from adaptive_memory_bank.cli import main
from adaptive_memory_bank.training.module import TrainingModule

words, number, step, output = globals()["words"], globals()["number"], globals()["step"], globals()["output"]
training_step = TrainingModule.training_step


def signalled_step(self, batch, batch_idx):
    if self.trainer.global_step == step:
        os.kill(os.getpid(), number)
    return training_step(self, batch, batch_idx)


multiprocessing.set_start_method("fork", force=True)  # a child of a fork server would fork its workers from there
TrainingModule.training_step = signalled_step
sys.stdout = sys.stderr = open(output, "w", buffering=1)  # noqa: SIM115  open until the process ends
sys.exit(main(words))
