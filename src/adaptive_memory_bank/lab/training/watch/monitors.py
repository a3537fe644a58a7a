"""How far the encoder moves, and how stale the memory gets, measured while a run trains."""

from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from adaptive_memory_bank.diagnostics import DriftAverage, feature_drift
from adaptive_memory_bank.lab.data import ImageDataset
from adaptive_memory_bank.lab.training.reembedding import embed_again, sample_slots
from adaptive_memory_bank.lab.training.scores import evaluating
from adaptive_memory_bank.lab.training.step import TrainingModule
from adaptive_memory_bank.lab.training.watch.training_log import log

MEASUREMENTS = 10  # of drift in an epoch, at least


class DriftMonitor(Callback):
    """Feature drift of `size` fixed images over single steps, averaged over the epoch.

    Args:
        every: Steps from one measurement to the next; fewer in epochs too short for ten of them.
        size: Images in the probe.
    """

    def __init__(self, every: int, size: int) -> None:
        self.every, self.size = every, size
        self.average = DriftAverage()
        self._probe: Tensor | None = None
        self._before: Tensor | None = None

    def _embed(self, module: TrainingModule) -> Tensor:
        if self._probe is None:
            part = module.data.train
            indices = list(range(0, len(part), max(1, len(part) // self.size)))[: self.size]
            images = ImageDataset(part, module.data.eval_transform).batch(indices)[0]
            self._probe = module.shaped(images.to(module.device))
        with evaluating(*module.embedders), torch.no_grad():
            return module.embed(self._probe)

    def _is_due(self, trainer: Trainer) -> bool:
        """Whether the step that comes next is measured."""
        every = min(self.every, max(1, int(trainer.num_training_batches) // MEASUREMENTS))
        return trainer.global_step % every == 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Embed the probe before the first step; later ones find it as the step before left it."""
        assert isinstance(pl_module, TrainingModule)
        if self._before is None and self._is_due(trainer):
            self._before = self._embed(pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Embed it again and compare; here and not before the next step, whose time would count it."""
        assert isinstance(pl_module, TrainingModule)
        before, due = self._before, self._is_due(trainer)
        if before is None and not due:
            return
        now = self._embed(pl_module)
        if before is not None:
            self.average.add(feature_drift(before, now))
        self._before = now if due else None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the epoch's averages."""
        if averages := self.average.pop():
            log(trainer, averages)

    def state_dict(self) -> dict[str, Any]:
        """The open average."""
        return dict(self.average.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the open average."""
        self.average.load_state_dict(state_dict)


class StalenessMonitor(Callback):
    """How far stored rows are from today's embeddings of them, made as they were made, with and without realignment.

    Args:
        rows: Stored rows in the sample, rounded to whole batches: batch norm makes rows of a batch, not of an image.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Re-embed a sample of the bank."""
        assert isinstance(pl_module, TrainingModule)
        bank, sources = pl_module.bank, pl_module.sources
        if bank is None or sources is None or len(bank) == 0:
            return
        slots = sample_slots(pl_module, self.rows)
        found = sources.staleness(bank, slots, embed_again(pl_module, slots))
        log(trainer, {"bank/staleness": found.adapted, "bank/staleness_unadapted": found.unadapted})
