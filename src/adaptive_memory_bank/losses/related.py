"""Rows of a bank that share a label with a query: few, and treated apart from the walk over all rows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from adaptive_memory_bank.losses.walk import rows_per_block
from adaptive_memory_bank.ring import LazyRing

TABLE = 1 << 16  # entries; a power of two


def _slots_sharing(labels: Tensor, stored: Tensor) -> Tensor:
    """Slots (h,), ascending, of the stored labels (n,) that are among the labels (B,)."""
    # Searching for all n would take longer than all other small operations of a step. A table of low bits, which a
    # label may share with others, leaves few to search for.
    marked = torch.zeros(TABLE, dtype=torch.bool, device=labels.device)
    marked[labels & (TABLE - 1)] = True
    slots = marked.index_select(0, stored & (TABLE - 1)).nonzero()[:, 0]
    known, found = torch.unique(labels), stored[slots]
    return slots[known[torch.searchsorted(known, found).clamp_(max=len(known) - 1)] == found]


class RelatedRows(NamedTuple):
    """The rows that have the label of any query: all positives are among them, and often few others."""

    slots: Tensor  # (h,), ascending
    same: Tensor  # (h, B), whether the labels are the same
    logits: Tensor  # (h, B), filled in during the walk
    edges: list[int]  # where in the slots each block begins
    step: int  # rows of a block

    @classmethod
    def of(cls, ring: LazyRing, queries: Tensor, labels: Tensor) -> RelatedRows:
        """Find the rows of a ring that have the label of any query."""
        stored = ring.labels
        labels = labels.to(stored.dtype)
        slots = _slots_sharing(labels, stored)
        step = rows_per_block(ring, queries)
        starts = torch.arange(0, ring.count + step, step, device=slots.device)
        same = stored[slots][:, None] == labels
        logits = queries.new_empty(len(slots), len(queries))
        return cls(slots, same, logits, torch.searchsorted(slots, starts).tolist(), step)

    def part(self, index: int) -> RelatedRows:
        """The related rows inside one block, with slots counted from its start."""
        here = slice(self.edges[index], self.edges[index + 1])
        return RelatedRows(self.slots[here] - index * self.step, self.same[here], self.logits[here], [], self.step)

    def hide(self, logits: Tensor, nothing: float) -> None:
        """Note the logits of these rows in a block (b, B), then overwrite those of the same label by ``nothing``."""
        if len(self.slots):
            torch.index_select(logits, 0, self.slots, out=self.logits)
            logits.index_copy_(0, self.slots, self.logits.masked_fill(self.same, nothing))
