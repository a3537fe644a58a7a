"""What every adapter is: a filter over batch moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from adaptive_memory_bank.moments import Moments

Self = TypeVar("Self", bound="KeepsPrecision")


class KeepsPrecision(nn.Module):
    """A module whose statistics follow ``.to(device)`` and ``.double()``, but never fall below float32.

    ``model.half()`` is about the size of weights and rows; a running mean in half precision stops running.
    """

    _may_be_half: frozenset[str] = frozenset()

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = {name: buffer for name, buffer in self._buffers.items() if name not in self._may_be_half}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in exact.items():
            after = self._buffers[name]
            if before is not None and after is not None and after.dtype in (torch.float16, torch.bfloat16):
                self._buffers[name] = before.to(after.device)
        return self


class Adapter(KeepsPrecision):
    """Takes the moments of each batch and answers with the moments the bank should have now.

    A subclass writes `observe`, and `reset` if it remembers anything: state lives in buffers that ``reset(dim)``
    makes, so that it is saved, loaded and moved with the bank.

    Example:
        >>> from adaptive_memory_bank import AdaptiveMemoryBank
        >>> class FollowMean(Adapter):
        ...     def observe(self, batch):
        ...         return batch._replace(std=torch.ones_like(batch.std))
        >>> bank = AdaptiveMemoryBank(size=8, dim=2, adapter=FollowMean())
        >>> bank.update(torch.randn(4, 2))
        >>> len(bank)
        4
    """

    #: Whether `observe` looks at what only labels tell (`population_std` and both variances). Measuring that takes as
    #: long as all the rest of a step, so adapters that do without say so.
    uses_labels: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.in_use = False  # set by the bank it serves: one filter follows one bank

    def reset(self, dim: int) -> None:
        """Forget everything: make (or renew) the state for embeddings of ``dim`` dimensions."""

    def observe(self, batch: Moments) -> Moments | None:
        """Filter the moments of one batch (of at least two rows).

        Args:
            batch: Moments of the batch.

        Returns:
            The moments the stored rows should have now (``mean`` and ``std`` count), or None to leave them alone.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `observe(batch)`.")
