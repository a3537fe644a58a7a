"""`amb retrieval`, `amb moco`: one command for every task."""

from collections.abc import Mapping, Sequence
from typing import Any

from jsonargparse import ArgumentParser

from adaptive_memory_bank.lab.commands.words import find_command, find_value
from adaptive_memory_bank.lab.runs.options import add_options, to_config
from adaptive_memory_bank.lab.training.tasks import TASKS


def add_arguments(parser: ArgumentParser, words: Sequence[str]) -> None:
    """One option per field of the task's configuration."""
    parser.add_argument("--config", action="config", help="YAML file with options, such as the config.yaml of a run.")
    preset = find_value("preset", words, default="small")
    try:
        add_options(parser, TASKS[str(find_command(words))].config, preset=preset)
    except ValueError as error:
        parser.error(str(error))


def main(options: Any) -> int:
    """Train, and print how it went."""
    from adaptive_memory_bank.lab.training.process import keep_freed_memory
    from adaptive_memory_bank.lab.training.train import run

    keep_freed_memory()
    result = run(to_config(TASKS[options.task].config, options), given=options.given)
    if result.run is None:  # another rank reports
        return 0
    if result.best and result.best_epoch is not None:
        chosen_on = "held-out classes" if result.chosen_on == "validation" else "the evaluation set"
        print(f"chosen epoch {result.best_epoch + 1} (on {chosen_on}): {_scores(result.best, 'best/')}")
        print(f"last epoch: {_scores(result.metrics, 'val/')}")
    pace = f" ({1000 * result.seconds_per_step:.1f} ms a step)" if result.seconds_per_step else ""
    print(f"{result.status}: {result.folder}{pace}")
    return 130 if result.status == "interrupted" else 0


def _scores(metrics: Mapping[str, Any], prefix: str) -> str:
    scores = {key.removeprefix(prefix): value for key, value in metrics.items() if key.startswith(prefix)}
    scores.pop("queries_without_positive", None)
    return "  ".join(f"{key} {value:.4f}" for key, value in scores.items() if value is not None)
