"""What a run does to its process: generators, threads, log levels and warnings, put back after; memory kept."""

import ctypes
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback

from adaptive_memory_bank.lab.data.randomness import random_state, seeded, set_random_state
from adaptive_memory_bank.lab.runs.config import RunConfig

LIGHTNING_LOGS = ("pytorch_lightning", "lightning.pytorch", "lightning_fabric", "lightning.fabric")
# <malloc.h>
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 1 << 30  # bytes at the top of the heap
BLOCK = 1 << 28  # bytes; what is larger still comes from the kernel and goes back to it


@contextmanager
def isolated(config: RunConfig) -> Iterator[None]:
    """Seed everything inside, put everything back after."""
    threads, levels = torch.get_num_threads(), {name: logging.getLogger(name).level for name in LIGHTNING_LOGS}
    try:
        with warnings.catch_warnings(), seeded(config.seed):
            _ignore_known_warnings()
            for name in LIGHTNING_LOGS:
                logging.getLogger(name).setLevel(logging.WARNING)
            torch.manual_seed(config.seed)  # of all devices
            if config.threads is not None:
                torch.set_num_threads(config.threads)
            yield
    finally:
        torch.set_num_threads(threads)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _ignore_known_warnings() -> None:
    """Lightning's own deprecations, and advice that does not hold here (images in memory need no workers)."""
    for text in (
        ".*does not have many workers.*",
        ".*module.s. in eval mode at the start of training.*",
        ".*isinstance.treespec, LeafSpec.*",
        ".*smaller than the logging interval.*",
    ):
        warnings.filterwarnings("ignore", message=text)


class RandomState(Callback):
    """Puts the generators of all ranks into checkpoints and back, so that dropout & co. continue identically."""

    def __init__(self) -> None:
        self._loaded: list[dict[str, Any]] | None = None

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Gather the states of all ranks."""
        states: list[Any] = [random_state()]
        if dist.is_available() and dist.is_initialized():
            states = [None] * dist.get_world_size()
            dist.all_gather_object(states, random_state())
        checkpoint["random_states"] = states

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep them until training continues: what happens before must not draw from them."""
        self._loaded = checkpoint["random_states"]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Restore, once, right before the first step."""
        if self._loaded is not None and trainer.global_rank < len(self._loaded):
            set_random_state(self._loaded[trainer.global_rank])
        self._loaded = None


def keep_freed_memory() -> bool:
    """Tell the C library of this process to keep freed memory; False where it has no such setting.

    On Linux, glibc may hand the activations of a step back to the kernel and fetch the same pages again for the next
    one, one page fault per 4 KiB. Small networks on CPUs notice, and whether it happens depends on luck.

    It cannot be undone, so it is for processes that do nothing but train: the command and the workers of a comparison.
    """
    if not sys.platform.startswith("linux"):
        return False
    tune = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return tune is not None and bool(tune(M_MMAP_THRESHOLD, BLOCK)) and bool(tune(M_TRIM_THRESHOLD, KEPT))
