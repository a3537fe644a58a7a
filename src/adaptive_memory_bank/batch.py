"""A batch as a bank takes it."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from adaptive_memory_bank.distributed import gather_batch
from adaptive_memory_bank.masks import all_known, reading_is_free

LARGEST_SQUARED_NORM = 1e30  # beyond this, sums of squares over a bank leave the range of float32


class Batch(NamedTuple):
    """The rows of a batch, of all ranks if these share a bank; those that cannot be stored are zeros, and marked."""

    rows: Tensor  # (n, dim), float32 or float64
    labels: Tensor | None  # (n,)
    kept: Tensor | None  # (n,): False for rows that are refused; None where it is known that none is
    own: slice  # where in the rows those of this rank are

    @classmethod
    def of(
        cls, rows: Tensor, labels: Tensor | None, *, dtype: torch.dtype, stored_as: torch.dtype, gather: bool
    ) -> "Batch":
        """Gather, cast, and mark rows that are not finite.

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
        rows, own = rows.to(dtype), slice(first, first + count)
        if _surely_storable(rows, stored_as):
            return cls(rows, labels, None, own)
        kept = are_storable(rows, stored_as)
        if all_known(kept):
            return cls(rows, labels, None, own)
        return cls(rows.where(kept[:, None], 0), labels, kept, own)


def _surely_storable(rows: Tensor, stored_as: torch.dtype) -> bool:
    """Whether one look at all rows together tells, for free, that each is storable: the usual case, in less time."""
    if stored_as == torch.float16 or not reading_is_free(rows.device):
        return False
    norm: float = torch.linalg.vector_norm(rows).item()
    return norm < math.sqrt(LARGEST_SQUARED_NORM)


def are_storable(rows: Tensor, stored_as: torch.dtype) -> Tensor:
    """Which rows (B, dim) are finite, also as they are stored: (B,)."""
    finite = rows.square().sum(1) < LARGEST_SQUARED_NORM  # NaN is not
    if stored_as == torch.float16:  # has infinities of its own
        finite &= rows.to(torch.float16).isfinite().all(1)
    return finite
