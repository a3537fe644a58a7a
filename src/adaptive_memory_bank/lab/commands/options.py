"""Dataclasses as command-line options, with presets as defaults."""

from argparse import SUPPRESS
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import yaml
from jsonargparse import ArgumentParser

from adaptive_memory_bank.lab.runs.config import Config
from adaptive_memory_bank.lab.runs.results import RunResult


def add_config_arguments(parser: ArgumentParser, kind: type[Config], arguments: Sequence[str]) -> None:
    """Add one option per field of a configuration; the preset on the command line sets the defaults."""
    preset = find_preset(arguments)
    presets = kind.presets
    if preset not in presets:
        parser.error(f"`preset` must be one of {', '.join(presets)}, got {preset!r}.")
    parser.add_argument("--config", action="config", help="YAML file with options, such as the config.yaml of a run.")
    parser.add_argument("--task", type=Literal[kind.task], default=kind.task, help=SUPPRESS)  # of a run's config.yaml
    parser.add_class_arguments(kind)
    parser.set_defaults({"preset": preset, **presets[preset]})


def add_run_arguments(parser: ArgumentParser) -> None:
    """Add what `amb evaluate` and `amb embed` share."""
    parser.add_argument("run", type=str, help="Folder of a run.")
    parser.add_argument("--data", type=str | None, default=None, help="Dataset; default: the run's own.")
    parser.add_argument("--data_root", type=str | None, default=None, help="Folder with the dataset's files.")
    parser.add_argument("--checkpoint", type=Literal["best", "last"], default="best", help="Which epoch to use.")


def find_preset(arguments: Sequence[str]) -> str:
    """The preset asked for: on the command line, else in the `--config` file, else `small`."""
    given = _value_of("--preset", arguments)
    if given is not None:
        return given
    file = _value_of("--config", arguments)
    if file is not None and Path(file).is_file():
        content: Any = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        if isinstance(content, dict) and "preset" in content:
            return str(content["preset"])
    return "small"


def _value_of(option: str, arguments: Sequence[str]) -> str | None:
    for word, following in zip(arguments, [*arguments[1:], None], strict=False):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.split("=", 1)[1]
    return None


def to_config(kind: type[Config], options: Any) -> Config:
    """The configuration that was parsed."""
    return kind(**{field.name: getattr(options, field.name) for field in fields(kind)})


def report(result: RunResult) -> int:
    """Print how a run ended, and return the exit code."""
    if result.run is None:  # another rank reports
        return 0
    if result.best and result.best_epoch is not None:
        place = "held-out classes" if result.chosen_on == "validation" else "the evaluation set"
        print(f"chosen epoch {result.best_epoch + 1} (on {place}): {_line(result.best, 'best/')}")
        print(f"last epoch: {_line(result.metrics, 'val/')}")
    pace = f" ({1000 * result.seconds_per_step:.1f} ms a step)" if result.seconds_per_step else ""
    print(f"{result.status}: {result.folder}{pace}")
    return 130 if result.status == "interrupted" else 0


def _line(metrics: Mapping[str, Any], prefix: str) -> str:
    chosen = {key.removeprefix(prefix): value for key, value in metrics.items() if key.startswith(prefix)}
    chosen.pop("queries_without_positive", None)
    return "  ".join(f"{key} {value:.4f}" for key, value in chosen.items() if value is not None)
