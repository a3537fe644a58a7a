"""`amb sync`."""

from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser


def add_arguments(parser: ArgumentParser, words: Sequence[str]) -> None:
    """Folders, and where on W&B."""
    parser.add_argument("runs", type=str, nargs="+", help="Folders that `--out` named, or folders of single runs.")
    parser.add_argument("--entity", type=str | None, default=None, help="W&B team or user; default: that of the runs.")
    parser.add_argument("--project", type=str | None, default=None, help="W&B project; default: that of the runs.")
    parser.add_argument("--again", action="store_true", help="Also what has been uploaded, say to another project.")


def main(options: Any) -> int:
    """Upload run by run, and print how many were uploaded, skipped and failed, and which."""
    from adaptive_memory_bank.lab.tracking.sync import sync

    synced = sync(options.runs, entity=options.entity, project=options.project, again=options.again)
    print(synced)
    return 1 if synced.failed else 0
