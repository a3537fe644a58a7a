"""The results in the project's README, from `results/*.json`: all fair comparisons in tables, and their picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import headline_picture
from evidence_page import PICKS
from markers import Fill, table
from measure import read

from adaptive_memory_bank.lab.compare.statistics import FEWEST_SEEDS
from adaptive_memory_bank.lab.compare.table import MISSING
from adaptive_memory_bank.lab.runs.metrics import BY_NAME
from adaptive_memory_bank.lab.runs.variants import COMPARED, FRESH

Found = dict[str, Any]
FAIR = ("cub200", "omniglot", "omniglot_batch_16", "cifar_moco")
"""The comparisons to show, in their order: memory after one epoch, a ceiling, no image its own negative."""
FIRST_STEP = "omniglot_first_step"
LEAD = (
    "What is a memory worth, and what does realigning it add? Unseen birds (CUB-200-2011) with a backbone from "
    "ImageNet, unseen characters (Omniglot) with a small network from scratch, and MoCo (CIFAR):"
)
PICTURE = "headline.svg"
NO_BREAK = "\u00a0"  # a space that no line ends at
DEFAULT = "auto"  # the adapter whose intervals a line shows: the default, fixed before any of these runs
SHOWN = (*COMPARED, FRESH.name)
GAINS = ((DEFAULT, "plain"), (DEFAULT, "none"), (FRESH.name, "plain"))
ALT = "What `auto` gains over plain memory and over none, and a memory kept fresh over plain, with 95 % intervals"


def shown() -> list[tuple[Found, Found]]:
    """The conditions that can be judged, whatever they say, each behind the comparison it is of."""
    comparisons = [found for name in FAIR if (found := read(name)) is not None]
    return [(found, here) for found in comparisons for here in found["tables"] if _can_be_judged(here)]


def _can_be_judged(here: Found) -> bool:
    """Whether the default adapter has as many seeds as a judgement takes."""
    return _row(here, DEFAULT).get("seeds", 0) >= FEWEST_SEEDS


def _row(here: Found, variant: str) -> Found:
    """The row of a variant; empty where there is none."""
    return next((row for row in here["rows"] if row["variant"] == variant), {})


def headline() -> str:
    """The picture, a table for each metric, what they rest on, what an earlier one was; nothing to judge, nothing."""
    lines = shown()
    if not lines:
        return ""
    picture = f'<img src="benchmarks/results/{PICTURE}" alt="{ALT}" width="760">'
    metrics = dict.fromkeys(here["metric"] for _, here in lines)
    tables = [_table(name, [line for line in lines if line[1]["metric"] == name]) for name in metrics]
    return "\n".join([LEAD, picture, "", "\n\n".join(tables), "", _caption(lines), *_first_step()])


def _table(metric: str, lines: list[tuple[Found, Found]]) -> str:
    """The conditions that one metric decides; a column that all of them leave empty is left out."""
    heads = [
        BY_NAME[metric].heading,
        *(f"`{name}`" for name in SHOWN),
        *(f"`{name}` to {role}" for name, role in GAINS),
    ]
    columns = zip(heads, *(_line(found, here) for found, here in lines), strict=True)
    head, *rows = zip(*(column for column in columns if set(column[1:]) != {MISSING}), strict=True)
    return table(head, rows)


def _line(found: Found, here: Found) -> list[str]:
    """A condition: where it is from, scores, differences; in every cell a line for each epoch that is looked at."""
    picks = [pick for pick in here["picks"] if pick in PICKS]  # no early epochs, which have a page
    scores = [_cell([*(_score(row, here, pick) for pick in picks), *_fewer(row, here)]) for row in _rows(here)]
    gains = [_cell(_gain(_row(here, name), role, pick) for pick in picks) for name, role in GAINS]
    seeds = f"{_row(here, DEFAULT)['seeds']} seeds"
    where = f"[{here['setting']}](benchmarks/results/{found['name']}.md), {here['condition']}, {seeds}"
    return [where.replace(" %", f"{NO_BREAK}%"), *scores, *gains]


def _cell(lines: Iterable[str]) -> str:
    known = list(lines)
    return "<br>".join(known) if set(known) != {MISSING} else MISSING


def _score(row: Found, here: Found, pick: str) -> str:
    """The mean alone: how much it varies is on the page, and in the intervals here."""
    value = row.get("values", {}).get(f"{pick} {here['metric']}")
    return MISSING if value is None else BY_NAME[here["metric"]].show(value["mean"])


def _gain(row: Found, role: str, pick: str) -> str:
    """Points ± half of their interval: as much as its two ends tell, in a cell that keeps to one line."""
    found = row.get("differences", {}).get(role, {}).get(pick)
    if found is None:
        return MISSING
    known = "unknown" if found["low"] is None else f"{50 * (found['high'] - found['low']):.1f}"
    text = NO_BREAK.join((f"{100 * found['mean']:+.1f}", "±", known))
    return f"**{text}**" if found["beyond_noise"] else text


def _rows(here: Found) -> list[Found]:
    return [_row(here, name) for name in SHOWN]


def _fewer(row: Found, here: Found) -> list[str]:
    """How many seeds a score is of, where they are fewer than the line says."""
    seeds = row.get("seeds", 0)
    return [f"({seeds} seed{'s' * (seeds != 1)})"] if 0 < seeds < _row(here, DEFAULT)["seeds"] else []


def _caption(lines: list[tuple[Found, Found]]) -> str:
    """What was measured, and how much of it is there."""
    counts = {found["title"]: (found["complete"], found["planned"]) for found, _ in lines}
    left = [f"{title}: {done} of {all_} runs so far." for title, (done, all_) in counts.items() if done < all_]
    text = (
        "Means over seeds. Upper lines: the epoch chosen on held-out training classes; lower lines (paler in the "
        "picture) and MoCo: the last epoch, where nothing is chosen. Differences are in points, paired, ± half of a "
        "95 % interval that holds for all variants of a condition together; bold: beyond the noise, before "
        "rounding. `none` has no memory; `identity` is plain memory, used after one epoch like all others in "
        f"retrieval; `{FRESH.name}`, the ceiling, embeds its memory anew every 8 steps, at several times the cost. "
        "The links have all variants, deviations, curves and commands."
    )
    return " ".join([text, *_frozen(lines), *left])


def _frozen(lines: list[tuple[Found, Found]]) -> list[str]:
    """What the backbone's own features score, where that was measured."""
    scores = {here["setting"]: here["frozen"].get(BY_NAME[here["metric"]].short_name) for _, here in lines}
    return [
        f"Frozen features of the backbone score {100 * score:.1f} on {setting}."
        for setting, score in scores.items()
        if score is not None
    ]


def _first_step() -> list[str]:
    """What an earlier headline was; empty where its comparison is not there."""
    found = read(FIRST_STEP)
    if found is None:
        return []
    rows = [_row(here, DEFAULT) for here in found["tables"]]
    gains = " and ".join(f"{100 * row['differences']['plain']['chosen']['mean']:+.1f}" for row in rows if row)
    return [
        f"What this page said first, `{DEFAULT}` {gains} points against plain memory (batch 16 and 64), was plain "
        f"memory used [from the first step](benchmarks/results/{FIRST_STEP}.md) of a random network: not a fair rival."
    ]


def draw(folder: Path) -> None:
    """The picture of the same conditions: a panel for every difference that a line has."""
    tables = [here for _, here in shown()]
    if tables:
        headline_picture.draw(tables, GAINS, folder / PICTURE)


PARTS: dict[str, Fill] = {"headline": headline}
