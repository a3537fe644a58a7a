"""The curves of a comparison as SVG: the metric, and how stale the memory is, over training."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from adaptive_memory_bank.lab.compare.report.palette import Style, styles_of
from adaptive_memory_bank.lab.runs.variants import NONE

MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "x", "star": "*"}
LABELS = {
    "val/recall@1": "Recall@1 %",
    "val/knn": "kNN accuracy %",
    "bank/staleness": "distance of stored to fresh embeddings",
}
Curves = dict[str, list[dict[int, float]]]


def draw(content: dict[str, Any], results: Path) -> list[Path]:
    """Draw the deciding metric, and staleness where some run has it; return the files."""
    metric = content["tables"][0]["metric"]
    files = {metric: results / f"{content['name']}.svg", "bank/staleness": results / f"{content['name']}_staleness.svg"}
    for key, path in files.items():
        if not any(key in run["curves"] for run in content["runs"]):
            continue
        # Text stays text, and the same numbers make the same file.
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": content["name"], "font.size": 9}):
            _figure(content, key).savefig(path, metadata={"Date": None}, facecolor="white", bbox_inches="tight")
    return [path for path in files.values() if path.exists()]


def _figure(content: dict[str, Any], key: str) -> Figure:
    tables = [table for table in content["tables"] if table["rows"]]
    columns, lines = min(3, len(tables)), -(-len(tables) // 3)
    figure = Figure(figsize=(4.6 * columns, 3.6 * lines), layout="constrained")
    names = list(dict.fromkeys(row["variant"] for table in tables for row in table["rows"]))
    without = {run["variant"] for run in content["runs"] if run["adapter"] == NONE.name}
    style = styles_of(names, next(iter(without), None))
    axes = figure.subplots(lines, columns, squeeze=False).flatten()
    for axis in axes[len(tables) :]:
        axis.remove()
    for axis, table in zip(axes[: len(tables)], tables, strict=True):
        for name, curves in _curves(content, table, key).items():
            _draw_variant(axis, name, curves, style[name], scale=100 if key.startswith("val/") else 1)
        if key == "bank/staleness":
            _draw_unadapted(axis, _curves(content, table, "bank/staleness_unadapted"), style)
        axis.set(title=f"{table['setting']}: {table['condition']}", xlabel="epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.25)
    axes[0].set_ylabel(LABELS[key])
    axes[len(tables) - 1].legend(fontsize=8)
    return figure


def _curves(content: dict[str, Any], table: dict[str, Any], key: str) -> Curves:
    """The curves of every variant at one condition, one for every seed."""
    found: Curves = {row["variant"]: [] for row in table["rows"]}
    for run in content["runs"]:
        here = run["setting"] == table["setting"] and table["batch_size"] in (None, run["batch_size"])
        if here and run["memory"] in (None, table["memory"]) and key in run["curves"] and run["variant"] in found:
            found[run["variant"]].append({int(epoch): value for epoch, value in run["curves"][key].items()})
    return {name: curves for name, curves in found.items() if curves}


def _draw_variant(axis: Axes, name: str, curves: list[dict[int, float]], style: Style, *, scale: float) -> None:
    """Mean over seeds, with a band of one standard deviation."""
    epochs = sorted(set.intersection(*(set(curve) for curve in curves)))
    values = [[scale * curve[epoch] for curve in curves] for epoch in epochs]
    means = [fmean(of_epoch) for of_epoch in values]
    spreads = [stdev(of_epoch) if len(of_epoch) > 1 else 0.0 for of_epoch in values]
    shown = [epoch + 1 for epoch in epochs]
    axis.plot(shown, means, color=style.color, marker=MARKERS.get(style.marker, "o"), markersize=3, label=name)
    low, high = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
    axis.fill_between(shown, low, high, color=style.color, alpha=0.15, linewidth=0)


def _draw_unadapted(axis: Axes, curves: Curves, style: dict[str, Style]) -> None:
    """How stale the same rows would be as they were stored: dotted, in the colour of the run they belong to."""
    for name, of_seeds in curves.items():
        epochs = sorted(set.intersection(*(set(curve) for curve in of_seeds)))
        means = [fmean(curve[epoch] for curve in of_seeds) for epoch in epochs]
        axis.plot([epoch + 1 for epoch in epochs], means, ":", color=style[name].color)
    axis.plot([], [], ":", color="black", label="same rows, not realigned")
