"""A first-in-first-out ring of rows that is realigned as a whole without being touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from adaptive_memory_bank.adapters.base import KeepsPrecision
from adaptive_memory_bank.moments import Moments

EPSILON = 1e-6  # below this spread (relative to 1 + |mean|) a dimension has no scale to match
BLOCK_BYTES = 1 << 20  # rows are walked in blocks that stay in a core's cache


class LazyRing(KeepsPrecision):
    """Rows in a fixed frame, read through one running affine map per dimension.

    A stored row ``s`` stands for the embedding ``z = scale * s + shift``. Realigning the ring changes ``scale`` and
    ``shift``, O(dim); a new row is stored as ``(z - shift) / scale``, so that one affine map serves all rows. Mean and
    M2 (sum of squared deviations) of the stored frame follow from the rows that leave and those that come, O(batch x
    dim). Once per lap the affine map is folded into the rows and both are measured anew, so rounding has one lap to
    grow in and no more.

    Args:
        size: Number of rows it can hold.
        dim: Columns of a row.
        dtype: Of the stored rows; everything else is float32, or float64 for float64 rows.
    """

    _may_be_half = frozenset({"rows"})

    rows: Tensor  # (size, dim), in the stored frame
    labels: Tensor  # (size,)
    scale: Tensor  # (dim,)
    shift: Tensor  # (dim,)
    mean: Tensor  # (dim,), of the stored frame
    m2: Tensor  # (dim,), of the stored frame

    def __init__(self, size: int, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        exact = torch.promote_types(dtype, torch.float32)
        self.register_buffer("rows", torch.zeros(size, dim, dtype=dtype))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("scale", torch.ones(dim, dtype=exact))
        self.register_buffer("shift", torch.zeros(dim, dtype=exact))
        self.register_buffer("mean", torch.zeros(dim, dtype=exact))
        self.register_buffer("m2", torch.zeros(dim, dtype=exact))
        self.cursor = 0  # the slot of the next row
        self.count = 0  # filled slots: always the first `count`
        self.labelled: bool | None = None  # None until the first row decides
        self.aligned = True  # scale is 1 and shift is 0: reading needs no arithmetic

    @property
    def size(self) -> int:
        """Number of slots."""
        return self.rows.shape[0]

    @property
    def dim(self) -> int:
        """Columns of a row."""
        return self.rows.shape[1]

    def reset(self) -> None:
        """Empty the ring."""
        for buffer in (self.rows, self.labels, self.mean, self.m2):
            buffer.zero_()
        self._align()
        self.cursor = self.count = 0
        self.labelled = None

    def write(self, rows: Tensor, labels: Tensor | None) -> None:
        """Append rows, as one after the other would be: the oldest leave, the newest ``size`` stay."""
        if not len(rows):
            return
        first = (self.cursor + max(len(rows) - self.size, 0)) % self.size
        arriving = self._to_frame(rows[-self.size :])
        until_end = self.size - first
        laps = self.cursor + len(rows) >= self.size
        if not laps:  # at the end of a lap everything is measured anew
            self._follow(arriving, leaving=self.rows[first : first + len(rows)] if self.is_full else None)
        self.rows[first : first + len(arriving)] = arriving[:until_end]
        self.rows[: max(len(arriving) - until_end, 0)] = arriving[until_end:]
        if labels is not None:
            labels = labels[-self.size :]
            self.labels[first : first + len(labels)] = labels[:until_end]
            self.labels[: max(len(labels) - until_end, 0)] = labels[until_end:]
        self.labelled = labels is not None
        self.cursor = (self.cursor + len(rows)) % self.size
        self.count = min(self.count + len(rows), self.size)
        if laps:
            self._fold()

    def replace(self, rows: Tensor) -> None:
        """Exchange the rows of all filled slots; labels and position stay, and the map becomes the identity."""
        if not self.count:
            return
        self._align()
        self.rows[: self.count] = self._to_frame(rows)
        self._fold()

    def landing(self, count: int) -> Tensor:
        """Slots (count,) that the next ``count`` rows will have; -1 for those the same write pushes out again."""
        places = torch.arange(self.cursor, self.cursor + count, device=self.rows.device) % self.size
        places[: max(count - self.size, 0)] = -1
        return places

    @property
    def is_full(self) -> bool:
        """Whether every slot holds a row."""
        return self.count == self.size

    def realign(self, target: Moments) -> None:
        """Give the rows the moments ``target``: ``z <- (z - E[R]) * sigma / s[R] + mu`` (ICCV 2023, eq. 3).

        The frame has its own moments, so the affine map follows from them and the target alone; nothing is composed
        from step to step, and nothing can run away. Dimensions without spread, there or here, keep their scale.
        """
        if not self.count:
            return
        if self.count > 1:
            frame_std = self._frame_std()
            least = EPSILON * (1 + self.moments.mean.abs())
            matched = (frame_std * self.scale > least) & (target.std > least)
            self.scale.copy_(torch.where(matched, target.std / frame_std, self.scale))
        torch.addcmul(target.mean.to(self.shift), self.mean, self.scale, value=-1, out=self.shift)
        self.aligned = False

    def read(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Realigned rows of the filled slots from ``start`` to ``stop``, as a fresh tensor."""
        stored = self.rows[start : self.count if stop is None else min(stop, self.count)]
        if self.aligned:
            return stored.to(self.scale.dtype, copy=True)
        return torch.addcmul(self.shift, stored.to(self.scale.dtype), self.scale)

    def blocks(self) -> Iterator[slice]:
        """Slices of filled slots, each small enough for a core's cache."""
        step = max(BLOCK_BYTES // (self.dim * self.scale.element_size()), 1)
        for start in range(0, self.count, step):
            yield slice(start, min(start + step, self.count))

    @property
    def moments(self) -> Moments:
        """Moments of the realigned rows, from those of the frame: O(dim)."""
        mean = torch.addcmul(self.shift, self.mean, self.scale)
        return Moments.plain(mean, self._frame_std() * self.scale, self.count)

    def _frame_std(self) -> Tensor:
        return (self.m2 / max(self.count - 1, 1)).sqrt()

    def _to_frame(self, rows: Tensor) -> Tensor:
        stored = rows if self.aligned else (rows - self.shift) / self.scale
        if self.rows.dtype == torch.float16:  # the only storage with less range than the arithmetic
            stored = stored.clamp(min=-65504, max=65504)
        return stored.to(self.rows.dtype)

    def _follow(self, arriving: Tensor, leaving: Tensor | None) -> None:
        """Update mean and M2 of the frame (Chan et al. 1983, about the mean before the change)."""
        arriving = arriving.to(self.mean.dtype)
        center = self.mean if self.count else arriving.mean(0)
        change = arriving - center
        first, second = change.sum(0), change.square().sum(0)
        count = self.count + len(arriving)
        if leaving is not None:
            change = leaving.to(self.mean.dtype) - center
            first, second = first - change.sum(0), second - change.square().sum(0)
            count = self.count
        step = first / count
        self.m2.add_(second).addcmul_(step, step, value=-count).clamp_(min=0)
        self.mean.copy_(center + step)

    def _fold(self) -> None:
        """Write the affine map into the rows and measure them exactly, block by block."""
        total, squares = torch.zeros_like(self.mean), torch.zeros_like(self.m2)
        center = self.read(0, 1024).mean(0)  # any value near the mean keeps the squares small
        for block in self.blocks():
            rows = self.read(block.start, block.stop)
            if not self.aligned:
                self.rows[block] = rows
                rows = self.rows[block].to(self.mean.dtype)  # as stored: half precision rounds
            rows = rows - center
            total += rows.sum(0)
            squares += rows.square_().sum(0)
        step = total / self.count
        self.mean.copy_(center + step)
        self.m2.copy_(squares.addcmul_(step, step, value=-self.count).clamp_(min=0))
        self._align()

    def _align(self) -> None:
        """Make the map the identity."""
        self.scale.fill_(1)
        self.shift.zero_()
        self.aligned = True

    def get_extra_state(self) -> dict[str, Any]:
        """Everything that is no tensor."""
        return {"cursor": self.cursor, "count": self.count, "labelled": self.labelled, "aligned": self.aligned}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_extra_state` gave."""
        self.cursor, self.count = int(state["cursor"]), int(state["count"])
        self.labelled, self.aligned = state["labelled"], bool(state["aligned"])
