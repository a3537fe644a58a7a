"""Show: the table at the end of a comparison: mean and standard deviation over seeds, best in bold."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from adaptive_memory_bank.lab.compare.ceiling import shares_of_the_way, show_share
from adaptive_memory_bank.lab.compare.comparison import Comparison, Condition, Section
from adaptive_memory_bank.lab.compare.statistics import Spread
from adaptive_memory_bank.lab.compare.verdict import verdict
from adaptive_memory_bank.lab.runs.metrics import Metric

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
MISSING = "-"


@dataclass(frozen=True)
class Cell:
    """One entry: its text, and whether it is the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Headings and rows of one condition; renderers decide what bold looks like."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    ceilings: tuple[tuple[Cell, ...], ...] = ()
    """Rows that stand apart, below a rule: what a memory that is kept fresh at any cost would give."""


def tables(section: Section) -> list[Table]:
    """Make one table for every condition of a section."""
    return [_table(section, at) for at in section.conditions]


def _table(section: Section, at: Condition) -> Table:
    names = [name for name in section.names if section.of(name, at)]
    first = "adapter" if all(run.name == run.adapter for run in section.runs) else "variant"
    columns: list[tuple[str, Sequence[Cell]]] = [(first, [Cell(printable(name)) for name in names])]
    for metric in section.metrics:
        if metric.unit == "ms" and section.baseline is not None:
            heading = f"{metric.heading} (x {section.baseline})"
            columns.append((heading, _times(section, metric, names, at=at)))
        else:
            columns.append((metric.heading, _cells(section, metric, names, at=at)))
    shares = shares_of_the_way(section, at=at)
    if shares:
        way = [Cell(show_share(shares[name]) if name in shares else MISSING) for name in names]
        columns.insert(2, (f"of the way to {printable(section.ceilings[0])}", way))
    decides = section.headline
    if any(section.values(name, decides, at=at) != section.values(name, decides, at=at, pick="last") for name in names):
        columns.insert(2, ("last epoch %", _cells(section, decides, names, at=at, pick="last")))
    if section.published:
        said = [section.published.get(name) for name in names]
        columns.append(("published %", [Cell(MISSING if value is None else f"{value:.2f}") for value in said]))
    columns.append(("seeds", [Cell(_seeds(section, name, at)) for name in names]))
    title = ": ".join(filter(None, (section.title, section.describe(at))))
    rows = tuple(zip(*(cells for _, cells in columns), strict=True))
    compared = sum(name not in section.ceilings for name in names)  # ceilings come last
    return Table(printable(title), tuple(heading for heading, _ in columns), rows[:compared], rows[compared:])


def _cells(
    section: Section, metric: Metric, names: Sequence[str], *, at: Condition, pick: str = "chosen"
) -> list[Cell]:
    spreads = [Spread.of(section.values(name, metric, at=at, pick=pick).values()) for name in names]
    # Bold what reads as the best: equal after rounding is equal. A ceiling does not compete.
    shown = [
        None if spread is None or name in section.ceilings else float(metric.show(spread.mean))
        for name, spread in zip(names, spreads, strict=True)
    ]
    rivals = [value for value in shown if value is not None]
    best = (max if metric.better == "higher" else min)(rivals) if metric.better and len(rivals) > 1 else None
    return [
        Cell(show_spread(spread, metric), value is not None and value == best)
        for spread, value in zip(spreads, shown, strict=True)
    ]


def show_spread(spread: Spread | None, metric: Metric) -> str:
    """Write "mean ± std", or the value alone where there is one seed."""
    if spread is None:
        return MISSING
    mean = metric.show(spread.mean)
    return mean if spread.std is None else f"{mean} ± {metric.show(spread.std)}"


def _times(section: Section, metric: Metric, names: Sequence[str], *, at: Condition) -> list[Cell]:
    """Mean times, and how they compare with training without memory."""
    base = section.values(str(section.baseline), metric, at=at)
    cells = []
    for name in names:
        times = section.values(name, metric, at=at)
        text = metric.show(fmean(times.values())) if times else MISSING
        ratio = Spread.of([times[seed] / base[seed] for seed in times if seed in base])
        if ratio is not None:
            text += f" (x{ratio.mean:.2f}" + (")" if ratio.std is None else f" ± {ratio.std:.2f})")
        cells.append(Cell(text))
    return cells


def _seeds(section: Section, name: str, at: Condition) -> str:
    runs = section.of(name, at)
    done = sum(run.is_complete for run in runs)
    return str(done) if done == len(runs) else f"{done} of {len(runs)}"


def render_table(table: Table, *, color: bool) -> str:
    """Lay a table out in a fixed-width font; the best value is bold by ANSI codes or, without `color`, has a star."""
    rows = (*table.rows, *table.ceilings)
    texts = [[cell.text + ("" if color or not cell.best else "*") for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(table.headings, *texts, strict=True)]
    rule = "  ".join("-" * width for width in widths)
    lines = [
        _line(row, widths, [color and cell.best for cell in cells]) for row, cells in zip(texts, rows, strict=True)
    ]
    if table.ceilings:
        lines.insert(len(table.rows), rule)
    return "\n".join([table.title, _line(table.headings, widths), rule, *lines])


def _line(texts: Sequence[str], widths: Sequence[int], bold: Sequence[bool] | None = None) -> str:
    parts = []
    for index, (text, width) in enumerate(zip(texts, widths, strict=True)):
        space = " " * (width - _width(text))
        shown = f"{BOLD}{text}{PLAIN}" if bold and bold[index] else text
        parts.append(shown + space if index == 0 else space + shown)
    return "  ".join(parts).rstrip()


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


def printable(text: str) -> str:
    r"""Replace control characters: a name must not move the cursor or colour the terminal.

    Example:
        >>> printable("a\x1b[31mb")
        'a?[31mb'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def summary(comparison: Comparison, *, color: bool = False) -> str:
    """Write everything a terminal shows at the end: tables, verdicts, failed runs."""
    blocks = []
    for section in comparison.sections:
        blocks += [render_table(table, color=color) for table in tables(section)]
        blocks.append(printable(verdict(section)))
    failed = [run for run in comparison.runs if not run.is_complete]
    if failed:
        lines = [f"  {run.folder.name}: {run.status}{_reason(run.result.error)}" for run in failed]
        blocks.append("\n".join([f"{len(failed)} of {len(comparison.runs)} runs are not complete:", *lines]))
    return "\n\n".join(blocks)


def _reason(error: object) -> str:
    lines = str(error or "").strip().splitlines()
    return f" ({printable(lines[-1])})" if lines else ""
