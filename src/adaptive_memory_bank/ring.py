"""A first-in-first-out ring of rows that is realigned as a whole without being touched."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from adaptive_memory_bank.affine import AffineMap
from adaptive_memory_bank.masks import all_known, at_least_1
from adaptive_memory_bank.moments import Moments
from adaptive_memory_bank.precision import KeepsPrecision
from adaptive_memory_bank.running import Rows, Sums

BLOCK_BYTES = 1 << 20  # rows are read in blocks that stay in a core's cache


class LazyRing(KeepsPrecision):
    """Rows in a fixed frame, read through one running map.

    A stored row ``s`` stands for the embedding ``z = map(s)``. Realigning the ring changes the map, O(dim); a new row
    is stored as ``map^-1(z)``, so that one map serves all rows. Mean and M2 (sum of squared deviations) of the stored
    rows follow from the rows that leave and those that come, O(batch x dim). Once per lap the map is folded into the
    rows and both are measured anew, so rounding has one lap to grow in and no more. Rows in half precision that are
    realigned at all are stored with mean 0 and spread 1: there rounding is a small part of the spread.

    A row that was refused leaves a gap: a slot like any other, but marked. Were it left out, the next slot would depend
    on values, and reading these makes a GPU wait. No moment counts a gap, and `positions` tells rows from slots.

    How rows are stored is known to this file alone: everyone else reads embeddings, by `read`, `gather` and `blocks`.

    Attributes:
        cursor: The slot of the next row.
        count: Slots in use, gaps included: always the first ``count``.
        labelled: Whether rows have labels; None until the first row decides.
        may_have_gaps: Whether there may be gaps; False where it is known that there is none.
    """

    _may_be_half = frozenset({"stored"})

    stored: Tensor  # (size, dim), of any floating point type; the others are float32, or float64 for float64 rows
    stored_labels: Tensor  # (size,)
    is_gap: Tensor  # (size,), boolean
    stored_mean: Tensor  # (dim,)
    stored_m2: Tensor  # (dim,)

    def __init__(self, size: int, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        exact = torch.promote_types(dtype, torch.float32)
        self.register_buffer("stored", torch.zeros(size, dim, dtype=dtype))
        self.register_buffer("stored_labels", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("is_gap", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("stored_mean", torch.zeros(dim, dtype=exact))
        self.register_buffer("stored_m2", torch.zeros(dim, dtype=exact))
        self.map = AffineMap(dim, exact)
        self.cursor = self.count = 0
        self.labelled: bool | None = None
        self.may_have_gaps = False

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
        """Whether every slot is in use."""
        return self.count == self.size

    @property
    def labels(self) -> Tensor:
        """Labels of the slots in use, (count,): a view, to be read only."""
        return self.stored_labels[: self.count]

    @property
    def gaps(self) -> Tensor | None:
        """Which of the slots in use are gaps, (count,): a view, to be read only. None where none is."""
        return self.is_gap[: self.count] if self.may_have_gaps else None

    @property
    def rows_held(self) -> int | Tensor:
        """Slots in use that are no gaps: a number, or where there may be gaps a tensor of one."""
        return self.count - self.is_gap.sum() if self.may_have_gaps else self.count

    @property
    def moments(self) -> Moments:
        """Moments of the realigned rows, from those of the stored ones: O(dim)."""
        return self.map.to_embedding_moments(self.stored_mean, self._stored_std(), self.rows_held)

    def reset(self) -> None:
        """Empty the ring."""
        for buffer in self.buffers(recurse=False):
            buffer.zero_()
        self.map.reset()
        self.cursor = self.count = 0
        self.labelled = None
        self.may_have_gaps = False

    def write(self, rows: Tensor, labels: Tensor | None, kept: Tensor | None = None) -> None:
        """Append rows, as one after the other would be: the oldest leave, the newest ``size`` stay.

        Args:
            rows: Shape (n, dim).
            labels: Shape (n,), or None.
            kept: Shape (n,), boolean: False leaves a gap, for which the row is to be zeros. None keeps all.
        """
        count, size = len(rows), self.size
        if not count:
            return
        if count > size:
            rows, labels = rows[-size:], None if labels is None else labels[-size:]
        first = (self.cursor + max(count - size, 0)) % size
        arriving, gaps = self._to_stored(rows), self._arriving_gaps(count, kept)
        ends_lap = self.cursor + count >= size
        if not ends_lap:  # at the end of a lap everything is measured anew
            self._follow(arriving, gaps, leaving=slice(first, first + count) if self.is_full else None)
        for buffer, values in ((self.stored, arriving), (self.is_gap, gaps), (self.stored_labels, labels)):
            if values is not None:
                _write_from(buffer, first, values)
        self.labelled = labels is not None
        self.cursor = (self.cursor + count) % size
        self.count = min(self.count + count, size)
        if ends_lap:
            self.fold()

    def replace(self, rows: Tensor) -> None:
        """Exchange the rows of all slots in use; gaps, labels and cursor stay, and the map becomes the identity."""
        if self.count:  # without rows there is nothing to exchange, and a frame that waits for them stays
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
        slots = torch.arange(self.cursor, self.cursor + count, device=self.device)
        if self.cursor + count > self.size:
            slots %= self.size
            slots[: max(count - self.size, 0)] = -1
        return slots

    def realign(
        self, target: Moments, where: Tensor | None = None, *, now: Moments | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """Give the rows the moments ``target``: ``z <- (z - E[R]) * sigma / s[R] + mu`` (ICCV 2023, eq. 3).

        Args:
            target: Whose ``mean`` and ``std`` count.
            where: Shape (), boolean: False leaves the rows alone. None is True.
            now: Moments of R, where R is more than the rows of this ring; None: these are all.

        Returns:
            ``E[R]`` and ``s[R]`` before, (dim,) each; None without rows.
        """
        if self.count and now is not None:
            return self.map.move(now, target, where)
        if self.count:
            return self.map.match(self.stored_mean, self._stored_std(), target, where)
        if self._is_half:
            self.map.become_frame(target.mean, target.std)
        return None

    def positions(self, slots: Tensor) -> Tensor:
        """Which rows, counted without gaps, the slots (n,) hold; -1 stays -1."""
        if not self.may_have_gaps:
            return slots
        return ((~self.is_gap).cumsum(0) - 1)[slots].where(slots >= 0, -1)

    def read(self, start: int = 0, stop: int | None = None, out: Tensor | None = None) -> Tensor:
        """Realigned rows of the slots in use from ``start`` to ``stop``, in ``out`` or in a fresh tensor."""
        return self.map.to_embeddings(self.stored[start : self.count if stop is None else min(stop, self.count)], out)

    def gather(self, slots: Tensor) -> Tensor:
        """Realigned rows (n, dim) of the slots (n,), as a fresh tensor."""
        return self.map.to_embeddings(self.stored[slots])

    def blocks(self) -> Iterator[Tensor]:
        """The realigned rows of all slots in use in order, as fresh tensors small enough for a core's cache."""
        return (self.read(block.start, block.stop) for block in self._block_slices())

    def fold(self) -> None:
        """Write the map into the rows, which makes it the identity (or a frame), and measure them, block by block."""
        self.may_have_gaps = self.may_have_gaps and not all_known(~self.is_gap)  # once a lap, where asking is free
        before = None if self.map.is_identity else self.map.copied()
        if before is not None:
            self._choose_frame()
        self._set_sums(self._measure(lambda block: self._rewrite(block, before)))

    def _choose_frame(self) -> None:
        """Rows are stored as they are; in half precision with mean 0 and spread 1."""
        if self._is_half:
            sums = self._measure(lambda block: self.read(block.start, block.stop))
            self.map.become_frame(sums.mean, (sums.m2 / at_least_1(sums.held - 1)).sqrt())
        else:
            self.map.reset()

    def _rewrite(self, block: slice, before: AffineMap | None) -> Tensor:
        """Store rows that were read through another map (None: this one); returns them as stored: half rounds."""
        if before is not None:
            self.stored[block] = self._to_stored(before.to_embeddings(self.stored[block]))
        return self.stored[block]

    def _measure(self, rows_of: Callable[[slice], Tensor]) -> Sums:
        """Mean and M2 of the rows that a function returns for blocks of slots, each block once."""
        blocks = (self._rows(rows_of(block), block) for block in self._block_slices())
        return Sums.of(blocks, self.rows_held, like=self.stored_mean)

    def check_loadable(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Refuse the state of a ring of another shape."""
        rows = state_dict.get(f"{prefix}stored")
        if rows is not None and rows.shape != self.stored.shape:
            raise ValueError(
                f"A bank of size {rows.shape[0]} and dim {rows.shape[1]} cannot be loaded into one of "
                f"size {self.size} and dim {self.dim}; make the bank with the size and dim of the checkpoint."
            )

    @property
    def _is_half(self) -> bool:
        return self.dtype != self.compute_dtype

    def _stored_std(self) -> Tensor:
        return (self.stored_m2 / at_least_1(self.rows_held - 1)).sqrt()

    def _block_slices(self) -> Iterator[slice]:
        step = max(BLOCK_BYTES // (self.dim * self.compute_dtype.itemsize), 1)
        return (slice(start, min(start + step, self.count)) for start in range(0, self.count, step))

    def _to_stored(self, rows: Tensor) -> Tensor:
        stored = self.map.to_stored(rows)
        is_short = self.dtype == torch.float16  # the only storage with less range than the arithmetic
        return (stored.clamp(min=-65504, max=65504) if is_short else stored).to(self.dtype)

    def _follow(self, arriving: Tensor, gaps: Tensor | None, leaving: slice | None) -> None:
        """Update mean and M2 of the stored rows."""
        before = Sums(self.stored_mean, self.stored_m2, self.rows_held)
        leaves = None if leaving is None else self._rows(self.stored[leaving], leaving)
        self._set_sums(before.moved(Rows(arriving.to(self.compute_dtype), gaps), leaves))

    def _set_sums(self, sums: Sums) -> None:
        self.stored_mean.copy_(sums.mean)
        self.stored_m2.copy_(sums.m2)

    def _rows(self, values: Tensor, slots: slice) -> Rows:
        """Values (n, dim) of some slots."""
        return Rows(values.to(self.compute_dtype), self.is_gap[slots] if self.may_have_gaps else None)

    def _arriving_gaps(self, count: int, kept: Tensor | None) -> Tensor | None:
        """Which of the last ``size`` of ``count`` rows are gaps; None where marks are not needed."""
        self.may_have_gaps |= kept is not None
        if not self.may_have_gaps:
            return None
        return self.is_gap.new_zeros(count)[-self.size :] if kept is None else ~kept[-self.size :]

    def get_extra_state(self) -> dict[str, Any]:
        """Non-tensor state."""
        return {name: getattr(self, name) for name in ("cursor", "count", "labelled", "may_have_gaps")}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_extra_state` returned."""
        self.cursor, self.count, self.labelled = int(state["cursor"]), int(state["count"]), state["labelled"]
        self.may_have_gaps = bool(state.get("may_have_gaps"))  # older states have no gaps

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if f"{prefix}stored" in state_dict:
            state_dict.setdefault(f"{prefix}is_gap", torch.zeros_like(self.is_gap))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _write_from(buffer: Tensor, first: int, values: Tensor) -> None:
    """Write values (at most as many as the buffer holds) from slot ``first`` on, and past the end from slot 0."""
    until_end = len(buffer) - first
    if len(values) > until_end:
        buffer[: len(values) - until_end] = values[until_end:]
        values = values[:until_end]
    buffer[first : first + len(values)] = values
