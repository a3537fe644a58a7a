"""The words of a command line, before they are parsed."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_origin

from adaptive_memory_bank.lab.compare.config import CompareConfig
from adaptive_memory_bank.lab.runs.files import read_yaml
from adaptive_memory_bank.lab.training.tasks import TASKS

_FIELDS = [field for task in TASKS.values() for field in fields(task.config)]
FLAGS = frozenset(f"--{field.name}" for field in _FIELDS if field.type is bool)
# Lists of plain values: a comparison's, of which each value is a word, and a task's, which are one word in brackets.
LISTS = {
    field.name: get_args(field.type)[0]
    for field in fields(CompareConfig)
    if get_origin(field.type) is list and not is_dataclass(get_args(field.type)[0])
}
BRACKETED = {field.name: get_args(field.type)[0] for field in _FIELDS if get_origin(field.type) in (list, tuple)}


def normalized(arguments: Sequence[str]) -> list[str]:
    """`--batch-size 3` means `--batch_size 3`, a bare `--quiet` means `--quiet true`, and lists take commas and spaces.

    Example:
        >>> normalized(["retrieval", "--batch-size", "3", "--quiet"])
        ['retrieval', '--batch_size', '3', '--quiet=true']
        >>> normalized(["compare", "--seeds", "0,1", "--tags", "a", "b"])
        ['compare', '--seeds', '0', '1', '--tags=["a", "b"]']
    """
    words: list[str] = []
    for word, following in zip(arguments, [*arguments[1:], "--"], strict=False):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
        bare = name in FLAGS and not equals and following.lower() not in ("true", "false", "yes", "no")
        words.append(f"{name}=true" if bare else f"{name}{equals}{value}")
    return [word for option in _options(words) for word in _with_list(option)]


def _options(words: Sequence[str]) -> list[list[str]]:
    """Each option with the words that follow it; what comes before the first one stands alone."""
    starts = [index for index, word in enumerate(words) if word.startswith("--")]
    return [list(words[start:end]) for start, end in zip([0, *starts], [*starts, len(words)], strict=True)]


def _with_list(option: list[str]) -> list[str]:
    """An option's words; if it takes a list, its values apart or in brackets, whether commas or spaces were between."""
    first, equals, value = (option or [""])[0].partition("=")
    name, values = first.removeprefix("--"), [*([value] if equals else []), *option[1:]]
    if not first.startswith("--") or name not in (*LISTS, *BRACKETED) or not values:
        return option
    texts = [text.strip(" '\"") for word in values for text in word.strip("[]").split(",")]
    if name in LISTS:
        return [first, *filter(None, texts)]
    quoted = [json.dumps(text) if BRACKETED[name] is str else text for text in texts if text]
    return [f"{first}=[{', '.join(quoted)}]"]


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
