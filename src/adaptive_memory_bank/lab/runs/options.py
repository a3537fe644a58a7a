"""Options as jsonargparse reads them, typed and checked alike on the command line, in YAML files and in comparisons."""

from argparse import SUPPRESS
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Literal

from jsonargparse import ArgumentParser

from adaptive_memory_bank.lab.runs.config import Config, RunConfig, make_config


def add_options(parser: ArgumentParser, kind: type[RunConfig], *, preset: str) -> None:
    """Add one option per field of a configuration; the preset sets the defaults.

    Raises:
        ValueError: For an unknown preset.
    """
    defaults = vars(make_config(kind, preset))
    parser.add_argument("--task", type=Literal[kind.task], default=kind.task, help=SUPPRESS)  # of a run's config.yaml
    parser.add_class_arguments(kind)
    parser.set_defaults(defaults)


def to_config(kind: type[Config], parsed: Any) -> Config:
    """The configuration that was parsed."""
    return kind(**{field.name: getattr(parsed, field.name) for field in fields(kind)})


def parse_options(kind: type[Config], options: Mapping[str, Any]) -> Config:
    """Read plain values as the command line reads words, checks included.

    Raises:
        ArgumentError, TypeError, ValueError: For an option that does not exist or cannot have that value.
    """
    preset = str(options.get("preset", "small"))
    parser = _parser(kind, preset)  # type: ignore[arg-type]  # a class is hashable, whatever its instances are
    config = to_config(kind, parser.parse_object(dict(options)))
    config.check()
    return config


@cache
def _parser(kind: type[RunConfig], preset: str) -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    add_options(parser, kind, preset=preset)
    return parser
