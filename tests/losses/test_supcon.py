"""MemorySupConLoss, against pytorch-metric-learning and against loops."""

import pytest
import torch
from pytorch_metric_learning.losses import SupConLoss
from pytorch_metric_learning.miners import PairMarginMiner

from adaptive_memory_bank.losses import Pairs
from supcon_reference import (
    assert_equal_step,
    blocks,  # noqa: F401  (an autouse fixture)
    make,
    naive,
    pml,
    random_batch,
    value_and_gradient,
)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 0.02])  # 0.02: exponentials that need an offset
@pytest.mark.parametrize("miner", [PairMarginMiner(0.2, 0.8), None])
def test_equals_pml_in_value_and_gradient_while_filling_and_around_the_ring(miner, temperature):
    ours = make(37, temperature=temperature, mine=miner is not None)
    theirs = pml(37, temperature=temperature, miner=miner)
    for step in range(14):
        value = assert_equal_step(ours, theirs, *random_batch(step))
        assert value > 0
        assert min(ours.last_pairs) > 0


@pytest.mark.parametrize("margins", [(0.0, 2.0), (0.5, 1.2), (1.5, 0.6), (-1.0, 3.0), (0.2, -1.0)])
def test_equals_pml_for_other_margins_and_counts_the_same_pairs(margins):
    miner = PairMarginMiner(*margins)
    ours = make(20, pos_margin=margins[0], neg_margin=margins[1])
    theirs, counted = pml(20, miner=miner), 0
    for step in range(6):
        rows, labels = random_batch(step)
        counted += assert_equal_step(ours, theirs, rows, labels) > 0
        own = len(rows) if margins[0] < 0 else 0  # those PML removes after the miner has counted
        assert ours.last_pairs == Pairs(miner.num_pos_pairs - own, miner.num_neg_pairs) or margins[0] == 0.0
    assert counted or margins[1] < 0


def test_in_double_precision_equals_pml_far_closer():
    ours, theirs = make(37, dtype=torch.float64), pml(37, miner=PairMarginMiner()).double()
    for step in range(8):
        rows, labels = random_batch(step)
        assert_equal_step(ours, theirs, rows.double(), labels, rtol=1e-11)


CORNERS = {
    "no positives": ([0, 1, 2, 3], None),
    "no negatives": ([5, 5, 5, 5], None),
    "one query without positives": ([0, 0, 1, 1, 2], None),
    "one kind of pair each at most": ([0, 0], None),
    "duplicated rows": ([0, 0, 1, 1, 0, 1], [0, 0, 1, 1, 2, 2]),
    "large labels": ([-(2**40), 2**40, 2**40, -(2**40)], None),
}


@pytest.mark.parametrize("miner", [PairMarginMiner(0.2, 0.8), None])
@pytest.mark.parametrize("corner", CORNERS)
def test_equals_pml_in_corner_cases(corner, miner):
    labels, repeats = CORNERS[corner]
    rows = random_batch(3, count=len(labels))[0]
    if repeats is not None:
        rows = rows[repeats]
    ours, theirs = make(12, mine=miner is not None), pml(12, miner=miner)
    for step in range(4):
        batch_rows = rows + 0.1 * step
        leaf, expected_leaf = batch_rows.clone().requires_grad_(), batch_rows.clone().requires_grad_()
        value, expected = ours(leaf, torch.tensor(labels)), theirs(expected_leaf, torch.tensor(labels))
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(leaf.grad, expected_leaf.grad, rtol=1e-4, atol=1e-6)


def test_rows_of_zeros_have_cosine_zero_as_in_pml():
    ours, theirs = make(12, mine=False), pml(12)
    for step in range(4):
        rows, labels = random_batch(step)
        rows[1] = 0
        assert_equal_step(ours, theirs, rows, labels)


def test_one_positive_and_one_negative_give_zero_as_in_pml():
    rows = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.9, 0.4]])
    for labels in (torch.tensor([0, 0]), torch.tensor([0, 1])):
        ours, theirs = make(5, dim=2, mine=False), pml(5, dim=2)
        assert_equal_step(ours, theirs, rows[:2], labels)
    ours, theirs = make(5, dim=2, mine=False).eval(), SupConLoss(0.1)
    ours.bank.enqueue(rows[1:], torch.tensor([0, 1]))
    query, label = rows[:1].clone().requires_grad_(), torch.tensor([0])
    assert ours(query, label) == 0 == theirs(query, label, ref_emb=rows[1:], ref_labels=torch.tensor([0, 1]))
    assert ours.last_pairs == (1, 1)


def test_known_value():
    """At temperature 1, (1, 0) has positive (0, 1) and negative (-1, 0): log(e^0 + e^-1) - 0; (0, 1) has positive
    (1, 0) and negative (-1, 0): log(e^0 + e^0) - 0; (-1, 0) has no positive."""
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    value = make(4, dim=2, temperature=1.0, mine=False)(rows, torch.tensor([0, 0, 1]))
    expected = (torch.tensor(1 + torch.e**-1).log() + torch.tensor(2.0).log()) / 2
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("adapter", ["axbn", "xbn", "ema", "auto"])
@pytest.mark.parametrize("mine", [True, False])
def test_compares_with_the_realigned_rows(adapter, mine):
    ours = make(21, adapter=adapter, mine=mine, dtype=torch.float64)
    for step in range(7):
        rows, labels = random_batch(step)
        rows = rows.double() * (1 + step) + step
        value, gradient = value_and_gradient(ours, rows, labels)
        leaf, bank = rows.clone().requires_grad_(), ours.bank
        expected = naive(leaf, labels, bank.embeddings, bank.labels, bank.last_slots, mine=mine)
        expected.backward()
        torch.testing.assert_close(value, expected.detach())
        torch.testing.assert_close(gradient, leaf.grad)


def test_a_batch_larger_than_the_bank_leaves_its_newest_rows_and_all_are_compared():
    ours = make(5, dtype=torch.float64, mine=False)
    for step in range(3):
        rows, labels = random_batch(step)
        value = ours(rows.double(), labels)
        expected = naive(
            rows.double(), labels, rows[-5:].double(), labels[-5:], [-1, -1, -1, 0, 1, 2, 3, 4], mine=False
        )
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("miner", [PairMarginMiner(0.2, 0.8), None])
def test_a_memory_of_one_batch_is_the_loss_within_the_batch_but_for_gradients_of_the_references(miner):
    rows, labels = random_batch(0)
    pairs = miner(rows, labels) if miner else None
    torch.testing.assert_close(make(8, mine=miner is not None)(rows, labels), SupConLoss(0.1)(rows, labels, pairs))


@pytest.mark.parametrize("miner", [PairMarginMiner(0.2, 0.8), None])
def test_batch_weight_adds_the_loss_within_the_batch(miner):
    ours, theirs = make(30, mine=miner is not None, batch_weight=0.5), pml(30, miner=miner)

    def with_batch(queries, labels):
        pairs = miner(queries, labels) if miner else None
        return theirs(queries, labels) + 0.5 * SupConLoss(0.1)(queries, labels, pairs)

    for step in range(6):
        rows, labels = random_batch(step)
        labels[0] = 100 + step  # one query without positives
        assert_equal_step(ours, with_batch, rows, labels)
