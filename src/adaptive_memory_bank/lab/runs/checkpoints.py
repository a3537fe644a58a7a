"""Checkpoints that survive: written in one step, the one before kept, loaded as plain data."""

import errno
import os
import shutil
import warnings
from pathlib import Path
from typing import Any, Protocol

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from pytorch_lightning.callbacks import Checkpoint

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"


class DiskFullError(OSError):
    """A checkpoint did not fit on the disk; the one before is untouched."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes to a draft, syncs it to disk and renames it; the file it replaces lives on as `previous.ckpt`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Replace `path` in one step."""
        target = Path(path)
        draft = target.with_name(f".{target.name}.draft")
        try:
            _write(checkpoint, draft)
        except (OSError, RuntimeError) as error:
            full = _is_disk_full(error, target.parent)
            draft.unlink(missing_ok=True)
            if full:
                left = f"the checkpoint before, {target}, is intact" if target.exists() else "there is none before it"
                raise DiskFullError(errno.ENOSPC, f"Disk full while writing a checkpoint; {left}") from error
            raise
        if target.name == LAST and target.exists():
            _keep(target, target.with_name(PREVIOUS))
        os.replace(draft, target)
        _sync_folder(target.parent)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        """Load plain data only, never code."""
        return read_checkpoint(Path(path))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's content, on the CPU."""
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return content


def newest_checkpoint(folder: Path) -> Path:
    """The last checkpoint that can be read; falls back to the one before with a warning."""
    for path in (folder / LAST, folder / PREVIOUS):
        if not path.exists():
            continue
        try:
            read_checkpoint(path)
        except Exception as error:  # whatever a damaged file makes torch raise
            warnings.warn(
                f"Checkpoint {path} cannot be read ({type(error).__name__}); trying the one before.", stacklevel=2
            )
        else:
            return path
    raise ValueError(f"{folder} holds no readable checkpoint to resume from. Start the run anew.")


def _write(checkpoint: dict[str, Any], path: Path) -> None:
    with path.open("wb") as file:
        torch.save(checkpoint, file)
        file.flush()
        os.fsync(file.fileno())


def _keep(path: Path, copy: Path) -> None:
    """Give the file a second name without a moment in which it has none."""
    draft = copy.with_name(f".{copy.name}.draft")
    draft.unlink(missing_ok=True)
    try:
        os.link(path, draft)
    except OSError:  # file systems without hard links
        shutil.copyfile(path, draft)
    os.replace(draft, copy)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_disk_full(error: BaseException, folder: Path) -> bool:
    """Saving wraps write errors in RuntimeErrors, so look at the chain and, failing that, at the disk."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        cause = cause.__cause__ or cause.__context__
    return isinstance(error, RuntimeError) and shutil.disk_usage(folder).free < 1 << 20


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
