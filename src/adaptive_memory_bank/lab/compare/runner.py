"""Run: plans a comparison, trains whatever is missing of it, and reads the results."""

import contextlib
import queue
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from filelock import FileLock, Timeout
from tqdm import tqdm

from adaptive_memory_bank.lab.compare.comparison import Comparison, headline_of
from adaptive_memory_bank.lab.compare.config import CompareConfig, usable_cores
from adaptive_memory_bank.lab.compare.plan import PlannedRun, plan_runs, write_plan
from adaptive_memory_bank.lab.compare.pool import Finished, Pool
from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.history import epochs_logged
from adaptive_memory_bank.lab.runs.results import Run, RunResult, read_result

POLL_EVERY = 0.5  # seconds between two updates of the progress bar


def compare(config: CompareConfig, *, command: str = "", file: TextIO | None = None) -> Comparison:
    """Train whatever is missing of a comparison and read the results.

    Runs that are complete are kept, runs that were stopped are resumed, and a run that fails does not stop the others.

    Args:
        config: What to compare.
        command: The command line, for the report.
        file: Where progress goes; default: standard error.

    Raises:
        ValueError: For bad options, before anything is trained.
        KeyboardInterrupt: After Ctrl-C, once the trainings have left their checkpoints.
    """
    planned = plan_runs(config)
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    with _alone_in(out):
        write_plan(config, planned, command=command)
        missing = [run for run in planned if not _is_complete(run)]
        _train(config, planned, missing, file or sys.stderr)
    return read_comparison([out])


def _is_complete(run: PlannedRun) -> bool:
    result = read_result(RunFolder(run.folder))
    return result is not None and result.status == "complete"


def _train(config: CompareConfig, planned: Sequence[PlannedRun], missing: Sequence[PlannedRun], file: TextIO) -> None:
    if len(missing) < len(planned):
        print(f"{len(planned) - len(missing)} of {len(planned)} runs are complete already.", file=file)
    if not missing:
        return
    anew = [run.name for run in missing if RunFolder(run.folder).starts_anew]
    if anew:
        print(f"No checkpoint to resume from, starting anew: {', '.join(anew)}.", file=file)
    gpus = _gpu_count(missing)
    jobs = min(config.jobs or gpus or usable_cores(), len(missing))
    print(f"Training {len(missing)} runs, {jobs} at a time, below {config.out}.", file=file)
    pool = Pool(missing, jobs=jobs, cores=usable_cores(), gpus=gpus)
    pool.start()
    try:
        _watch(pool, planned, missing, file)
    except KeyboardInterrupt:
        _stop(pool, file)
        raise
    except BaseException:
        pool.kill()
        raise


def _gpu_count(runs: Sequence[PlannedRun]) -> int:
    if all(run.config.accelerator == "cpu" for run in runs):
        return 0
    import torch

    return torch.cuda.device_count()


def _watch(pool: Pool, planned: Sequence[PlannedRun], missing: Sequence[PlannedRun], file: TextIO) -> None:
    """Show one bar over all epochs, and a line for every run that ends."""
    ended = {run.name: run.config.epochs for run in planned if run not in missing}
    before = sum(epochs_logged(run.folder) for run in missing)
    total = sum(run.config.epochs for run in planned)
    bar = tqdm(
        total=total,
        initial=sum(ended.values()) + before,
        bar_format="{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} epochs, {elapsed} passed, {remaining} left",
        smoothing=0,  # epochs come in bursts
        disable=None,  # where there is no terminal
        dynamic_ncols=True,
        file=file,
    )
    with bar:
        while True:
            with contextlib.suppress(queue.Empty):
                finished = pool.finished.get(timeout=POLL_EVERY)
                if finished is None:
                    return
                ended[finished.run.name] = finished.run.config.epochs
                tqdm.write(f"[{len(ended)}/{len(planned)}] {describe(finished)}", file=file)
            under_way = sum(epochs_logged(run.folder) for run in pool.running)
            bar.update(max(0, sum(ended.values()) + under_way - bar.n))


def describe(finished: Finished) -> str:
    """Say in one line how a training ended."""
    if finished.status == "failed":
        reason = (finished.error or "").strip().splitlines()[:1]
        return f"{finished.run}: FAILED, {reason[0] if reason else 'no reason given'} (see {finished.run.folder})"
    result = read_result(RunFolder(finished.run.folder)) or RunResult.of(finished.run.config, finished.run.folder)
    run = Run.placed(finished.run.folder, result, finished.run.position())
    metric = headline_of(result.task)
    value, seconds = metric.chosen(run), result.seconds
    score = f", {metric.label} {metric.show(value)} %" if value is not None else ""
    return f"{finished.run}: {finished.status}{score}" + (f", {seconds:.0f} s" if seconds else "")


def _stop(pool: Pool, file: TextIO) -> None:
    """Let the trainings save what they have; a second Ctrl-C does not wait."""
    print("\nStopping: every training writes a checkpoint (Ctrl-C again: stop at once).", file=file)
    pool.interrupt()
    try:
        while pool.finished.get() is not None:
            pass
    except KeyboardInterrupt:
        pool.kill()
    print("Stopped. The same command resumes from here.", file=file)


@contextlib.contextmanager
def _alone_in(out: Path) -> Iterator[None]:
    """Refuse to train in a folder where another comparison trains."""
    try:
        lock = FileLock(out / ".compare.lock").acquire(blocking=False)
    except Timeout as error:
        raise ValueError(f"`out`: another comparison is running in {out}. Wait for it or choose another.") from error
    with lock:
        yield
