"""The contrastive loss of all pairs of a batch and a whole bank, with its gradient, in one walk."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from adaptive_memory_bank.losses.compare import Compared, add_positives, mean_weights
from adaptive_memory_bank.losses.walk import Block, WeightedRows, rows_above
from adaptive_memory_bank.ring import LazyRing


class Distance(Protocol):
    """A distance of unit vectors, as a falling function of their cosine."""

    def of(self, cosines: Tensor) -> Tensor:
        """Distances, in a fresh tensor."""

    def fall(self, distances: Tensor) -> Tensor:
        """By how much each distance falls as its cosine rises: minus the derivative, in place of the distances."""

    def cosine(self, distance: float) -> float:
        """The cosine at a distance; infinite where all cosines have a larger or all a smaller one."""


@dataclass(frozen=True)
class Euclidean:
    """``sqrt(2 - 2 cos)``. A pair closer than rounding can tell has no direction to move in, and derivative 0."""

    def of(self, cosines: Tensor) -> Tensor:
        """Distances."""
        return (2 - 2 * cosines).clamp_(min=0).sqrt_()

    def fall(self, distances: Tensor) -> Tensor:
        """One over the distance."""
        rounding = math.sqrt(8 * torch.finfo(distances.dtype).eps)
        return distances.masked_fill_(distances < rounding, torch.inf).reciprocal_()

    def cosine(self, distance: float) -> float:
        """``1 - d^2 / 2``."""
        if distance <= 0:
            return torch.inf
        return -torch.inf if distance > 2 else 1 - distance**2 / 2


@dataclass(frozen=True)
class Linear:
    """``start - slope * cos``: the square of the Euclidean distance is ``2 - 2 cos``, the negative cosine ``-cos``."""

    start: float
    slope: float

    def of(self, cosines: Tensor) -> Tensor:
        """Distances."""
        return self.start - self.slope * cosines

    def fall(self, distances: Tensor) -> Tensor:
        """The slope."""
        return distances.fill_(self.slope)

    def cosine(self, distance: float) -> float:
        """``(start - d) / slope``."""
        return (self.start - distance) / self.slope


@dataclass(frozen=True)
class Contrastive:
    """``max(d_ip - pos_margin, 0)`` on average of kept positive pairs, plus ``max(neg_margin - d_in, 0)`` of negative.

    Averages are over the pairs above 0, or over all (Hadsell et al., "Dimensionality Reduction by Learning an Invariant
    Mapping", CVPR 2006, without the squares).
    """

    distance: Distance
    pos_margin: float
    neg_margin: float
    above_zero: bool = True

    def sums(self, queries: Tensor, *, gradient: bool) -> "HingeSum":
        """The negatives' part."""
        return HingeSum(queries, self.distance, self.neg_margin, gradient=gradient)

    def combine(self, ring: LazyRing, pairs: Compared, negatives: "HingeSum") -> tuple[Tensor, Tensor | None]:
        """The loss, (), and its gradient (B, dim)."""
        distances = self.distance.of(pairs.related.logits)
        losses = (distances - self.pos_margin).clamp_(min=0)
        enough = pairs.more_than_one.to(losses.dtype)
        weights = mean_weights(losses, pairs.kept, above_zero=self.above_zero) * enough
        share = enough / (negatives.above_zero if self.above_zero else pairs.negative).clamp(min=1)
        value = (losses * weights).sum() + negatives.total * share
        if negatives.weighted is None:
            return value, None
        pull = self.distance.fall(distances).mul_(weights).masked_fill_(losses <= 0, 0).neg_()
        return value, add_positives(negatives.weighted.sum() * share, ring, pairs.related, pull)


class HingeSum:
    """Running ``sum_ij max(margin - d_ij, 0)`` over all pairs, and its derivatives in the queries.

    Attributes:
        sharpness: Logits are cosines.
        nothing: A logit that adds nothing.
        kept: The pairs counted by `add_counted`, ().
        above_zero: Of these, the ones closer than the margin, ().
    """

    sharpness, nothing = 1.0, -1e12

    def __init__(self, queries: Tensor, distance: Distance, margin: float, *, gradient: bool) -> None:
        self.distance, self.margin = distance, margin
        self.total = queries.new_zeros(())
        self.kept, self.above_zero = torch.zeros(2, dtype=torch.int64, device=queries.device)
        self.weighted = WeightedRows(queries) if gradient else None

    def add_counted(self, block: Block) -> None:
        """Count a block in, and its logits that are not ``nothing``."""
        self.kept += (block.logits > self.nothing).sum()
        self.add(block)

    def add(self, block: Block) -> None:
        """Count a block in; its logits are used up."""
        block = rows_above(block, self.distance.cosine(self.margin))
        distances = self.distance.of(block.logits)
        hinges = torch.sub(self.margin, distances, out=block.logits).clamp_(min=0)
        outside = hinges <= 0
        self.total += hinges.sum()
        self.above_zero += outside.numel() - outside.sum()
        if self.weighted is not None:
            weights = self.distance.fall(distances).masked_fill_(outside, 0)
            weights = weights if block.factors is None else weights.mul_(block.factors)
            self.weighted.add(weights, block.rows)
