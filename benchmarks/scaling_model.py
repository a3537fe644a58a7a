"""What a step of a bank on several ranks costs, on paper: multiplications, bytes sent, bytes held.

With W ranks of B queries each (Q = W B), d dimensions and n rows in all, a rank

- multiplies 2 Q' n' d numbers, once for the similarities and once for the gradient: B queries with n rows where each
  rank holds them all, Q queries with n / W rows in shards. The same.
- sends its batch to all others where each rank holds all rows. In shards: its moments, the sums of its C classes
  (where labels are used), its queries, a few sums of all queries, and the gradients of the others' queries.
- holds n rows, or n / W: numbers, a label of 8 bytes, the mark of a gap.

Collectives are counted as rings send them: an all-gather passes on W - 1 parts, an all-reduce sends 2 (W - 1) / W of
its numbers, an all-to-all (W - 1) / W.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOAT, DOUBLE, INTEGER, MARK = 4, 8, 8, 1  # bytes


@dataclass(frozen=True)
class Setting:
    """A step on several ranks.

    Attributes:
        loss: `supcon`, with labels and an adapter that uses them, or `infonce`, without ids.
        layout: `replicate` or `shard`.
        ranks: W.
        batch: B, of each rank.
        dim: d.
        rows: n, of all ranks together.
        classes: C, in the batch of a rank.
        stored: Bytes of a stored number.
    """

    loss: str
    layout: str
    ranks: int
    batch: int
    dim: int
    rows: int
    classes: int = 16
    stored: int = FLOAT

    @property
    def is_sharded(self) -> bool:
        """Whether each rank holds a part of the rows."""
        return self.layout == "shard" and self.ranks > 1

    @property
    def queries(self) -> int:
        """Of all ranks."""
        return self.ranks * self.batch


def multiplications(at: Setting) -> int:
    """Of a rank."""
    if at.is_sharded:
        return 2 * at.queries * (at.rows // at.ranks) * at.dim
    return 2 * at.batch * at.rows * at.dim


def bytes_held(at: Setting) -> int:
    """Of the bank, by a rank; moments, map and filter are O(dim) beside."""
    rows = at.rows // at.ranks if at.is_sharded else at.rows
    return rows * (at.stored * at.dim + INTEGER + MARK)


def bytes_sent(at: Setting) -> dict[str, float]:
    """By a rank, by what they are."""
    others, all_reduce = at.ranks - 1, 2 * (at.ranks - 1) / at.ranks
    labelled = at.loss == "supcon"
    counts = others * 2 * INTEGER
    row = FLOAT * at.dim + INTEGER * labelled
    if not at.is_sharded:
        return {"counts": counts, "batch": others * at.batch * row}
    numbers_to_add = (5 * DOUBLE + FLOAT) if labelled else 2 * DOUBLE
    return {
        "counts": counts,
        "moments": others * DOUBLE * (3 + 5 * at.dim),
        "classes": others * at.classes * (INTEGER + FLOAT + FLOAT * at.dim) * labelled,
        "queries": others * at.batch * (row + MARK * labelled),
        "sums": all_reduce * at.queries * numbers_to_add,
        "gradients": others * at.batch * FLOAT * at.dim,
    }


def similarities(at: Setting) -> int:
    """Of a rank: written and read a few times each, though never all at once."""
    return at.queries * (at.rows // at.ranks) if at.is_sharded else at.batch * at.rows
