"""Judge: means, spreads, and whether a difference is beyond the noise of the seeds."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from scipy.special import stdtrit

from adaptive_memory_bank.lab.compare.comparison import Condition, Pick, Section

CONFIDENCE = 0.95
FEWEST_SEEDS = 3
"""With two seeds, coarse metrics agree to the digit by chance too often to call anything beyond the noise."""

SAME = 1e-9
"""Scores and differences closer than this are equal: rounding, far below what one query more or less changes."""


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; the deviation of a single seed is unknown, not zero."""

    mean: float
    std: float | None
    count: int

    @classmethod
    def of(cls, values: Collection[float]) -> "Spread | None":
        """Summarise values; None where there are none.

        Example:
            >>> Spread.of([1.0, 3.0])
            Spread(mean=2.0, std=1.4142135623730951, count=2)
        """
        if not values:
            return None
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Difference:
    """Mean paired difference of a variant to a reference, with a confidence interval.

    Attributes:
        name: The variant.
        values: Variant minus reference, both trained with the same seed, one value for each seed.
        comparisons: Size of the family for which the intervals hold together.
        conditions: How many points of the grid each value is averaged over.
    """

    name: str
    values: tuple[float, ...]
    comparisons: int
    conditions: int = 1

    @property
    def seeds(self) -> int:
        """Number of pairs."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return fmean(self.values)

    @property
    def half_width(self) -> float | None:
        """Half of the interval; None where the seeds cannot give one."""
        return half_width(self.values, comparisons=self.comparisons)

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        width = self.half_width
        return self.mean - (math.inf if width is None else width)

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        width = self.half_width
        return self.mean + (math.inf if width is None else width)

    @property
    def is_zero(self) -> bool:
        """Whether both score the same with every seed."""
        return all(abs(value) <= SAME for value in self.values)

    @property
    def is_judged(self) -> bool:
        """Whether there are enough seeds, and noise between them, to tell an effect from noise."""
        return self.seeds >= FEWEST_SEEDS and self.half_width is not None

    @property
    def is_beyond_noise(self) -> bool:
        """Whether the interval leaves out zero and rests on enough seeds to be believed."""
        return self.is_judged and (self.low > 0 or self.high < 0)


def half_width(differences: Sequence[float], *, comparisons: int = 1) -> float | None:
    """Half of the paired t interval of a mean: t(1 - 0.05 / (2 m), n - 1) * s / sqrt(n).

    The level is split over the `m` comparisons made at once (Bonferroni), so that picking the best of many variants
    does not make noise look like an effect.

    Returns:
        None for a single pair, and where all pairs differ by the very same amount: so few seeds (or so coarse a
        metric) have not measured the noise at all.

    Example:
        >>> half_width([0.1])
        >>> round(half_width([1.0, 3.0]), 3)  # 12.706 * 1.4142 / 1.4142
        12.706
    """
    if len(differences) < 2:
        return None
    spread = stdev(differences)
    if spread <= SAME:
        return None
    quantile = float(stdtrit(len(differences) - 1, 1 - (1 - CONFIDENCE) / (2 * comparisons)))
    return quantile * spread / math.sqrt(len(differences))


def paired_differences(section: Section, *, at: Condition | None = None) -> list[Difference]:
    """Compare every variant of a section with the reference, paired over seeds, in the metric that decides.

    Three questions are asked, and the intervals of each hold together: which adapter differs from plain memory, which
    training without memory does, and does a memory that is kept fresh.

    Over a grid (`at` is None) the differences are first averaged over the conditions, seed by seed: the seeds are the
    independent repetitions, the conditions are not.
    """
    reference = section.reference
    if reference is None:
        return []
    found = []
    for family in (section.without_memory, section.adapters, section.ceilings):
        differences = [paired_difference(section, name, reference, at=at) for name in family if name != reference]
        known = [difference for difference in differences if difference is not None]
        found += [replace(difference, comparisons=len(known)) for difference in known]
    return sorted(found, key=lambda difference: section.names.index(difference.name))


def paired_difference(
    section: Section, name: str, reference: str, *, at: Condition | None = None, pick: Pick = "chosen"
) -> Difference | None:
    """Compare two variants, over the grid or at one condition; None where they share no seed."""
    conditions = shared_conditions(section, name, reference, at=at, pick=pick)
    values = differences_by_seed(section, name, reference, conditions=conditions, pick=pick)
    return Difference(name, tuple(values.values()), 1, len(conditions)) if values else None


def shared_conditions(
    section: Section, name: str, reference: str, *, at: Condition | None = None, pick: Pick = "chosen"
) -> list[Condition]:
    """The conditions in which two variants share a seed."""
    conditions = section.conditions if at is None else [at]
    return [at for at in conditions if differences_by_seed(section, name, reference, conditions=[at], pick=pick)]


def differences_by_seed(
    section: Section, name: str, reference: str, *, conditions: Sequence[Condition], pick: Pick = "chosen"
) -> dict[int, float]:
    """Difference of two variants by seed, averaged over conditions.

    A seed that lacks a condition is left out: it would mix the effect of the condition into the noise.
    """
    found = [_by_seed(section, name, reference, at=at, pick=pick) for at in conditions]
    seeds = set.intersection(*(set(differences) for differences in found)) if found else set()
    return {seed: fmean(differences[seed] for differences in found) for seed in sorted(seeds)}


def _by_seed(section: Section, name: str, reference: str, *, at: Condition, pick: Pick) -> Mapping[int, float]:
    ours, theirs = (section.values(variant, section.headline, at=at, pick=pick) for variant in (name, reference))
    return {seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs}
