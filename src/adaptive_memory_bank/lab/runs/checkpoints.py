"""Checkpoints that survive: written in one step, the one before kept, loaded as plain data."""

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from pytorch_lightning.callbacks import Checkpoint

from adaptive_memory_bank.lab.runs.files import DamagedFileError, write_file
from adaptive_memory_bank.lab.runs.folder import BEST, LAST, PREVIOUS

WEIGHTS = frozenset({"state_dict", "images"})
"""What every checkpoint holds: weights, and what images they are for."""
ALL = WEIGHTS | {"loops", "callbacks", "optimizer_states", "random_states", "journal"}
"""What one holds that a run can be resumed from."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Replaces checkpoints in one step; what `last.ckpt` held lives on as `previous.ckpt`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Replace `path` in one step."""
        target = Path(path)
        keep_as = target.with_name(PREVIOUS) if target.name == LAST else None
        write_file(target, lambda file: torch.save(checkpoint, file), keep_as=keep_as)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        """Load plain data only, never code."""
        return read_checkpoint(Path(path))


def read_checkpoint(path: Path, *, holding: Collection[str] = ALL) -> dict[str, Any]:
    """A checkpoint's content, on the CPU.

    Raises:
        DamagedFileError: Where it cannot be read as plain data, or is not one of these trainers'.
    """
    remedy = f"Delete {path.parent} and resume the run: it starts anew."
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever a damaged file makes torch raise, with advice that nobody should follow
        raise DamagedFileError(path, f"it cannot be read ({type(error).__name__})", remedy) from None
    missing = sorted(set(holding).difference(content if isinstance(content, dict) else ()))
    if missing:
        raise DamagedFileError(path, f"it is no checkpoint of this kind of run (no {', '.join(missing)})", remedy)
    return content


def newest_checkpoint(folder: Path) -> Path | None:
    """The last checkpoint that can be read, with a warning where that is the one before; None where there is none.

    Raises:
        DamagedFileError: Where there are some, and none can be read.
    """
    paths = [folder / name for name in (LAST, PREVIOUS) if (folder / name).exists()]
    for path in paths:
        try:
            read_checkpoint(path)
        except DamagedFileError:
            if path == paths[-1]:
                raise
            warnings.warn(f"Checkpoint {path} cannot be read; trying the one before.", stacklevel=2)
        else:
            return path
    return None


class Ranking(Protocol):
    """What tells good epochs from better ones."""

    def is_best(self, epoch: int) -> bool:
        """Whether this epoch is the best so far."""


class CheckpointEvery(Checkpoint):
    """Saves `last.ckpt` every `steps` steps and after every epoch, with all that resuming needs, and `best.ckpt`.

    Args:
        folder: Where checkpoints go.
        steps: 0: only after epochs.
        ranking: Knows whether an epoch is the best so far.
    """

    def __init__(self, folder: Path, steps: int, ranking: "Ranking") -> None:
        super().__init__()
        self.folder, self.steps, self.ranking = folder, steps, ranking

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save in mid-epoch (the epoch's last step is covered by its end)."""
        is_last = batch_idx + 1 == trainer.num_training_batches
        if self.steps and trainer.global_step % self.steps == 0 and not is_last:
            self.save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save after everything else that an epoch's end does."""
        if self.ranking.is_best(trainer.current_epoch):
            trainer.save_checkpoint(self.folder / BEST, weights_only=True)
        self.save(trainer)

    def save(self, trainer: pl.Trainer) -> None:
        """Write `last.ckpt`."""
        trainer.save_checkpoint(self.folder / LAST, weights_only=False)
