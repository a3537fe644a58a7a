"""Fused losses of the PML drop-in: the values and gradients of the original."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances, losses, miners, reducers
from pytorch_metric_learning.losses import CrossBatchMemory as Original

from adaptive_memory_bank.integrations.pml import CrossBatchMemory
from adaptive_memory_bank.losses import walk

DIM = 6
LOSSES = {
    "supcon": losses.SupConLoss,
    "contrastive": losses.ContrastiveLoss,
    "ntxent": losses.NTXentLoss,
    "multi-similarity": losses.MultiSimilarityLoss,
}
MINERS = {"all": lambda: None, "margins": miners.PairMarginMiner, "hard": miners.MultiSimilarityMiner}


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request, monkeypatch):
    if request.param == "many blocks":
        monkeypatch.setitem(walk.BLOCK_BYTES, "cpu", 7 * 8 * (DIM + 12))


def batch(seed, count=12, classes=4):
    """In double precision, with a common mean, so that miners keep some pairs of either kind and drop others."""
    generator = torch.Generator().manual_seed(seed)
    rows = 0.7 + torch.randn(count, DIM, generator=generator, dtype=torch.float64)
    return rows, torch.randint(classes, (count,), generator=generator)


def value_and_gradient(memory, rows, labels, mask=None):
    leaf = rows.clone().requires_grad_()
    value = memory(leaf, labels, enqueue_mask=mask)
    value.backward()
    return value.detach(), leaf.grad


def assert_equal_step(ours, theirs, rows, labels, mask=None, rtol=1e-9):
    (value, gradient), (expected, expected_gradient) = (
        value_and_gradient(memory, rows, labels, mask) for memory in (ours, theirs)
    )
    torch.testing.assert_close(value, expected, rtol=rtol, atol=1e-12, check_dtype=False)
    assert (gradient - expected_gradient).norm() <= rtol * expected_gradient.norm() + 1e-12
    return value


def pair(loss, miner=None, size=37, **options):
    """Ours, fused, and the original, with copies of a loss and a miner."""
    ours = CrossBatchMemory(*copy.deepcopy((loss, DIM, size, miner)), adapter="identity", **options)
    assert ours.is_fused
    return ours, Original(loss, DIM, size, miner).double()


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("miner", MINERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_has_the_value_and_gradient_of_the_original_while_filling_and_around_the_ring(loss, miner, masked):
    ours, theirs = pair(LOSSES[loss](), MINERS[miner]())
    for step in range(8):
        rows, labels = batch(step)
        mask = torch.rand(12, generator=torch.Generator().manual_seed(step)) < 0.5 if masked else None
        assert assert_equal_step(ours, theirs, rows, labels, mask) > 0
    assert ours.has_been_filled
    torch.testing.assert_close(ours.embedding_memory, theirs.embedding_memory)


COSINE, SQUARED = distances.CosineSimilarity(), distances.LpDistance(power=2)
SETTINGS = {
    "low temperature": losses.SupConLoss(0.01),
    "high temperature": losses.SupConLoss(2.0),
    "mean of all queries": losses.SupConLoss(reducer=reducers.MeanReducer()),
    "losses cut off": losses.NTXentLoss(0.001),
    "mean of pairs above 0": losses.NTXentLoss(reducer=reducers.AvgNonZeroReducer()),
    "other margins": losses.ContrastiveLoss(0.3, 0.7),
    "margin of all pairs": losses.ContrastiveLoss(0.0, 2.5),
    "margin of no pairs": losses.ContrastiveLoss(0.5, -0.5),
    "cosine margins": losses.ContrastiveLoss(0.9, 0.2, distance=COSINE),
    "squared distances": losses.ContrastiveLoss(0.1, 1.5, distance=SQUARED),
    "mean of all pairs": losses.ContrastiveLoss(reducer=reducers.MeanReducer()),
    "other weights": losses.MultiSimilarityLoss(4.0, 10.0, 0.2),
    "large weights": losses.MultiSimilarityLoss(300.0, 400.0, -0.1),
    "mean of queries above 0": losses.MultiSimilarityLoss(reducer=reducers.AvgNonZeroReducer()),
}


@pytest.mark.parametrize("miner", [None, miners.PairMarginMiner(0.4, 0.9)])
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_respected(name, miner):
    ours, theirs = pair(SETTINGS[name], miner)
    for step in range(5):
        assert_equal_step(ours, theirs, *batch(step))


MINER_SETTINGS = [
    *(miners.PairMarginMiner(*margins) for margins in [(0.0, 2.0), (1.5, 0.6), (-1.0, 3.0), (0.2, -1.0), (3.0, 0.1)]),
    *(miners.PairMarginMiner(*margins, distance=COSINE) for margins in [(0.8, 0.5), (1.5, -2.0)]),
    miners.PairMarginMiner(0.2, 1.2, distance=SQUARED),
    *(miners.MultiSimilarityMiner(epsilon) for epsilon in (0.0, 0.5, -0.3, 3.0)),
]


@pytest.mark.parametrize("miner", MINER_SETTINGS, ids=lambda miner: f"{type(miner).__name__}{vars(miner)}"[:24])
@pytest.mark.parametrize("loss", LOSSES)
def test_settings_of_miners_are_respected(loss, miner):
    ours, theirs = pair(LOSSES[loss](), miner)
    for step in range(5):
        assert_equal_step(ours, theirs, *batch(step))
    assert ours.miner.num_neg_pairs == miner.num_neg_pairs
    assert 0 <= miner.num_pos_pairs - ours.miner.num_pos_pairs <= 12  # PML's miner counts pairs of a row and itself


@pytest.mark.parametrize("adapter", ["xbn", "ema", "axbn", "auto"])
@pytest.mark.parametrize("miner", MINERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_compares_with_the_realigned_rows(loss, miner, adapter):
    ours, theirs = (
        CrossBatchMemory(LOSSES[loss](), DIM, 37, MINERS[miner](), adapter=adapter, fused=fused)
        for fused in (True, False)
    )
    assert (ours.is_fused, theirs.is_fused) == (True, False)
    for step in range(6):
        rows, labels = batch(step)
        assert_equal_step(ours, theirs, (1 + step) * rows + step, labels)


@pytest.mark.parametrize("loss", LOSSES)
def test_in_single_precision_the_original_is_met_within_its_rounding(loss):
    ours, theirs = pair(LOSSES[loss](), miners.PairMarginMiner(0.5, 0.7), size=500)
    for step in range(4):
        rows, labels = batch(step, count=64, classes=8)
        assert_equal_step(ours, theirs.float(), rows.float(), labels, rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    loss=st.sampled_from(list(LOSSES)),
    miner=st.sampled_from(list(MINERS)),
    classes=st.integers(1, 6),
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    masked=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_batches(loss, miner, classes, counts, masked, seed):
    ours, theirs = (
        CrossBatchMemory(LOSSES[loss](), DIM, 7, MINERS[miner](), adapter="identity", fused=fused)
        for fused in (True, False)
    )
    for step, count in enumerate(counts):  # also larger than the memory
        rows, labels = batch(100 * seed + step, count, classes)
        mask = torch.rand(count, generator=torch.Generator().manual_seed(seed)) < 0.5 if masked else None
        assert_equal_step(ours, theirs, rows, labels, mask, rtol=1e-7)


CORNERS = {
    "no positives": [0, 1, 2, 3],
    "no negatives": [5, 5, 5, 5],
    "one query without positives": [0, 0, 1, 1, 2],
    "one pair of each kind at most": [0, 0],
    "one row": [3],
    "large labels": [-(2**40), 2**40, 2**40, -(2**40)],
}


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("miner", MINERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_corner_cases(loss, miner, corner):
    labels = torch.tensor(CORNERS[corner])
    ours, theirs = pair(LOSSES[loss](), MINERS[miner](), size=11)
    if corner == "one row":  # which breaks the original
        theirs = CrossBatchMemory(LOSSES[loss](), DIM, 11, MINERS[miner](), adapter="identity", fused=False)
    for step in range(4):
        assert_equal_step(ours, theirs, batch(step, len(labels))[0], labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("miner", MINERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_collapsed_embeddings_have_a_finite_loss_and_gradient(loss, miner, dtype):
    memory = CrossBatchMemory(LOSSES[loss](), DIM, 30, MINERS[miner]())
    rows = torch.arange(1.0, DIM + 1, dtype=dtype).expand(8, DIM)
    for _ in range(5):
        value, gradient = value_and_gradient(memory, rows, torch.arange(8) % 3)
        assert value.isfinite()
        assert gradient.norm() < 1e-3 * rows.norm()  # there is no direction in which anything would change


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_of_zeros_have_a_finite_loss(loss):
    memory = CrossBatchMemory(LOSSES[loss](), DIM, 30)
    for step in range(5):
        rows, labels = batch(step)
        rows[1] = 0
        assert value_and_gradient(memory, rows, labels)[0].isfinite()


@pytest.mark.parametrize("miner", MINERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_row_that_is_not_finite_makes_the_loss_nan_and_later_ones_are_finite(loss, miner):
    memory = CrossBatchMemory(LOSSES[loss](), DIM, 30, MINERS[miner]())
    for step, fault in enumerate([0, torch.nan, torch.inf, 0]):
        rows, labels = batch(step)
        rows[4] += fault
        value, gradient = value_and_gradient(memory, rows, labels)
        assert value.isfinite() if fault == 0 else value.isnan()
        assert gradient[torch.arange(12) != 4].isfinite().all()
    assert memory.bank.rejected_rows == 2


@pytest.mark.parametrize("loss", LOSSES)
def test_without_gradient_the_value_is_the_same(loss):
    memory = CrossBatchMemory(LOSSES[loss](), DIM, 30)
    memory(*batch(0))
    with torch.no_grad():
        value = copy.deepcopy(memory)(*batch(1))
    assert not value.requires_grad
    torch.testing.assert_close(value, value_and_gradient(memory, *batch(1))[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("loss", LOSSES)
def test_half_precision_is_computed_in_single_precision(loss, dtype):
    half, single = (CrossBatchMemory(LOSSES[loss](), DIM, 30) for _ in range(2))
    for step in range(4):
        rows, labels = batch(step)
        rows = rows.to(dtype)
        value, gradient = value_and_gradient(half, rows, labels)
        expected, expected_gradient = value_and_gradient(single, rows.float(), labels)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(gradient, expected_gradient.to(dtype))


def test_known_value_of_the_contrastive_loss():
    """(1, 0) and (0, 1) are positives at distance sqrt 2, twice; (0.6, 0.8) is at sqrt 0.8 and sqrt 0.4 from them, both
    ways: the mean of 1 - sqrt 0.8 and 1 - sqrt 0.4."""
    rows = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.6, 0.8]])
    value = CrossBatchMemory(losses.ContrastiveLoss(), 2, 8)(rows, torch.tensor([0, 0, 1]))
    torch.testing.assert_close(value, torch.tensor(2**0.5 + 1 - (0.8**0.5 + 0.4**0.5) / 2))


def test_a_loss_or_miner_that_is_changed_later_is_respected():
    ours, theirs = pair(losses.SupConLoss())
    for step, change in enumerate(
        [
            lambda memory: setattr(memory, "miner", miners.PairMarginMiner(0.4, 0.9)),
            lambda memory: setattr(memory.miner, "neg_margin", 1.2),
            lambda memory: setattr(memory, "loss", losses.NTXentLoss()),
            lambda memory: setattr(memory.loss, "temperature", 0.5),
            lambda memory: setattr(memory, "miner", miners.TripletMarginMiner()),
        ]
    ):
        change(ours)
        change(theirs)
        assert_equal_step(ours, theirs, *batch(step))
    assert not ours.is_fused


def test_given_pairs_take_the_original_way():
    ours, theirs = pair(losses.SupConLoss(), size=24)
    for step in range(3):
        rows, labels = batch(step)[0], torch.arange(12) % 3  # the same in all batches: pairs are taken as slots
        pairs = miners.MultiSimilarityMiner()(rows, labels)
        torch.testing.assert_close(ours(rows, labels, pairs), theirs(rows, labels, pairs))


def test_a_pickle_and_a_state_dict_of_either_way_go_on_alike():
    memory = CrossBatchMemory(losses.MultiSimilarityLoss(), DIM, 30)
    for step in range(4):
        memory(*batch(step))
    unfused = CrossBatchMemory(losses.MultiSimilarityLoss(), DIM, 30, fused=False)
    unfused.load_state_dict(memory.state_dict())
    copied = pickle.loads(pickle.dumps(memory))
    value = assert_equal_step(copied, unfused, *batch(9), rtol=1e-6)  # which began in single precision
    torch.testing.assert_close(memory(*batch(9)), value)


def test_several_forwards_may_precede_one_backward():
    memory = CrossBatchMemory(losses.ContrastiveLoss(), DIM, 30)
    rows, labels = batch(0)
    leaf = rows.requires_grad_()
    sum(memory(leaf * scale, labels) for scale in range(1, 6)).backward()
    assert leaf.grad.isfinite().all()
