"""The recipes run, and each shows what it says."""

import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from lightly.loss import NTXentLoss
from pytorch_metric_learning import losses

RECIPES = Path(__file__).parents[1] / "examples" / "recipes"


def run(name):
    """What a recipe returns."""
    return runpy.run_path(str(RECIPES / f"{name}.py"))["main"]()


def test_gradient_accumulation_makes_a_step_of_the_bank_of_every_forward_pass(capsys):
    loss = run("gradient_accumulation")
    assert capsys.readouterr().out == "10 steps of the optimiser, 40 of the bank, 640 rows\n"
    assert loss.steps.count == 40
    assert loss.start_after == 12


def test_mixed_precision_keeps_float32_and_leaves_an_overflow_out(capsys):
    bank = run("mixed_precision").bank
    assert capsys.readouterr().out == "319 rows in torch.float32, all finite: True\n"  # 10 batches of 32, but one row
    assert bank.embeddings.dtype == torch.float32


def test_start_after_shows_more_negatives_once_the_memory_counts():
    losses = run("start_after")
    # Within the batch a query meets 31 rows, with the memory hundreds: the sum in the logarithm grows.
    assert max(losses[:12]) < min(losses[12:])


def test_staleness_is_measured_beside_the_loop(capsys):
    found = run("staleness")
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        f"step {n}" for n in (25, 50, 75, 100)
    ]
    assert all(0 < value < 1 for pair in found for value in pair)
    assert found[-1].unadapted < found[0].unadapted  # the encoder settles


def test_load_original_takes_over_what_the_originals_saved():
    with warnings.catch_warnings():
        (theirs, ours), keys, (memory, criterion) = run("load_original")
    torch.testing.assert_close(ours.embedding_memory, theirs.embedding_memory)
    torch.testing.assert_close(ours.label_memory, theirs.label_memory)
    assert (ours.queue_idx, ours.has_been_filled) == (32, True)  # 3 batches of 32 in 64 slots
    assert keys == [0, 32, 64]
    assert (type(memory), type(criterion)) == (losses.CrossBatchMemory, NTXentLoss)
    torch.testing.assert_close(memory.embedding_memory, ours.embedding_memory)
    assert (memory.queue_idx, memory.has_been_filled) == (32, True)
    assert criterion.memory_bank.bank_ptr.item() == 32


def say_on_two_ranks(name):
    """What a recipe prints on two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for _ in range(3):
        done = subprocess.run(
            [*command, str(RECIPES / f"{name}.py")],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        # Once in many runs torch's own threads abort a process that is exiting, after all is done and said.
        if "terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp_torch", "ddp_lightly", "ddp_pml"])
def test_every_rank_holds_the_same_rows_of_all_ranks(name):
    said = re.findall(r"rank (\d): (\d+) (?:rows|keys), the same on every rank: (True|False)", say_on_two_ranks(name))
    assert sorted(said) == [("0", "640", "True"), ("1", "640", "True")]  # 10 steps x 2 ranks x 32 rows


@pytest.mark.slow
def test_every_rank_holds_its_own_rows_in_shards_and_loads_them_again():
    said = say_on_two_ranks("ddp_sharded")
    for rank in (0, 1):
        assert f"rank {rank}: 320 rows of its own, the same when loaded: True" in said


def test_recipes_are_short_and_listed():
    listed = (RECIPES / "README.md").read_text()
    for path in RECIPES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 75, path.name
        assert f"({path.name})" in listed
