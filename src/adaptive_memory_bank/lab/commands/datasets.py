"""`amb datasets`."""

from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser


def add_arguments(parser: ArgumentParser, words: Sequence[str]) -> None:
    """Where to look."""
    parser.add_argument("--data_root", type=str | None, default=None, help="Folder with the datasets' files.")


def main(options: Any) -> int:
    """Print every dataset, its size and whether it is there."""
    from adaptive_memory_bank.lab.data.datasets_table import datasets_table

    print(datasets_table(options.data_root))
    return 0
