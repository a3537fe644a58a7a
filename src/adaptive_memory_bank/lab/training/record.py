"""The life of a run on disk and on W&B, from `running` to its verdict."""

import math
import os
import time
from dataclasses import asdict
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.loggers.logger import Logger

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.runs.config import RunConfig
from adaptive_memory_bank.lab.runs.folder import RunFolder, data_name, describe_machine, write_json
from adaptive_memory_bank.lab.tracking.wandb_run import JsonlLogger, finish_wandb, new_run_id, start_wandb, wandb_mode
from adaptive_memory_bank.lab.training.watch.evaluation import EvaluationMonitor
from adaptive_memory_bank.lab.training.watch.measurements import TrainingLog
from adaptive_memory_bank.lab.training.worst_queries import gallery_table, render_gallery


class Session:
    """Loggers and result of one run; on ranks other than 0 (no folder) it stays silent.

    Args:
        config: The options.
        folder: The run's folder, or None.
        facts: More of what the result says: `memory_size`, `chosen_on`.
        resumed: Whether the run goes on rather than starts.
    """

    def __init__(self, config: RunConfig, folder: RunFolder | None, *, facts: dict[str, Any], resumed: bool) -> None:
        self.config, self.folder, self.facts, self.resumed = config, folder, facts, resumed
        self.journal: JsonlLogger | None = None
        self.wandb: WandbLogger | None = None
        self._started = time.perf_counter()
        self._run_id: str | None = None

    def start(self) -> list[Logger]:
        """Open the loggers and say that the run is running."""
        if self.folder is None:
            return []
        before = self.folder.read_result() if self.resumed else {}
        given = os.environ.get("WANDB_RUN_ID")  # W&B sweeps name their runs
        self._run_id = before.get("wandb_id") or given or new_run_id()
        self.folder.write_result(self._result("running"))
        self.journal = JsonlLogger(self.folder.metrics_file)
        self.wandb = self._start_wandb(self.folder, self._run_id)
        return [self.journal] if self.wandb is None else [self.journal, self.wandb]

    def _start_wandb(self, folder: RunFolder, run_id: str) -> WandbLogger | None:
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
    ) -> dict[str, Any]:
        """Write the verdict everywhere and return it."""
        result = self._result(status)
        result["metrics"] = _plain({**log.latest, **evaluation.last})
        result["best"] = _plain(evaluation.best_metrics())
        result["best_epoch"] = evaluation.best_epoch
        result["seconds_per_step"], result["train_seconds"] = log.seconds_per_step, round(log.train_seconds, 2)
        result["seconds"] = round(time.perf_counter() - self._started, 2)
        if error is not None:
            result["error"] = f"{type(error).__name__}: {error}"
        try:
            if self.journal is not None:
                self.journal.flush()
            if self.folder is not None:
                self.folder.write_result(result)
        finally:
            self.close({**result["best"], "status": status}, failed=status == "failed")
        return result

    def close(self, summary: dict[str, Any] | None = None, *, failed: bool = True) -> None:
        """End the W&B run, if it has not ended yet."""
        logger, self.wandb = self.wandb, None
        finish_wandb(logger, summary or {}, failed=failed)

    def show_gallery(self, evaluation: EvaluationMonitor, query: Part, gallery: Part | None) -> None:
        """Write the worst queries of the chosen epoch as `gallery.json` and as a W&B table."""
        if self.folder is None or not evaluation.worst or evaluation.best_epoch is None:
            return
        rendered = render_gallery(evaluation.worst, query, gallery, evaluation.best_epoch)
        write_json(self.folder.path / "gallery.json", rendered)
        if self.wandb is not None:
            columns, rows = gallery_table(rendered)
            self.wandb.log_table("worst_queries", columns=columns, data=rows)

    def _result(self, status: str) -> dict[str, Any]:
        config = self.config
        return {
            "run": None if self.folder is None else self.folder.path.name,
            "folder": None if self.folder is None else str(self.folder.path),
            "task": config.task,
            "data": config.data,
            "adapter": config.adapter,
            "name": config.name or config.adapter,
            "seed": config.seed,
            "batch_size": config.batch_size,
            "epochs": config.epochs,
            "preset": config.preset,
            "metrics": {},
            "best": {},
            "seconds_per_step": None,
            "train_seconds": None,
            "status": status,
            "wandb_id": self._run_id,
            **self.facts,
            **describe_machine(),
        }


class JournalPosition(Callback):
    """Puts the length of `metrics.jsonl` into checkpoints; a resumed run writes on from there.

    Args:
        session: Whose journal.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write what waits, note the length."""
        checkpoint["journal"] = 0 if self.session.journal is None else self.session.journal.position()

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Drop the lines that come again."""
        if self.session.journal is not None:
            self.session.journal.rewind(checkpoint["journal"])


def _plain(metrics: dict[str, float]) -> dict[str, float | None]:
    """JSON has no NaN."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
