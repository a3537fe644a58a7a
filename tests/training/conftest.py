"""A set of images small enough to train on in a second, and a way to run (and kill) real processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adaptive_memory_bank.data.glyphs import glyphs
from adaptive_memory_bank.training.config import MocoConfig, RetrievalConfig, make_config, save_config

# Kills the process for real, before the step with this number.
DRIVER = """
import os, signal, sys
from adaptive_memory_bank.training.module import TrainingModule
step = TrainingModule.training_step
def training_step(self, batch, batch_idx):
    if self.trainer.global_step == int(os.environ.get("SIGNAL_AT", -1)):
        os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))
    return step(self, batch, batch_idx)
TrainingModule.training_step = training_step
from adaptive_memory_bank.cli import main
sys.exit(main(sys.argv[1:]))
"""


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
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    np.savez(
        path,
        train_images=data.train.images,
        train_labels=data.train.labels.numpy(),
        test_images=data.query.images,
        test_labels=data.query.labels.numpy(),
    )
    return f"npz:{path}"


@pytest.fixture
def retrieval_config(tiny, tmp_path) -> Callable[..., RetrievalConfig]:
    """A run of two short epochs."""

    def make(**options: Any) -> RetrievalConfig:
        small = {
            "data": tiny,
            "batch_size": 16,
            "epochs": 2,
            "validation": 0.2,
            "embedding_dim": 16,
            "log_every": 3,
            "checkpoint_every": 4,
            "drift_every": 3,
            "probe_size": 8,
            "threads": 1,
            "wandb": "disabled",
            "quiet": True,
            "out": str(tmp_path / "runs"),
        }
        return make_config(RetrievalConfig, **{**small, **options})

    return make


@pytest.fixture
def moco_config(tiny, tmp_path) -> Callable[..., MocoConfig]:
    """A run of two short epochs."""

    def make(**options: Any) -> MocoConfig:
        small = {
            "data": tiny,
            "batch_size": 16,
            "epochs": 2,
            "width": 0.125,
            "memory": 64,
            "embedding_dim": 16,
            "log_every": 3,
            "checkpoint_every": 4,
            "drift_every": 3,
            "probe_size": 8,
            "threads": 1,
            "wandb": "disabled",
            "quiet": True,
            "out": str(tmp_path / "runs"),
        }
        return make_config(MocoConfig, **{**small, **options})

    return make


@pytest.fixture
def amb(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a configuration as a process of its own; `signal_at` sends it a signal before that step."""

    def run(config: Any, *, signal_at: int = -1, signal: str = "SIGKILL", **environment: str) -> Any:
        save_config(config, tmp_path / "asked.yaml")
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "SIGNAL_AT": str(signal_at), "SIGNAL": signal, **environment}
        variables.pop("WANDB_SERVICE", None)  # a process that is killed must not share this one's W&B service
        command = [sys.executable, "-c", DRIVER, config.task, "--config", str(tmp_path / "asked.yaml")]
        return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300, check=False)

    return run


@pytest.fixture(scope="session")
def metric_lines() -> Callable[[Path], list[dict[str, Any]]]:
    """Read the lines of a run's metrics.jsonl, without the clock's."""

    def read(run: Path) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]

    return read
