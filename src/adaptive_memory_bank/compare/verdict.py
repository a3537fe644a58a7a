"""The sentence at the end: is the difference to plain memory beyond the noise? Never more than the data says."""

from statistics import fmean

from .columns import Column
from .comparison import Condition, Section
from .statistics import FEWEST_SEEDS, Difference, paired_differences


def verdict(section: Section, *, at: Condition | None = None) -> str:
    """Say what the runs of a section show about adapters against plain memory."""
    column, where = section.column, f"On {section.title}" + (f" at {at}" if at is not None and str(at) else "")
    if section.reference is None:
        return (
            f"{where}: no run with plain memory (adapter `identity`) is complete, so there is nothing to compare with."
        )
    differences = [d for d in paired_differences(section, at=at) if d.name != section.baseline]
    if not differences:
        return (
            f"{where}: no adapter shares a seed with `{section.reference}` (plain memory), so nothing can be compared."
        )
    level = _mean(section, section.reference, at)
    if at is None and len(section.conditions) > 1:
        where += f", averaged over {len(section.conditions)} conditions"
    plain = f"plain memory (`{section.reference}`" + (f", {column.title} {column.show(level)})" if level else ")")
    return f"{where}, {_sentence(differences, column, plain)}"


def _sentence(differences: list[Difference], column: Column, plain: str) -> str:
    better = sorted((d for d in differences if d.is_beyond_noise and d.mean > 0), key=lambda d: -d.mean)
    worse = sorted((d for d in differences if d.is_beyond_noise and d.mean < 0), key=lambda d: d.mean)
    parts = []
    if better:
        parts.append(f"{_listed(better, column)} better than {plain}: beyond the noise")
    if worse:
        parts.append(f"{_listed(worse, column)} worse than {plain}: beyond the noise")
    if not parts:
        return _undecided(differences, column, plain)
    rest = len(differences) - len(better) - len(worse)
    family = differences[0].comparisons
    basis = f"paired 95 % intervals over {_seeds(better + worse)}" + (
        f", for {family} comparisons" if family > 1 else ""
    )
    others = f" The other {'one is' if rest == 1 else f'{rest} are'} within the noise." if rest else ""
    return f"{'; '.join(parts)} ({basis}).{others}"


def _undecided(differences: list[Difference], column: Column, plain: str) -> str:
    if all(value == 0 for d in differences for value in d.values):
        return f"every adapter scores exactly as {plain} does."
    top = max(differences, key=lambda d: d.mean)
    if top.seeds < FEWEST_SEEDS:
        lead = f"{_seeds([top])} cannot tell an adapter from {plain} beyond the noise"
    else:
        lead = f"no adapter differs from {plain} beyond the noise of {_seeds(differences)}"
    return f"{lead}: the highest mean is that of `{top.name}`, {points(top.mean, column)}{_interval(top, column)}"


def _interval(top: Difference, column: Column) -> str:
    if top.seeds < FEWEST_SEEDS:  # an interval over two seeds is as wide as the scale; the seeds themselves say more
        each = " and ".join(points(value, column, unit=False) for value in top.values)
        return f" ({each}). Add seeds." if top.seeds > 1 else ". Add seeds."
    if top.half_width is None:
        return f" with each of the {top.seeds} seeds. Add seeds."
    ahead = f"ahead with {sum(value > 0 for value in top.values)} of {top.seeds} seeds"
    return f" (95 % interval {points(top.low, column, unit=False)} to {points(top.high, column)}; {ahead})."


def points(value: float, column: Column, *, unit: bool = True) -> str:
    """Write a difference with its sign; shares differ by percentage points.

    Example:
        >>> from adaptive_memory_bank.compare.columns import RECALL_1
        >>> points(0.0123, RECALL_1), points(-0.004, RECALL_1, unit=False)
        ('+1.2 points', '-0.4')
    """
    text = f"{100 * value:+.1f}" if column.percent else f"{value:+.3f}"
    return f"{text} points" if unit and column.percent else text


def _listed(differences: list[Difference], column: Column) -> str:
    named = [f"`{d.name}` ({points(d.mean, column)})" for d in differences]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named) + (
        " are" if len(named) > 1 else " is"
    )


def _seeds(differences: list[Difference]) -> str:
    least, most = min(d.seeds for d in differences), max(d.seeds for d in differences)
    return f"{least} seed{'s' * (least != 1)}" if least == most else f"{least} to {most} seeds"


def _mean(section: Section, name: str, at: Condition | None) -> float | None:
    conditions = section.conditions if at is None else [at]
    values = [v for c in conditions for v in section.values(name, section.column, at=c).values()]
    return fmean(values) if values else None
