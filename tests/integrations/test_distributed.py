"""The drop-ins in two real processes (gloo): plain DDP, PML's wrapper, and Lightning."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightly.loss import NTXentLoss
from pytorch_metric_learning.losses import SupConLoss

from adaptive_memory_bank.integrations.lightly import swap_memory_bank
from adaptive_memory_bank.integrations.pml import CrossBatchMemory

HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def start(script, *arguments):
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(*processes):
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two_processes")
    finish(*(start("two_processes.py", rank, folder) for rank in range(2)))
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


def test_a_gathered_bank_is_the_same_on_every_rank_random_rows_included(ranks):
    first, second = (rank["ddp"] for rank in ranks)
    assert torch.equal(first["shared"], second["shared"])
    assert first["shared_state"].keys() == second["shared_state"].keys()
    assert all(torch.equal(value, second["shared_state"][key]) for key, value in first["shared_state"].items())


def test_a_fused_criterion_with_a_gathered_bank_has_the_losses_of_one_that_is_not_fused(ranks):
    for rank in ranks:
        for found, wanted in zip(rank["gathered"]["fused"], rank["gathered"]["apart"], strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    first, second = (rank["gathered"] for rank in ranks)
    assert torch.equal(first["rows"], second["rows"])
    assert not torch.equal(first["fused"][0][0], second["fused"][0][0])  # each rank has queries of its own


def test_ddp_leaves_a_bank_of_ones_own_alone(ranks):
    for rank in ranks:
        embeddings = rank["ddp"]["embeddings"]
        assert torch.equal(rank["ddp"]["own"][: len(embeddings)], embeddings)
        assert torch.equal(rank["ddp"]["memory"][: len(embeddings)].sort(0)[0], embeddings.sort(0)[0])
    assert not torch.equal(ranks[0]["ddp"]["own"], ranks[1]["ddp"]["own"])


def test_the_same_check_finds_that_ddp_overwrites_lightlys_bank(ranks):
    embeddings = ranks[1]["ddp"]["embeddings"]
    assert not torch.equal(ranks[1]["ddp"]["lightly"][: len(embeddings)], embeddings)


@pytest.mark.parametrize("masked", [False, True])
def test_inside_pmls_wrapper_every_rank_has_the_memory_of_one_process_with_the_whole_batch(ranks, masked):
    memory = CrossBatchMemory(SupConLoss(), 5, 19, adapter="axbn")
    generators = [torch.Generator().manual_seed(rank) for rank in range(2)]
    first, second = (rank[f"wrapped_{masked}"] for rank in ranks)
    for step, loss in enumerate(first["losses"]):
        parts = [
            (
                torch.randn(4, 5, generator=generator),
                torch.randint(3, (4,), generator=generator),
                torch.rand(4, generator=generator) < 0.5 if masked else torch.zeros(4, dtype=torch.bool),
            )
            for generator in generators
        ]
        rows, labels, mask = (torch.cat(part) for part in zip(*parts, strict=True))
        rows.requires_grad_()
        value = 2 * memory(rows, labels, enqueue_mask=mask if masked else None)  # the wrapper's world size
        value.backward()
        assert loss == pytest.approx(value.item(), rel=1e-5)
        assert second["losses"][step] == pytest.approx(value.item(), rel=1e-5)
        gradients = torch.cat([first["gradients"][step], second["gradients"][step]])
        torch.testing.assert_close(gradients, rows.grad, rtol=1e-4, atol=1e-6)
    for rank in (first, second):
        assert torch.equal(rank["rows"], first["rows"])
        torch.testing.assert_close(rank["rows"], memory.embedding_memory)
        assert torch.equal(rank["labels"], memory.label_memory)
        assert rank["position"] == memory.queue_idx


@pytest.mark.slow
def test_lightning_with_two_processes_has_equal_banks_and_saves_them(tmp_path):
    finish(start("lightning_ddp.py", tmp_path))
    first, second = (torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2))
    # 48 images on 2 ranks in batches of 4: 6 steps, each with two forward passes of 8 gathered rows.
    assert first["filled"] == second["filled"] == 96
    assert torch.equal(first["bank"], second["bank"])  # the 34 random rows included
    saved = torch.load(tmp_path / "last.ckpt", weights_only=False)["state_dict"]
    criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(130, 4)), "auto")
    criterion.load_state_dict({k.removeprefix("criterion."): v for k, v in saved.items() if k.startswith("criterion.")})
    assert torch.equal(criterion.memory_bank.bank, first["bank"])
