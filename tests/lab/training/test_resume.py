"""A run that was killed and resumed ends as the run that was never stopped: to the bit."""

import dataclasses
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from adaptive_memory_bank.lab.runs.checkpoints import read_checkpoint
from adaptive_memory_bank.lab.runs.files import DamagedFileError
from adaptive_memory_bank.lab.runs.folder import BEST, LAST, PREVIOUS
from adaptive_memory_bank.lab.training import train
from exactly import assert_same
from tiny_runs import final_state

# Steps per epoch: 9 of retrieval, 12 of MoCo. The memory starts, and is re-embedded, in the middle of epochs.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "retrieval": ("retrieval", {"adapter": "auto", "memory_start": 0.7}),
    "fresh": (
        "retrieval",
        {"adapter": "fresh", "fresh_every": 4, "memory_start": 0.2, "loss": "ContrastiveLoss", "staleness_rows": 0},
    ),
    "moco": ("moco", {"adapter": "auto"}),
    "fresh queue": ("moco", {"adapter": "fresh", "fresh_every": 4, "staleness_rows": 0}),
}


def run(config):
    return train.run(config)


@pytest.fixture(scope="module")
def references() -> dict[str, Path]:
    return {}


@pytest.fixture
def reference(request, references, tmp_path_factory, retrieval_config, moco_config):
    """The run that was never stopped, one of each kind."""

    def make(name: str) -> tuple[Any, Path]:
        task, options = RUNS[name]
        config = {"retrieval": retrieval_config, "moco": moco_config}[task](**options)
        if name not in references:
            out = tmp_path_factory.mktemp("reference")
            run(dataclasses.replace(config, out=str(out), run_name="run"))
            references[name] = out / "run"
        return config, references[name]

    return make


@pytest.mark.parametrize(
    ("name", "workers", "killed_at"),
    [
        ("retrieval", 0, 6),  # in the first epoch, two steps after a checkpoint
        ("retrieval", 2, 15),  # in the second epoch, three steps after one
        ("fresh", 0, 7),  # one step after it was re-embedded, three after a checkpoint
        ("fresh", 0, 15),
        ("moco", 0, 13),  # right after the first epoch's end
        ("moco", 2, 19),
        ("fresh queue", 0, 15),
    ],
)
def test_a_killed_run_resumes_to_the_bit(amb, reference, metric_lines, tmp_path, name, workers, killed_at):
    config, never_stopped = reference(name)
    asked = dataclasses.replace(config, num_workers=workers, run_name="run", wandb="offline")
    killed = amb(asked, signal_at=killed_at)
    assert killed.code == -signal.SIGKILL, killed.output
    folder = tmp_path / "runs" / "run"
    before = read_checkpoint(folder / "checkpoints" / LAST)["callbacks"]["TrainingLog"]["train_seconds"]
    result = run(dataclasses.replace(asked, resume=str(folder)))
    assert result.status == "complete"
    assert result.train_seconds > before > 0  # those of both halves
    assert_same(final_state(never_stopped), final_state(folder))
    assert metric_lines(folder) == metric_lines(never_stopped)
    halves = sorted(path.name.rsplit("-", 1)[1] for path in (folder / "wandb").glob("offline-run-*"))
    assert halves == [result.wandb_id] * 2


@pytest.mark.parametrize(
    ("left", "same_command"),
    [("nothing yet", True), ("only the best", True), ("only the best", False), ("no folder", False)],
)
def test_a_run_without_a_checkpoint_to_resume_from_starts_anew_and_says_so(
    left, same_command, amb, reference, metric_lines, tmp_path, capsys
):
    config, never_stopped = reference("retrieval")
    asked = dataclasses.replace(config, run_name="run", checkpoint_every=0)
    assert amb(asked, signal_at=5 if left == "nothing yet" else 12).code == -signal.SIGKILL
    folder = tmp_path / "runs" / "run"
    if left == "only the best":
        (folder / "checkpoints" / LAST).unlink()
        assert [path.name for path in (folder / "checkpoints").iterdir()] == [BEST]
    elif left == "no folder":
        shutil.rmtree(folder / "checkpoints")
    run(asked if same_command else dataclasses.replace(asked, resume=str(folder)))
    assert f"{folder} has no last.ckpt to resume from: the run starts anew." in capsys.readouterr().err
    assert metric_lines(folder) == metric_lines(never_stopped)
    assert_same(final_state(never_stopped), final_state(folder))


def test_a_truncated_checkpoint_falls_back_to_the_one_before(amb, reference, metric_lines, tmp_path):
    config, never_stopped = reference("retrieval")
    asked = dataclasses.replace(config, run_name="run")
    assert amb(asked, signal_at=15).code == -signal.SIGKILL
    folder = tmp_path / "runs" / "run"
    last = folder / "checkpoints" / LAST
    steps = [read_checkpoint(last.with_name(name))["global_step"] for name in (PREVIOUS, LAST)]
    assert steps == [9, 12]
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
    with pytest.warns(UserWarning, match=r"last.ckpt cannot be read; trying the one before"):
        run(dataclasses.replace(asked, resume=str(folder)))
    assert_same(final_state(never_stopped), final_state(folder))
    assert metric_lines(folder) == metric_lines(never_stopped)


def test_a_complete_run_is_not_trained_again(reference):
    config, folder = reference("retrieval")
    before = (folder / "metrics.jsonl").read_bytes()
    assert run(dataclasses.replace(config, resume=str(folder))).status == "complete"
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_resuming_with_other_options_is_refused(reference):
    config, folder = reference("retrieval")
    with pytest.raises(ValueError, match=r"`embedding_dim` is 16 in the run to resume, got 8"):
        run(dataclasses.replace(config, resume=str(folder), embedding_dim=8))


def test_another_number_of_processes_is_refused(amb, reference, tmp_path):
    config, _ = reference("retrieval")
    asked = dataclasses.replace(config, run_name="run")
    amb(asked, signal_at=15)
    last = tmp_path / "runs" / "run" / "checkpoints" / LAST
    torch.save({**read_checkpoint(last), "processes": 2}, last)
    with pytest.raises(ValueError, match=r"must be resumed on as many processes as before \(2\), got 1"):
        run(dataclasses.replace(asked, resume=str(last.parents[1])))


def test_the_checkpoint_of_another_run_is_refused(amb, reference, tmp_path):
    config, folder = reference("moco")
    asked = dataclasses.replace(config, run_name="run", embedding_dim=8)
    amb(asked, signal_at=5)
    shutil.copy(folder / "checkpoints" / LAST, tmp_path / "runs" / "run" / "checkpoints" / LAST)
    with pytest.raises(
        DamagedFileError, match=r"last\.ckpt is damaged: it is of another run \(`head\..* is \(16, .*Del"
    ):
        run(dataclasses.replace(asked, resume=str(tmp_path / "runs" / "run")))


def test_resuming_what_is_no_run_is_refused(retrieval_config, tmp_path):
    with pytest.raises(ValueError, match=r"is not a run: it has no config\.yaml"):
        run(retrieval_config(resume=str(tmp_path)))
