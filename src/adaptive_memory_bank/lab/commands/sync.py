"""`amb sync`."""

from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser


def add_arguments(parser: ArgumentParser, words: Sequence[str]) -> None:
    """Folders, and where on W&B."""
    parser.add_argument("runs", type=str, nargs="+", help="Folders that `--out` named, or folders of single runs.")
    parser.add_argument("--entity", type=str | None, default=None, help="W&B team or user; default: that of the runs.")
    parser.add_argument("--project", type=str | None, default=None, help="W&B project; default: that of the runs.")


def main(options: Any) -> int:
    """Upload, and print how many."""
    from adaptive_memory_bank.lab.tracking.sync import sync

    print(f"Uploaded {len(sync(options.runs, entity=options.entity, project=options.project))} runs.")
    return 0
