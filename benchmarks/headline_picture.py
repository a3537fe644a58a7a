"""README's picture: what the default adapter and a fresh memory gain, condition by condition, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evidence_page import PICKS
from evidence_pictures import MARKERS, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adaptive_memory_bank.lab.compare.report.palette import Style, styles_of
from adaptive_memory_bank.lab.compare.statistics import FEWEST_SEEDS

RIVALS = {"plain": "plain memory", "none": "no memory"}
ROW = 0.36  # inches
OFFSET, PALE = 0.3, 0.45  # of a second epoch: below the first one, and paler
MARGIN = 6.0  # points around all means; an interval that is wider ends in an arrow, so that the others can be read
Found = dict[str, Any]
Gain = tuple[str, str]  # a variant, and the role of the rival it is compared with


def draw(tables: Sequence[Found], gains: Sequence[Gain], path: Path) -> None:
    """Draw a panel for every gain, a row for every condition, all of one scale."""
    save(lambda: _figure(tables, gains), path, salt=path.stem)


def _figure(tables: Sequence[Found], gains: Sequence[Gain]) -> Figure:
    figure = Figure(figsize=(8.4, ROW * (len(tables) + 2)), layout="constrained")
    axes = figure.subplots(1, len(gains), sharex=True, sharey=True)
    means = [100 * found["mean"] for gain in gains for here in tables for _, found in _differences(here, *gain)]
    axes[0].set_xlim(min(0, *means) - MARGIN, max(0, *means) + MARGIN)
    axes[0].set_ylim(len(tables) - 0.3, -0.6)
    axes[0].set_yticks(range(len(tables)), [f"{here['setting']}\n{here['condition']}" for here in tables])
    for axis, gain in zip(axes, gains, strict=True):
        _draw_gain(axis, tables, *gain)
    return figure


def _differences(here: Found, variant: str, role: str) -> Iterator[tuple[int, Found]]:
    """Those of a variant to a rival, behind the number of the epoch among those that are shown."""
    rows = [row["differences"].get(role, {}) for row in here["rows"] if row["variant"] == variant]
    for place, pick in enumerate(pick for pick in here["picks"] if pick in PICKS):
        yield from ((place, found[pick]) for found in rows if pick in found)


def _draw_gain(axis: Axes, tables: Sequence[Found], variant: str, role: str) -> None:
    for place, here in enumerate(tables):
        style = styles_of([variant], here["references"].get("none"), here["ceilings"])[variant]
        for later, found in _differences(here, variant, role):
            _draw_point(axis, place + later * OFFSET, found, style, alpha=PALE if later else 1)
    axis.set_title(f"{variant}: points above {RIVALS[role]}", loc="left", fontsize=8)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.tick_params(labelsize=7, length=0)
    axis.grid(axis="x", alpha=0.25)


def _draw_point(axis: Axes, place: float, found: Found, style: Style, *, alpha: float) -> None:
    """A mean with its interval; hollow and without one where there are too few seeds."""
    tells = found["seeds"] >= FEWEST_SEEDS
    if tells:
        _draw_interval(axis, place, (100 * found["low"], 100 * found["high"]), color=style.color, alpha=alpha)
    face = style.color if tells else "white"
    marker = MARKERS.get(style.marker, "o")
    axis.plot(100 * found["mean"], place, marker, color=style.color, markerfacecolor=face, markersize=5, alpha=alpha)


def _draw_interval(axis: Axes, place: float, ends: tuple[float, float], **how: Any) -> None:
    """A line as far as the panel goes, with an arrow where it goes on."""
    left, right = axis.get_xlim()
    shown = [min(max(end, left), right) for end in ends]
    axis.plot(shown, [place, place], linewidth=2, **how)
    for arrow, end, edge in (("<", ends[0], left), (">", ends[1], right)):
        if not left <= end <= right:
            axis.plot(edge, place, arrow, markersize=4, clip_on=False, **how)
