"""Masks and counts on devices that must not be asked: reading a value back makes a GPU wait."""

from typing import overload

from torch import Tensor


def all_known(mask: Tensor) -> bool:
    """Whether all are True, as far as that can be told without waiting: on a CPU. Elsewhere masks do the same work."""
    return mask.device.type == "cpu" and bool(mask.all())


@overload
def at_least_1(count: int) -> int: ...
@overload
def at_least_1(count: int | Tensor) -> int | Tensor: ...
def at_least_1(count: int | Tensor) -> int | Tensor:
    """A number of rows to divide by, whether Python knows it or only the device does."""
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)
