"""A batch as a bank takes it."""

from typing import NamedTuple

import torch
from torch import Tensor

from adaptive_memory_bank.distributed import gather_batch

LARGEST_SQUARED_NORM = 1e30  # beyond this, sums of squares over a bank leave the range of float32


class Batch(NamedTuple):
    """The rows of a batch, of all ranks if these share a bank, without those that cannot be stored."""

    rows: Tensor  # (n, dim), float32 or float64
    labels: Tensor | None  # (n,)
    own: Tensor  # (B,): where in the rows those of this rank are; -1 for the ones left out
    rejected: int  # rows left out

    @classmethod
    def of(
        cls, rows: Tensor, labels: Tensor | None, *, dtype: torch.dtype, stored_as: torch.dtype, gather: bool
    ) -> "Batch":
        """Gather, cast, and leave out rows that are not finite.

        Args:
            rows: Shape (B, dim), those of this rank.
            labels: Shape (B,), or None.
            dtype: The type to compute in.
            stored_as: The type that rows are stored in.
            gather: Whether to take the batches of all ranks, in rank order.
        """
        rows, labels = rows.detach(), None if labels is None else labels.to(rows.device)
        count, first = len(rows), 0
        if gather:
            rows, labels, first = gather_batch(rows, labels)
        rows = rows.to(dtype)
        finite = are_storable(rows, stored_as)
        if finite.all():
            return cls(rows, labels, torch.arange(first, first + count, device=rows.device), 0)
        own = torch.where(finite, finite.cumsum(0) - 1, -1)[first : first + count]
        return cls(rows[finite], None if labels is None else labels[finite], own, int((~finite).sum()))


def are_storable(rows: Tensor, stored_as: torch.dtype) -> Tensor:
    """Which rows (B, dim) are finite, also as they are stored: (B,)."""
    finite = rows.square().sum(1) < LARGEST_SQUARED_NORM  # NaN is not
    if stored_as == torch.float16:  # has infinities of its own
        finite &= rows.to(torch.float16).isfinite().all(1)
    return finite
