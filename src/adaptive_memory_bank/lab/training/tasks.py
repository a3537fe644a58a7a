"""The tasks there are: what each is called, configured by, built by and judged by. Everything else reads it here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_memory_bank.lab.runs.config import RunConfig, from_plain, read_options
from adaptive_memory_bank.lab.runs.resuming import load_config
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig

if TYPE_CHECKING:
    from adaptive_memory_bank.lab.training.train import Training


@dataclass(frozen=True)
class Task:
    """One way to train.

    Its module has `build` (options to a `Training`), `restore` (a checkpoint to an encoder) and `score` (that encoder
    to metrics), and is imported when it is needed.
    """

    config: type[RunConfig]  # knows the task's name and presets
    module: str
    headline: str  # the metric that decides, on the evaluation set
    quick: Mapping[str, Any] = field(default_factory=dict)  # of a comparison without a preset: five minutes

    @property
    def name(self) -> str:
        """What it is called, on the command line and in files."""
        return self.config.task

    @property
    def presets(self) -> Mapping[str, dict[str, Any]]:
        """Options by the name of the preset."""
        return self.config.presets

    def configure(self, options: Mapping[str, Any]) -> RunConfig:
        """A configuration from plain values, as JSON has them."""
        return from_plain(self.config, options)

    def build(self, config: RunConfig) -> "Training":
        """Everything a run needs; complains before anything is written."""
        training: Training = self.load().build(config)
        return training

    def load(self) -> Any:
        """Import the module."""
        return import_module(self.module)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            RetrievalConfig,
            "adaptive_memory_bank.lab.training.retrieval.task",
            headline="val/recall@1",
            quick={"epochs": 5, "batch_size": 16},
        ),
        Task(MocoConfig, "adaptive_memory_bank.lab.training.moco.task", headline="val/knn", quick={"epochs": 15}),
    )
}


def read_config(path: Path) -> RunConfig:
    """The configuration of a run, whichever task it is of, from its `config.yaml`."""
    name, _ = read_options(path)
    if name not in TASKS:
        raise ValueError(f"{path}: `task` must be one of {', '.join(TASKS)}, got {name!r}.")
    return load_config(TASKS[name].config, path)
