"""The trainings that a comparison's file asks for, as `amb compare --config` would plan them."""

from __future__ import annotations

from pathlib import Path

from adaptive_memory_bank.lab.commands.compare import to_compare_config
from adaptive_memory_bank.lab.commands.main import make_parser
from adaptive_memory_bank.lab.commands.words import normalized
from adaptive_memory_bank.lab.compare.plan import plan_runs
from adaptive_memory_bank.lab.runs.config import RunConfig


def configs(path: Path, *words: object) -> list[RunConfig]:
    """The options of every run; `words` are further ones, as on the command line."""
    arguments = normalized(["compare", "--config", str(path), *map(str, words)])
    return [run.config for run in plan_runs(to_compare_config(make_parser(arguments).parse_args(arguments).compare))]
