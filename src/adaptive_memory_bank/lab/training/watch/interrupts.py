"""Ctrl-C (and a scheduler's SIGTERM): finish the step, save, leave."""

import signal
import sys
import threading
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from adaptive_memory_bank.lab.runs.checkpoints import CheckpointEvery


class TrainingInterrupted(Exception):  # noqa: N818  not an error: it was asked for
    """The run was asked to stop and has saved a checkpoint."""


class InterruptGuard(Checkpoint):
    """Between `install` and `restore` the first signal asks for a clean end, the second ends at once.

    It is a `Checkpoint` so that Lightning calls it after all other callbacks.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, checkpoint: CheckpointEvery) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Take over the signals (only the main thread can)."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in self.SIGNALS}

    def restore(self) -> None:
        """Give them back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("\nStopping after this step, with a checkpoint (again: stop at once).", file=sys.stderr)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take SIGTERM back from Lightning, which has handlers of its own."""
        if self._before:
            signal.signal(signal.SIGTERM, self._on_signal)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save and leave; after the epoch's last step, its end does."""
        if batch_idx + 1 < trainer.num_training_batches and self._everybody_stops(trainer):
            self.checkpoint.save(trainer)
            raise TrainingInterrupted

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave; the epoch's checkpoint has just been saved. After the last epoch the run is complete."""
        if self._everybody_stops(trainer) and trainer.current_epoch + 1 != trainer.max_epochs:
            raise TrainingInterrupted

    def _everybody_stops(self, trainer: pl.Trainer) -> bool:
        """Signals reach processes at different steps: any one stops all."""
        if trainer.world_size == 1:
            return self.requested
        return bool(trainer.strategy.reduce_boolean_decision(self.requested, all=False))
