"""Complaints about options, before any training starts."""

import inspect
import math
from typing import Any

from adaptive_memory_bank.adapters import ADAPTERS
from adaptive_memory_bank.lab.runs.config import PRESETS, MocoConfig, RetrievalConfig, RunConfig

POSITIVE = ("epochs", "batch_size", "eval_every", "eval_batch_size", "log_every", "devices", "num_nodes")
NOT_NEGATIVE = ("checkpoint_every", "drift_every", "staleness_rows", "num_workers")


def check_run(config: RunConfig) -> None:
    """Check what both trainers share."""
    presets = PRESETS[type(config)]
    if config.preset not in presets:
        raise ValueError(f"`preset` must be one of {', '.join(presets)}, got {config.preset!r}.")
    for name in POSITIVE:
        _check(config, name, getattr(config, name) >= 1, "a positive integer")
    for name in NOT_NEGATIVE:
        _check(config, name, getattr(config, name) >= 0, "zero or a positive integer")
    _check(config, "probe_size", config.drift_every == 0 or config.probe_size >= 1, "a positive integer")
    _check(config, "image_size", config.image_size is None or config.image_size >= 1, "a positive integer")
    _check(config, "threads", config.threads is None or config.threads >= 1, "a positive integer")
    check_adapter(config.adapter, config.adapter_options)


def check_adapter(adapter: str, options: dict[str, Any]) -> None:
    """Check the adapter's name and hyper-parameters."""
    if adapter in ("none", "fresh"):
        if options:
            raise ValueError(f"`adapter_options` need an adapter, got {options} with `adapter` {adapter}.")
        return
    if adapter not in ADAPTERS:
        raise ValueError(f"`adapter` must be one of none, {', '.join(ADAPTERS)}, fresh, got {adapter!r}.")
    accepted = list(inspect.signature(ADAPTERS[adapter]).parameters)
    unknown = [name for name in options if name not in accepted]
    if unknown:
        takes = f"must be among {', '.join(accepted)}" if accepted else "must be empty"
        raise ValueError(f"`adapter_options` of {adapter} {takes}, got {', '.join(unknown)}.")
    ADAPTERS[adapter](**options)  # its own checks of the values


def check_retrieval(config: RetrievalConfig) -> None:
    """Check the retrieval trainer's options."""
    check_run(config)
    _check(config, "images_per_class", config.images_per_class >= 2, "at least 2, or there are no positive pairs")
    per_class, batch_size = config.images_per_class, config.batch_size
    if batch_size % per_class:
        raise ValueError(f"`batch_size` must be divisible by `images_per_class` ({per_class}), got {batch_size}.")
    _check(config, "memory", config.memory > 0, "positive: up to 1 a share of the training set, beyond that rows")
    _check(config, "memory", config.memory <= 1 or config.memory == int(config.memory), "whole rows beyond 1")
    _check(config, "memory_start", 0 <= config.memory_start < math.inf, "zero or a positive number of epochs")
    _check(config, "fresh_every", config.fresh_every >= 1, "a positive integer")
    _check(config, "validation", 0 <= config.validation < 1, "a share in [0, 1)")
    _check(config, "warmup_epochs", 0 <= config.warmup_epochs <= config.epochs, "between 0 and `epochs`")
    _check(config, "embedding_dim", config.embedding_dim >= 1, "a positive integer")
    _check(config, "temperature", config.temperature > 0, "positive")
    _check(config, "lr", config.lr > 0, "positive")
    _check(config, "lr_step", config.lr_step >= 1, "a positive integer")


def check_moco(config: MocoConfig) -> None:
    """Check the MoCo trainer's options."""
    check_run(config)
    if config.adapter == "fresh":
        raise ValueError("`adapter` fresh is not for `amb moco`: only `amb retrieval` can re-embed its memory.")
    splits = config.split_batch_norm
    _check(config, "split_batch_norm", splits >= 0, "zero or a positive integer")
    if splits and config.batch_size % splits:
        raise ValueError(f"`batch_size` must be divisible by `split_batch_norm` ({splits}), got {config.batch_size}.")
    if config.adapter != "none":
        check_memory(config.memory, config.batch_size * config.devices * config.num_nodes)
    for name in ("embedding_dim", "knn_k"):
        _check(config, name, getattr(config, name) >= 1, "a positive integer")
    for name in ("temperature", "knn_temperature", "lr", "width"):
        _check(config, name, getattr(config, name) > 0, "positive")
    _check(config, "momentum", 0 <= config.momentum < 1, "in [0, 1)")
    for name in ("flip", "jitter_probability", "gray_probability", "blur"):
        _check(config, name, 0 <= getattr(config, name) <= 1, "a probability")
    if config.blur and config.views != "lightly":
        raise ValueError(f"`blur` needs `--views lightly`, got {config.blur} with {config.views} views.")


def memory_rows(memory: float, images: int) -> int:
    """Rows of a memory given as a share of the training set (up to 1) or as rows.

    Example:
        >>> memory_rows(0.5, 100), memory_rows(64, 100)
        (50, 64)
    """
    return int(memory) if memory > 1 else max(1, round(memory * images))


def check_memory(rows: int, batch_size: int) -> None:
    """A memory must hold what one step brings, of all processes."""
    if rows < batch_size:
        raise ValueError(f"`memory` must hold at least a batch ({batch_size} rows), got {rows} rows.")


def _check(config: RunConfig, name: str, holds: bool, must_be: str) -> None:
    if not holds:
        raise ValueError(f"`{name}` must be {must_be}, got {getattr(config, name)!r}.")
