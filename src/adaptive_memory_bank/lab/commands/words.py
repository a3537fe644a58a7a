"""The words of a command line, before they are parsed."""

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from adaptive_memory_bank.lab.runs.files import read_yaml
from adaptive_memory_bank.lab.training.tasks import TASKS

FLAGS = frozenset(f"--{field.name}" for task in TASKS.values() for field in fields(task.config) if field.type is bool)


def normalized(arguments: Sequence[str]) -> list[str]:
    """`--batch-size 3` means `--batch_size 3`, and a bare `--quiet` means `--quiet true`.

    Example:
        >>> normalized(["retrieval", "--batch-size", "3", "--quiet"])
        ['retrieval', '--batch_size', '3', '--quiet=true']
    """
    words: list[str] = []
    for word, following in zip(arguments, [*arguments[1:], "--"], strict=False):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
        bare = name in FLAGS and not equals and following.lower() not in ("true", "false", "yes", "no")
        words.append(f"{name}=true" if bare else f"{name}{equals}{value}")
    return words


def find_command(words: Sequence[str]) -> str | None:
    """The command that is called."""
    return next((word for word in words if not word.startswith("-")), None)


def find_value(name: str, words: Sequence[str], *, default: str) -> str:
    """The value of an option that decides which others there are: from the command line, else from `--config`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in (name, "config"):
        parser.add_argument(f"--{option}", nargs="?")
    given, _ = parser.parse_known_args(words)
    written = read_yaml(Path(given.config), remedy="Mend it.") if given.config and Path(given.config).is_file() else {}
    return str(getattr(given, name) or written.get(name, default))
