"""A set of images small enough to train on in a second, and a way to run (and kill) real processes."""

import multiprocessing
import runpy
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from adaptive_memory_bank.lab.runs.config import RunConfig, make_config, save_config
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from tiny_runs import SHORT, read_metric_lines, write_tiny
from written_runs import write_run, write_worst_queries  # noqa: F401  fixtures

DRIVER = str(Path(__file__).with_name("training") / "driver.py")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> str:
    """24 + 12 characters x 8 images of 16 x 16."""
    return write_tiny(tmp_path_factory.mktemp("data") / "tiny.npz")


@pytest.fixture
def retrieval_config(tiny, tmp_path) -> Callable[..., RetrievalConfig]:
    """A run of two short epochs."""
    mine = {**SHORT, "data": tiny, "out": str(tmp_path / "runs"), "validation": 0.2, "memory_start": 0.0}
    return lambda **options: make_config(RetrievalConfig, **{**mine, **options})


@pytest.fixture
def moco_config(tiny, tmp_path) -> Callable[..., MocoConfig]:
    """A run of two short epochs."""
    mine = {**SHORT, "data": tiny, "out": str(tmp_path / "runs"), "width": 0.125, "memory": 64}
    return lambda **options: make_config(MocoConfig, **{**mine, **options})


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    output: str


@pytest.fixture
def amb(tmp_path) -> Callable[..., Ended]:
    """Run a configuration in a real process that sends itself (or W&B's service) a signal before a step."""
    # A fork server has imported everything once and has no threads: children start at once and share nothing.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["adaptive_memory_bank.lab.training.retrieval.task", "adaptive_memory_bank.lab.training.moco.task"]
    )

    def run(
        config: RunConfig,
        *,
        signal_at: int = -1,
        number: signal.Signals = signal.SIGKILL,
        victim: str = "self",
        environment: Mapping[str, str] | None = None,
        patience: float = 60.0,
    ) -> Ended:
        save_config(config, tmp_path / "asked.yaml")
        given = {
            "words": [config.task, "--config", str(tmp_path / "asked.yaml")],
            "number": number,
            "step": signal_at,
            "victim": victim,
            "environment": dict(environment or {}),
            "patience": patience,
            "output": str(tmp_path / "output.txt"),
        }
        process = context.Process(target=runpy.run_path, args=(DRIVER, given, "__main__"))
        process.start()
        process.join(timeout=120)
        assert process.exitcode is not None, "the process hangs"
        return Ended(process.exitcode, (tmp_path / "output.txt").read_text())

    return run


@pytest.fixture(scope="session")
def metric_lines() -> Callable[[Path], list[dict[str, Any]]]:
    """Read the lines of a run's metrics.jsonl, without the clock's."""
    return read_metric_lines
