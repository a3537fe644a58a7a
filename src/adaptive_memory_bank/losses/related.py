"""Rows of a bank that share a label with a query: few, and treated apart from the walk over all rows."""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from adaptive_memory_bank.losses.walk import rows_per_block
from adaptive_memory_bank.masks import reading_is_free
from adaptive_memory_bank.ring import LazyRing

TABLE_BITS = range(15, 29)  # of a table that fits the first cache, to one for a billion rows
OTHERS = 1 << 10  # rows that may find their entry in the table marked by the label of another
WIDEST = 1 << 26  # pairs of a row and a query that may be looked at one by one where asking means waiting
GOLDEN = -0x61C8864680B583EB  # 2^64 / golden ratio, as a signed integer: spreads labels of any pattern (Knuth, 6.4)


def _table_bits(pairs: int) -> int:
    """Bits of a table in which few of the rows that make so many pairs with the labels are mistaken.

    Example:
        >>> _table_bits(30_000 * 64), _table_bits(1_000_000 * 256), _table_bits(1_000_000_000 * 4096)
        (15, 18, 28)
    """
    return min(max((pairs // OTHERS).bit_length(), TABLE_BITS[0]), TABLE_BITS[-1])


def _entries(labels: Tensor, bits: int) -> Tensor:
    """Where in a table of 2^bits each label has its entry; others may share it."""
    return (labels * GOLDEN >> (64 - bits)) & ((1 << bits) - 1)


def _slots_sharing(labels: Tensor, stored: Tensor) -> Tensor:
    """Slots (h,), ascending, of all stored labels (n,) that are among the labels (B,), and of few others.

    One in 2^bits / B labels finds its entry marked by another. Sorting these out would cost more than they do, and an
    exact search in the first place ten times as much.
    """
    bits = _table_bits(len(stored) * len(labels))
    marked = torch.zeros(1 << bits, dtype=torch.bool, device=labels.device)
    marked[_entries(labels, bits)] = True
    return marked.index_select(0, _entries(stored, bits)).nonzero()[:, 0]


def _slots_to_look_at(labels: Tensor, stored: Tensor) -> Tensor:
    """Slots that may share a label: few, or all of them where finding out how many would mean waiting.

    A bank for which all of them are too many makes for a step so long that a GPU waits for nothing.
    """
    if reading_is_free(labels.device) or len(stored) * len(labels) > WIDEST:
        return _slots_sharing(labels, stored)
    return torch.arange(len(stored), device=labels.device)


def _edges(slots: Tensor, step: int, count: int) -> list[int]:
    """Where in the slots each block of ``step`` rows begins, and where the last one ends."""
    if step >= count:
        return [0, len(slots)]
    starts = range(0, count + step, step)
    if len(slots) == count:  # all of them
        return [min(start, count) for start in starts]
    return torch.searchsorted(slots, torch.tensor(starts, device=slots.device)).tolist()


class RelatedRows(NamedTuple):
    """The rows that have the label of any query, and others (few on a CPU): all positives are among them."""

    slots: Tensor  # (h,), ascending
    same: Tensor  # (h, B), whether the labels are the same
    logits: Tensor  # (h, B), filled in during the walk
    edges: list[int]  # where in the slots each block begins
    step: int  # rows of a block
    has_gaps: bool  # whether rows may be gaps, which have the label of no query

    @classmethod
    def of(cls, ring: LazyRing, queries: Tensor, labels: Tensor) -> "RelatedRows":
        """Find the rows of a ring that have the label of any query."""
        stored = ring.labels
        labels = labels.to(stored.dtype)
        slots = _slots_to_look_at(labels, stored)
        same = stored[slots][:, None] == labels
        if ring.gaps is not None:
            same &= ~ring.gaps[slots, None]
        logits = queries.new_empty(len(slots), len(queries))
        step = rows_per_block(ring, queries)
        return cls(slots, same, logits, _edges(slots, step, ring.count), step, ring.gaps is not None)

    def parts(self) -> list["RelatedRows"]:
        """The related rows inside each block, with slots counted from its start."""
        if len(self.edges) == 2:
            return [self]
        counts = [end - start for start, end in pairwise(self.edges)]
        split = (torch.split(part, counts) for part in (self.slots % self.step, self.same, self.logits))
        parts = zip(*split, strict=True)
        return [self._replace(slots=slots, same=same, logits=logits, edges=[]) for slots, same, logits in parts]

    def hide(self, logits: Tensor, nothing: float) -> None:
        """Note the logits of these rows in a block (b, B), then overwrite those of the same label by ``nothing``."""
        if len(self.slots):
            torch.index_select(logits, 0, self.slots, out=self.logits)
            logits.index_copy_(0, self.slots, self.logits.masked_fill(self.same, nothing))
        if self.has_gaps:  # what nobody counts must not be infinite all the same
            self.logits.masked_fill_(self.logits.isinf(), 0)
