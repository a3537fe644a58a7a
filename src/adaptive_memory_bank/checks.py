"""Checks of what users pass, each with the message that says what is wrong."""

import torch
from torch import Tensor


def check_rows(name: str, rows: Tensor, dim: int, device: torch.device) -> None:
    """Refuse what is not a floating point tensor (B, dim) on the device."""
    if not isinstance(rows, Tensor) or not rows.is_floating_point():
        found = rows.dtype if isinstance(rows, Tensor) else type(rows).__name__
        raise TypeError(f"`{name}` must be a floating point tensor, got {found}.")
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise ValueError(f"`{name}` must have shape (B, {dim}) but has shape {tuple(rows.shape)}.")
    if rows.device != device:
        raise ValueError(
            f"`{name}` must be on the bank's device {device}, got {rows.device}; bank.to(...) moves the bank."
        )


def check_labels(name: str, labels: Tensor, rows: Tensor) -> None:
    """Refuse what is not one integer per row."""
    found = labels.dtype if isinstance(labels, Tensor) else labels if labels is None else type(labels).__name__
    if not isinstance(found, torch.dtype) or found.is_floating_point or found.is_complex or found == torch.bool:
        raise TypeError(f"`{name}` must be a tensor of integers, got {found}.")
    if labels.shape != rows.shape[:1]:
        raise ValueError(f"`{name}` must have shape ({len(rows)},), one per row, got {tuple(labels.shape)}.")


def check_positive_integer(name: str, value: int) -> None:
    """Refuse what is not a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer, got {value!r}.")


def check_start_after(start_after: int) -> int:
    """Refuse what is not a number of steps."""
    if not isinstance(start_after, int) or isinstance(start_after, bool) or start_after < 0:
        raise ValueError(f"`start_after` must be a non-negative integer, a number of steps, got {start_after!r}.")
    return start_after


def is_number(value: object) -> bool:
    """Whether a value is an integer or a float (booleans are not)."""
    return isinstance(value, int | float) and not isinstance(value, bool)
