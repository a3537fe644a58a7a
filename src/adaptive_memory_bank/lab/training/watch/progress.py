"""What a run says while it runs: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

import sys
import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from torch import Tensor
from tqdm.auto import tqdm

from adaptive_memory_bank.lab.runs.metrics import shown_in
from adaptive_memory_bank.lab.training.step import TrainingModule
from adaptive_memory_bank.lab.training.watch.training_log import TrainingLog

REFRESH = 0.2  # seconds between two updates of the bar


class Progress(Callback):
    """One bar per epoch (loss, pairs kept, the latest score) and one line for every finished epoch."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._shown = 0.0
        self._started = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start a bar."""
        self._started = time.perf_counter()
        if sys.stderr.isatty():
            name = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
            self._bar = tqdm(total=int(trainer.num_training_batches), desc=name, leave=False, mininterval=REFRESH)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance the bar; refresh its numbers only a few times a second."""
        assert isinstance(pl_module, TrainingModule)
        if self._bar is None:
            return
        self._bar.update()
        now = time.perf_counter()
        if now - self._shown > REFRESH:
            self._shown = now
            self._bar.set_postfix(_readable(pl_module.last, trainer), refresh=False)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say how the epoch went."""
        assert isinstance(pl_module, TrainingModule)
        self._close()
        numbers = "  ".join(f"{k} {v}" for k, v in _readable(pl_module.last, trainer).items())
        seconds = time.perf_counter() - self._started
        tqdm.write(
            f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  {numbers}  ({seconds:.1f} s)", file=sys.stderr
        )

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Leave the terminal clean."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _readable(last: dict[str, float | Tensor], trainer: pl.Trainer) -> dict[str, str]:
    """`loss 1.234, pairs 512, recall@1 0.71`: the last step (the last logged one on a GPU) and the latest scores."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    latest = next((c.latest for c in callbacks if isinstance(c, TrainingLog)), {})
    found = {**latest, **{name: value for name, value in last.items() if isinstance(value, float)}}
    shown = [metric for metric in shown_in("progress") if metric.name in found]
    return {m.short_name: f"{found[m.name]:.{0 if m.unit == 'count' else 3}f}" for m in shown}
