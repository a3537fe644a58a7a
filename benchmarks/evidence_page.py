"""The page of a comparison, in Markdown, from its JSON alone."""

from __future__ import annotations

from typing import Any

import markers
import measure

from adaptive_memory_bank.lab.compare.statistics import FEWEST_SEEDS, Spread
from adaptive_memory_bank.lab.compare.table import show_spread
from adaptive_memory_bank.lab.runs.metrics import BY_NAME, shown_in

PICKS = {"chosen": "chosen epoch", "last": "last epoch"}


def render(content: dict[str, Any]) -> str:
    """The whole page."""
    state = f"{content['complete']} of {content['planned']} runs are complete"
    failed = f"; failed: {', '.join(content['failed'])}" if content["failed"] else ""
    seeds, epochs = (", ".join(map(str, content[key])) for key in ("seeds", "epochs"))
    kept = {name for run in content["runs"] for name in run["curves"]}
    pictures = [content["name"], *([f"{content['name']}_staleness"] if "bank/staleness" in kept else [])]
    parts = [
        f"# {content['title']}",
        f"{state}{failed}. Seeds {seeds}; epochs: {epochs}. {explanation(content)}",
        *(markdown_table(table) for table in content["tables"] if table["rows"]),
        *(f"![{picture}]({picture}.svg)" for picture in pictures),
        f"```\n{content['command']}\npython benchmarks/evidence.py RUNS --name {content['name']}\n```",
        f"{content['machine']}; {measure.listed(content['versions'])}.",
    ]
    return "\n\n".join(parts) + "\n"


def explanation(content: dict[str, Any]) -> str:
    """What the columns mean."""
    chosen = any("chosen" in table["picks"] for table in content["tables"])
    epoch = (
        "The chosen epoch is the best one on held-out training classes; the test classes choose nothing."
        if chosen
        else "All values are those of the last epoch: nothing was chosen on the test images."
    )
    return (
        f"{epoch} Mean ± standard deviation over seeds; differences to plain memory are in points, paired over seeds, "
        "with 95 % intervals that hold for all rows of a table together, bold where they leave out zero and rest on "
        f"{FEWEST_SEEDS} seeds or more. "
        "Staleness: mean distance of stored rows to fresh embeddings of the same images; read it beside that of the "
        "same rows, not realigned, because an encoder that maps everything to one place has stale rows nowhere."
    )


def markdown_table(table: dict[str, Any]) -> str:
    """One condition."""
    # Not the time of a step: two trainings at a time share a machine; speed is measured by itself.
    order = [metric.name for metric in shown_in("evidence")]
    found = dict.fromkeys(key for row in table["rows"] for key in row["values"] if key.split(" ")[-1] in order)
    keys = sorted(found, key=lambda key: order.index(key.split(" ")[-1]))
    heads = ["", *map(heading, keys), *(f"to plain ({PICKS[pick]})" for pick in table["picks"])]
    heads += ["published %"] * bool(table["published"]) + ["seeds"]
    rows = []
    for row in table["rows"]:
        cells = [row["variant"], *(show(row["values"].get(key), key) for key in keys)]
        cells += [show_difference(row["difference"].get(pick)) for pick in table["picks"]]
        cells += [str(table["published"].get(row["variant"], "-"))] * bool(table["published"])
        rows.append([*cells, str(row["seeds"])])
    return f"## {table['setting']}: {table['condition']}\n\n{markers.table(heads, rows)}"


def heading(key: str) -> str:
    """`chosen val/recall@1` as people read it.

    Example:
        >>> heading("chosen val/recall@1"), heading("last bank/staleness")
        ('Recall@1 % (chosen epoch)', 'staleness')
    """
    pick, _, name = key.rpartition(" ")
    return BY_NAME[name].heading + (f" ({PICKS.get(pick, pick)})" if BY_NAME[name].is_score else "")


def show(value: dict[str, Any] | None, key: str) -> str:
    """Mean ± standard deviation."""
    spread = None if value is None else Spread(value["mean"], value["std"], value.get("seeds", 1))
    return show_spread(spread, BY_NAME[key.rpartition(" ")[2]])


def show_difference(value: dict[str, Any] | None) -> str:
    """Points with their interval."""
    if value is None:
        return "-"
    mean = f"{100 * value['mean']:+.1f}"
    if value["low"] is None:
        return f"{mean} [unknown]"
    text = f"{mean} [{100 * value['low']:+.1f}, {100 * value['high']:+.1f}]"
    return f"**{text}**" if value["beyond_noise"] else text
