"""The report's curves as SVG: the metric that decides, and how stale the memory is, over training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from adaptive_memory_bank.lab.compare.comparison import Comparison
from adaptive_memory_bank.lab.compare.report.figures import curve_charts
from adaptive_memory_bank.lab.runs.metrics import BY_NAME, STALENESS, Metric

MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "star": "*", "x": "x"}


def draw(comparison: Comparison, name: str, results: Path) -> list[Path]:
    """Draw both metrics, each as far as some run has it, in one picture with all conditions; return the files."""
    metrics = {f"{name}.svg": comparison.sections[0].headline, f"{name}_staleness.svg": STALENESS}
    paths = []
    for file, metric in metrics.items():
        if save(partial(_figure, comparison, metric), results / file, salt=name):
            paths.append(results / file)
    return paths


def save(make: Callable[[], Figure | None], path: Path, *, salt: str) -> bool:
    """Write what a function draws, if it draws anything. Text stays text, and the same numbers make the same file."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 9}):
        figure = make()
        if figure is not None:
            figure.savefig(path, metadata={"Date": None}, facecolor="white", bbox_inches="tight")
    return figure is not None


def _figure(comparison: Comparison, metric: Metric) -> Figure | None:
    charts = [
        (f"{section.title}: {section.describe(at)}", chart)
        for section in comparison.sections
        for at in section.conditions
        for chart in curve_charts(section, [metric], at=at)
    ]
    if not charts:
        return None
    columns, lines = min(3, len(charts)), -(-len(charts) // 3)
    figure = Figure(figsize=(4.6 * columns, 3.6 * lines), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flatten())
    for axis in axes[len(charts) :]:
        axis.remove()
    for axis, (title, chart) in zip(axes, charts, strict=False):
        for before, trace in zip([None, *chart.figure.data], chart.figure.data, strict=False):
            _draw_trace(axis, trace, before)
        axis.set(title=title, xlabel="epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.25)
    axes[0].set_ylabel(metric.heading)
    if metric.beside:
        axes[len(charts) - 1].plot([], [], ":", color="black", label=f"same rows, {BY_NAME[metric.beside].label}")
    axes[len(charts) - 1].legend(fontsize=8)
    return figure


def _draw_trace(axis: Axes, trace: Any, before: Any) -> None:
    """A curve, or the band between a trace and the one before it."""
    if trace.fill:
        axis.fill_between(trace.x, before.y, trace.y, color=_rgb(trace.fillcolor), alpha=0.15, linewidth=0)
    elif trace.mode == "lines+markers":
        marker = MARKERS.get(trace.marker.symbol, "o")
        axis.plot(trace.x, trace.y, color=trace.line.color, marker=marker, markersize=3, label=trace.name)
    elif trace.line.width:
        axis.plot(trace.x, trace.y, ":", color=trace.line.color)


def _rgb(color: str) -> tuple[float, ...]:
    """`rgba(255,0,0,0.16)` as matplotlib's numbers, without the last."""
    return tuple(int(part) / 255 for part in color.removeprefix("rgba(").split(",")[:3])
