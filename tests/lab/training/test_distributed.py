"""Two real gloo processes: whole groups, equal banks, every image scored once."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from adaptive_memory_bank.lab.commands.main import main
from adaptive_memory_bank.lab.runs.config import save_config
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.training.trained_encoder import evaluate_run

SCRIPT = str(Path(__file__).with_name("distributed_run.py"))
LAUNCHERS = {
    "lightning": [sys.executable],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"],
}


def run_on_two(config, tmp_path, launcher, *, code=0, words=(), **environment):
    save_config(config, tmp_path / "asked.yaml")
    words = words or (config.task, "--config", str(tmp_path / "asked.yaml"))
    command = [*LAUNCHERS[launcher], SCRIPT, str(tmp_path), *words]
    variables = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"} | environment
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, env={**variables, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == code, done.stderr
    if code:
        return [], {}
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]
    return ranks, json.loads((tmp_path / "runs" / "run" / "result.json").read_text())


def test_retrieval_on_two_processes(retrieval_config, tmp_path):
    config = retrieval_config(
        adapter="auto", run_name="run", devices=2, accelerator="cpu", batch_size=8, warmup_epochs=1, wandb="offline"
    )
    ranks, result = run_on_two(config, tmp_path, "lightning")

    # P x K groups stay whole: every rank holds 2 classes x 4 images, and the ranks hold different ones.
    for (labels, _), (others, _) in zip(ranks[0]["batches"], ranks[1]["batches"], strict=True):
        assert [sorted(group.unique(return_counts=True)[1].tolist()) for group in (labels, others)] == [[4, 4], [4, 4]]
        assert not set(labels.tolist()) & set(others.tolist())

    # The bank gathers, and DDP's broadcast of buffers leaves it alone: equal to the bit, filter included.
    assert torch.equal(ranks[0]["rows"], ranks[1]["rows"])
    assert torch.equal(ranks[0]["labels"], ranks[1]["labels"])
    assert all(torch.equal(value, ranks[1]["filter"][name]) for name, value in ranks[0]["filter"].items())
    after_warmup = [torch.cat([a[0], b[0]]) for a, b in zip(ranks[0]["batches"], ranks[1]["batches"], strict=True)]
    stored = torch.cat(after_warmup[len(after_warmup) // 2 :])
    assert sorted(ranks[0]["labels"].tolist()) == sorted(stored[-len(ranks[0]["labels"]) :].tolist())

    # Every image is scored once: one process gets the same numbers from the same weights.
    alone = evaluate_run(tmp_path / "runs" / "run", checkpoint="last")
    assert {name: value for name, value in result["metrics"].items() if name.startswith("val/")} == alone
    assert result["status"] == "complete"
    assert len(list((tmp_path / "runs").glob("run*"))) == 1
    assert len(list((tmp_path / "runs" / "run" / "wandb").glob("offline-run-*"))) == 1


@pytest.mark.slow
def test_moco_under_torchrun(moco_config, tmp_path):
    config = moco_config(adapter="xbn", run_name="run", devices=2, accelerator="cpu", batch_size=8)
    ranks, result = run_on_two(config, tmp_path, "torchrun")
    assert torch.equal(ranks[0]["rows"], ranks[1]["rows"])
    seen = [torch.cat([indices for _, indices in rank["batches"]]) for rank in ranks]
    half = len(seen[0]) // 2  # the first epoch
    assert not set(seen[0][:half].tolist()) & set(seen[1][:half].tolist())
    alone = evaluate_run(tmp_path / "runs" / "run", checkpoint="last")
    assert {name: value for name, value in result["metrics"].items() if name.startswith("val/")} == alone


@pytest.mark.slow
def test_a_fresh_memory_is_shared_out_and_equal_on_both_processes(retrieval_config, metric_lines, tmp_path):
    config = retrieval_config(
        adapter="fresh", fresh_every=4, memory=70, run_name="run", devices=2, accelerator="cpu", batch_size=8, lr=1e-30
    )
    ranks, result = run_on_two(config, tmp_path, "lightning")
    assert torch.equal(ranks[0]["rows"], ranks[1]["rows"])
    assert torch.equal(ranks[0]["labels"], ranks[1]["labels"])
    # The encoder rests, so rows that are embedded again, by either process, are those that were stored.
    assert result["metrics"]["bank/staleness"] < 1e-4
    assert result["metrics"]["bank/staleness_unadapted"] < 1e-4


def test_a_run_of_two_processes_is_not_resumed_on_another_number(retrieval_config, capsys):
    folder = RunFolder.create(retrieval_config(run_name="run", devices=2)).path
    for words, said in (("--devices 1", "`devices` is 2"), ("--num_nodes 2", "`num_nodes` is 1")):
        assert main(["retrieval", "--resume", str(folder), *words.split()]) == 2
        assert f"{said} in the run to resume, got {words[-1]}. Leave it out, or start a new" in capsys.readouterr().err


@pytest.mark.slow
def test_a_signal_to_one_process_stops_both_and_they_resume_to_the_bit(retrieval_config, metric_lines, tmp_path):
    config = retrieval_config(run_name="run", devices=2, accelerator="cpu", batch_size=8)
    run_on_two(config, tmp_path, "lightning", code=130, INTERRUPT_AT="5")
    folder = tmp_path / "runs" / "run"
    assert json.loads((folder / "result.json").read_text())["status"] == "interrupted"
    # As README says, without a word about processes: the run knows.
    resumed, _ = run_on_two(config, tmp_path, "lightning", words=("retrieval", "--resume", str(folder)))
    whole, _ = run_on_two(dataclasses.replace(config, run_name="whole"), tmp_path, "lightning")
    assert metric_lines(folder) == metric_lines(folder.with_name("whole"))
    assert all(torch.equal(one["rows"], other["rows"]) for one, other in zip(resumed, whole, strict=True))


def sorted_rows(ranks):
    """Rows of several processes, in any order but their own."""
    return torch.tensor(sorted(torch.cat([rank["rows"] for rank in ranks]).tolist()))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["retrieval", "moco"])
def test_a_memory_in_shards_trains_as_a_replicated_one(retrieval_config, moco_config, tmp_path, task):
    make = {"retrieval": retrieval_config, "moco": moco_config}[task]
    options = {"adapter": "auto", "memory": 64, "run_name": "run", "devices": 2, "accelerator": "cpu", "batch_size": 8}
    found = {}
    for layout in ("replicate", "shard"):
        folder = tmp_path / layout
        folder.mkdir()
        # A rate at which weights rest: rounding, which differs, does not grow, and batch norm alone moves the rows.
        config = make(**options, memory_layout=layout, lr=1e-12, epochs=1, out=str(folder / "runs"))
        found[layout] = run_on_two(config, folder, "lightning")
    (shards, result), (replicas, expected) = found["shard"], found["replicate"]
    assert [len(rank["rows"]) for rank in shards] == [32, 32]
    torch.testing.assert_close(sorted_rows(shards), sorted_rows(replicas[:1]), rtol=1e-4, atol=1e-5)
    assert result["metrics"]["train/loss_epoch"] == pytest.approx(expected["metrics"]["train/loss_epoch"], rel=1e-4)
    assert all(torch.equal(value, shards[1]["filter"][name]) for name, value in shards[0]["filter"].items())


@pytest.mark.slow
def test_a_run_in_shards_resumes_to_the_bit_and_in_the_other_layout(retrieval_config, metric_lines, tmp_path):
    config = retrieval_config(run_name="run", devices=2, accelerator="cpu", batch_size=8, memory_layout="shard")
    run_on_two(config, tmp_path, "lightning", code=130, INTERRUPT_AT="5")
    folder = tmp_path / "runs" / "run"
    shutil.copytree(folder, folder.with_name("other"))
    resumed, _ = run_on_two(config, tmp_path, "lightning", words=("retrieval", "--resume", str(folder)))
    whole, _ = run_on_two(dataclasses.replace(config, run_name="whole"), tmp_path, "lightning")
    assert metric_lines(folder) == metric_lines(folder.with_name("whole"))
    assert all(torch.equal(one["rows"], other["rows"]) for one, other in zip(resumed, whole, strict=True))
    # As replicas, each process holds all rows, loaded from the shares of both and trained on from there.
    words = ("retrieval", "--resume", str(folder.with_name("other")), "--memory_layout", "replicate")
    replicas, _ = run_on_two(config, tmp_path, "lightning", words=words)
    assert torch.equal(replicas[0]["rows"], replicas[1]["rows"])
    assert len(replicas[0]["rows"]) == sum(len(rank["rows"]) for rank in resumed)


@pytest.mark.slow
def test_a_fresh_memory_in_shards_is_embedded_by_those_who_hold_it(retrieval_config, tmp_path):
    config = retrieval_config(
        adapter="fresh", fresh_every=4, memory=70, run_name="run", devices=2, accelerator="cpu", batch_size=8, lr=1e-30,
        memory_layout="shard",
    )  # fmt: skip
    ranks, result = run_on_two(config, tmp_path, "lightning")
    assert not torch.equal(ranks[0]["rows"], ranks[1]["rows"])
    assert result["metrics"]["bank/staleness"] < 1e-4  # the encoder rests


@pytest.mark.parametrize(
    ("task", "words", "said"),
    [
        ("retrieval", "--loss ContrastiveLoss", "with `loss` ContrastiveLoss, which compares with the rows of one"),
        ("moco", "--same_image_negatives true", "with `same_image_negatives`, as lightly's loss compares with the"),
    ],
)
def test_shards_are_refused_where_no_loss_looks_into_all_of_them(task, words, said, capsys):
    assert main([task, "--memory_layout", "shard", *words.split()]) == 2
    assert f"`memory_layout` must be replicate {said}" in capsys.readouterr().err
