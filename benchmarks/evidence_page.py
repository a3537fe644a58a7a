"""The table of a comparison, in Markdown, from its JSON alone."""

from __future__ import annotations

from typing import Any

from adaptive_memory_bank.lab.compare.statistics import FEWEST_SEEDS
from adaptive_memory_bank.lab.runs.metrics import shown_in

# Not the time of a step: two trainings at a time share a machine; speed is measured by itself.
TITLES = {metric.name: metric.heading for metric in shown_in("evidence")}
PICKS = {"chosen": "chosen epoch", "last": "last epoch"}
SCALES = {"bank/staleness": (1.0, 3), "bank/staleness_unadapted": (1.0, 3)}
PERCENT = (100.0, 1)


def render(content: dict[str, Any], pictures: list[str]) -> str:
    """The whole page."""
    state = f"{content['complete']} of {content['planned']} runs are complete"
    failed = f"; failed: {', '.join(content['failed'])}" if content["failed"] else ""
    seeds, epochs = (", ".join(map(str, content[key])) for key in ("seeds", "epochs"))
    parts = [
        f"# {content['title']}",
        f"{state}{failed}. Seeds {seeds}; epochs: {epochs}. {explanation(content)}",
        *(markdown_table(table) for table in content["tables"] if table["rows"]),
        *(f"![{picture.removesuffix('.svg')}]({picture})" for picture in pictures),
        f"```\n{content['command']}\npython benchmarks/evidence.py RUNS --name {content['name']}\n```",
        f"{content['machine']}; {', '.join(f'{name} {number}' for name, number in content['versions'].items())}.",
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
    keys = list(dict.fromkeys(key for row in table["rows"] for key in row["values"]))
    order = list(TITLES)
    keys = sorted((key for key in keys if key.split(" ")[-1] in order), key=lambda key: order.index(key.split(" ")[-1]))
    heads = ["", *map(heading, keys), *(f"to plain ({PICKS[pick]})" for pick in table["picks"])]
    heads += ["published %"] * bool(table["published"]) + ["seeds"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in table["rows"]:
        cells = [row["variant"], *(show(row["values"].get(key), key) for key in keys)]
        cells += [show_difference(row["difference"].get(pick)) for pick in table["picks"]]
        cells += [str(table["published"].get(row["variant"], "-"))] * bool(table["published"])
        lines.append("| " + " | ".join([*cells, str(row["seeds"])]) + " |")
    return "\n".join([f"## {table['setting']}: {table['condition']}", "", *lines])


def heading(key: str) -> str:
    """`chosen val/recall@1` as people read it.

    Example:
        >>> heading("chosen val/recall@1"), heading("last bank/staleness")
        ('Recall@1 % (chosen epoch)', 'staleness')
    """
    pick, _, metric = key.rpartition(" ")
    return TITLES[metric] + ("" if metric in SCALES else f" ({PICKS.get(pick, pick)})")


def show(value: dict[str, Any] | None, key: str) -> str:
    """Mean ± standard deviation."""
    if value is None:
        return "-"
    scale, digits = SCALES.get(key.rpartition(" ")[2], PERCENT)
    mean = f"{scale * value['mean']:.{digits}f}"
    return mean if value["std"] is None else f"{mean} ± {scale * value['std']:.{digits}f}"


def show_difference(value: dict[str, Any] | None) -> str:
    """Points with their interval."""
    if value is None:
        return "-"
    mean = f"{100 * value['mean']:+.1f}"
    if value["low"] is None:
        return f"{mean} [unknown]"
    text = f"{mean} [{100 * value['low']:+.1f}, {100 * value['high']:+.1f}]"
    return f"**{text}**" if value["beyond_noise"] else text
