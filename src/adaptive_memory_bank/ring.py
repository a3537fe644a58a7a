"""A first-in-first-out ring of rows that is realigned as a whole without being touched."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from adaptive_memory_bank.affine import AffineMap
from adaptive_memory_bank.moments import Moments
from adaptive_memory_bank.precision import KeepsPrecision

BLOCK_BYTES = 1 << 20  # rows are read in blocks that stay in a core's cache


class LazyRing(KeepsPrecision):
    """Rows in a fixed frame, read through one running map.

    A stored row ``s`` stands for the embedding ``z = map(s)``. Realigning the ring changes the map, O(dim); a new row
    is stored as ``map^-1(z)``, so that one map serves all rows. Mean and M2 (sum of squared deviations) of the stored
    rows follow from the rows that leave and those that come, O(batch x dim). Once per lap the map is folded into the
    rows and both are measured anew, so rounding has one lap to grow in and no more.

    How rows are stored is known to this file alone: everyone else reads embeddings, by `read`, `gather` and `blocks`.

    Attributes:
        cursor: The slot of the next row.
        count: Filled slots: always the first ``count``.
        labelled: Whether rows have labels; None until the first row decides.
    """

    _may_be_half = frozenset({"stored"})

    stored: Tensor  # (size, dim), of any floating point type; the others are float32, or float64 for float64 rows
    stored_labels: Tensor  # (size,)
    stored_mean: Tensor  # (dim,)
    stored_m2: Tensor  # (dim,)

    def __init__(self, size: int, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        exact = torch.promote_types(dtype, torch.float32)
        self.register_buffer("stored", torch.zeros(size, dim, dtype=dtype))
        self.register_buffer("stored_labels", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("stored_mean", torch.zeros(dim, dtype=exact))
        self.register_buffer("stored_m2", torch.zeros(dim, dtype=exact))
        self.map = AffineMap(dim, exact)
        self.cursor = 0
        self.count = 0
        self.labelled: bool | None = None

    @property
    def size(self) -> int:
        """Number of slots."""
        return self.stored.shape[0]

    @property
    def dim(self) -> int:
        """Columns of a row."""
        return self.stored.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Of the stored rows."""
        return self.stored.dtype

    @property
    def compute_dtype(self) -> torch.dtype:
        """Of the rows as they are read, and of all arithmetic: float32 or better."""
        return self.map.dtype

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.stored.device

    @property
    def is_full(self) -> bool:
        """Whether every slot holds a row."""
        return self.count == self.size

    @property
    def labels(self) -> Tensor:
        """Labels of the filled slots, (count,): a view, to be read only."""
        return self.stored_labels[: self.count]

    @property
    def moments(self) -> Moments:
        """Moments of the realigned rows, from those of the stored ones: O(dim)."""
        return self.map.to_embedding_moments(self.stored_mean, self._stored_std(), self.count)

    def reset(self) -> None:
        """Empty the ring."""
        for buffer in (self.stored, self.stored_labels, self.stored_mean, self.stored_m2):
            buffer.zero_()
        self.map.reset()
        self.cursor = self.count = 0
        self.labelled = None

    def write(self, rows: Tensor, labels: Tensor | None) -> None:
        """Append rows, as one after the other would be: the oldest leave, the newest ``size`` stay."""
        if not len(rows):
            return
        first = (self.cursor + max(len(rows) - self.size, 0)) % self.size
        arriving = self._to_stored(rows[-self.size :])
        ends_lap = self.cursor + len(rows) >= self.size
        if not ends_lap:  # at the end of a lap everything is measured anew
            self._follow(arriving, leaving=self.stored[first : first + len(rows)] if self.is_full else None)
        _write_from(self.stored, first, arriving)
        if labels is not None:
            _write_from(self.stored_labels, first, labels[-self.size :])
        self.labelled = labels is not None
        self.cursor = (self.cursor + len(rows)) % self.size
        self.count = min(self.count + len(rows), self.size)
        if ends_lap:
            self.fold()

    def replace(self, rows: Tensor) -> None:
        """Exchange the rows of all filled slots; labels and cursor stay, and the map becomes the identity."""
        if not self.count:
            return
        self.map.reset()
        self.stored[: self.count] = self._to_stored(rows)
        self.fold()

    def restore(self, rows: Tensor, labels: Tensor | None, cursor: int) -> None:
        """Hold rows (n, dim) in the slots 0 to n - 1, and nothing else; the next row goes to slot ``cursor``."""
        self.reset()
        self.write(rows, labels)
        self.cursor = cursor

    def next_slots(self, count: int) -> Tensor:
        """Slots (count,) that the next ``count`` rows will have; -1 for those the same write pushes out again."""
        slots = torch.arange(self.cursor, self.cursor + count, device=self.device) % self.size
        slots[: max(count - self.size, 0)] = -1
        return slots

    def realign(self, target: Moments) -> tuple[Tensor, Tensor] | None:
        """Give the rows the moments ``target``: ``z <- (z - E[R]) * sigma / s[R] + mu`` (ICCV 2023, eq. 3).

        Returns:
            ``E[R]`` and ``s[R]`` before, (dim,) each; None without rows.
        """
        return self.map.match(self.stored_mean, self._stored_std(), target) if self.count else None

    def read(self, start: int = 0, stop: int | None = None, out: Tensor | None = None) -> Tensor:
        """Realigned rows of the filled slots from ``start`` to ``stop``, in ``out`` or in a fresh tensor."""
        return self.map.to_embeddings(self.stored[start : self.count if stop is None else min(stop, self.count)], out)

    def gather(self, slots: Tensor) -> Tensor:
        """Realigned rows (n, dim) of the slots (n,), as a fresh tensor."""
        return self.map.to_embeddings(self.stored[slots])

    def blocks(self) -> Iterator[Tensor]:
        """All realigned rows in order, as fresh tensors small enough for a core's cache."""
        for block in self._block_slices():
            yield self.read(block.start, block.stop)

    def fold(self) -> None:
        """Write the map into the rows, which makes it the identity, and measure them exactly, block by block."""
        total, squares = torch.zeros_like(self.stored_mean), torch.zeros_like(self.stored_m2)
        center = self.read(0, 1024).mean(0)  # any value near the mean keeps the squares small
        for block in self._block_slices():
            rows = self.read(block.start, block.stop)
            if not self.map.is_identity:
                self.stored[block] = rows
                rows = self.stored[block].to(self.compute_dtype)  # as stored: half precision rounds
            rows = rows - center
            total += rows.sum(0)
            squares += rows.square_().sum(0)
        step = total / self.count
        self.stored_mean.copy_(center + step)
        self.stored_m2.copy_(squares.addcmul_(step, step, value=-self.count).clamp_(min=0))
        self.map.reset()

    def check_loadable(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Refuse the state of a ring of another shape."""
        rows = state_dict.get(f"{prefix}stored")
        if rows is not None and rows.shape != self.stored.shape:
            raise ValueError(
                f"A bank of size {rows.shape[0]} and dim {rows.shape[1]} cannot be loaded into one of "
                f"size {self.size} and dim {self.dim}; make the bank with the size and dim of the checkpoint."
            )

    def _stored_std(self) -> Tensor:
        return (self.stored_m2 / max(self.count - 1, 1)).sqrt()

    def _block_slices(self) -> Iterator[slice]:
        step = max(BLOCK_BYTES // (self.dim * self.compute_dtype.itemsize), 1)
        for start in range(0, self.count, step):
            yield slice(start, min(start + step, self.count))

    def _to_stored(self, rows: Tensor) -> Tensor:
        stored = self.map.to_stored(rows)
        if self.dtype == torch.float16:  # the only storage with less range than the arithmetic
            stored = stored.clamp(min=-65504, max=65504)
        return stored.to(self.dtype)

    def _follow(self, arriving: Tensor, leaving: Tensor | None) -> None:
        """Update mean and M2 of the stored rows (Chan et al. 1983, about the mean before the change)."""
        arriving = arriving.to(self.compute_dtype)
        center = self.stored_mean if self.count else arriving.mean(0)
        change = arriving - center
        first, second = change.sum(0), change.square().sum(0)
        count = self.count + len(arriving)
        if leaving is not None:
            change = leaving.to(self.compute_dtype) - center
            first, second = first - change.sum(0), second - change.square().sum(0)
            count = self.count
        step = first / count
        self.stored_m2.add_(second).addcmul_(step, step, value=-count).clamp_(min=0)
        self.stored_mean.copy_(center + step)

    def get_extra_state(self) -> dict[str, Any]:
        """Non-tensor state."""
        return {"cursor": self.cursor, "count": self.count, "labelled": self.labelled}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_extra_state` returned."""
        self.cursor, self.count, self.labelled = int(state["cursor"]), int(state["count"]), state["labelled"]


def _write_from(buffer: Tensor, first: int, values: Tensor) -> None:
    """Write values (at most as many as the buffer holds) from slot ``first`` on, and past the end from slot 0."""
    until_end = len(buffer) - first
    buffer[first : first + len(values)] = values[:until_end]
    buffer[: max(len(values) - until_end, 0)] = values[until_end:]
