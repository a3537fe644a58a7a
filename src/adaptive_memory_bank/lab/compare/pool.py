"""Run: trains the runs of a plan in worker processes; a process that dies costs only the run it was training."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from adaptive_memory_bank.lab.compare.plan import PlannedRun
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.results import RunResult, read_result, write_result


class Finished(NamedTuple):
    """How a training ended."""

    run: PlannedRun
    status: str
    error: str | None


class Pool:
    """Trains runs in `jobs` processes; `finished` receives them as they end, then None.

    Args:
        runs: What to train, in this order.
        jobs: How many at a time.
        cores: Cores to share out among them.
        gpus: GPUs to deal out among them.
    """

    def __init__(self, runs: Sequence[PlannedRun], *, jobs: int, cores: int, gpus: int = 0) -> None:
        self.finished: queue.Queue[Finished | None] = queue.Queue()
        self.running: list[PlannedRun] = []
        self._waiting: queue.Queue[PlannedRun] = queue.Queue()
        for run in runs:
            self._waiting.put(run)
        self._jobs, self._cores, self._gpus = jobs, cores, gpus
        self._stopping = threading.Event()
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._threads = [threading.Thread(target=self._serve, args=(slot,), daemon=True) for slot in range(jobs)]

    def start(self) -> None:
        """Start the workers."""
        for thread in self._threads:
            thread.start()
        threading.Thread(target=self._announce_end, daemon=True).start()

    def interrupt(self) -> None:
        """Ask every training to stop with a checkpoint, and start no more."""
        self._stopping.set()
        for process in list(self._processes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End every worker at once."""
        self._stopping.set()
        for process in list(self._processes.values()):
            process.kill()

    def _announce_end(self) -> None:
        for thread in self._threads:
            thread.join()
        self.finished.put(None)

    def _serve(self, slot: int) -> None:
        """Give one worker its runs; if it dies, the next run gets a new one."""
        try:
            while not self._stopping.is_set():
                try:
                    run = self._waiting.get_nowait()
                except queue.Empty:
                    break
                self.running.append(run)
                finished = self._train(run, slot)
                self.running.remove(run)
                self.finished.put(finished)
        finally:
            self._dismiss(slot)

    def _train(self, run: PlannedRun, slot: int) -> Finished:
        process = self._worker(slot)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(make_job(run)) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            reply = json.loads(answer)
            finished = Finished(run, reply["status"], reply["error"])
        else:
            finished = self._explain_death(run, slot)
        if finished.status == "failed":
            _record_failure(finished)
        return finished

    def _explain_death(self, run: PlannedRun, slot: int) -> Finished:
        code = self._processes[slot].wait()
        self._dismiss(slot)
        if self._stopping.is_set():
            return Finished(run, "interrupted", None)
        reason = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        hint = "; out of memory?" if code == -signal.SIGKILL else ""
        return Finished(run, "failed", f"the worker process ended with {reason}{hint}")

    def _worker(self, slot: int) -> "subprocess.Popen[str]":
        process = self._processes.get(slot)
        if process is None or process.poll() is not None:
            process = self._start_worker(slot)
            self._processes[slot] = process
        return process

    def _start_worker(self, slot: int) -> "subprocess.Popen[str]":
        # It inherits what is blocked here: Ctrl-C waits until it has imported everything, and is no traceback then.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            # A session of its own: Ctrl-C reaches the workers once, through `interrupt`, and not twice.
            return subprocess.Popen(
                [sys.executable, "-m", "adaptive_memory_bank.lab.compare.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env=self._environment(slot),
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _environment(self, slot: int) -> dict[str, str]:
        threads = str(max(1, self._cores // self._jobs))
        environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **os.environ}
        if self._gpus and self._jobs > 1:
            environment["CUDA_VISIBLE_DEVICES"] = str(slot % self._gpus)
        return environment

    def _dismiss(self, slot: int) -> None:
        process = self._processes.pop(slot, None)
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # the worker died before it read its job
                    pipe.close()
        process.wait()


def make_job(run: PlannedRun) -> dict[str, Any]:
    """What a worker is told: to start the run, or to resume what there is of it."""
    begun = RunFolder(run.folder).config_file.exists()
    config = replace(run.config, resume=str(run.folder)) if begun else run.config
    return {"task": config.task, "config": asdict(config), "given": sorted(run.given), "folder": str(run.folder)}


def _record_failure(finished: Finished) -> None:
    """Record a failed run in the list, even if it failed before it could do so itself."""
    folder = RunFolder(finished.run.folder)
    result = read_result(folder)
    if result is not None and result.status == "failed":
        return
    known = result or RunResult.of(finished.run.config, folder.path)
    write_result(folder, replace(known, run=finished.run.name, status="failed", error=finished.error))
