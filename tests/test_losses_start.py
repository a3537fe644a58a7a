"""MemorySupConLoss before the memory starts: the loss within the batch, while the bank fills."""

import copy
import pickle

import pytest
import torch
from pytorch_metric_learning.losses import SupConLoss
from pytorch_metric_learning.miners import PairMarginMiner

from adaptive_memory_bank.losses import Pairs
from supcon_reference import assert_equal_step, make, random_batch, value_and_gradient


@pytest.mark.parametrize("batch_weight", [0.0, 0.5])
@pytest.mark.parametrize("miner", [PairMarginMiner(0.2, 0.8), None])
def test_until_the_start_it_is_pml_s_loss_within_the_batch(miner, batch_weight):
    ours = make(30, adapter="auto", mine=miner is not None, start_after=6, batch_weight=batch_weight)

    def within_batch(queries, labels):
        return SupConLoss(0.1)(queries, labels, miner(queries, labels) if miner else None)

    for step in range(6):
        rows, labels = random_batch(step)
        assert assert_equal_step(ours, within_batch, rows, labels) > 0
        if miner is not None:
            assert ours.last_pairs == Pairs(miner.num_pos_pairs, miner.num_neg_pairs)


@pytest.mark.parametrize("adapter", ["identity", "xbn", "auto"])
@pytest.mark.parametrize("start", [1, 5])
def test_after_the_start_it_is_bit_for_bit_a_loss_whose_bank_saw_the_same_batches(start, adapter):
    late, early = make(20, adapter=adapter, start_after=start), make(20, adapter=adapter)
    for step in range(9):
        (value, gradient), (expected, expected_gradient) = (
            value_and_gradient(loss, *random_batch(step)) for loss in (late, early)
        )
        assert torch.equal(gradient, expected_gradient) == (step >= start)
        assert torch.equal(late.bank.embeddings, early.bank.embeddings)
        if step >= start:
            assert torch.equal(value, expected)
            assert late.last_pairs == early.last_pairs


def saved(loss):
    other = make(20, adapter="auto", start_after=4)
    other.load_state_dict(loss.state_dict())
    return other


@pytest.mark.parametrize(
    "way", [saved, copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))], ids=["state_dict", "copy", "pickle"]
)
def test_stopped_before_the_start_it_starts_when_it_would_have(way):
    whole = make(20, adapter="auto", start_after=4)
    for step in range(2):
        whole(*random_batch(step))
    resumed = way(whole)
    for step in range(2, 8):
        found, expected = (value_and_gradient(loss, *random_batch(step)) for loss in (resumed, whole))
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])
    assert resumed.stats() == whole.stats() == {"steps": 8.0, "empty_steps": 0.0}


def test_a_checkpoint_from_before_there_was_a_start_loads():
    old, new = make(20, adapter="auto"), make(20, adapter="auto", start_after=1)
    old(*random_batch(0))
    new.load_state_dict({name: value for name, value in old.state_dict().items() if not name.startswith("steps.")})
    within_batch = SupConLoss(0.1)(*random_batch(1), PairMarginMiner(0.2, 0.8)(*random_batch(1)))
    torch.testing.assert_close(new(*random_batch(1)), within_batch)
    old(*random_batch(1))
    assert torch.equal(new(*random_batch(2)), old(*random_batch(2)))


def test_in_eval_mode_nothing_is_counted_and_the_phase_is_that_of_the_training():
    ours = make(20, start_after=1)
    rows, labels = random_batch(1)
    within_batch = SupConLoss(0.1)(rows, labels, PairMarginMiner(0.2, 0.8)(rows, labels))
    for _ in range(3):
        torch.testing.assert_close(ours.eval()(rows, labels), within_batch)
    assert len(ours.bank) == 0
    assert ours.stats()["steps"] == 0
    ours.train()(*random_batch(0))
    expected = make(20)
    expected(*random_batch(0))
    assert torch.equal(ours.eval()(rows, labels), expected.eval()(rows, labels))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_before_the_start_queries_of_any_precision_are_compared_at_that_of_the_bank(dtype):
    ours, exact = make(20, start_after=2), make(20, start_after=2)
    rows, labels = random_batch(0)
    leaf = rows.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = ours(leaf, labels)
    value.backward()  # outside, as PyTorch asks for
    expected, expected_gradient = value_and_gradient(exact, rows.to(dtype).float(), labels)
    assert torch.equal(value, expected)
    assert torch.equal(leaf.grad, expected_gradient.to(dtype))


def test_before_the_start_a_query_that_is_not_finite_gives_nan_and_an_empty_batch_zero():
    ours = make(20, start_after=2)
    rows, labels = random_batch(0)
    rows[0, 0] = torch.nan
    assert ours(rows, labels).isnan()
    assert len(ours.bank) == len(rows) - 1
    assert ours(rows[:0], labels[:0]) == 0


@pytest.mark.parametrize("start_after", [-1, 2.0, True, None])
def test_refuses_what_is_no_number_of_steps(start_after):
    with pytest.raises(ValueError, match=f"`start_after` must be a non-negative integer.*got {start_after}"):
        make(4, start_after=start_after)
