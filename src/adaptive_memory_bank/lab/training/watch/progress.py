"""What a run says while it runs: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

import sys
import time
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from torch import Tensor
from tqdm.auto import tqdm

from adaptive_memory_bank.lab.runs.metrics import shown_in
from adaptive_memory_bank.lab.training.step import TrainingModule
from adaptive_memory_bank.lab.training.watch.training_log import TrainingLog

REFRESH = 0.2  # seconds between two updates of the bar
BAR = "{desc} {percentage:3.0f}% |{bar}| {elapsed} passed, {remaining} left{postfix}"


class Progress(Callback):
    """One bar over all steps of the run, evaluations included, and one line for every finished epoch."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._shown = 0.0
        self._started: float | None = None
        self._before = 0.0  # seconds of this epoch before the run was resumed

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the bar; a resumed run begins where it was."""
        assert isinstance(pl_module, TrainingModule)
        if sys.stderr.isatty():
            steps = int(trainer.num_training_batches)
            # An average over the whole run, for steps are quick and evaluations are not.
            options: dict[str, Any] = {"smoothing": 0, "bar_format": BAR, "dynamic_ncols": True, "leave": False}
            options["desc"] = _name(trainer)
            self._bar = tqdm(total=steps * int(trainer.max_epochs or 1), initial=trainer.global_step, **options)
            pl_module.on_embedded = self._evaluated

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock and name the epoch; at its first step here, for a resumed run enters it in its middle."""
        if self._started is not None:
            return
        self._started = time.perf_counter()
        if self._bar is not None:
            self._bar.set_description_str(_name(trainer))

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance the bar; refresh its numbers only a few times a second."""
        assert isinstance(pl_module, TrainingModule)
        if self._bar is None:
            return
        self._bar.update()
        if self._is_time():
            self._bar.set_postfix(_readable(pl_module.last, trainer))
        if batch_idx + 1 == trainer.num_training_batches:
            self._bar.set_description_str(f"{_name(trainer)}, evaluating")

    def _evaluated(self, done: int, total: int) -> None:
        """Say how much of a set is embedded, and let the clock go on."""
        if self._bar is not None and self._is_time():
            self._bar.set_postfix_str(f"evaluating, {done:,}/{total:,} images")

    def _is_time(self) -> bool:
        now = time.perf_counter()
        due = now - self._shown > REFRESH
        self._shown = now if due else self._shown
        return due

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say how the epoch went."""
        assert isinstance(pl_module, TrainingModule)
        numbers = "  ".join(f"{k} {v}" for k, v in _readable(pl_module.last, trainer).items())
        tqdm.write(f"{_name(trainer)}  {numbers}  ({self._seconds():.1f} s)", file=sys.stderr)
        self._started, self._before = None, 0.0

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the bar away."""
        self._close()

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


class ShareDone(Callback):
    """Tells somebody how much of the run is done, a few times a second.

    Args:
        tell: Is called with a share in [0, 1].
    """

    def __init__(self, tell: Callable[[float], None]) -> None:
        self.tell = tell
        self._told = 0.0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Tell, if it is time."""
        now = time.perf_counter()
        if now - self._told > REFRESH:
            self._told = now
            self.tell(trainer.global_step / (int(trainer.num_training_batches) * int(trainer.max_epochs or 1)))


def _name(trainer: pl.Trainer) -> str:
    return f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"


def _readable(last: dict[str, float | Tensor], trainer: pl.Trainer) -> dict[str, str]:
    """`loss 1.234, pairs 512, recall@1 0.71`: the last step (the last logged one on a GPU) and the latest scores."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    latest = next((c.latest for c in callbacks if isinstance(c, TrainingLog)), {})
    found = {**latest, **{name: value for name, value in last.items() if isinstance(value, float)}}
    shown = [metric for metric in shown_in("progress") if metric.name in found]
    return {m.short_name: f"{found[m.name]:.{0 if m.unit == 'count' else 3}f}" for m in shown}
