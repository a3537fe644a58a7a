import dataclasses
import io
import re
import sys
import time
from pathlib import Path

import pytest
import torch

from adaptive_memory_bank.lab.runs.checkpoints import read_checkpoint
from adaptive_memory_bank.lab.runs.folder import LAST
from adaptive_memory_bank.lab.runs.history import read_history
from adaptive_memory_bank.lab.training import train
from adaptive_memory_bank.lab.training.watch import progress
from adaptive_memory_bank.lab.training.watch.monitors import DriftMonitor


class Terminal(io.StringIO):
    """Something that people look at: it gets a bar."""

    def isatty(self):
        return True


@pytest.fixture
def printed(retrieval_config, monkeypatch):
    """What a run of two epochs prints to a terminal or to a pipe."""

    def run(stream, **options):
        monkeypatch.setattr(progress, "REFRESH", 0.0)
        monkeypatch.setattr(sys, "stderr", stream)
        train.run(retrieval_config(quiet=False, validation=0.0, **options))
        return stream.getvalue()

    return run


def test_a_terminal_gets_one_bar_with_the_time_left_also_while_evaluating(printed):
    text = printed(Terminal())
    shown = [part for line in text.splitlines() for part in line.split("\r") if "passed" in part]
    assert re.search(r"epoch 1/2 +\d+% \|.*\| \d\d:\d\d passed, [\d:?]+ left, loss=", text)
    assert any(part.startswith("epoch 2/2, evaluating 100%") for part in shown)
    assert re.search(r"evaluating, \d+/96 images", text)
    assert re.search(r"epoch 2/2  loss [^\r\n]* s\)\n", text)


def test_a_pipe_gets_plain_lines(printed):
    text = printed(io.StringIO())
    assert "\r" not in text
    assert "passed" not in text
    told, *epochs = text.splitlines()
    assert told.startswith("tiny: 192 images of 24 classes to train on, 16 px")
    assert [line.split("  ")[0] for line in epochs] == ["epoch 1/2", "epoch 2/2"]


def test_the_share_done_rises_to_the_end(retrieval_config, monkeypatch):
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    shares = []
    train.run(retrieval_config(validation=0.0), tell=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert len(shares) == 24  # 192 images in batches of 16, twice


@pytest.mark.parametrize(("every", "batch_size", "count"), [(50, 16, 12), (50, 4, 12), (1, 16, 12), (2, 4, 24)])
def test_drift_is_measured_ten_times_an_epoch_at_least(retrieval_config, monkeypatch, every, batch_size, count):
    """192 images: 12 steps of 16 images are measured one by one, 48 of 4 every fourth (or every second) time."""
    counts, pop = [], DriftMonitor.on_train_epoch_end

    def counted(self, trainer, module):
        counts.append(self.average.count)
        pop(self, trainer, module)

    monkeypatch.setattr(DriftMonitor, "on_train_epoch_end", counted)
    options = {"drift_every": every, "batch_size": batch_size, "images_per_class": 2, "staleness_rows": 0}
    result = train.run(retrieval_config(**options, adapter="none", validation=0.0, mine=False))
    assert counts == [count, count]
    assert set(read_history(Path(result.folder))["drift/mean"]) == {0, 1}


def test_a_run_resumed_in_mid_epoch_prints_the_seconds_of_the_whole_epoch(amb, retrieval_config, tmp_path, capsys):
    config = retrieval_config(run_name="run", quiet=False, epochs=1)
    amb(config, signal_at=6)  # two steps after a checkpoint
    last = tmp_path / "runs" / "run" / "checkpoints" / LAST
    checkpoint = read_checkpoint(last)
    assert 0 < checkpoint["callbacks"]["Progress"]["seconds"] < 60
    checkpoint["callbacks"]["Progress"]["seconds"] = 1000.0
    torch.save(checkpoint, last)
    started = time.perf_counter()
    train.run(dataclasses.replace(config, resume=str(last.parents[1])))
    passed = time.perf_counter() - started
    (seconds,) = re.findall(r"epoch 1/1 .* \((\d+\.\d) s\)", capsys.readouterr().err)
    assert 1000 < float(seconds) < 1000.1 + passed
