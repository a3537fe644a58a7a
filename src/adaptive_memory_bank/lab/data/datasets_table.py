"""The table that `amb datasets` prints."""

from pathlib import Path

from adaptive_memory_bank.lab.data.registry import SOURCES, default_root, find_source
from adaptive_memory_bank.lab.data.source import Source

HEADING = ("name", "images", "classes", "split", "metrics", "looks in")


def datasets_table(root: str | Path | None = None) -> str:
    """Every dataset with its size, split, metrics and where it is looked for ("found" or "not there"); then notes."""
    base = default_root() if root is None else Path(root)
    sources = [find_source(name) for name in SOURCES]
    rows = [HEADING, *(_row(source, base) for source in sources)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADING))]
    rule = tuple("-" * width for width in widths)
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    head, *body = lines
    notes = [f"\n{source.name}: {source.note}" for source in sources if source.note]
    return "\n".join([head, "  ".join(rule), *body, *notes])


def _row(source: Source, root: Path) -> tuple[str, ...]:
    return (source.name, source.images, source.classes, source.split, source.metrics, _where(source, root))


def _where(source: Source, root: Path) -> str:
    if source.takes_path:
        return "PATH"
    if not source.folders:
        return "built in"
    candidates = [root.expanduser() / folder for folder in source.folders]
    found = next((path for path in candidates if path.is_dir()), None)
    return f"{found} (found)" if found else f"{candidates[0]} (not there)"
