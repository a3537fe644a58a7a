"""`amb compare`."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import docstring_parser
from jsonargparse import ArgumentParser

from adaptive_memory_bank.lab.commands.words import LISTS, find_value
from adaptive_memory_bank.lab.compare.config import CompareConfig, Setting, Variant
from adaptive_memory_bank.lab.compare.plan import OWN_FIELDS
from adaptive_memory_bank.lab.training.tasks import TASKS

_TAKEN = OWN_FIELDS | {field.name for field in fields(CompareConfig)} | {"adapter"}


def add_arguments(parser: ArgumentParser, words: Sequence[str]) -> None:
    """One option per field of `CompareConfig`; the task's own options follow and go to every run."""
    parser.description = f"{parser.description} Options of the task that are not given have the defaults of its preset."
    parser.add_argument("--config", action="config", help="YAML file with any of these options.")
    parser.add_class_arguments(CompareConfig, skip=set(LISTS))
    help_texts = {param.arg_name: param.description for param in docstring_parser.parse(CompareConfig.__doc__).params}
    for name, kind in LISTS.items():
        default = getattr(CompareConfig(), name)
        parser.add_argument(f"--{name}", type=kind, nargs="+", default=default, help=help_texts[name])
    task = find_value("task", words, default=CompareConfig.task)
    if task not in TASKS:
        parser.error(f"`task` must be one of {', '.join(TASKS)}, got {task!r}.")
    passed = parser.add_class_arguments(TASKS[task].config, skip=set(_TAKEN))
    parser.set_defaults(dict.fromkeys(passed))  # what is not given is left to the preset


def to_compare_config(options: Any) -> CompareConfig:
    """What was parsed, the task's options where they belong."""
    values = {field.name: getattr(options, field.name) for field in fields(CompareConfig)}
    values["variants"] = [Variant(**variant.as_dict()) for variant in options.variants]
    values["settings"] = [Setting(**setting.as_dict()) for setting in options.settings]
    names = (field.name for field in fields(TASKS[options.task].config) if field.name not in _TAKEN)
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return CompareConfig(**{**values, "options": {**values["options"], **given}})


def main(options: Any) -> int:
    """Train what is missing, print the table and the verdict, write the report."""
    from adaptive_memory_bank.lab.compare.runner import compare

    command = shlex.join(["amb", *sys.argv[1:]])
    comparison = compare(to_compare_config(options), command=command)
    # Not before the options are checked: the libraries that show results take a second to import.
    from adaptive_memory_bank.lab.compare.report import write_report
    from adaptive_memory_bank.lab.compare.table import summary

    print(f"\n{summary(comparison, color=sys.stdout.isatty())}\n")
    print(f"Report: {write_report(comparison, Path(options.out) / 'report.html')}")
    return 0 if all(run.is_complete for run in comparison.runs) else 1
