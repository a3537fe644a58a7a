"""`amb evaluate`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from adaptive_memory_bank.lab.commands.options import add_run_arguments


def add_arguments(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """A run, a dataset, a checkpoint."""
    add_run_arguments(parser)
    parser.add_argument("--out", type=str | None, default=None, help="JSON file to write the scores to.")


def main(options: Any) -> int:
    """Print (and write) the scores."""
    from adaptive_memory_bank.lab.training.trained_encoder import evaluate_run

    scores = evaluate_run(options.run, options.data, root=options.data_root, checkpoint=options.checkpoint)
    for name, value in scores.items():
        print(f"{name} {value:.4f}")
    if options.out is not None:
        Path(options.out).write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    return 0
