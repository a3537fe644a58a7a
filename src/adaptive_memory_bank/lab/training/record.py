"""The record of a run, on disk and on W&B: from `running` to how it ended."""

import os
import time
from argparse import Namespace
from dataclasses import asdict, replace
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers.logger import Logger

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.runs.config import RunConfig
from adaptive_memory_bank.lab.runs.files import write_json
from adaptive_memory_bank.lab.runs.folder import RunFolder, data_name
from adaptive_memory_bank.lab.runs.history import MetricsFile, finite_or_none
from adaptive_memory_bank.lab.runs.results import RunResult, read_result, write_result
from adaptive_memory_bank.lab.tracking.wandb_run import WandbRun, new_run_id, start_wandb, wandb_mode
from adaptive_memory_bank.lab.training.watch.evaluation import EvaluationMonitor
from adaptive_memory_bank.lab.training.watch.training_log import TrainingLog
from adaptive_memory_bank.lab.training.worst_queries import gallery_table, render_gallery


class JsonlLogger(Logger):
    """Lightning's view of `metrics.jsonl`."""

    name, version = "metrics.jsonl", "0"

    def __init__(self, file: MetricsFile) -> None:
        super().__init__()
        self.file = file

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Hyper-parameters are in `config.yaml`."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Add a line."""
        self.file.write(metrics, step)

    def save(self) -> None:
        """Write what waits; Lightning's `finalize` calls it, too."""
        self.file.flush()


class RunRecord(Callback):
    """Loggers and result of one run; on ranks other than 0 (no folder) it stays silent.

    As a callback it puts the length of `metrics.jsonl` into checkpoints, and a resumed run writes on from there.

    Args:
        config: The options.
        folder: The run's folder, or None.
        facts: More of what the result says: `memory_size`, `chosen_on`.
        resumed: Whether the run continues an earlier one.
    """

    def __init__(self, config: RunConfig, folder: RunFolder | None, *, facts: dict[str, Any], resumed: bool) -> None:
        self.config, self.folder, self.facts, self.resumed = config, folder, facts, resumed
        self.metrics = None if folder is None else MetricsFile(folder.metrics_file)
        self.wandb: WandbRun | None = None
        self._started = time.perf_counter()
        self._run_id: str | None = None

    def start(self) -> list[Logger]:
        """Open the loggers and say that the run is running."""
        if self.folder is None or self.metrics is None:
            return []
        before = read_result(self.folder) if self.resumed else None
        given = os.environ.get("WANDB_RUN_ID")  # W&B sweeps name their runs
        self._run_id = (before and before.wandb_id) or given or new_run_id()
        write_result(self.folder, self._result("running"))
        self.wandb = self._start_wandb(self.folder, self._run_id)
        journal = JsonlLogger(self.metrics)
        return [journal] if self.wandb is None else [journal, self.wandb]

    def _start_wandb(self, folder: RunFolder, run_id: str) -> WandbRun | None:
        config = self.config
        return start_wandb(
            wandb_mode(config.wandb),
            folder=folder.path,
            run_id=run_id,
            resume=self.resumed,
            quiet=config.quiet,
            project=config.project,
            entity=config.entity,
            group=config.group or f"{data_name(config)}-{config.task}",
            tags=[config.task, config.adapter, *config.tags],
            name=folder.path.name,
            config={**asdict(config), "task": config.task, **self.facts},
        )

    def end(
        self, status: str, evaluation: EvaluationMonitor, log: TrainingLog, error: BaseException | None = None
    ) -> RunResult:
        """Write the result everywhere and return it."""
        result = replace(
            self._result(status),
            metrics=finite_or_none({**log.latest, **evaluation.last}),
            best=finite_or_none(evaluation.best_metrics()),
            best_epoch=evaluation.best_epoch,
            seconds_per_step=log.seconds_per_step,
            train_seconds=round(log.train_seconds, 2),
            seconds=round(time.perf_counter() - self._started, 2),
            error=None if error is None else f"{type(error).__name__}: {error}",
        )
        try:
            if self.folder is not None and self.metrics is not None:
                self.metrics.flush()
                write_result(self.folder, result)
        finally:
            self.close({**result.best, "status": status}, failed=status == "failed")
        return result

    def _result(self, status: str) -> RunResult:
        path = None if self.folder is None else self.folder.path
        return RunResult.of(self.config, path, status=status, wandb_id=self._run_id, **self.facts)

    def close(self, summary: dict[str, Any] | None = None, *, failed: bool = True) -> None:
        """End the W&B run, if it has not ended yet."""
        if self.wandb is not None:
            self.wandb.end(summary or {}, failed=failed)
        self.wandb = None

    def show_gallery(self, evaluation: EvaluationMonitor, query: Part, gallery: Part | None) -> None:
        """Write the worst queries of the chosen epoch as `gallery.json` and as a W&B table."""
        if self.folder is None or not evaluation.worst or evaluation.best_epoch is None:
            return
        rendered = render_gallery(evaluation.worst, query, gallery, evaluation.best_epoch)
        write_json(self.folder.gallery_file, rendered)
        if self.wandb is not None:
            self.wandb.log_table("worst_queries", lambda: gallery_table(rendered))

    def rewind(self, position: int = 0) -> None:
        """Drop the lines of `metrics.jsonl` that are about to come again."""
        if self.metrics is not None:
            self.metrics.rewind(position)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Write what waits, note the length."""
        checkpoint["journal"] = 0 if self.metrics is None else self.metrics.position()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Continue where the checkpoint was taken."""
        self.rewind(checkpoint["journal"])
