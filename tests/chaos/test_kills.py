"""SIGKILL at random moments, 25 times: whatever was killed, and however often, ends as if it never had been."""

import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from adaptive_memory_bank.lab.compare.config import CompareConfig
from adaptive_memory_bank.lab.compare.plan import plan_runs
from adaptive_memory_bank.lab.runs.config import RunConfig, make_config, save_config
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.results import read_result
from adaptive_memory_bank.lab.training.tasks import TASKS
from chaos_process import PATIENCE, start_amb
from exactly import assert_same
from tiny_runs import SHORT, final_state, read_metric_lines, write_tiny

pytestmark = pytest.mark.slow
OWN: dict[str, dict[str, Any]] = {
    "retrieval": {"validation": 0.2, "memory_start": 0.7},
    "moco": {"width": 0.125, "memory": 64},
}


@pytest.fixture
def chance():
    """Another one every time; `CHAOS_SEED` repeats its moments."""
    seed = os.environ.get("CHAOS_SEED") or str(random.SystemRandom().randrange(10**6))
    print(f"CHAOS_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Options of a training of a second."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    data = write_tiny(tmp_path / "tiny.npz")

    def configure(task: str, **options: Any) -> RunConfig:
        shared = {**SHORT, "epochs": 4, "data": data, "out": str(tmp_path), "accelerator": "cpu"}
        return make_config(TASKS[task].config, **{**shared, **OWN[task], **options})

    return configure


class Victim:
    """A run that is started by the same command over and over."""

    def __init__(self, config: RunConfig, name: str, processes: int) -> None:
        self.config, self.processes = dataclasses.replace(config, run_name=name), processes
        self.folder = Path(config.out) / name
        self.log = Path(config.out) / f"{name}.log"

    def start(self) -> list[Any]:
        asked = self.log.with_suffix(".yaml")
        save_config(self.config, asked)
        begun = RunFolder(self.folder).config_file.exists()
        words = (
            [self.config.task, "--resume", str(self.folder)] if begun else [self.config.task, "--config", str(asked)]
        )
        return start_amb(words, self.log, processes=self.processes)

    def finish(self) -> float:
        """Let it come to its end; returns how long that took."""
        started = time.monotonic()
        for process in self.start():
            process.join(PATIENCE)
            assert process.exitcode == 0, self.log.read_text()
        return time.monotonic() - started

    def kill_after(self, seconds: float, chance: random.Random) -> bool:
        """Kill one of its processes; False where it ended before."""
        processes = self.start()
        victim = chance.choice(processes)
        victim.join(seconds)
        killed = victim.exitcode is None
        if killed:
            os.kill(victim.pid, signal.SIGKILL)
            victim.join(PATIENCE)
            time.sleep(chance.uniform(0, 0.3))
            for process in processes:  # one that is left alone ends by itself, sooner or later
                process.kill()
        for process in processes:
            process.join(PATIENCE)
        return killed


@pytest.mark.parametrize(
    ("task", "processes", "workers", "kills"),
    [
        ("retrieval", 1, 0, 5),
        ("retrieval", 1, 2, 4),
        ("moco", 1, 0, 5),
        ("moco", 1, 2, 4),
        ("retrieval", 2, 0, 2),
        ("moco", 2, 2, 2),
    ],
)
def test_a_training_ends_to_the_bit_as_if_it_had_never_been_killed(task, processes, workers, kills, chance, make):
    config = make(task, devices=processes, batch_size=16 // processes, num_workers=workers)
    reference = Victim(config, "never-killed", processes)
    lasts = reference.finish()
    number = 0
    victim = Victim(config, "victim-0", processes)
    while kills:
        if victim.kill_after(chance.uniform(0.1, 0.9) * lasts, chance):
            kills -= 1
        else:
            number += 1
            victim = Victim(config, f"victim-{number}", processes)
    victim.finish()
    for folder in Path(config.out).glob("victim-*/"):
        result = read_result(RunFolder(folder))
        if result is None or result.status != "complete":
            Victim(config, folder.name, processes).finish()
        assert_same(final_state(folder), final_state(reference.folder))
        assert read_metric_lines(folder) == read_metric_lines(reference.folder)


def children(process: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(number) for number in listed.stdout.split()]


def test_a_whole_comparison_ends_as_if_it_had_never_been_killed(chance, make, tmp_path):
    config = make("retrieval", checkpoint_every=2)
    options = {name: value for name, value in {**SHORT, **OWN["retrieval"]}.items() if name != "quiet"}
    options |= {"epochs": 8, "data": config.data, "accelerator": "cpu", "checkpoint_every": 2}
    words = ["compare", "--adapters", "none", "auto", "--seeds", "0", "--jobs", "2"]
    words += [f"--{name}={value}" for name, value in options.items()]

    def start(out: Path) -> Any:
        command = [sys.executable, "-m", "adaptive_memory_bank.lab.commands.main", *words, "--out", str(out)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    out, reference = tmp_path / "killed", tmp_path / "never-killed"
    planned = plan_runs(CompareConfig(adapters=["none", "auto"], seeds=[0], out=str(out), options=options))
    for _ in range(3):
        before = {path: path.stat().st_mtime_ns for path in out.glob("*/metrics.jsonl")}
        process = start(out)
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:  # until something trains, and a little longer
            if {path: path.stat().st_mtime_ns for path in out.glob("*/metrics.jsonl")} != before:
                break
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.5))
        workers = children(process.pid)
        doomed = chance.choice([[process.pid], workers, [process.pid, *workers]])
        for victim in doomed:
            os.kill(victim, signal.SIGKILL)
        process.wait(PATIENCE)
        wait_for_the_end_of(workers)
    assert start(out).wait(PATIENCE) == 0
    shutil.rmtree(reference, ignore_errors=True)
    assert start(reference).wait(PATIENCE) == 0
    for run in planned:
        assert_same(final_state(run.folder), final_state(reference / run.name))
        assert read_metric_lines(run.folder) == read_metric_lines(reference / run.name)


def wait_for_the_end_of(processes: list[int]) -> None:
    """Workers whose comparison is gone notice it by themselves, and leave a checkpoint."""
    deadline = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < deadline, "workers outlive their comparison"
        time.sleep(0.05)
