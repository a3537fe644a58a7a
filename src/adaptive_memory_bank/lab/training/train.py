"""From a configuration to a finished run folder: what all tasks have in common."""

import sys
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.utilities import rank_zero_only

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.runs.checkpoints import AtomicCheckpointIO, CheckpointEvery, newest_checkpoint
from adaptive_memory_bank.lab.runs.config import RunConfig
from adaptive_memory_bank.lab.runs.folder import LAST, RunFolder
from adaptive_memory_bank.lab.runs.results import RunResult, read_result
from adaptive_memory_bank.lab.runs.resuming import load_whole_config, resumed_config
from adaptive_memory_bank.lab.runs.variants import FRESH
from adaptive_memory_bank.lab.training.process import RandomState, isolated
from adaptive_memory_bank.lab.training.record import RunRecord
from adaptive_memory_bank.lab.training.reembedding import FreshMemory
from adaptive_memory_bank.lab.training.step import NonFiniteLossError, TrainingModule
from adaptive_memory_bank.lab.training.tasks import TASKS
from adaptive_memory_bank.lab.training.watch.evaluation import Evaluation, EvaluationMonitor
from adaptive_memory_bank.lab.training.watch.interrupts import InterruptGuard, TrainingInterrupted
from adaptive_memory_bank.lab.training.watch.monitors import DriftMonitor, StalenessMonitor
from adaptive_memory_bank.lab.training.watch.progress import Progress, ShareDone
from adaptive_memory_bank.lab.training.watch.training_log import TrainingLog


@dataclass(frozen=True)
class Training:
    """What a task builds from its options."""

    module: TrainingModule
    evaluate: Callable[[Any], Evaluation]  # scores the module
    searched: Part | None  # images that queries search, for the pictures of the worst; None: the queries
    told: str = ""  # what it trains on, and which options were fitted to that
    idle_parameters: bool = False  # whether some steps leave parameters without gradient (DDP must know)

    @property
    def facts(self) -> dict[str, Any]:
        """What the run's result says of it."""
        bank, held_out = self.module.bank, self.module.data.held_out
        chosen_on = "evaluation" if held_out is None else "validation"
        return {"memory_size": 0 if bank is None else bank.size, "chosen_on": chosen_on, "told": self.told}

    def monitor(self) -> EvaluationMonitor:
        """What scores the module after epochs; held-out classes, where there are any, choose the best of them."""
        headline = TASKS[self.module.config.task].headline
        chosen_by = headline if self.module.data.held_out is None else headline.replace("val/", "holdout/")
        return EvaluationMonitor(
            self.evaluate, every=self.module.config.eval_every, headline=headline, chosen_by=chosen_by
        )


def run(
    config: RunConfig, given: Collection[str] | None = None, *, tell: Callable[[float], None] | None = None
) -> RunResult:
    """Train, and return the run's object of `results.json`; on rank 0 also write the run's folder.

    Args:
        config: The options.
        given: Names of those that were asked for: they are kept as they are, while others may be fitted to the data or,
            where a run is resumed, taken from it; default: all that differ from the preset's.
        tell: Is called a few times a second with the share of the run that is done.

    Example:
        >>> from adaptive_memory_bank.lab.runs.config import make_config
        >>> from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
        >>> config = make_config(RetrievalConfig, "small", adapter="xbn", epochs=10)
        >>> result = run(config)  # doctest: +SKIP
        >>> result.best["best/recall@1"]  # doctest: +SKIP
    """
    folder: RunFolder | None = None
    if config.resume is None and _writes():
        config = replace(config, resume=_begun(config))
    if config.resume is not None:
        folder = RunFolder.open(config.resume)
        if _writes() and folder.in_use:
            raise ValueError(f"Another process trains in {folder.path}: wait for it, or delete {folder.process_file}.")
        config = resumed_config(config, load_whole_config(type(config), folder.config_file), given=given)
        earlier = read_result(folder)
        if earlier is not None and earlier.status == "complete":
            return earlier
        given = config.fitted_fields  # they were fitted when the run began
    with isolated(config):
        training = TASKS[config.task].build(config, given)  # every complaint comes before a folder exists
        resumed = folder is not None
        if not config.quiet and _writes():
            print(training.told, file=sys.stderr)
        if folder is None and _writes():
            folder = RunFolder.create(training.module.config)
        watching: list[Callback] = [] if tell is None else [ShareDone(tell)]
        with folder.occupied() if folder is not None and _writes() else nullcontext():
            return _train(training, folder, watching, resumed=resumed)


def _begun(config: RunConfig) -> str | None:
    """The folder of a run that the same command began and that has no checkpoint (any more): it starts anew there."""
    folder = RunFolder(Path(config.out, config.run_name)) if config.run_name else None
    return str(folder.path) if folder is not None and folder.starts_anew and not folder.in_use else None


def _writes() -> bool:
    """Whether this process is the one that writes: rank 0."""
    return int(cast("Any", rank_zero_only).rank) == 0


def _train(training: Training, folder: RunFolder | None, watching: list[Callback], *, resumed: bool) -> RunResult:
    config, evaluation = training.module.config, training.monitor()
    record = RunRecord(config, folder if _writes() else None, facts=training.facts, resumed=resumed)
    saved_in = Path() if folder is None else folder.checkpoints  # ranks other than 0 take part but write nothing
    checkpoints = CheckpointEvery(saved_in, config.checkpoint_every, evaluation)
    watch, guard = TrainingLog(config.log_every), InterruptGuard(checkpoints)
    guard.install()
    try:
        callbacks = [watch, *_monitors(config, record, evaluation), *watching, checkpoints, guard]
        _fit(training, record, callbacks, folder if resumed else None)
        record.show_gallery(evaluation, training.module.data.source.query, training.searched)
        return record.end("complete", evaluation, watch)
    except TrainingInterrupted:
        return record.end("interrupted", evaluation, watch)
    except (KeyboardInterrupt, SystemExit):  # Lightning turns the second Ctrl-C into an exit
        record.end("interrupted", evaluation, watch)
        raise KeyboardInterrupt from None
    except Exception as error:
        with suppress(OSError):  # a full disk may have no room for the result either
            record.end("failed", evaluation, watch, error=_with_checkpoint(error, folder))
        raise
    finally:
        record.close()
        guard.restore()


def _fit(training: Training, record: RunRecord, callbacks: list[Callback], earlier: RunFolder | None) -> None:
    """Train; every rank reads the checkpoint of the `earlier` part of a resumed run."""
    folder, config = record.folder, record.config
    trainer = pl.Trainer(
        accelerator=config.accelerator,
        devices=config.devices,
        num_nodes=config.num_nodes,
        strategy="auto" if config.processes == 1 else DDPStrategy(find_unused_parameters=training.idle_parameters),
        precision=config.precision,
        max_epochs=config.epochs,
        logger=record.start() or False,
        callbacks=callbacks,
        plugins=[AtomicCheckpointIO()],
        use_distributed_sampler=False,  # ours knows about ranks
        limit_val_batches=0,  # the evaluation monitor evaluates
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=None if folder is None else str(folder.path),
    )
    checkpoint = _resume_from(earlier, record)
    training.module.to(memory_format=training.module.memory_format)
    trainer.fit(training.module, ckpt_path=checkpoint, weights_only=True)


def _monitors(config: RunConfig, record: RunRecord, evaluation: EvaluationMonitor) -> list[Callback]:
    monitors: list[Callback] = [RandomState(), record]
    if config.adapter == FRESH.name:
        monitors.append(FreshMemory(config.fresh_every))
    if config.drift_every:
        monitors.append(DriftMonitor(config.drift_every, config.probe_size))
    if config.staleness_rows:
        monitors.append(StalenessMonitor(config.staleness_rows))
    monitors.append(evaluation)
    if not config.quiet and record.folder is not None:
        monitors.append(Progress())
    return monitors


def _resume_from(earlier: RunFolder | None, record: RunRecord) -> Path | None:
    """The checkpoint to resume from; a run that has none (any more) starts anew in its folder, and says so."""
    if earlier is None:
        return None
    found = newest_checkpoint(earlier.checkpoints)
    if found is None:
        record.rewind()
        if record.folder is not None:
            print(f"{earlier.path} has no {LAST} to resume from: the run starts anew.", file=sys.stderr)
    return found


def _with_checkpoint(error: Exception, folder: RunFolder | None) -> Exception:
    """Add to a NaN's report which checkpoint to go back to."""
    if isinstance(error, NonFiniteLossError) and folder is not None:
        last = folder.checkpoints / LAST
        good = f"Last good checkpoint: {last}." if last.exists() else "There is no checkpoint yet."
        error.args = (f"{error} {good}",)
    return error
