"""A set of images small enough to train on in a second, and a way to run (and kill) real processes."""

import json
import multiprocessing
import runpy
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.data.sources.glyphs import glyphs
from adaptive_memory_bank.lab.runs.config import RunConfig, make_config, save_config
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
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
    data = glyphs(train_classes=24, test_classes=12, images_per_class=8).resized(16)
    return saved(data.train, data.query, tmp_path_factory.mktemp("data") / "tiny.npz")


@pytest.fixture(scope="session")
def tiny_classes(tmp_path_factory) -> str:
    """24 characters x 8 + 4 images of 16 x 16: the same classes to train and to test on."""
    images = glyphs(train_classes=24, test_classes=2, images_per_class=12).resized(16).train
    tested = torch.arange(len(images)) % 12 >= 8
    parts = [images.subset(chosen.nonzero()[:, 0]) for chosen in (~tested, tested)]
    return saved(*parts, tmp_path_factory.mktemp("data") / "tiny.npz")


def saved(train: Part, test: Part, path: Path) -> str:
    arrays = {"train_images": train.images, "train_labels": train.labels.numpy()}
    np.savez(path, **arrays, test_images=test.images, test_labels=test.labels.numpy())
    return f"npz:{path}"


SHORT: dict[str, Any] = {
    "batch_size": 16,
    "epochs": 2,
    "embedding_dim": 16,
    "log_every": 3,
    "checkpoint_every": 4,
    "drift_every": 3,
    "probe_size": 8,
    "threads": 1,
    "wandb": "disabled",
    "quiet": True,
}


@pytest.fixture
def retrieval_config(tiny, tmp_path) -> Callable[..., RetrievalConfig]:
    """A run of two short epochs."""
    mine = {**SHORT, "data": tiny, "out": str(tmp_path / "runs"), "validation": 0.2, "memory_start": 0.0}
    return lambda **options: make_config(RetrievalConfig, **{**mine, **options})


@pytest.fixture
def moco_config(tiny_classes, tmp_path) -> Callable[..., MocoConfig]:
    """A run of two short epochs."""
    mine = {**SHORT, "data": tiny_classes, "out": str(tmp_path / "runs"), "width": 0.125, "memory": 64}
    return lambda **options: make_config(MocoConfig, **{**mine, **options})


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    output: str


@pytest.fixture
def amb(tmp_path) -> Callable[..., Ended]:
    """Run a configuration in a real process that sends itself a signal before a step."""
    # A fork server has imported everything once and has no threads: children start at once and share nothing.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["adaptive_memory_bank.lab.training.retrieval.task", "adaptive_memory_bank.lab.training.moco.task"]
    )

    def run(config: RunConfig, *, signal_at: int, number: signal.Signals = signal.SIGKILL) -> Ended:
        save_config(config, tmp_path / "asked.yaml")
        given = {
            "words": [config.task, "--config", str(tmp_path / "asked.yaml")],
            "number": number,
            "step": signal_at,
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

    def read(run: Path) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]

    return read
