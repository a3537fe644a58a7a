"""Scores after epochs, and which epoch is the best."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from adaptive_memory_bank.lab.training.step import TrainingModule
from adaptive_memory_bank.lab.training.watch.training_log import log


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a model."""

    metrics: dict[str, float]  # `val/recall@1` and so on
    worst: dict[str, Any]  # what `worst_queries` found


class EvaluationMonitor(Callback):
    """Evaluates after every `every`-th epoch and the last, and remembers the best.

    Args:
        evaluate: Scores the module.
        every: Epochs.
        headline: The metric that people ask for first, on the evaluation set.
        chosen_by: The metric that chooses the epoch; the headline itself, or its twin on held-out classes.
    """

    def __init__(self, evaluate: Callable[[Any], Evaluation], *, every: int, headline: str, chosen_by: str) -> None:
        self.evaluate, self.every = evaluate, every
        self.headline, self.chosen_by = headline, chosen_by
        self.last: dict[str, float] = {}
        self.best: dict[str, float] = {}
        self.worst: dict[str, Any] = {}
        self.best_epoch: int | None = None

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate, log, compare with the best so far."""
        assert isinstance(pl_module, TrainingModule)
        epoch = trainer.current_epoch
        if (epoch + 1) % self.every and epoch + 1 != trainer.max_epochs:
            return
        found = self.evaluate(pl_module)
        self.last = found.metrics
        if self.best_epoch is None or _beats(found.metrics[self.chosen_by], self.best[self.chosen_by]):
            self.best, self.best_epoch, self.worst = found.metrics, epoch, found.worst
        name = self.headline.split("/")[1]
        log(trainer, {**found.metrics, f"best/{name}": self.best[self.headline]})

    def is_best(self, epoch: int) -> bool:
        """Whether this epoch is the best so far."""
        return self.best_epoch == epoch

    def best_metrics(self) -> dict[str, float]:
        """`best/...` of everything measured on the evaluation set at the chosen epoch."""
        return {name.replace("val/", "best/"): value for name, value in self.best.items() if name.startswith("val/")}

    def state_dict(self) -> dict[str, Any]:
        """Everything that later epochs are compared with."""
        return {"last": self.last, "best": self.best, "best_epoch": self.best_epoch, "worst": self.worst}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.last, self.best = dict(state_dict["last"]), dict(state_dict["best"])
        self.best_epoch, self.worst = state_dict["best_epoch"], dict(state_dict["worst"])


def _beats(score: float, best: float) -> bool:
    """Whether a score is better; any number is better than NaN (nothing to find), and NaN is better than nothing."""
    return score > best or (math.isnan(best) and not math.isnan(score))
