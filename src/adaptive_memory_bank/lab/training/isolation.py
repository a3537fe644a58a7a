"""Runs leave the process as they found it: generators, threads, log levels, warnings."""

import logging
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from adaptive_memory_bank.lab.runs.checkpoints import random_state, set_random_state
from adaptive_memory_bank.lab.runs.config import RunConfig

LIGHTNING_LOGS = ("pytorch_lightning", "lightning.pytorch", "lightning_fabric", "lightning.fabric")


@contextmanager
def isolated(config: RunConfig) -> Iterator[None]:
    """Seed everything inside, put everything back after."""
    states, threads = random_state(), torch.get_num_threads()
    levels = {name: logging.getLogger(name).level for name in LIGHTNING_LOGS}
    try:
        with warnings.catch_warnings():
            _ignore_known_warnings()
            for name in LIGHTNING_LOGS:
                logging.getLogger(name).setLevel(logging.WARNING)
            seed_everything(config.seed)
            if config.threads is not None:
                torch.set_num_threads(config.threads)
            yield
    finally:
        torch.set_num_threads(threads)
        set_random_state(states)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def seed_everything(seed: int) -> None:
    """Python's, numpy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _ignore_known_warnings() -> None:
    """Lightning's own deprecations, and advice that does not hold here (images in memory need no workers)."""
    for text in (
        ".*does not have many workers.*",
        ".*module.s. in eval mode at the start of training.*",
        ".*isinstance.treespec, LeafSpec.*",
        ".*smaller than the logging interval.*",
    ):
        warnings.filterwarnings("ignore", message=text)
