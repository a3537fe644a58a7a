"""`amb report`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser


def add_arguments(parser: ArgumentParser, words: Sequence[str]) -> None:
    """Folders and a file."""
    parser.add_argument("runs", type=str, nargs="+", help="Folders that `--out` named, or folders of single runs.")
    parser.add_argument(
        "--out", type=str | None, default=None, help="File to write; default: report.html in the first folder."
    )


def main(options: Any) -> int:
    """Write the report and print the table."""
    import sys

    from adaptive_memory_bank.lab.compare.reading import read_comparison
    from adaptive_memory_bank.lab.compare.report import write_report
    from adaptive_memory_bank.lab.compare.table import summary

    comparison = read_comparison(options.runs)
    print(f"{summary(comparison, color=sys.stdout.isatty())}\n")
    print(f"Report: {write_report(comparison, Path(options.out or Path(options.runs[0]) / 'report.html'))}")
    return 0
