"""Metrics of the training steps, and the way all metrics take to the loggers."""

import time
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities import rank_zero_warn

from adaptive_memory_bank.lab.training.step import TrainingModule


def log(trainer: Trainer, metrics: dict[str, float]) -> None:
    """Send metrics to every logger, and keep the latest value of each for the result."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, TrainingLog):
            callback.latest.update(metrics)
    for logger in trainer.loggers:
        logger.log_metrics({"epoch": trainer.current_epoch, **metrics}, step=trainer.global_step)


class TrainingLog(Callback):
    """Means of the training metrics over the last `every` steps, and how long steps take.

    `latest` holds the last logged value of every metric, `steps` and `train_seconds` the number and the time of all
    steps of the run, also of those before it was resumed.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.latest: dict[str, float] = {}
        self.window: dict[str, Any] = {}  # sums: numbers, or tensors on a device that is asked once the window is full
        self.epoch: dict[str, Any] = {}
        self.steps, self.train_seconds = 0, 0.0
        self._started = 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add the step; log once the window is full."""
        assert isinstance(pl_module, TrainingModule)
        seconds = time.perf_counter() - self._started
        self.steps, self.train_seconds = self.steps + 1, self.train_seconds + seconds
        for sums in (self.window, self.epoch):
            sums["steps"] = sums.get("steps", 0) + 1
            for name, value in {**pl_module.last, "time/step_ms": 1000 * seconds}.items():
                sums[name] = sums.get(name, 0.0) + value
        if self.window["steps"] >= self.every:
            log(trainer, self._pop_window(trainer, pl_module))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the rest of the window and the epoch's mean loss."""
        assert isinstance(pl_module, TrainingModule)
        metrics = self._pop_window(trainer, pl_module)
        metrics["train/loss_epoch"] = float(self.epoch.get("train/loss", 0.0)) / max(self.epoch.get("steps", 1), 1)
        if metrics["train/loss_epoch"] == 0:
            rank_zero_warn(
                f"The loss was 0 in every step of epoch {trainer.current_epoch}: no pairs were kept, and nothing was "
                "learned. Try other margins, or `--mine false`."
            )
        self.epoch = {}
        log(trainer, metrics)

    def _pop_window(self, trainer: Trainer, module: TrainingModule) -> dict[str, float]:
        module.check_losses()
        steps = int(self.window.pop("steps", 0))
        metrics = {name: float(total) / steps for name, total in self.window.items()} if steps else {}
        self.window = {}
        metrics["train/lr"] = module.learning_rate(trainer.current_epoch)
        bank = module.bank
        metrics["bank/size"] = 0.0 if bank is None else float(len(bank))
        told = {} if bank is None else bank.stats()
        return {**metrics, **{f"bank/{name}": value for name, value in told.items()}}

    @property
    def seconds_per_step(self) -> float | None:
        """The mean: a median would hide what happens every few steps, such as the refresh of a memory."""
        return self.train_seconds / self.steps if self.steps else None

    def state_dict(self) -> dict[str, Any]:
        """The open windows, the latest values and the clock."""
        open_sums = {"window": self.window, "epoch": self.epoch}
        sums = {name: {key: float(value) for key, value in part.items()} for name, part in open_sums.items()}
        return {**sums, "latest": dict(self.latest), "steps": self.steps, "train_seconds": self.train_seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the open windows."""
        self.window, self.epoch = dict(state_dict["window"]), dict(state_dict["epoch"])
        self.latest = dict(state_dict["latest"])
        self.steps, self.train_seconds = state_dict["steps"], state_dict["train_seconds"]
