"""Fits to the data what nobody asked for: the side of images, what is held out, the batch, the memory."""

from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

import torch

from adaptive_memory_bank.lab.data import Part, RetrievalData
from adaptive_memory_bank.lab.runs.config import RunConfig
from adaptive_memory_bank.lab.runs.folder import data_name
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig

Config = TypeVar("Config", bound=RunConfig)


def fit_image_size(config: Config, data: RetrievalData, given: Collection[str]) -> Config:
    """Train at the usual side, or at that of the images where they are smaller: larger ones would only cost time."""
    if "image_size" in given and config.image_size is not None:
        return config
    return replace(config, image_size=min(config.image_size or data.image_size, data.train.native_side()))


def fit_held_out(config: RetrievalConfig, data: RetrievalData, given: Collection[str]) -> RetrievalConfig:
    """Hold nothing out where too few classes would be left to train on."""
    classes = data.train.num_classes
    few = classes - held_out_count(classes, config.validation) < 2
    return replace(config, validation=0.0) if few and "validation" not in given else config


def held_out_count(classes: int, share: float) -> int:
    """How many classes a share is: at least two, or there is nothing to confuse.

    Example:
        >>> held_out_count(100, 0.1), held_out_count(5, 0.1), held_out_count(5, 0.0)
        (10, 2, 0)
    """
    return max(2, round(share * classes)) if share else 0


def fit_batch(config: RetrievalConfig, train: Part, given: Collection[str]) -> RetrievalConfig:
    """Ask for no more classes a step than there are: more images of each, or else a smaller batch.

    Raises:
        ValueError: Where the options that were given cannot be met, with numbers that can.
    """
    most = train.num_classes // config.processes  # classes of one process in one step
    batch, each = config.batch_size, config.images_per_class
    if batch // each <= most:
        return config
    if most < 2:
        raise ValueError(
            f"`devices` must leave every process 2 classes a step, but there are {train.num_classes} to train on, "
            f"got {config.processes} processes."
        )
    typical = int(torch.bincount(train.labels).float().sort(descending=True).values[: train.num_classes].median())
    rows = typical if "batch_size" in given else max(each, typical // 2)  # of a class; half of it: two steps an epoch
    wider = next((batch // p for p in range(most, 1, -1) if batch % p == 0 and batch // p <= rows), None)
    if "images_per_class" not in given and wider is not None:
        return replace(config, images_per_class=wider)
    if "batch_size" not in given:
        return replace(config, batch_size=most * each)
    instead = "" if wider is None else f" or `--images_per_class {wider}`"
    raise ValueError(
        f"`batch_size` must ask for no more classes than the {train.num_classes} there are to train on, got {batch} "
        f"({batch // each * config.processes} classes a step). `--batch_size {most * each}`{instead} would work."
    )


def fit_memory(config: RetrievalConfig, images: int, given: Collection[str]) -> RetrievalConfig:
    """Let a memory that is a share of a small training set hold a batch at least."""
    batch = config.batch_size * config.processes
    small = memory_rows(config.memory, images) < batch
    return replace(config, memory=float(batch)) if small and "memory" not in given else config


def memory_rows(memory: float, images: int) -> int:
    """Rows of a memory given as a share of the training set (up to 1) or as rows.

    Example:
        >>> memory_rows(0.5, 100), memory_rows(64, 100)
        (50, 64)
    """
    return int(memory) if memory > 1 else max(1, round(memory * images))


def fit_moco_batch(config: MocoConfig, images: int, given: Collection[str]) -> MocoConfig:
    """Ask for no more images a step than there are, in whole groups of split batch norm."""
    group, most = max(1, config.split_batch_norm), images // config.processes
    if config.batch_size <= most or "batch_size" in given or most < 2 * group:
        return config
    return replace(config, batch_size=most // group * group)


def describe_fit(before: RunConfig, after: RunConfig, data: RetrievalData, train: Part) -> str:
    """What a run trains on, and which of its options were fitted to it, in one line."""
    native, side = data.train.native_side(), after.image_size
    parts = [f"{data_name(after)}: {len(train):,} images of {train.num_classes:,} classes to train on, {side} px"]
    if side is not None and side > native:
        parts.append(f"enlarged from {native} px")
    if isinstance(before, RetrievalConfig) and isinstance(after, RetrievalConfig):
        parts += _retrieval_changes(before, after)
    elif before.batch_size != after.batch_size:
        parts.append(f"batch {after.batch_size} instead of {before.batch_size}, for there are no more images")
    return "; ".join(parts)


def _retrieval_changes(before: RetrievalConfig, after: RetrievalConfig) -> list[str]:
    changes = []
    if before.validation != after.validation:
        changes.append("too few classes to hold any out, so the evaluation set chooses the epoch")
    usual, now = (c.batch_size // c.images_per_class for c in (before, after))
    if usual != now:
        shape = f"{now} classes x {after.images_per_class} images"
        changes.append(
            f"batch {after.batch_size} = {shape}, for {usual} x {before.images_per_class} needs more classes"
        )
    if before.memory != after.memory:
        changes.append(f"memory {after.memory:g} rows, to hold a batch")
    return changes
