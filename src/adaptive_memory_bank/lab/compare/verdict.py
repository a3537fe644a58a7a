"""Judge: the verdict in words, is a difference to plain memory beyond the noise? It never says more than the data."""

from collections.abc import Sequence
from statistics import fmean

from adaptive_memory_bank.lab.compare.ceiling import freshness_sentence, listed
from adaptive_memory_bank.lab.compare.comparison import Section
from adaptive_memory_bank.lab.compare.statistics import FEWEST_SEEDS, SAME, Difference, paired_differences
from adaptive_memory_bank.lab.runs.metrics import Metric
from adaptive_memory_bank.lab.runs.variants import PLAIN_MEMORY


def verdict(section: Section) -> str:
    """Say what the runs of a section show: about adapters against plain memory, and about staleness."""
    return " ".join(filter(None, [_about_adapters(section), freshness_sentence(section)]))


def _about_adapters(section: Section) -> str:
    where = f"On {section.title}"
    if section.reference is None:
        return (
            f"{where}: no run with plain memory (adapter `identity`) is complete, so there is nothing to compare with."
        )
    reference = _named(section)
    if not section.adapters:
        return f"{where}: no adapter stands next to {reference}, so there is none to judge."
    differences = [d for d in paired_differences(section) if d.name in section.adapters]
    if not differences:
        everywhere = " in all conditions" if len(section.conditions) > 1 else ""
        return f"{where}: no adapter shares a seed with {reference}{everywhere}, so nothing can be compared."
    if len(section.conditions) > 1:
        where += f", averaged over {_range([d.conditions for d in differences], 'condition')}"
    return f"{where}, {_sentence(differences, section.headline, reference)}"


def _named(section: Section) -> str:
    """The reference with its mean score; plain memory is called by that name."""
    name, metric = str(section.reference), section.headline
    values = [value for at in section.conditions for value in section.values(name, metric, at=at).values()]
    score = f"{metric.label} {metric.show(fmean(values))}" if values else ""
    if all(run.adapter in PLAIN_MEMORY for run in section.of(name)):
        return f"plain memory ({', '.join(filter(None, [f'`{name}`', score]))})"
    return f"`{name}`" + (f" ({score})" if score else "")


def _sentence(differences: Sequence[Difference], metric: Metric, reference: str) -> str:
    beyond = [d for d in differences if d.is_beyond_noise]
    if not beyond:
        return _undecided(differences, metric, reference)
    better = sorted((d for d in beyond if d.mean > 0), key=lambda d: -d.mean)
    worse = sorted((d for d in beyond if d.mean < 0), key=lambda d: d.mean)
    parts = [
        f"{listed([f'`{d.name}` ({metric.show_difference(d.mean)})' for d in group])} "
        f"{'is' if len(group) == 1 else 'are'} {how} than {reference}: beyond the noise"
        for group, how in ((better, "better"), (worse, "worse"))
        if group
    ]
    family = f", for {len(differences)} comparisons" if len(differences) > 1 else ""
    basis = f"paired 95 % intervals over {_range([d.seeds for d in beyond], 'seed')}{family}"
    return f"{'; '.join(parts)} ({basis}).{_rest(differences)}"


def _rest(differences: Sequence[Difference]) -> str:
    """Name the adapters that are not beyond the noise, by what is known of them."""
    groups = {
        "Within the noise": [d for d in differences if d.is_judged and not d.is_beyond_noise],
        "Too few seeds to tell": [d for d in differences if d.seeds < FEWEST_SEEDS],
        "The same difference with every seed, so the noise is unknown": [
            d for d in differences if d.seeds >= FEWEST_SEEDS and not d.is_judged
        ],
    }
    return "".join(f" {what}: {_names(group)}." for what, group in groups.items() if group)


def _undecided(differences: Sequence[Difference], metric: Metric, reference: str) -> str:
    if all(d.is_zero for d in differences):
        return f"every adapter scores exactly as {reference} does."
    seeds = _range([d.seeds for d in differences], "seed")
    if max(d.seeds for d in differences) < FEWEST_SEEDS:
        lead = f"{seeds} cannot tell an adapter from {reference} beyond the noise"
    else:
        lead = f"no adapter differs from {reference} beyond the noise of {seeds}"
    return f"{lead}: {_nearest_to_better(differences, metric)}"


def _nearest_to_better(differences: Sequence[Difference], metric: Metric) -> str:
    """Name the adapter with the highest mean difference, and on which side of the reference it is."""
    highest = max(d.mean for d in differences)
    top = [d for d in differences if d.mean >= highest - SAME]
    names, by = _names(top), metric.show_difference(highest)
    if abs(highest) <= SAME:
        claim = f"none is above it on average, and {names} {'is' if len(top) == 1 else 'are'} level with it"
    elif highest > 0:
        claim = f"the largest mean difference is that of {names}, {by}"
    elif len(differences) == 1:
        claim = f"{names} is below it on average, {by}"
    else:
        every = "both" if len(differences) == 2 else f"all {len(differences)}"
        claim = f"{every} are below it on average, {names} least, {by}"
    few = min(d.seeds for d in top) < FEWEST_SEEDS
    return claim + (_evidence(top[0], metric) if len(top) == 1 else f".{' Add seeds.' * few}")


def _evidence(top: Difference, metric: Metric) -> str:
    if top.seeds < FEWEST_SEEDS:  # an interval over two seeds is as wide as the scale; the seeds themselves say more
        each = " and ".join(metric.show_difference(value, unit=False) for value in top.values)
        return f" ({each}). Add seeds." if top.seeds > 1 else ". Add seeds."
    if top.half_width is None:
        return f" with each of the {top.seeds} seeds. Add seeds."
    ends = f"95 % interval {metric.show_difference(top.low, unit=False)} to {metric.show_difference(top.high)}"
    return f" ({ends}; ahead with {sum(value > SAME for value in top.values)} of {top.seeds} seeds)."


def _names(differences: Sequence[Difference]) -> str:
    return listed([f"`{d.name}`" for d in differences])


def _range(counts: Sequence[int], what: str) -> str:
    """Count things of which some adapters may have fewer than others."""
    least, most = min(counts), max(counts)
    return f"{least} {what}{'s' * (least != 1)}" if least == most else f"{least} to {most} {what}s"
