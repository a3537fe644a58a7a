"""The map that stored rows are read through: one scale and one shift per dimension."""

from typing import Any

import torch
from torch import Tensor

from adaptive_memory_bank.moments import Moments
from adaptive_memory_bank.precision import KeepsPrecision

EPSILON = 1e-6  # below this spread, relative to |mean|, a dimension has no scale to match: it may be rounding alone
SMALLEST_STD = 1e-16  # below this one, squares of float32 are lost


def have_spread(mean: Tensor, std: Tensor) -> Tensor:
    """Which dimensions (dim,) of embeddings with this mean and std vary by more than rounding does."""
    return std > (EPSILON * mean.abs()).clamp_(min=SMALLEST_STD)


class AffineMap(KeepsPrecision):
    """Maps a stored row ``s`` to the embedding ``z = scale * s + shift`` that it stands for.

    It knows nothing of how rows are stored; the ring that owns it is the only one to use it.

    Example:
        >>> rows = torch.tensor([[0.0], [2.0]])
        >>> to_fresh = AffineMap(1, torch.float32)
        >>> mean, std = to_fresh.match(rows.mean(0), rows.std(0), target=Moments.of(10 + 3 * rows))
        >>> to_fresh.to_embeddings(rows).flatten().tolist()
        [10.0, 16.0]
        >>> to_fresh.to_stored(torch.tensor([[13.0]])).item()
        1.0
    """

    scale: Tensor  # (dim,)
    shift: Tensor  # (dim,)

    def __init__(self, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(dim, dtype=dtype))
        self.register_buffer("shift", torch.zeros(dim, dtype=dtype))
        self.is_identity = True  # reading through it needs no arithmetic

    @property
    def dtype(self) -> torch.dtype:
        """Of its arithmetic."""
        return self.scale.dtype

    def reset(self) -> None:
        """Become the identity."""
        self.scale.fill_(1)
        self.shift.zero_()
        self.is_identity = True

    def copied(self) -> "AffineMap":
        """The same map, which goes its own way."""
        copy = AffineMap(len(self.scale), self.dtype).to(self.scale.device)
        copy.scale.copy_(self.scale)
        copy.shift.copy_(self.shift)
        copy.is_identity = self.is_identity
        return copy

    def become_frame(self, mean: Tensor, std: Tensor) -> None:
        """Become the map for which embeddings with these moments (dim,) are stored with mean 0 and spread 1.

        There half precision rounds a row by a part of the spread, however far from 0 the embeddings are.
        """
        self.scale.copy_(torch.where(have_spread(mean, std), std, 1.0))
        self.shift.copy_(mean)
        self.is_identity = False

    def to_embeddings(self, stored: Tensor, out: Tensor | None = None) -> Tensor:
        """Embeddings (n, dim) of stored rows (n, dim), written to ``out`` or to a fresh tensor."""
        if not self.is_identity:
            return torch.addcmul(self.shift, stored.to(self.dtype), self.scale, out=out)
        return stored.to(self.dtype, copy=True) if out is None else out.copy_(stored)

    def to_stored(self, rows: Tensor) -> Tensor:
        """What to store for embeddings (n, dim)."""
        return rows if self.is_identity else (rows - self.shift) / self.scale

    def to_embedding_moments(self, mean: Tensor, std: Tensor, count: int | Tensor) -> Moments:
        """Moments of the embeddings, from those of the stored rows."""
        return Moments.plain(self._to_embedding(mean), std * self.scale, count)

    def match(self, mean: Tensor, std: Tensor, target: Moments, where: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Become the map from stored rows, of this mean and std (dim,), to embeddings with the moments ``target``.

        ``z = (s - E[S]) * sigma / s[S] + mu`` (ICCV 2023, eq. 3) follows from both moments alone; nothing is composed
        from step to step, and nothing can run away. Dimensions without spread, in the rows or in the target, keep their
        scale. With ``where``, a boolean tensor of one, it stays what it was if that is False.

        Returns:
            Mean and std of the embeddings before, (dim,) each.
        """
        before = self._to_embedding(mean), std * self.scale
        scaled = have_spread(*before) & have_spread(target.mean, target.std)
        if where is not None:
            scaled &= where
        torch.where(scaled, target.std / std, self.scale, out=self.scale)
        shift = torch.addcmul(target.mean.to(self.shift), mean, self.scale, value=-1)
        self.shift.copy_(shift if where is None else torch.where(where, shift, self.shift))
        self.is_identity = False
        return before

    def move(self, now: Moments, target: Moments, where: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same for stored rows that are a part of many, whose embeddings have the moments ``now`` all together."""
        scaled = have_spread(now.mean, now.std) & have_spread(target.mean, target.std)
        stretch = torch.where(scaled, target.std / now.std, 1.0)
        shift = torch.addcmul(target.mean.to(self.shift), self.shift - now.mean, stretch)
        self.scale.mul_(stretch if where is None else torch.where(where, stretch, 1.0))
        self.shift.copy_(shift if where is None else torch.where(where, shift, self.shift))
        self.is_identity = False
        return now.mean, now.std

    def _to_embedding(self, stored: Tensor) -> Tensor:
        return torch.addcmul(self.shift, stored, self.scale)

    def get_extra_state(self) -> dict[str, Any]:
        """Non-tensor state."""
        return {"is_identity": self.is_identity}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_extra_state` returned."""
        self.is_identity = bool(state["is_identity"])
