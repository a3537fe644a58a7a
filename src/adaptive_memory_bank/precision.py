"""Statistics that keep their precision when a model is turned to half."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

Self = TypeVar("Self", bound="KeepsPrecision")


class KeepsPrecision(nn.Module):
    """A module whose statistics follow ``.to(device)`` and ``.double()``, but never fall below float32.

    ``model.half()`` is about the size of weights and rows; a running mean in half precision stops running.

    Example:
        >>> class RunningMean(KeepsPrecision):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.register_buffer("mean", torch.zeros(2))
        >>> RunningMean().half().mean.dtype, RunningMean().double().mean.dtype
        (torch.float32, torch.float64)
    """

    #: Names of buffers that may be stored in half precision after all.
    _may_be_half: frozenset[str] = frozenset()

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = {name: buffer for name, buffer in self._buffers.items() if name not in self._may_be_half}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in exact.items():
            after = self._buffers[name]
            if before is not None and after is not None and after.dtype in (torch.float16, torch.bfloat16):
                self._buffers[name] = before.to(after.device)
        return self
