"""The results in the project's README, from `results/*.json`: the first fair comparison there is, others beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headline_picture
from evidence_page import PICKS, show
from evidence_words import sentences, show_difference
from markers import Fill, table
from measure import read

from adaptive_memory_bank.lab.compare.statistics import FEWEST_SEEDS
from adaptive_memory_bank.lab.runs.metrics import BY_NAME
from adaptive_memory_bank.lab.runs.variants import COMPARED, FRESH

Found = dict[str, Any]
# What each comparison is about, in the order in which they are shown: the first one that is there is the headline.
FAIR = {
    "cub200": "Retrieval of unseen species of birds, a backbone from ImageNet, fine-tuned with a memory or without:",
    "omniglot": "Retrieval of unseen characters, a small network from scratch, memory used after the first epoch:",
    "omniglot_batch_16": "Retrieval of unseen characters, batches of four classes, memory used after the first epoch:",
    "cifar_moco": "MoCo's queue behind its momentum encoder, earlier views of a query kept out of its negatives:",
}
FIRST_STEP = "omniglot_first_step"
BEFORE = {
    FIRST_STEP: "Retrieval of unseen characters, Omniglot, **memory from the first step** of a random network, which "
    "flatters us: plain memory is better started after an epoch (now the default). That grid is being run:",
    "omniglot_full_memory_first_step": "",
    "cifar_moco_same_image": "",
}
PICTURE = "headline.svg"
ALT = "What every variant gains over plain memory and over none, with 95 % intervals"
DEFAULT = "auto"  # the adapter whose intervals a line shows: the default, fixed before any of these runs


def shown() -> dict[str, Found]:
    """The comparisons to show: the fair ones that are there with enough seeds, or what there was before them."""
    fair, before = ({name: found for name in group if (found := read(name)) is not None} for group in (FAIR, BEFORE))
    return {name: found for name, found in fair.items() if is_ready(found)} or before


def is_ready(found: Found) -> bool:
    """Whether its first condition can be judged."""
    return any(map(_can_be_judged, found["tables"][:1]))


def judged(found: Found) -> list[Found]:
    """The conditions that can be judged, whatever they say."""
    return list(filter(_can_be_judged, found["tables"]))


def _can_be_judged(here: Found) -> bool:
    """Whether the default adapter has as many seeds as a judgement takes."""
    return _default(here).get("seeds", 0) >= FEWEST_SEEDS


def _default(here: Found) -> Found:
    """The row of the default adapter; empty where there is none."""
    return next((row for row in here["rows"] if row["variant"] == DEFAULT), {})


def headline() -> str:
    """The first comparison: its table, what it rests on, its picture; nothing where none was run."""
    name, found = next(iter(shown().items()), ("", None))
    if found is None:
        return ""
    picture = f'<img src="benchmarks/results/{PICTURE}" alt="{ALT}" width="760">'
    before = [first_step()] if name in FAIR else []
    return "\n".join([{**FAIR, **BEFORE}[name], "", render(found), *filter(None, before), picture])


def render(found: Found) -> str:
    """The table of a comparison: a row for every variant, three columns for every condition; and its caption."""
    tables = [here for here in found["tables"] if here["rows"]]
    names = list(dict.fromkeys(row["variant"] for here in tables for row in here["rows"]))
    heads = ["adapter"]
    for here in tables:
        where = here["condition"].rpartition(", ")[0]  # without the epochs, which the caption has
        heads += [f"{BY_NAME[here['metric']].heading}, {where}", "to plain memory", "to no memory"]
    rows = [[_named(name, tables), *(cell for here in tables for cell in _cells(here, name))] for name in names]
    return f"{table(heads, [*_frozen(tables), *rows])}\n\n{caption(found, tables)}"


def _named(name: str, tables: list[Found]) -> str:
    """A variant, and how few seeds it has where others have more."""
    counts = {row["variant"]: row["seeds"] for here in reversed(tables) for row in here["rows"]}
    few = counts[name] < max(counts.values())
    return f"`{name}`" + f" ({counts[name]} seed{'s' * (counts[name] != 1)})" * few


def _cells(here: Found, name: str) -> list[str]:
    pick = here["picks"][0]
    row = next((row for row in here["rows"] if row["variant"] == name), None)
    if row is None:
        return ["-"] * 3
    key = f"{pick} {here['metric']}"
    differences = [show_difference(row["differences"].get(role, {}).get(pick)) for role in ("plain", "none")]
    return [show(row["values"].get(key), key), *differences]


def _frozen(tables: list[Found]) -> list[list[str]]:
    """A row with what the backbone's own features score, where that was measured."""
    scores = [here["frozen"].get(BY_NAME[here["metric"]].short_name) for here in tables]
    cells = [["-" if score is None else f"{100 * score:.1f}", "-", "-"] for score in scores]
    return [["frozen features", *(cell for three in cells for cell in three)]] if any(scores) else []


def caption(found: Found, tables: list[Found]) -> str:
    """What was measured, how often, what the ceiling says, and where the rest is."""
    seeds = f"{len(found['seeds'])} seed{'s' * (len(found['seeds']) != 1)}"
    state = "" if found["complete"] == found["planned"] else f" ({found['complete']} of {found['planned']} runs so far)"
    pick = tables[0]["picks"][0] if tables else "last"
    epoch = "the epoch chosen on held-out training classes" if pick == "chosen" else f"the {PICKS.get(pick, pick)}"
    where = tables[0]["setting"] if tables else ""
    return (
        f"{where}, {found['epochs'][-1]} epochs, mean ± standard deviation over {seeds}{state}, of {epoch}. "
        "Differences in points, bold beyond the noise (95 % for all rows together, paired); `none` has no memory. "
        f"{ceiling(tables)}[Command, all numbers, curves](benchmarks/results/{found['name']}.md)."
    )


def ceiling(tables: list[Found]) -> str:
    """What a memory kept fresh would add, in every condition that has one."""
    told = [each for here in tables for each in sentences(here) if each.startswith("A memory kept fresh")]
    return f"The ceiling, `{FRESH.name}`, re-embeds its memory all the time. {' '.join(told)} " if told else ""


def first_step() -> str:
    """What an earlier headline was; empty where its comparison is not there."""
    found = read(FIRST_STEP)
    if found is None:
        return ""
    rows = [row for here in found["tables"] for row in here["rows"] if row["variant"] == DEFAULT]
    gains = " and ".join(f"{100 * row['differences']['plain']['chosen']['mean']:+.1f}" for row in rows)
    return (
        f"What this page said first, `{DEFAULT}` {gains} points against plain memory (batch 16 and 64), was plain "
        f"memory used [from the first step](benchmarks/results/{FIRST_STEP}.md) of a random network: not a fair rival."
    )


def draw(folder: Path) -> None:
    """The picture of all comparisons that are shown: every condition that can be judged."""
    tables = [here for found in shown().values() for here in judged(found)]
    if tables:
        headline_picture.draw(tables, folder / PICTURE)


def others() -> str:
    """One line for each condition of the comparisons beside the headline's; nothing where there are none."""
    lines = [_line(found, here) for found in list(shown().values())[1:] for here in judged(found)]
    if not lines:
        return ""
    gains = [f"`{DEFAULT}` to {role}" for role in ("plain", "none")]
    heads = ["", *(f"`{name}`" for name in COMPARED), *gains, f"`{FRESH.name}`"]
    return table(heads, lines)


def _line(found: Found, here: Found) -> list[str]:
    pick = here["picks"][0]
    key = f"{pick} {here['metric']}"
    rows = {row["variant"]: row for row in here["rows"]}
    scores = [show(rows[name]["values"].get(key), key) if name in rows else "-" for name in (*COMPARED, FRESH.name)]
    default = _default(here)
    gains = [show_difference(default["differences"].get(role, {}).get(pick)) for role in ("plain", "none")]
    where = f"[{here['setting']}](benchmarks/results/{found['name']}.md), {here['condition']}"
    seeds = f"{default['seeds']} seeds"
    epoch = "" if pick == "chosen" else f" ({PICKS.get(pick, pick)})"
    return [f"{where}, {seeds}: {BY_NAME[here['metric']].heading}{epoch}", *scores[:-1], *gains, scores[-1]]


PARTS: dict[str, Fill] = {"headline": headline, "others": others}
