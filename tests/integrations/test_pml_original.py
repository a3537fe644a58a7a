"""What PML checks of its own `CrossBatchMemory`, asked of both: ours must pass where the original passes."""

from functools import partial

import pytest
import torch
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.losses import CrossBatchMemory as Original
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu

from adaptive_memory_bank.integrations.pml import CrossBatchMemory

DIM, SIZE, BATCH = 16, 51, 16
CLASSES = {"original": Original, "ours": partial(CrossBatchMemory, adapter="identity")}
DTYPES = [torch.float16, torch.float32, torch.float64]

pytestmark = pytest.mark.parametrize("make", CLASSES.values(), ids=CLASSES)


def batch(generator, labels=10, size=BATCH):
    return torch.randn(size, DIM, generator=generator), torch.randint(labels, (size,), generator=generator)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
def test_the_queue_is_a_ring_of_the_last_rows(make, dtype, masked, generator):
    memory = make(losses.ContrastiveLoss(), DIM, SIZE)
    for step in range(12):
        rows, labels = batch(generator)
        rows = rows.to(dtype)
        mask = torch.arange(BATCH) % 4 == 0 if masked else None
        queued, queued_labels = (rows[mask], labels[mask]) if masked else (rows, labels)
        start = memory.queue_idx
        assert start == step * len(queued) % SIZE
        memory(rows, labels, enqueue_mask=mask)
        slots = torch.arange(start, start + len(queued)) % SIZE
        assert torch.equal(memory.curr_batch_idx, slots)
        assert torch.equal(memory.embedding_memory[slots], queued)
        assert torch.equal(memory.label_memory[slots], queued_labels)
        assert memory.has_been_filled == ((step + 1) * len(queued) >= SIZE)
        if not memory.has_been_filled:
            assert not memory.embedding_memory[memory.queue_idx :].any()
        assert memory.embedding_memory.shape == (memory.memory_size, memory.embedding_size) == (SIZE, DIM)


@pytest.mark.parametrize("miner", [None, miners.TripletMarginMiner(margin=0.1), miners.MultiSimilarityMiner()])
@pytest.mark.parametrize("loss", [losses.NTXentLoss(0.1), losses.ContrastiveLoss(), losses.SupConLoss()])
def test_a_memory_of_one_batch_equals_the_plain_loss(make, loss, miner, generator):
    memory = make(loss, DIM, BATCH, miner=miner)
    for _ in range(3):
        rows, labels = batch(generator, labels=4)
        pairs = None if miner is None else miner(rows, labels)
        torch.testing.assert_close(memory(rows, labels), loss(rows, labels, pairs))


def test_a_row_is_never_its_own_positive(make, generator):
    memory = make(losses.ContrastiveLoss(), DIM, SIZE)
    for _ in range(8):
        rows, labels = batch(generator)
        memory(rows, labels)
        filled = memory.has_been_filled or memory.queue_idx
        known = memory.label_memory if filled is True else memory.label_memory[:filled]
        arguments = (rows, labels, memory.embedding_memory[: len(known)], known, None)
        a1, p, a2, n = memory.create_indices_tuple(*arguments, False)
        own = p == memory.curr_batch_idx[a1]
        assert own.sum() == BATCH
        kept = memory.create_indices_tuple(*arguments, True)
        assert all(torch.equal(x, y) for x, y in zip(kept, (a1[~own], p[~own], a2, n), strict=True))


@pytest.mark.parametrize("inner", [None, miners.MultiSimilarityMiner(0.3), miners.TripletMarginMiner(margin=0.2)])
@pytest.mark.parametrize("outer", [None, miners.MultiSimilarityMiner(0.2), miners.TripletMarginMiner(margin=0.3)])
def test_the_loss_is_that_of_the_batch_against_everything_remembered(make, inner, outer, generator):
    loss = losses.ContrastiveLoss()
    memory = make(loss, DIM, 1000, miner=inner)
    all_rows, all_labels = torch.empty(0, DIM), torch.empty(0, dtype=torch.int64)
    for step in range(5):
        rows, labels = batch(generator)
        given = None if outer is None else outer(rows, labels)
        value = memory(rows, labels, given)
        all_rows, all_labels = torch.cat([all_rows, rows]), torch.cat([all_labels, labels])
        slots = torch.arange(step * BATCH, (step + 1) * BATCH)
        pairs = (
            lmu.get_all_pairs_indices(labels, all_labels)
            if inner is None
            else inner(rows, labels, all_rows, all_labels)
        )
        pairs = lmu.remove_self_comparisons(pairs, slots, 1000)
        if given is not None:
            given = lmu.convert_to_pairs(given, labels) if len(pairs) == 4 else lmu.convert_to_triplets(given, labels)
            pairs = tuple(torch.cat([x, y]) for x, y in zip(pairs, given, strict=True))
        torch.testing.assert_close(value, loss(rows, labels, pairs, all_rows, all_labels))


def test_with_a_mask_the_rest_is_compared_with_the_masked_rows(make, generator):
    loss = losses.NTXentLoss(0.1)
    memory = make(loss, DIM, 1000)
    all_rows, all_labels = torch.empty(0, DIM), torch.empty(0, dtype=torch.int64)
    for _ in range(5):
        rows, labels = batch(generator)
        mask = torch.rand(BATCH, generator=generator) < 0.4
        value = memory(rows, labels, enqueue_mask=mask)
        all_rows, all_labels = torch.cat([all_rows, rows[mask]]), torch.cat([all_labels, labels[mask]])
        pairs = lmu.get_all_pairs_indices(labels[~mask], all_labels)
        torch.testing.assert_close(value, loss(rows[~mask], labels[~mask], pairs, all_rows, all_labels))


def test_works_with_a_distance_weighted_miner(make, generator):
    torch.manual_seed(0)
    miner = miners.DistanceWeightedMiner(cutoff=0.5, nonzero_loss_cutoff=1.4)
    memory = make(losses.NTXentLoss(0.1), 2, 256, miner=miner)
    angles = torch.arange(32) * torch.pi / 180
    for _ in range(12):
        rows = torch.stack([angles.cos(), angles.sin()], 1).requires_grad_()
        memory(rows, torch.randint(10, (32,), generator=generator)).backward()
        assert rows.grad.isfinite().all()


def test_indices_and_mask_exclude_each_other(make, generator):
    rows, labels = batch(generator)
    pairs = lmu.get_all_pairs_indices(labels)
    with pytest.raises(ValueError, match="mutually exclusive"):
        make(losses.ContrastiveLoss(), DIM, SIZE)(rows, labels, pairs, torch.zeros(BATCH, dtype=torch.bool))


@pytest.mark.parametrize("name", ["ProxyNCALoss", "ArcFaceLoss", "VICRegLoss", "FastAPLoss", "HistogramLoss"])
def test_other_losses_are_refused(make, name):
    arguments = {"ProxyNCALoss": (4, DIM), "ArcFaceLoss": (4, DIM)}.get(name, ())
    with pytest.raises(Exception, match=f"CrossBatchMemory not supported for {name}"):
        make(getattr(losses, name)(*arguments), DIM, SIZE)


def test_reset_queue_empties_and_takes_a_new_size(make, generator):
    memory = make(losses.ContrastiveLoss(), DIM, SIZE)
    for _ in range(5):
        memory(*batch(generator))
    memory.reset_queue()
    assert (memory.queue_idx, memory.has_been_filled) == (0, False)
    assert not memory.embedding_memory.any()
    assert not memory.label_memory.any()
    memory.memory_size = 40
    memory.reset_queue()
    assert memory.embedding_memory.shape == (40, DIM)
    assert memory.label_memory.shape == (40,)
    memory(*batch(generator))
    assert memory.queue_idx == BATCH


def test_sizes_and_position_are_recorded(make):
    memory = make(losses.ContrastiveLoss(), DIM, SIZE, collect_stats=True)
    assert memory._record_these == ["embedding_size", "memory_size", "queue_idx"]
    assert memory.collect_stats
