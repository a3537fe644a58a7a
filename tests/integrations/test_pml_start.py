"""The adaptive memory before its start: PML's loss and miner within the batch, while the memory fills."""

import pytest
import torch
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.losses import CrossBatchMemory as Original

from adaptive_memory_bank.integrations.pml import CrossBatchMemory

DIM, SIZE, BATCH = 8, 40, 12
MINERS = {"all": lambda: None, "pairs": miners.PairMarginMiner, "triplets": miners.TripletMarginMiner}
every_miner = pytest.mark.parametrize("miner", MINERS)


def batch(generator, size=BATCH, classes=4):
    return torch.randn(size, DIM, generator=generator), torch.randint(classes, (size,), generator=generator)


def memory_of(loss=None, **settings):
    return CrossBatchMemory(losses.SupConLoss() if loss is None else loss, DIM, SIZE, **settings)


def value_and_gradient(loss, rows):
    torch.manual_seed(0)  # some losses draw triplets
    leaf = rows.clone().requires_grad_()
    value = loss(leaf)
    value.backward()
    return value.detach(), leaf.grad


@every_miner
@pytest.mark.parametrize("loss", Original.supported_losses())
def test_until_the_start_it_is_the_inner_loss_within_the_batch(loss, miner, generator):
    inner, pick = getattr(losses, loss)(), MINERS[miner]()
    memory = CrossBatchMemory(inner, DIM, SIZE, miner=pick, start_after=3)
    for _ in range(3):
        rows, labels = batch(generator)
        found = value_and_gradient(lambda leaf: memory(leaf, labels), rows)  # noqa: B023
        expected = value_and_gradient(
            lambda leaf: inner(leaf, labels, None if pick is None else pick(leaf, labels)),  # noqa: B023
            rows,
        )
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@every_miner
def test_until_the_start_a_mask_compares_the_rest_with_the_masked_rows_of_the_batch(miner, generator):
    inner, pick = losses.NTXentLoss(), MINERS[miner]()
    memory, mask = memory_of(inner, miner=pick, start_after=3), torch.arange(BATCH) % 3 == 0
    for _ in range(3):
        rows, labels = batch(generator)
        sides = rows[~mask], labels[~mask], rows[mask], labels[mask]
        pairs = None if pick is None else pick(*sides)
        expected = inner(*sides[:2], pairs, *sides[2:])
        assert torch.equal(memory(rows, labels, enqueue_mask=mask), expected)
    assert memory.queue_idx == 3 * int(mask.sum())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("loss", Original.supported_losses())
def test_until_the_start_a_mask_of_all_or_of_none_compares_nothing(loss, masked, generator):
    rows, labels = batch(generator)
    rows.requires_grad_()
    value = memory_of(getattr(losses, loss)(), start_after=1)(rows, labels, enqueue_mask=torch.full((BATCH,), masked))
    value.backward()
    assert value == 0
    assert rows.grad.eq(0).all()


@pytest.mark.parametrize("adapter", ["identity", "xbn", "auto"])
def test_after_the_start_it_is_bit_for_bit_a_memory_that_saw_the_same_batches(adapter, generator):
    late, early = (memory_of(adapter=adapter, miner=miners.PairMarginMiner(0.2, 1.2), start_after=n) for n in (4, 0))
    for step in range(8):
        rows, labels = batch(generator)
        found, expected = (value_and_gradient(lambda x, m=m: m(x, labels), rows) for m in (late, early))  # noqa: B023
        assert step < 4 or torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1]) == (step >= 4)
        assert torch.equal(late.embedding_memory, early.embedding_memory)
        assert torch.equal(late.curr_batch_idx, early.curr_batch_idx)


def test_given_pairs_name_rows_of_the_memory_and_so_wait_for_it(generator):
    memory, plain = memory_of(start_after=1), memory_of()
    rows, labels = batch(generator)
    pairs = miners.PairMarginMiner()(rows, labels)
    assert torch.equal(memory(rows, labels, pairs), losses.SupConLoss()(rows, labels))
    plain(rows, labels, pairs)
    assert torch.equal(memory(rows, labels, pairs), plain(rows, labels, pairs))


def test_stopped_before_the_start_it_starts_when_it_would_have(generator):
    memory, resumed = memory_of(start_after=3), memory_of(start_after=3)
    memory(*batch(generator))
    resumed.load_state_dict(memory.state_dict())
    for _ in range(5):
        rows, labels = batch(generator)
        assert torch.equal(resumed(rows, labels), memory(rows, labels))
    assert resumed.stats() == memory.stats() == {"steps": 6.0, "empty_steps": 0.0}


def test_checkpoints_without_a_count_load(generator):
    ours, original = memory_of(), Original(losses.SupConLoss(), DIM, SIZE)
    rows, labels = batch(generator)
    for memory in (ours, original):
        memory(rows, labels)
    old = {name: value for name, value in ours.state_dict().items() if not name.startswith("steps.")}
    loaded = memory_of(start_after=2)
    loaded.load_state_dict(old)  # strict
    assert loaded.queue_idx == BATCH
    assert loaded.stats()["steps"] == 0
    with pytest.warns(UserWarning, match="saves neither position nor fill"):
        loaded.load_state_dict(original.state_dict())
    assert torch.equal(loaded(rows, labels), losses.SupConLoss()(rows, labels))


def test_only_training_steps_count(generator):
    memory = memory_of(start_after=1).eval()
    for _ in range(2):
        rows, labels = batch(generator)
        assert torch.equal(memory(rows, labels), losses.SupConLoss()(rows, labels))
    assert memory.stats()["steps"] == 0
    memory.train()(rows, labels)
    assert memory.stats()["steps"] == 1


def test_refuses_what_is_no_number_of_steps():
    with pytest.raises(ValueError, match="`start_after` must be a non-negative integer, a number of steps, got -3"):
        memory_of(start_after=-3)
