"""The tables of results in the project's README, from `results/*.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evidence_page import show, show_difference
from markers import Fill, table
from measure import read

from adaptive_memory_bank.lab.runs.metrics import BY_NAME
from adaptive_memory_bank.lab.runs.variants import COMPARED

SOURCE = "omniglot_first_step"
OTHERS = ("omniglot_full_memory_first_step", "cifar_moco_same_image")


def headline() -> str:
    """Recall@1 and staleness by adapter and batch size; nothing where the comparison was not run."""
    found = read(SOURCE)
    return "" if found is None else render(found)


def render(found: dict[str, Any]) -> str:
    """The table of a comparison, and what it rests on."""
    tables = [here for here in found["tables"] if here["rows"]]
    names = list(dict.fromkeys(row["variant"] for here in tables for row in here["rows"]))
    heads = ["adapter"]
    for here in tables:
        where = f"batch {here['batch_size']}"
        heads += [f"Recall@1 %, {where}", "to plain memory", f"staleness, {where}"]
    rows = [[f"`{name}`", *(cell for here in tables for cell in _cells(here, name))] for name in names]
    return f"{table(heads, rows)}\n\n{caption(found, tables)}"


def _cells(here: dict[str, Any], name: str) -> list[str]:
    row = next((row for row in here["rows"] if row["variant"] == name), {"values": {}, "difference": {}})
    pick, values = here["picks"][0], row["values"]
    recall, staleness = (show(values.get(key), key) for key in (f"{pick} {here['metric']}", "last bank/staleness"))
    return [recall, show_difference(row["difference"].get(pick)), staleness]


def caption(found: dict[str, Any], tables: Sequence[dict[str, Any]]) -> str:
    """What was measured, how often, and where the rest is."""
    seeds = f"{len(found['seeds'])} seed{'s' * (len(found['seeds']) != 1)}"
    state = "" if found["complete"] == found["planned"] else f" ({found['complete']} of {found['planned']} runs so far)"
    where = tables[0]["setting"] if tables else ""
    return (
        f"{where}, {found['epochs'][-1]} epochs, mean ± standard deviation over {seeds}{state}, of the epoch chosen on "
        "held-out training classes.\nBold differences are beyond the noise (95 %, paired); `none` has no memory. "
        f"[Command, all numbers, curves](benchmarks/results/{found['name']}.md)."
    )


def others() -> str:
    """One line for each condition of the comparisons beside the headline's; nothing where none was run."""
    lines = [_line(found, here) for found in map(read, OTHERS) if found is not None for here in found["tables"]]
    return table(["", *(f"`{name}`" for name in COMPARED)], lines) if lines else ""


def _line(found: dict[str, Any], here: dict[str, Any]) -> list[str]:
    pick = here["picks"][0]
    key = f"{pick} {here['metric']}"
    rows = {row["variant"]: row for row in here["rows"]}
    cells = [_score(rows[name], key, pick) if name in rows else "-" for name in COMPARED]
    where = f"[{here['setting']}](benchmarks/results/{found['name']}.md), {here['condition']}"
    return [f"{where}, {len(found['seeds'])} seeds: {BY_NAME[here['metric']].heading}", *cells]


def _score(row: dict[str, Any], key: str, pick: str) -> str:
    text, difference = show(row["values"].get(key), key), row["difference"].get(pick)
    return f"**{text}**" if difference is not None and difference["beyond_noise"] else text


PARTS: dict[str, Fill] = {"headline": headline, "others": others}
