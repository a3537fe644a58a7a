"""The charts of a report, as Plotly figures; the background and text take the colours of the page and its theme."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import plotly.graph_objects as go

from adaptive_memory_bank.lab.compare.comparison import Condition, Section, show_memory
from adaptive_memory_bank.lab.compare.report.palette import QUIET, Style, styles_of
from adaptive_memory_bank.lab.compare.statistics import Spread
from adaptive_memory_bank.lab.runs.history import Curve
from adaptive_memory_bank.lab.runs.metrics import BY_NAME, LOSS, Metric


@dataclass(frozen=True)
class Chart:
    """A figure with its title and caption."""

    title: str
    caption: str
    figure: go.Figure


FEW_EPOCHS = 12
LOSS_CHANGES = (
    "; where the memory starts, every image meets more negatives than its batch holds, and harder ones, so the loss "
    "may jump and then rise while Recall rises: compare it with neither the epochs before nor training without memory"
)


def curve_charts(section: Section, metrics: Iterable[Metric], *, at: Condition) -> list[Chart]:
    """Draw each metric over epochs: the mean over seeds, and a band of one standard deviation around it.

    A vertical line marks where the memory starts, if it starts after a while and in all runs at once.
    """
    start = section.memory_start(at)
    histories = {name: [run.history() for run in section.of(name, at) if run.is_complete] for name in section.names}
    charts = []
    for metric in metrics:
        figure = _empty("epoch", "")
        # A margin that follows the labels changes the space of the legend, and so the labels: on some phones endlessly.
        figure.update_yaxes(ticksuffix="%" if metric.unit == "percent" else "", automargin=False)
        figure.update_layout(margin_l=56)
        for name, style in styles_of(section.names, section.baseline, section.ceilings).items():
            _add_curve(figure, metric, histories[name], name=name, style=style)
        if figure.data:
            last = max(trace.x[-1] for trace in figure.data)
            figure.update_xaxes(dtick=1 if last <= FEW_EPOCHS else None)  # there is no epoch 1.5
            caption = metric.meaning
            if start is not None and start < last:
                _mark_start(figure, start)
                caption += LOSS_CHANGES if metric is LOSS else ""
            if metric.beside:
                caption += f"; dashed: {BY_NAME[metric.beside].label}"
            charts.append(Chart(f"{metric.label[0].upper()}{metric.label[1:]} per epoch", caption, figure))
    return charts


def _mark_start(figure: go.Figure, start: float) -> None:
    """Draw a line at the end of the last epoch without memory; a curve's point stands at the end of its epoch, too."""
    figure.add_vline(x=start, line={"color": QUIET, "width": 1, "dash": "dash"}, layer="below")
    figure.add_annotation(
        x=start, y=1, yref="paper", xanchor="left", yanchor="bottom", text="memory starts", showarrow=False,
        font={"size": 11},
    )  # fmt: skip
    figure.update_layout(margin_t=22)  # room for the label


def _add_curve(
    figure: go.Figure, metric: Metric, histories: Sequence[Mapping[str, Curve]], *, name: str, style: Style
) -> None:
    scale = metric.scale
    epochs, spreads = _over_seeds([history[metric.name] for history in histories if metric.name in history])
    if not epochs:
        return
    means = [scale * spread.mean for spread in spreads]
    if all(spread.std is not None for spread in spreads):
        widths = [scale * (spread.std or 0) for spread in spreads]
        figure.add_traces(_band(epochs, means, widths, name=name, style=style))
    figure.add_trace(_line(epochs, means, name=name, style=style))
    beside = metric.beside or ""
    epochs, spreads = _over_seeds([history[beside] for history in histories if beside in history])
    if epochs:
        means, label = [scale * spread.mean for spread in spreads], f"{name}, {BY_NAME[beside].label}"
        figure.add_trace(_line(epochs, means, name=label, style=style, dashed=True))


def _over_seeds(curves: Sequence[Curve]) -> tuple[list[int], list[Spread]]:
    epochs = sorted({epoch for curve in curves for epoch in curve})
    spreads = [Spread.of([curve[epoch] for curve in curves if epoch in curve]) for epoch in epochs]
    # Files count epochs from 0; a reader's first epoch is 1.
    return [epoch + 1 for epoch in epochs], [spread for spread in spreads if spread is not None]


def _line(x: Sequence[Any], y: Sequence[float], *, name: str, style: Style, dashed: bool = False) -> go.Scatter:
    return go.Scatter(
        x=x,
        y=y,
        name=_text(name),
        legendgroup=_text(name),
        showlegend=not dashed,
        mode="lines" if dashed else "lines+markers",
        line={"color": style.color, "width": 1.5 if dashed else 2, "dash": "dot" if dashed else "solid"},
        marker={"symbol": style.marker, "size": 6},
        hovertemplate="%{y:.4~g}",
    )


def _band(x: Sequence[Any], means: Sequence[float], widths: Sequence[float], *, name: str, style: Style) -> list[Any]:
    shared: dict[str, Any] = {
        "x": x, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False,
        "legendgroup": _text(name),
    }  # fmt: skip
    pairs = list(zip(means, widths, strict=True))
    low = go.Scatter(y=[mean - width for mean, width in pairs], **shared)
    high = go.Scatter(y=[mean + width for mean, width in pairs], fill="tonexty", fillcolor=style.band(), **shared)
    return [low, high]


def seeds_chart(section: Section, *, at: Condition) -> Chart | None:
    """Draw the deciding value of every run: one small mark a seed, one large mark for the mean."""
    metric, figure = section.headline, _empty(f"{section.headline.label}, %", "")
    for name, style in styles_of(section.names, section.baseline, section.ceilings).items():
        values = section.values(name, metric, at=at)
        if not values:
            continue
        label = _text(name)
        y = [label] * len(values)
        small = {"color": style.color, "size": 8, "opacity": 0.55, "symbol": "circle"}
        text = [f"seed {seed}" for seed in values]
        points = [100 * value for value in values.values()]
        hover = "%{x:.2f} (%{text})"
        figure.add_scatter(x=points, y=y, text=text, mode="markers", marker=small, name=label, hovertemplate=hover)
        bar = {"color": style.color, "size": 22, "symbol": "line-ns", "line": {"width": 3, "color": style.color}}
        mean, hover = [100 * fmean(values.values())], "mean %{x:.2f}"
        figure.add_scatter(x=mean, y=[label], mode="markers", marker=bar, name=label, hovertemplate=hover)
    figure.update_xaxes(showgrid=True)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_layout(showlegend=False, hovermode="closest", height=90 + 38 * len(section.names))
    caption = "every dot is one seed, the bar their mean; variants overlap where the noise is as large as the effect"
    return Chart(f"{metric.label} seed by seed", caption, figure) if figure.data else None


def grid_charts(section: Section) -> list[Chart]:
    """Draw the deciding value over batch size and over memory size, wherever the grid has more than one of them."""
    batches = list(dict.fromkeys(at.batch_size for at in section.conditions))
    memories = list(dict.fromkeys(at.memory for at in section.conditions if at.memory is not None))
    charts = []
    if len(batches) > 1:
        fixed_memories: list[float | None] = [*sorted(memories)] or [None]
        for memory in fixed_memories:
            points = [at for at in section.conditions if at.memory == memory]
            fixed = f" · memory {show_memory(memory)}" if memory is not None and len(memories) > 1 else ""
            charts.append(_grid_chart(section, points, axis="batch size", fixed=fixed))
    if len(memories) > 1:
        for batch in batches:
            points = [at for at in section.conditions if at.batch_size == batch and at.memory is not None]
            fixed = f" · batch {batch}" if len(batches) > 1 else ""
            charts.append(_grid_chart(section, points, axis="memory size", fixed=fixed))
    return [chart for chart in charts if chart is not None]


def _grid_chart(section: Section, points: Sequence[Condition], *, axis: str, fixed: str) -> Chart | None:
    if len(points) < 2:
        return None
    metric: Metric = section.headline
    figure = _empty(axis, f"{metric.label}, %")
    for name, style in styles_of(section.names, section.baseline, section.ceilings).items():
        spreads = [Spread.of(section.values(name, metric, at=at).values()) for at in points]
        found = [(_tick(at, axis), spread) for at, spread in zip(points, spreads, strict=True) if spread is not None]
        if found:
            line = _line([x for x, _ in found], [100 * s.mean for _, s in found], name=name, style=style)
            if any(spread.std is not None for _, spread in found):
                line.error_y = {"array": [100 * (s.std or 0) for _, s in found], "thickness": 1.2, "width": 3}
            figure.add_trace(line)
    ticks = [_tick(at, axis) for at in points]
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=ticks)
    caption = "mean over seeds; the bars are one standard deviation"
    return Chart(f"{metric.label} over {axis}{fixed}", caption, figure) if figure.data else None


def _tick(at: Condition, axis: str) -> str:
    return str(at.batch_size) if axis == "batch size" else show_memory(at.memory or 0)


def _empty(x: str, y: str) -> go.Figure:
    layout = {
        "template": {}, "height": 340, "margin": {"l": 44, "r": 12, "t": 12, "b": 40}, "hovermode": "x unified",
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
        "legend": {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "font": {"size": 12}},
        "xaxis": {"title": {"text": x, "standoff": 8}, "automargin": True, "zeroline": False, "showgrid": False},
        "yaxis": {"title": {"text": y, "standoff": 8}, "automargin": True, "zeroline": False},
    }  # fmt: skip
    return go.Figure(layout=layout)


def _text(name: str) -> str:
    """Plotly reads a little HTML in its labels; a name is not HTML."""
    return html.escape(name, quote=False)
