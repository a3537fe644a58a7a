"""`amb dashboard`."""

from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser


def add_arguments(parser: ArgumentParser, words: Sequence[str]) -> None:
    """Folders, and where on W&B."""
    parser.add_argument("runs", type=str, nargs="+", help="Folders that `--out` named, or folders of single runs.")
    parser.add_argument("--entity", type=str | None, default=None, help="W&B team or user; default: that of the runs.")
    parser.add_argument("--project", type=str | None, default=None, help="W&B project; default: that of the runs.")
    parser.add_argument("--dry_run", action="store_true", help="Send nothing; needs no login and no network.")
    parser.add_argument("--out", type=str | None, default=None, help="JSON file for what would be sent.")


def main(options: Any) -> int:
    """Create the workspace (or write its specification) and print where it is."""
    from adaptive_memory_bank.lab.compare.reading import read_comparison
    from adaptive_memory_bank.lab.tracking.dashboard import dashboard

    comparison = read_comparison(options.runs)
    chosen = {name: getattr(options, name) for name in ("entity", "project", "dry_run", "out")}
    print(f"Dashboard: {dashboard(comparison.title, comparison.runs, **chosen)}")
    return 0
