"""`amb embed`."""

from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser

from adaptive_memory_bank.lab.commands.evaluate import add_run_arguments


def add_arguments(parser: ArgumentParser, words: Sequence[str]) -> None:
    """A run, a dataset, a checkpoint, a file."""
    add_run_arguments(parser)
    parser.add_argument("--out", type=str, required=True, help="The npz file to write.")


def main(options: Any) -> int:
    """Write the embeddings and print what is in the file."""
    from adaptive_memory_bank.lab.training.trained_encoder import embed_run

    shapes = embed_run(options.run, options.out, options.data, root=options.data_root, checkpoint=options.checkpoint)
    for name, shape in shapes.items():
        print(f"{name} {' x '.join(map(str, shape))}")
    return 0
