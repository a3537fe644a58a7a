"""`amb moco`."""

from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser

from adaptive_memory_bank.lab.commands.options import add_config_arguments, report, to_config
from adaptive_memory_bank.lab.training.moco.config import MocoConfig


def add_arguments(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """One option per field of `MocoConfig`."""
    add_config_arguments(parser, MocoConfig, arguments)


def main(options: Any) -> int:
    """Train, and print how it went."""
    from adaptive_memory_bank.lab.training.process import keep_freed_memory
    from adaptive_memory_bank.lab.training.train import run

    keep_freed_memory()
    return report(run(to_config(MocoConfig, options)))
