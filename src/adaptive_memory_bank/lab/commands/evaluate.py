"""`amb evaluate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser


def add_arguments(parser: ArgumentParser, words: Sequence[str]) -> None:
    """A run, a dataset, a checkpoint."""
    add_run_arguments(parser)
    parser.add_argument("--out", type=str | None, default=None, help="JSON file to write the scores to.")


def add_run_arguments(parser: ArgumentParser) -> None:
    """What `amb embed` takes as well: a run, a dataset, an epoch."""
    parser.add_argument("run", type=str, help="Folder of a run.")
    parser.add_argument("--data", type=str | None, default=None, help="Dataset; default: the run's own.")
    parser.add_argument("--data_root", type=str | None, default=None, help="Folder with the dataset's files.")
    parser.add_argument(
        "--checkpoint", type=Literal["best", "last"], default="best", help="The chosen epoch or the last."
    )


def main(options: Any) -> int:
    """Print (and write) the scores."""
    from adaptive_memory_bank.lab.runs.files import write_json
    from adaptive_memory_bank.lab.training.trained_encoder import evaluate_run

    scores = evaluate_run(options.run, options.data, root=options.data_root, checkpoint=options.checkpoint)
    for name, value in scores.items():
        print(f"{name} {value:.4f}")
    if options.out is not None:
        write_json(Path(options.out), scores)
    return 0
