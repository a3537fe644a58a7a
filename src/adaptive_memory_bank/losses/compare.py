"""The pairs of a batch and a bank: positives one by one, negatives summed up block by block."""

from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.distributed import Alone, Ranks, wants_gradient
from adaptive_memory_bank.losses.pairs import ALL_PAIRS, Mining
from adaptive_memory_bank.losses.related import RelatedRows
from adaptive_memory_bank.losses.soft_sum import with_gradient
from adaptive_memory_bank.losses.walk import Block, Workspace, rows_above, unit_factors, walk
from adaptive_memory_bank.ring import LazyRing


class Queries(NamedTuple):
    """What is compared with a bank."""

    unit: Tensor  # (B, dim)
    labels: Tensor  # (B,)
    slots: Tensor  # (B,): where in the ring each query is itself, or -1
    counted: Tensor | None = None  # (B,): False for queries that are not finite, which have no pairs; None for all

    def of_all(self, ranks: Ranks) -> "Queries":
        """The queries of all ranks; those of others are not in this ring."""
        if isinstance(ranks, Alone):
            return self
        counted = torch.ones_like(self.labels, dtype=torch.bool) if self.counted is None else self.counted
        unit, labels, counted = ranks.gather(self.unit, self.labels, counted)
        slots = torch.full_like(labels, -1)
        slots[ranks.own] = self.slots
        return Queries(unit, labels, slots, counted)


class NegativeSums(Protocol):
    """What a loss makes of pairs of different labels, in one walk.

    Attributes:
        sharpness: Logits are cosines times this.
        nothing: A logit that adds nothing.
    """

    sharpness: float
    nothing: float

    @property
    def kept(self) -> Tensor:
        """The pairs counted by `add_counted`, in all, (), or of each query, (B,): whole numbers."""

    def add(self, block: Block) -> None:
        """Count a block in; its logits are used up."""

    def add_counted(self, block: Block) -> None:
        """The same, and count the logits that are not ``nothing``."""


class Compared(NamedTuple):
    """The pairs of a batch and a bank."""

    related: RelatedRows
    kept: Tensor  # (h, B): which related rows are positives that count
    positive: Tensor  # (): how many pairs of the same label
    negatives: Tensor  # () or (B,): how many of different labels, in all or of each query

    @property
    def negative(self) -> Tensor:
        """How many pairs of different labels, ()."""
        return self.negatives.sum()

    @property
    def more_than_one(self) -> Tensor:
        """Whether there are several pairs of either kind, (): pytorch-metric-learning gives up on fewer."""
        return torch.maximum(self.positive, self.negative) > 1

    @property
    def of_both_kinds(self) -> Tensor:
        """Whether there are positives and negatives, and several of one kind, ()."""
        positive, negative = self.positive, self.negative
        return torch.minimum(positive, negative).gt(0) & torch.maximum(positive, negative).gt(1)


Sums = TypeVar("Sums", bound=NegativeSums)


class PairLoss(Protocol[Sums]):
    """A loss of pairs of a query and a row, which can be had in one walk over the rows."""

    def sums(self, queries: Tensor, *, gradient: bool) -> Sums:
        """Begin to sum up the negatives of queries (B, dim)."""

    def combine(self, ring: LazyRing, pairs: Compared, negatives: Sums) -> tuple[Tensor, Tensor | None]:
        """The loss, (), and its gradient in the queries (B, dim), if it is wanted."""


class Plan(NamedTuple):
    """A loss, and which pairs count."""

    loss: PairLoss[Any]
    mining: Mining


def loss_against_bank(
    bank: AdaptiveMemoryBank, rows: Tensor, labels: Tensor, *, slots: Tensor, plan: Plan, workspace: Workspace
) -> tuple[Tensor, Compared]:
    """The loss of a batch against a bank, a scalar with a gradient in the batch, and the pairs it is made of.

    Args:
        bank: Holds labelled rows.
        rows: Shape (B, dim), any floating point type, any length.
        labels: Shape (B,), integers.
        slots: Where in the bank each of the rows is itself, shape (B,), or -1.
        plan: The loss, and which pairs count.
        workspace: Memory for a block of rows.
    """
    wanted = wants_gradient(rows)
    with torch.autocast(rows.device.type, enabled=False):
        with torch.no_grad():
            batch = rows.to(bank.compute_dtype)
            factors = unit_factors(batch)
            unit = batch * factors
            sums = plan.loss.sums(unit, gradient=wanted)
            queries = Queries(unit, labels, slots)
            pairs = compare(bank.ring, queries, sums=sums, mining=plan.mining, workspace=workspace)
            value, gradient = plan.loss.combine(bank.ring, pairs, sums)
            value = value + 0 * unit.sum()  # NaN where a row is not finite, whatever masks and counts made of it
            if gradient is not None:
                gradient = _in_rows(gradient, unit, factors)
        return with_gradient(rows, value, gradient), pairs


def _in_rows(gradient: Tensor, unit: Tensor, factors: Tensor) -> Tensor:
    """A gradient (B, dim) in unit vectors, as one in the rows that were multiplied by (B, 1) to become them.

    What would lengthen a row does not change its direction. Autograd does the same in three times as many steps.
    """
    lengthening = (gradient * unit).sum(1, keepdim=True)
    return torch.addcmul(gradient, unit, lengthening, value=-1).mul_(factors)


def compare(ring: LazyRing, queries: Queries, *, sums: NegativeSums, mining: Mining, workspace: Workspace) -> Compared:
    """Walk over all rows, sum up the negatives, and note which positives count."""
    related = RelatedRows.of(ring, queries.unit, queries.labels)
    negatives = _Negatives(ring, queries, related, sums, mining)
    blocks = walk(ring, queries.unit * sums.sharpness, workspace)
    for block, part in zip(blocks, related.parts(), strict=False):  # there may be no block
        negatives.add(block, part)
    kept = related.same & (related.slots[:, None] != queries.slots)
    if queries.counted is not None:
        kept &= queries.counted
    if mining is not ALL_PAIRS:
        kept &= related.logits < negatives.positives_below
    return Compared(related, kept, kept.sum(), negatives.kept)


class _Negatives:
    """Pairs of different labels: drops those that mining drops, and gives the rest to the sums of a loss."""

    def __init__(
        self, ring: LazyRing, queries: Queries, related: RelatedRows, sums: NegativeSums, mining: Mining
    ) -> None:
        self.sums, self.mining = sums, mining
        self.takes_all = mining is ALL_PAIRS
        self.may_be_few = True  # rows with a pair that mining keeps
        self.left_out = None if queries.counted is None else ~queries.counted
        self.count = _different(ring, queries, related) if self.takes_all else None
        self.nearest = queries.unit.new_full((len(queries.unit),), -torch.inf)  # largest logit, noted if relative
        farthest = _farthest(ring, queries, related) if mining.relative else self.nearest
        self.above = mining.negatives_above(farthest) * sums.sharpness

    def add(self, block: Block, related: RelatedRows) -> None:
        """Count a block in, and note the logits of related rows, which do not come by again."""
        related.hide(block.logits, self.sums.nothing)
        if self.left_out is not None:
            block.logits.masked_fill_(self.left_out, self.sums.nothing)
        if self.takes_all:
            self.sums.add(block)
            return
        if self.mining.relative:
            self.nearest = torch.maximum(self.nearest, block.logits.amax(0))
        if self.may_be_few:  # rows of a bank are alike: once most of a block counted, the others are not looked through
            before, block = len(block.rows), rows_above(block, self.above)
            self.may_be_few = len(block.rows) < before
        if len(block.rows):
            _drop(block.logits, self.above, self.sums.nothing)
            self.sums.add_counted(block)

    @property
    def kept(self) -> Tensor:
        """How many were kept, in all, (), or of each query, (B,)."""
        return self.sums.kept if self.count is None else self.count

    @property
    def positives_below(self) -> float | Tensor:
        """The logit below which positives count, a number or (B,)."""
        seen = self.nearest.masked_fill(self.nearest <= self.sums.nothing, -torch.inf)
        return self.mining.positives_below(seen / self.sums.sharpness) * self.sums.sharpness


def _different(ring: LazyRing, queries: Queries, related: RelatedRows) -> Tensor:
    """Pairs of different labels of each query, (B,)."""
    different = ring.rows_held - related.same.sum(0)
    return different if queries.counted is None else different * queries.counted


def _drop(logits: Tensor, above: float | Tensor, nothing: float) -> None:
    """Overwrite logits (b, B) up to a bound, a number or (B,), by ``nothing``."""
    if isinstance(above, Tensor):
        logits.masked_fill_(logits <= above, nothing)
    else:
        torch.threshold_(logits, above, nothing)


def _farthest(ring: LazyRing, queries: Queries, related: RelatedRows) -> Tensor:
    """Lowest cosine of each query to a row of its label, itself included, (B,); infinity without any."""
    lowest = queries.unit.new_full((1, len(queries.unit)), torch.inf)
    for slots, same in zip(*(torch.split(part, related.step) for part in (related.slots, related.same)), strict=True):
        cosines = _unit_rows(ring, slots) @ queries.unit.T
        lowest = torch.cat([lowest, cosines.masked_fill_(~same, torch.inf)]).amin(0, keepdim=True)
    return lowest[0]


def add_positives(gradient: Tensor, ring: LazyRing, related: RelatedRows, weights: Tensor) -> Tensor:
    """Add to a gradient (B, dim) the related rows, weighted by (h, B)."""
    for slots, part in zip(*(torch.split(part, related.step) for part in (related.slots, weights)), strict=True):
        gradient.addmm_(part.T, _unit_rows(ring, slots))
    return gradient


def _unit_rows(ring: LazyRing, slots: Tensor) -> Tensor:
    rows = ring.gather(slots)
    return rows.mul_(unit_factors(rows))


def mean_weights(losses: Tensor, counted: Tensor, *, above_zero: bool) -> Tensor:
    """What each loss counts for in the mean of those counted, or only of those above 0: the shape of the losses."""
    if above_zero:
        counted = counted & (losses > 0)
    # Masks instead of indices and branches: these would make a GPU wait, and cost more on a CPU.
    return counted.to(losses.dtype) / counted.sum().clamp(min=1)
