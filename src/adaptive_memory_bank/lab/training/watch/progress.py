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
        self._started: float | None = None
        self._before = 0.0  # seconds of this epoch before the run was resumed

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start clock and bar; at the first step, for a resumed run enters an epoch in its middle."""
        if self._started is not None:
            return
        self._started = time.perf_counter()
        if sys.stderr.isatty():
            name, steps = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}", int(trainer.num_training_batches)
            self._bar = tqdm(total=steps, initial=batch_idx, desc=name, leave=False, mininterval=REFRESH)

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
        done = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        tqdm.write(f"{done}  {numbers}  ({self._seconds():.1f} s)", file=sys.stderr)
        self._started, self._before = None, 0.0

    def _seconds(self) -> float:
        """Of the epoch that is under way, also before the run was resumed."""
        return self._before + (0.0 if self._started is None else time.perf_counter() - self._started)

    def state_dict(self) -> dict[str, Any]:
        """The seconds of the open epoch."""
        return {"seconds": self._seconds()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the clock."""
        self._before = float(state_dict["seconds"])

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
