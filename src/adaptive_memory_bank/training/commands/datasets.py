"""`amb datasets`."""

from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser


def add_arguments(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """There are none."""


def main(options: Any) -> int:
    """Print every name that `--data` takes, with its size, split, metrics and place."""
    from adaptive_memory_bank.data.table import datasets_table

    print(datasets_table())
    return 0
