"""Masks and counts on devices that must not be asked: reading a value back makes a GPU wait."""

from typing import overload

import torch
from torch import Tensor


def reading_is_free(device: torch.device) -> bool:
    """Whether a value may be read in the middle of a step: on a CPU.

    Every shortcut that looks at values asks here first, and has another way that does not.
    """
    return device.type == "cpu"


def all_known(mask: Tensor) -> bool:
    """Whether all are True, as far as that can be told for free. Where it cannot, masks do the same work."""
    return reading_is_free(mask.device) and bool(mask.all())


@overload
def at_least_1(count: int) -> int: ...
@overload
def at_least_1(count: int | Tensor) -> int | Tensor: ...
def at_least_1(count: int | Tensor) -> int | Tensor:
    """A number of rows to divide by, whether Python knows it or only the device does."""
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)
