"""Which pairs of a query and a row count, and how many did."""

from typing import NamedTuple

import torch


class Pairs(NamedTuple):
    """How many pairs a loss was made of."""

    positive: int
    negative: int


class Margins(NamedTuple):
    """Which pairs count: positives below a cosine, negatives above one; infinity where all do."""

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


ALL_PAIRS = Margins(torch.inf, -torch.inf)
