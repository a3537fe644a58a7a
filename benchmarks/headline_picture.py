"""README's picture: what every variant gains over plain memory and over none, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

from evidence_page import PICKS
from evidence_pictures import MARKERS, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adaptive_memory_bank.lab.compare.report.palette import Style, styles_of
from adaptive_memory_bank.lab.compare.statistics import FEWEST_SEEDS

ROLES = {"plain": "points above plain memory", "none": "points above no memory"}
ROW = 0.2  # inches
OFFSET, PALE = 0.3, 0.45  # of a second epoch: below the first one, and paler
Found = dict[str, Any]
Panel = tuple[Found, str]  # a table, and the rival that its variants are compared with


def draw(tables: Sequence[Found], path: Path) -> None:
    """Draw a panel for every table and rival, with a scale for each table: a row for each variant."""
    save(lambda: _figure(tables), path, salt=path.stem)


def _figure(tables: Sequence[Found]) -> Figure:
    lines = _lines(tables)
    heights = [max(len(_rows(*panel)) for panel in line) + 4 for line in lines]
    figure = Figure(figsize=(8.4, ROW * sum(heights)), layout="constrained")
    axes = figure.subplots(len(lines), len(ROLES), squeeze=False, height_ratios=heights)
    for axis in axes.flat[sum(map(len, lines)) :]:
        axis.axis("off")
    for pair, line in zip(axes, lines, strict=True):
        if len(line) > 1 and line[0][0] is line[1][0]:  # both rivals of one table
            pair[1].sharex(pair[0])
    for axis, panel in zip(axes.flat, chain(*lines), strict=False):
        _draw_differences(axis, *panel)
    return figure


def _lines(tables: Sequence[Found]) -> list[list[Panel]]:
    """Two panels a line: both rivals of a table, then two tables that have one rival each."""
    panels = [[(here, role) for role in _rivals(here)] for here in tables]
    single = [panel for (panel,) in (each for each in panels if len(each) == 1)]
    return [*(each for each in panels if len(each) > 1), *(single[at : at + 2] for at in range(0, len(single), 2))]


def _rivals(here: Found) -> list[str]:
    return [role for role in ROLES if role in here["references"]]


def _rows(here: Found, role: str) -> list[Found]:
    """The variants of a panel: where it is its table's only one, without the rival itself."""
    return [row for row in here["rows"] if len(_rivals(here)) > 1 or row["differences"].get(role)]


def _draw_differences(axis: Axes, here: Found, role: str) -> None:
    """A point with its interval for every variant and epoch; hollow and without one where there are too few seeds."""
    rows = _rows(here, role)
    names = [row["variant"] for row in rows]
    styles = styles_of([row["variant"] for row in here["rows"]], here["references"].get("none"), here["ceilings"])
    picks = [pick for pick in here["picks"] if pick in PICKS]
    for (place, row), (later, pick) in product(enumerate(rows), enumerate(picks)):
        found = row["differences"].get(role, {}).get(pick)
        if found is not None:
            _draw_point(axis, place + later * OFFSET, found, styles[row["variant"]], alpha=PALE if later else 1)
    first = role == _rivals(here)[0]
    size = 8 if len(_rivals(here)) > 1 else 7  # two titles on one line
    axis.set_title(f"{here['setting']}: {here['condition']}" if first else "", loc="left", fontsize=size)
    axis.set_xlabel(ROLES[role], fontsize=8)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(labelsize=8, labelleft=first)
    axis.set_ylim(len(names) - 0.4, -0.5)
    axis.grid(axis="x", alpha=0.25)


def _draw_point(axis: Axes, place: float, found: Found, style: Style, *, alpha: float) -> None:
    tells = found["seeds"] >= FEWEST_SEEDS
    if tells:
        ends = [100 * found["low"], 100 * found["high"]]
        axis.plot(ends, [place, place], color=style.color, linewidth=2, alpha=alpha)
    face = style.color if tells else "white"
    marker = MARKERS.get(style.marker, "o")
    axis.plot(100 * found["mean"], place, marker, color=style.color, markerfacecolor=face, markersize=5, alpha=alpha)
