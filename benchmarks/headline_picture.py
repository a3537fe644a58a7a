"""README's picture: what every variant gains over plain memory and over none, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evidence_pictures import MARKERS, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adaptive_memory_bank.lab.compare.report.palette import Style, styles_of
from adaptive_memory_bank.lab.compare.statistics import FEWEST_SEEDS

ROLES = {"plain": "points above plain memory", "none": "points above no memory"}
ROW = 0.24  # inches


def draw(tables: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw a band for every table, with a scale of its own: a row for each variant, a column for each of two rivals."""
    save(lambda: _figure(tables), path, salt=path.stem)


def _figure(tables: Sequence[dict[str, Any]]) -> Figure:
    heights = [len(here["rows"]) + 3 for here in tables]
    figure = Figure(figsize=(8.4, ROW * sum(heights) + 0.5), layout="constrained")
    axes = figure.subplots(len(tables), len(ROLES), squeeze=False, sharex="row", height_ratios=heights)
    last = {}
    for line, here in zip(axes, tables, strict=True):
        for axis, role in zip(line, ROLES, strict=True):
            if role in here["references"]:
                _draw_differences(axis, here, role)
                last[role] = axis
            else:
                axis.axis("off")
        line[0].set_title(f"{here['setting']}: {here['condition']}", loc="left", fontsize=9)
        line[1].tick_params(labelleft=False)
    for role, axis in last.items():
        axis.set_xlabel(ROLES[role])
    return figure


def _draw_differences(axis: Axes, here: dict[str, Any], role: str) -> None:
    """A point with its interval for every variant; hollow and without one where there are too few seeds."""
    names = [row["variant"] for row in here["rows"]]
    styles = styles_of(names, here["references"].get("none"), here["ceilings"])
    for place, row in enumerate(here["rows"]):
        found = row["differences"].get(role, {}).get(here["picks"][0])
        if found is not None:
            _draw_point(axis, place, found, styles[row["variant"]])
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.grid(axis="x", alpha=0.25)


def _draw_point(axis: Axes, place: int, found: dict[str, Any], style: Style) -> None:
    tells = found["seeds"] >= FEWEST_SEEDS
    if tells:
        axis.plot([100 * found["low"], 100 * found["high"]], [place, place], color=style.color, linewidth=2)
    face = style.color if tells else "white"
    marker = MARKERS.get(style.marker, "o")
    axis.plot(100 * found["mean"], place, marker, color=style.color, markerfacecolor=face, markersize=5)
