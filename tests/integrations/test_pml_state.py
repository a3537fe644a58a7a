"""Saving, loading and copying the adaptive memory, also from checkpoints of the original."""

import copy
import io
import pickle

import pytest
import torch
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.losses import CrossBatchMemory as Original

from adaptive_memory_bank import XBN
from adaptive_memory_bank.integrations.pml import CrossBatchMemory

DIM, SIZE, BATCH = 8, 40, 12


def batch(generator, size=BATCH, classes=4):
    return torch.randn(size, DIM, generator=generator), torch.randint(classes, (size,), generator=generator)


def memory_of(loss=None, **settings):
    return CrossBatchMemory(losses.SupConLoss() if loss is None else loss, DIM, SIZE, **settings)


@pytest.mark.parametrize("steps", [0, 2, 7])
def test_a_resumed_memory_goes_on_as_if_it_had_never_stopped(steps, generator):
    memory = memory_of(adapter="auto")
    for _ in range(steps):
        memory(*batch(generator))
    buffer = io.BytesIO()
    torch.save(memory.state_dict(), buffer)
    buffer.seek(0)
    resumed = memory_of(adapter="auto")
    resumed(*batch(torch.Generator()))
    resumed.load_state_dict(torch.load(buffer))
    assert (resumed.queue_idx, resumed.has_been_filled) == (memory.queue_idx, memory.has_been_filled)
    for _ in range(5):
        rows, labels = batch(generator)
        assert torch.equal(resumed(rows, labels), memory(rows, labels))


@pytest.mark.parametrize("steps", [0, 2, 7])
def test_a_checkpoint_of_the_original_loads_with_a_warning(steps, generator):
    original = Original(losses.MarginLoss(learn_beta=True), DIM, SIZE)
    for _ in range(steps):
        original(*batch(generator))
    memory = memory_of(losses.MarginLoss(learn_beta=True), adapter="identity")
    memory(*batch(generator))
    with pytest.warns(UserWarning, match="saves neither position nor fill"):
        memory.load_state_dict(original.state_dict())  # strict
    assert torch.equal(memory.embedding_memory, original.embedding_memory)
    assert torch.equal(memory.label_memory, original.label_memory)
    assert memory.has_been_filled == original.has_been_filled
    assert memory.queue_idx == (0 if original.has_been_filled else original.queue_idx)
    torch.testing.assert_close(memory.bank.moments.mean, memory.bank.embeddings.sum(0) / max(len(memory.bank), 1))
    memory.queue_idx = original.queue_idx  # as users do who saved it beside
    for _ in range(5):
        rows, labels = batch(generator)
        torch.testing.assert_close(memory(rows, labels), original(rows, labels))
    assert torch.equal(memory.embedding_memory, original.embedding_memory)


def test_a_checkpoint_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"shape \(30, 8\) cannot be loaded into one of \(40, 8\)"):
        memory_of().load_state_dict(Original(losses.SupConLoss(), DIM, 30).state_dict())


def test_the_memory_can_be_assigned(generator):
    memory = memory_of()
    rows, labels = batch(generator, size=SIZE)
    memory.has_been_filled = True
    memory.embedding_memory, memory.label_memory, memory.queue_idx = rows, labels, 7
    assert torch.equal(memory.embedding_memory, rows)
    assert torch.equal(memory.label_memory, labels)
    assert (memory.queue_idx, memory.has_been_filled) == (7, True)
    torch.testing.assert_close(memory.bank.moments.std, rows.std(0))


def test_copies_and_pickles_are_whole(generator):
    memory = memory_of()
    for _ in range(5):
        memory(*batch(generator))
    rows, labels = batch(generator)
    others = [copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))]
    expected = memory(rows, labels)
    assert all(torch.equal(other(rows, labels), expected) for other in others)


def test_ddp_finds_no_buffer_but_the_optimizer_finds_the_parameters():
    memory = memory_of(losses.MarginLoss(learn_beta=True))
    assert not [name for name, _ in memory.named_buffers() if name.startswith("bank")]
    assert [name for name, _ in memory.named_parameters()] == ["loss.beta"]
    assert any(name.startswith("bank.ring.stored") for name in memory.state_dict())


@pytest.mark.parametrize("miner", [None, miners.PairMarginMiner()])
@pytest.mark.parametrize("steps", [0, 2, 7])
def test_the_original_is_given_back_with_everything_it_has(steps, miner, generator):
    memory = memory_of(miner=miner, adapter="auto").eval()
    for _ in range(steps):
        memory(*batch(generator))
    original = memory.to_pml()
    assert type(original) is Original
    assert (original.loss, original.miner, original.training) == (memory.loss, memory.miner, False)
    assert (original.queue_idx, original.has_been_filled) == (memory.queue_idx, memory.has_been_filled)
    assert torch.equal(original.embedding_memory, memory.embedding_memory)
    assert torch.equal(original.label_memory, memory.label_memory)
    memory.swap_adapter("identity")
    for _ in range(5):
        rows, labels = batch(generator)
        torch.testing.assert_close(original(rows, labels), memory(rows, labels))


@pytest.mark.parametrize("steps", [0, 2, 7])
def test_another_adapter_takes_over_the_rows_and_starts_anew(steps, generator):
    memory = memory_of(adapter="auto", gather_distributed=True)
    memory.bank.to(torch.float64)
    for _ in range(steps):
        memory(*batch(generator))
    before = memory.embedding_memory, memory.label_memory, memory.queue_idx, memory.has_been_filled
    swapped = memory.swap_adapter("xbn")
    assert swapped is memory
    assert isinstance(memory.bank.adapter, XBN)
    assert memory.bank.gather_distributed
    after = memory.embedding_memory, memory.label_memory, memory.queue_idx, memory.has_been_filled
    torch.testing.assert_close(after, before)
    assert after[0].dtype == torch.float64
    fresh, (rows, labels) = memory_of(adapter="xbn"), batch(generator)
    fresh.bank.to(torch.float64)
    fresh.bank.restore(before[0][: len(memory.bank)], before[1][: len(memory.bank)], cursor=before[2])
    torch.testing.assert_close(memory(rows, labels), fresh(rows, labels))
    torch.testing.assert_close(memory.embedding_memory, fresh.embedding_memory)
