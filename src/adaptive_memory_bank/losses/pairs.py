"""Which pairs of a query and a row count, and how many did."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Pairs(NamedTuple):
    """How many pairs a loss was made of."""

    positive: int
    negative: int


class Mining(ABC):
    """Decides by their cosine which pairs of a query and a row count.

    Attributes:
        relative: Whether the bounds of a query depend on its other pairs.
    """

    relative = False

    @abstractmethod
    def negatives_above(self, farthest_positive: Tensor) -> float | Tensor:
        """Cosine above which negatives count: one number, or (B,) if ``relative``.

        The argument, the lowest cosine of each query to a row of its label (B,), means something only then.
        """

    @abstractmethod
    def positives_below(self, nearest_negative: Tensor) -> float | Tensor:
        """Cosine below which positives count, likewise: the argument is the highest cosine to another label."""


@dataclass(frozen=True)
class Margins(Mining):
    """Positives below a cosine and negatives above one; infinity where all count."""

    positive_below: float
    negative_above: float

    @classmethod
    def of(cls, pos_margin: float, neg_margin: float) -> "Margins":
        """Turn Euclidean distances of unit vectors into cosines: ``d > m`` is ``cos < 1 - m^2/2``.

        Example:
            >>> Margins.of(1.0, 0.0)
            Margins(positive_below=0.5, negative_above=1.0)
            >>> Margins.of(-1.0, -1.0)  # every distance is larger than that
            Margins(positive_below=inf, negative_above=inf)
        """
        positive_below = torch.inf if pos_margin < 0 else 1 - pos_margin**2 / 2
        negative_above = torch.inf if neg_margin < 0 else max(1 - neg_margin**2 / 2, -2.0)
        return cls(positive_below, negative_above)

    def negatives_above(self, farthest_positive: Tensor) -> float:
        """Cosine above which negatives count."""
        return self.negative_above

    def positives_below(self, nearest_negative: Tensor) -> float:
        """Cosine below which positives count."""
        return self.positive_below


ALL_PAIRS = Margins(torch.inf, -torch.inf)


@dataclass(frozen=True)
class HardPairs(Mining):
    """Positives hardly nearer than the nearest negative, and negatives hardly farther than the farthest positive.

    Wang et al., "Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning", CVPR 2019, section 3.3.
    A query without positives has no such negatives, and the reverse.
    """

    epsilon: float
    relative = True

    def negatives_above(self, farthest_positive: Tensor) -> Tensor:
        """Cosine above which negatives count, (B,)."""
        return farthest_positive - self.epsilon

    def positives_below(self, nearest_negative: Tensor) -> Tensor:
        """Cosine below which positives count, (B,)."""
        return nearest_negative + self.epsilon
