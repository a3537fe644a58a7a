"""The command `amb`: parses, calls one function, prints.

A command is a module with `add_arguments(parser, words)` and `main(options) -> exit code`; it is imported only when
it is called, so `amb --help` stays quick.
"""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser

from adaptive_memory_bank.lab.commands.words import find_command, normalized
from adaptive_memory_bank.lab.training.tasks import TASKS
from adaptive_memory_bank.version import __version__

# Name: its module in this package, and one sentence of help.
COMMANDS = {
    "compare": ("compare", "Train several adapters under the same conditions and compare them."),
    **{name: ("train", str(task.config.__doc__).splitlines()[0]) for name, task in TASKS.items()},
    "evaluate": ("evaluate", "Score a finished run on a dataset."),
    "embed": ("embed", "Export the embeddings of a dataset, made by a finished run."),
    "datasets": ("datasets", "List the datasets and how to get them."),
    "report": ("report", "Rebuild report.html from folders of runs."),
    "dashboard": ("dashboard", "Create a W&B workspace for folders of runs."),
    "sync": ("sync", "Upload runs that were tracked offline to W&B."),
}
DEBUG = "--debug"


def _load(command: str) -> Any:
    return importlib.import_module(f"adaptive_memory_bank.lab.commands.{COMMANDS[command][0]}")


def make_parser(words: Sequence[str]) -> ArgumentParser:
    """The parser, with all options of the command that is called and the names of the others."""
    text = "Memory banks that follow the encoder: train, compare, look."
    parser = ArgumentParser(prog="amb", description=text, version=__version__)
    parser.add_argument(DEBUG, action="store_true", help="Show where in the code an error came from.")
    commands = parser.add_subcommands(dest="command", required=True)
    for name, (_, text) in COMMANDS.items():
        options = ArgumentParser(usage=f"amb {name} [options]", description=text)
        if name == find_command(words):
            _load(name).add_arguments(options, words)
        commands.add_subcommand(name, options, help=text)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong options, 130 interrupted."""
    if "" not in sys.path:
        sys.path.append("")  # `mine:MyAdapter` may be a file beside the data, as for `python -m`
    words = normalized(sys.argv[1:] if arguments is None else arguments)
    debug, words = DEBUG in words, [word for word in words if word != DEBUG]
    try:
        parser = make_parser(words)
        options = parser.parse_args(words)
        chosen = options[options.command]
        # What was asked for: options that have their defaults may have been, too.
        chosen.given = sorted(parser.parse_args(words, defaults=False)[options.command].keys())
        return int(_load(options.command).main(chosen))
    except KeyboardInterrupt:
        return 130
    except (ValueError, ArithmeticError, OSError) as error:  # what users can fix; anything else is a bug, shown in full
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return int(getattr(error, "exit_code", 2 if isinstance(error, ValueError) else 1))


if __name__ == "__main__":
    sys.exit(main())
