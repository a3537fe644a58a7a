"""Judge: does staleness limit this training, and how much of the gain of a fresh memory do adapters reach?"""

from statistics import fmean

from adaptive_memory_bank.lab.compare.comparison import Condition, Pick, Section
from adaptive_memory_bank.lab.compare.statistics import (
    FEWEST_SEEDS,
    Difference,
    differences_by_seed,
    paired_difference,
    shared_conditions,
)


def freshness_gain(section: Section, *, at: Condition | None = None, pick: Pick = "chosen") -> Difference | None:
    """The difference of a memory that is kept fresh to plain memory; None where they share no seed."""
    if not section.ceilings or section.plain is None:
        return None
    return paired_difference(section, section.ceilings[0], section.plain, at=at, pick=pick)


def shares_of_the_way(section: Section, *, at: Condition | None = None, pick: Pick = "chosen") -> dict[str, float]:
    """The share of the way from plain memory to a fresh one that every memory goes: 0 for plain, 1 for fresh.

    Empty where that way is not beyond the noise: a share of noise means nothing. A variant that lacks a seed or a
    condition that the way was measured with has no share.
    """
    gain, plain = freshness_gain(section, at=at, pick=pick), section.plain
    if gain is None or plain is None or not gain.is_beyond_noise or gain.mean <= 0:
        return {}
    conditions = shared_conditions(section, gain.name, plain, at=at, pick=pick)
    way = differences_by_seed(section, gain.name, plain, conditions=conditions, pick=pick)
    shares = {}
    for name in (name for name in section.names if name not in section.without_memory):
        differences = differences_by_seed(section, name, plain, conditions=conditions, pick=pick)
        if differences.keys() >= way.keys():
            shares[name] = fmean(differences[seed] for seed in way) / gain.mean
    return shares


def freshness_sentence(section: Section) -> str:
    """Say whether staleness is what limits a training, as far as its runs can tell; empty without a fresh memory."""
    if not section.ceilings or section.plain is None:
        return ""
    gain = freshness_gain(section)
    if gain is None:
        everywhere = " in all conditions" if len(section.conditions) > 1 else ""
        return (
            f"What staleness costs is not known: no complete run of `{section.ceilings[0]}` shares a seed with "
            f"`{section.plain}` (plain memory){everywhere}."
        )
    return _judge(section, gain) + _exceptions(section, gain)


def _judge(section: Section, gain: Difference) -> str:
    metric, seeds = section.headline, f"{gain.seeds} seed{'s' * (gain.seeds != 1)}"
    fresh, by = f"a memory kept fresh (`{gain.name}`)", metric.show_difference(gain.mean)
    if gain.seeds >= FEWEST_SEEDS and gain.is_zero:
        return (
            f"Staleness is not what limits this training: {fresh} scores exactly as plain memory does with each of the "
            f"{seeds}."
        )
    if not gain.is_judged:
        alike = "" if gain.seeds < FEWEST_SEEDS else " with the very same difference"
        each = " and ".join(metric.show_difference(value, unit=False) for value in gain.values)
        values = f" ({each})" if 1 < gain.seeds < FEWEST_SEEDS else ""
        return (
            f"Whether staleness limits this training, {seeds}{alike} cannot tell: {fresh} differs from plain memory by "
            f"{by}{values}."
        )
    ends = f"95 % interval {metric.show_difference(gain.low, unit=False)} to {metric.show_difference(gain.high)}"
    if not gain.is_beyond_noise:
        return (
            f"Staleness is not what limits this training, as far as {seeds} can tell: {fresh} differs from plain "
            f"memory by {by}, within the noise ({ends})."
        )
    if gain.mean < 0:
        return (
            f"Staleness is not what limits this training: {fresh} is worse than plain memory, {by}, beyond the noise "
            f"({ends}, {seeds})."
        )
    return (
        f"Staleness limits this training: {fresh} is better than plain memory, {by}, beyond the noise "
        f"({ends}, {seeds}).{_shares(section)}"
    )


def _shares(section: Section) -> str:
    shares = {name: share for name, share in shares_of_the_way(section).items() if name in section.adapters}
    if not shares:
        return ""
    ranked = sorted(shares, key=lambda name: -shares[name])
    return " Of that way " + listed([f"`{name}` goes {show_share(shares[name])}" for name in ranked]) + "."


def _exceptions(section: Section, gain: Difference) -> str:
    """Over a grid: where the average and a single condition disagree."""
    if len(section.conditions) < 2:
        return ""
    average = gain.is_beyond_noise and gain.mean > 0
    limited = [at for at in section.conditions if shares_of_the_way(section, at=at)]
    if len(limited) == (len(section.conditions) if average else 0):
        return ""
    where = f"at {'; '.join(map(str, limited))}" if limited else "in no condition alone"
    return f" That a fresh memory is better is beyond the noise {where}{' only' if limited else ''}."


def show_share(share: float) -> str:
    """Write a share of the way: 0.714 as `71 %`."""
    return f"{100 * share:.0f} %"


def listed(parts: list[str]) -> str:
    """Join words into a list for a sentence.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a"])
        ('a, b and c', 'a')
    """
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
