"""Ends that nobody planned: Ctrl-C, NaN, a full disk."""

import dataclasses
import json
import signal
import subprocess

import pytest
import torch

from adaptive_memory_bank.lab.runs.checkpoints import AtomicCheckpointIO, read_checkpoint
from adaptive_memory_bank.lab.runs.files import DiskFullError
from adaptive_memory_bank.lab.runs.folder import LAST
from adaptive_memory_bank.lab.training import train
from adaptive_memory_bank.lab.training.retrieval import task as retrieval
from adaptive_memory_bank.lab.training.step import NonFiniteLossError, NonFiniteWeightsError
from small_disk import small_disk


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_cleanly_and_it_can_go_on(amb, retrieval_config, metric_lines, tmp_path, sent):
    config = retrieval_config(adapter="ema", run_name="run", checkpoint_every=0)
    stopped = amb(config, signal_at=6, number=sent)
    assert stopped.code == 130, stopped.output
    assert "Stopping after this step" in stopped.output
    folder = tmp_path / "runs" / "run"
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "interrupted"
    assert json.loads((tmp_path / "runs" / "results.json").read_text()) == [result]
    assert read_checkpoint(folder / "checkpoints" / LAST)["global_step"] == 7
    train.run(dataclasses.replace(config, resume=str(folder)))
    whole = train.run(dataclasses.replace(config, run_name="whole"))
    assert metric_lines(folder) == metric_lines(tmp_path / "runs" / whole.run)


def test_handlers_generators_and_threads_are_as_before(retrieval_config):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), torch.get_num_threads()
    state = torch.get_rng_state()
    train.run(retrieval_config(adapter="none", epochs=1))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), torch.get_num_threads()) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_a_nan_stops_before_the_weights_see_it(retrieval_config, monkeypatch, tmp_path):
    clean = retrieval.RetrievalModule.batch_loss

    def poisoned(self, *batch):
        loss = clean(self, *batch)
        return loss * torch.nan if self.trainer.global_step == 6 else loss

    monkeypatch.setattr(retrieval.RetrievalModule, "batch_loss", poisoned)
    expected = (
        r"The loss is nan at step 6 \(epoch 0, batch 6, training images [\d, ]+\.\.\.\)\. Last good checkpoint: .*last"
    )
    with pytest.raises(NonFiniteLossError, match=expected):
        train.run(retrieval_config(run_name="run"))
    folder = tmp_path / "runs" / "run"
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "failed"
    assert "NonFiniteLossError: The loss is nan at step 6" in result["error"]
    good = read_checkpoint(folder / "checkpoints" / LAST)
    assert good["global_step"] == 4
    assert all(value.isfinite().all() for value in good["state_dict"].values() if torch.is_tensor(value))


def test_where_reading_means_waiting_a_nan_is_noticed_before_the_next_log_or_checkpoint(
    retrieval_config, monkeypatch, tmp_path
):
    monkeypatch.setattr("adaptive_memory_bank.lab.training.step.reading_is_free", lambda device: False)
    clean = retrieval.RetrievalModule.batch_loss

    def poisoned(self, *batch):
        loss = clean(self, *batch)
        return loss * torch.nan if self.trainer.global_step == 6 else loss

    monkeypatch.setattr(retrieval.RetrievalModule, "batch_loss", poisoned)
    with pytest.raises(NonFiniteLossError, match=r"not finite at step 6 .*Last good checkpoint: .*last"):
        train.run(retrieval_config(run_name="run", log_every=1000))
    good = read_checkpoint(tmp_path / "runs" / "run" / "checkpoints" / LAST)
    assert good["global_step"] == 4
    assert all(value.isfinite().all() for value in good["state_dict"].values() if torch.is_tensor(value))


def test_losses_read_once_in_a_while_are_logged_like_losses_read_at_every_step(
    retrieval_config, metric_lines, monkeypatch, tmp_path
):
    train.run(retrieval_config(run_name="read", log_every=3))
    monkeypatch.setattr("adaptive_memory_bank.lab.training.step.reading_is_free", lambda device: False)
    train.run(retrieval_config(run_name="unread", log_every=3))
    lines = [metric_lines(tmp_path / "runs" / name) for name in ("read", "unread")]
    for ours, theirs in zip(*lines, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)


def test_no_checkpoint_holds_an_infinite_average(retrieval_config, tmp_path):
    # The embeddings are normalised, so the loss stays a number for some steps after the activations have overflowed.
    expected = (
        r"running_var` is not finite at step \d+ \(epoch 0\): no checkpoint is written\. .* Last good checkpoint: .*"
    )
    with pytest.raises(NonFiniteWeightsError, match=expected):
        train.run(retrieval_config(run_name="run", lr=1e3, checkpoint_every=1))
    good = read_checkpoint(tmp_path / "runs" / "run" / "checkpoints" / LAST)
    assert good["global_step"] > 1
    assert all(value.isfinite().all() for value in good["state_dict"].values() if torch.is_tensor(value))


def test_any_other_error_is_in_the_result_and_comes_through(retrieval_config, monkeypatch, tmp_path):
    def broken(*arguments):
        raise RuntimeError("broken")

    monkeypatch.setattr(retrieval.RetrievalModule, "batch_loss", broken)
    with pytest.raises(RuntimeError, match="broken"):
        train.run(retrieval_config(run_name="run"))
    result = json.loads((tmp_path / "runs" / "run" / "result.json").read_text())
    assert (result["status"], result["error"]) == ("failed", "RuntimeError: broken")


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(tmp_path):
    writer, target = AtomicCheckpointIO(), tmp_path / LAST
    writer.save_checkpoint({"step": torch.tensor(1)}, target)
    draft = tmp_path / f".{LAST}.draft"
    draft.symlink_to("/dev/full")  # every write says: no space left on device
    with pytest.raises(DiskFullError, match=r"Disk full while writing .*last\.ckpt; the file before is intact"):
        writer.save_checkpoint({"step": torch.zeros(100_000)}, target)
    assert read_checkpoint(target, holding=["step"])["step"] == 1
    assert not draft.is_symlink()


def test_a_full_disk_is_reported_and_the_run_goes_on_once_there_is_room(retrieval_config, metric_lines, tmp_path):
    disk = tmp_path / "disk"
    with small_disk(disk, "1m"):
        config = retrieval_config(out=str(disk), run_name="run", checkpoint_every=2)
        with pytest.raises(DiskFullError, match="Disk full while writing"):
            train.run(config)
        result = json.loads((disk / "run" / "result.json").read_text())
        assert result["status"] == "failed"
        assert "Disk full" in result["error"]
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        resumed = train.run(dataclasses.replace(config, resume=str(disk / "run")))
        assert resumed.status == "complete"
        whole = train.run(dataclasses.replace(config, out=str(tmp_path), run_name="whole"))
        assert metric_lines(disk / "run") == metric_lines(tmp_path / whole.run)
