"""Puts a comparison into one HTML file that needs nothing else."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from adaptive_memory_bank.lab.compare.comparison import Comparison, Condition, Section
from adaptive_memory_bank.lab.compare.report.configurations import configurations
from adaptive_memory_bank.lab.compare.report.figures import Chart, curve_charts, grid_charts, seeds_chart
from adaptive_memory_bank.lab.compare.report.mistakes import worst_queries
from adaptive_memory_bank.lab.compare.statistics import FEWEST_SEEDS, Difference, paired_differences
from adaptive_memory_bank.lab.compare.table import tables
from adaptive_memory_bank.lab.compare.verdict import verdict
from adaptive_memory_bank.lab.runs.files import write_text
from adaptive_memory_bank.lab.runs.metrics import CURVES

_HERE = Path(__file__).parent
SHOWN_SEEDS = 5


def write_report(comparison: Comparison, path: Path) -> Path:
    """Write the report of a comparison to a file and return its path."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    charts = _Charts()
    environment.filters.update(code=_code, heading=_heading, chart=charts)
    # What the template asks of each section.
    environment.globals.update(verdict=verdict, tables=tables, notes=_notes, difference_rows=_difference_rows)
    environment.globals.update(grid_charts=grid_charts, seeds_chart=seeds_chart, curve_charts=curve_charts)
    environment.globals.update(worst_queries=worst_queries, curve_sections=CURVES)
    page = environment.get_template("report.html.j2").render(
        comparison=comparison,
        configurations=configurations(comparison.runs),
        written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        incomplete=[run for run in comparison.runs if not run.is_complete],
        style=Markup((_HERE / "report.css").read_text(encoding="utf-8")),
        script=Markup((_HERE / "report.js").read_text(encoding="utf-8")),
        plotly=Markup(get_plotlyjs()),
        charts=charts,
    )
    write_text(path, page)
    return path


def _difference_rows(section: Section, at: Condition | None) -> list[dict[str, Any]]:
    """What the table of differences shows; over the whole grid where `at` is None."""
    return [_difference_row(section, difference) for difference in paired_differences(section, at=at)]


def _difference_row(section: Section, difference: Difference) -> dict[str, Any]:
    metric, known = section.headline, difference.is_judged
    enough = difference.seeds >= FEWEST_SEEDS
    judged = "within the noise" if known else "noise unknown" if enough else "too few seeds"
    if difference.is_beyond_noise:
        judged = "better" if difference.mean > 0 else "worse"
    ends = [metric.show_difference(end, unit=False) for end in (difference.low, difference.high)] if known else []
    each = [metric.show_difference(value, unit=False) for value in difference.values]
    return {
        "name": difference.name,
        "mean": metric.show_difference(difference.mean, unit=False),
        "interval": " to ".join(ends) or "-",
        "each": ", ".join(each[:SHOWN_SEEDS]) + (", …" if len(each) > SHOWN_SEEDS else ""),
        "judged": judged,
        "is_ceiling": difference.name in section.ceilings,
    }


_CHOSEN = {
    "validation": "The epoch was chosen on training classes held out for validation.",
    "evaluation": "The epoch was chosen on the evaluation set itself, as the paper did: these values are optimistic.",
    "last": "The values are those of the last epoch.",
}


_CEILING = (
    "Below the line, `{0}`: a plain memory that is re-embedded every few steps, whatever that costs. It is not a rival "
    "but what perfect freshness would give. Where its gain over plain memory is beyond the noise, the table shows the "
    "share of that way that each memory goes."
)


def _notes(section: Section) -> list[str]:
    chosen = dict.fromkeys(str(run.result.chosen_on) for run in section.runs if run.is_complete)
    notes = [_CHOSEN[name] for name in chosen if name in _CHOSEN]
    return notes + ([_CEILING.format(section.ceilings[0])] if section.ceilings else [])


class _Charts:
    """Gives every chart a number in the page and keeps the figures for the script."""

    def __init__(self) -> None:
        self._figures: list[dict[str, Any]] = []

    def __call__(self, chart: Chart) -> int:
        self._figures.append(json.loads(chart.figure.to_json()))
        return len(self._figures) - 1

    def __html__(self) -> str:
        """The figures as JSON that cannot end the script element it stands in."""
        text = json.dumps(self._figures, separators=(",", ":"))
        return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _code(text: str) -> Markup:
    """Escape a sentence and set what stands in backticks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _heading(text: str) -> str:
    """Keep a unit with the word before it where a heading breaks."""
    return re.sub(r" (?=\S{1,2}$)|(?<=\(x) ", "\u00a0", text)
