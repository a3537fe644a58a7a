"""`amb compare`."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from adaptive_memory_bank.lab.compare.config import SEEDS, CompareConfig, Setting, Variant
from adaptive_memory_bank.lab.compare.plan import OWN_FIELDS
from adaptive_memory_bank.lab.runs.variants import COMPARED
from adaptive_memory_bank.lab.training.tasks import TASKS

_LISTS: dict[str, tuple[type, list[Any], str]] = {
    "adapters": (
        str,
        list(COMPARED),
        "What to compare: none, identity (xbm), xbn, ema, axbn (kalman), auto; also fresh, a memory that is "
        "re-embedded every few steps, for what perfect freshness would give (retrieval only).",
    ),
    "none_batch_sizes": (
        int,
        [],
        "Also train without memory with these batch sizes, as rows of every table: why not simply a larger batch?",
    ),
    "seeds": (int, list(SEEDS), "Of the repetitions; every variant gets the same ones, so that they can be paired."),
    "batch_sizes": (int, [], "Batch sizes of the grid; default: the trainer's own."),
    "memories": (float, [], "Memory sizes of the grid, as shares of the training set or as rows."),
}
_TAKEN = OWN_FIELDS | {field.name for field in fields(CompareConfig)} | {"adapter"}


def add_arguments(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """One option per field of `CompareConfig`; the trainer's own options follow and go to every run."""
    parser.add_argument("--config", action="config", help="YAML file with any of these options.")
    parser.add_class_arguments(CompareConfig, skip=set(_LISTS))
    for name, (kind, default, text) in _LISTS.items():
        parser.add_argument(f"--{name}", type=kind, nargs="+", default=default, help=text)
    task = find_task(arguments)
    if task not in TASKS:
        parser.error(f"`task` must be one of {', '.join(TASKS)}, got {task!r}.")
    passed = parser.add_class_arguments(TASKS[task].config, skip=set(_TAKEN))
    parser.set_defaults(dict.fromkeys(passed))  # what is not given stays with the trainer's preset


def find_task(arguments: Sequence[str]) -> Any:
    """The task asked for, on the command line or in a `--config` file, before anything is parsed."""
    words = [part for word in arguments for part in word.split("=", 1)]
    if "--task" in words[:-1]:
        return words[words.index("--task") + 1]
    if "--config" in words[:-1]:
        path = Path(words[words.index("--config") + 1])
        content = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return content.get("task", "retrieval") if isinstance(content, dict) else "retrieval"
    return "retrieval"


def to_compare_config(options: Any) -> CompareConfig:
    """What was parsed, the trainer's options in their place."""
    values = {field.name: getattr(options, field.name) for field in fields(CompareConfig)}
    values["variants"] = [Variant(**variant.as_dict()) for variant in options.variants]
    values["settings"] = [Setting(**setting.as_dict()) for setting in options.settings]
    names = (field.name for field in fields(TASKS[options.task].config) if field.name not in _TAKEN)
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return CompareConfig(**{**values, "options": {**values["options"], **given}})


def main(options: Any) -> int:
    """Train what is missing, print the table and the verdict, write the report."""
    from adaptive_memory_bank.lab.compare.report import write_report
    from adaptive_memory_bank.lab.compare.runner import compare
    from adaptive_memory_bank.lab.compare.table import summary

    command = shlex.join(["amb", *sys.argv[1:]])
    comparison = compare(to_compare_config(options), command=command)
    print(f"\n{summary(comparison, color=sys.stdout.isatty())}\n")
    print(f"Report: {write_report(comparison, Path(options.out) / 'report.html')}")
    return 0 if all(run.is_complete for run in comparison.runs) else 1
