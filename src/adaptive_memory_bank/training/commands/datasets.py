"""`amb datasets`."""

from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser


def add_arguments(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """There are none."""


def main(options: Any) -> int:
    """Print every name that `--data` takes."""
    from adaptive_memory_bank.data import available_datasets

    for name in available_datasets():
        print(name)
    return 0
