"""`NTXentLoss` fused with its adaptive bank: lightly's values and gradients, and lightly's object."""

import copy
import pickle

import pytest
import torch
from lightly.loss import NTXentLoss
from lightly.loss.regularizer import CO2Regularizer
from lightly.models.modules import NNMemoryBankModule as LightlyNNBank
from lightly.models.modules.memory_bank import MemoryBankModule as LightlyBank
from torch import nn

from adaptive_memory_bank.integrations.lightly import swap_memory_bank
from adaptive_memory_bank.losses import walk


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request, monkeypatch):
    if request.param == "many blocks":
        monkeypatch.setitem(walk.BLOCK_BYTES, "cpu", 7 * 4 * (5 + 4))


class OwnLoss(NTXentLoss):
    """At module level: pickle needs its name."""


def result(criterion, queries, keys):
    """The loss, and its gradient in both views."""
    leaves = queries.clone().requires_grad_(), keys.clone().requires_grad_()
    loss = criterion(*leaves)
    loss.backward()
    return loss.detach(), leaves[0].grad, leaves[1].grad


def assert_close(found, wanted, rel=1e-5):
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert (one - other).norm() <= rel * other.norm() + 1e-7


def views(generator, count=4, dim=5):
    return 3 * torch.randn(2, count, dim, generator=generator)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("temperature", [0.5, 0.1, 0.01])  # 0.01: exponentials that need an offset
def test_with_identity_it_is_lightlys_loss_while_the_queue_fills_and_after(temperature, generator):
    theirs = NTXentLoss(temperature=temperature, memory_bank_size=(12, 5))
    ours = swap_memory_bank(copy.deepcopy(theirs), "identity")
    for _ in range(8):
        pair = views(generator)
        assert_close(result(ours, *pair), result(theirs, *pair))
        torch.testing.assert_close(ours.memory_bank.bank, theirs.memory_bank.bank)
        assert torch.equal(ours.memory_bank.bank_ptr, theirs.memory_bank.bank_ptr)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("adapter", ["xbn", "ema", "axbn", "auto"])
def test_with_any_adapter_it_is_lightlys_loss_on_the_rows_that_the_bank_would_hand_out(adapter, generator):
    fused = swap_memory_bank(NTXentLoss(temperature=0.1, memory_bank_size=(10, 5)), adapter)
    apart = swap_memory_bank(copy.deepcopy(fused), adapter, fused=False)
    assert fused.is_fused
    assert type(apart) is NTXentLoss
    for _ in range(7):  # fills, wraps and folds
        pair = views(generator)
        assert_close(result(fused, *pair), result(apart, *pair))
        assert torch.equal(fused.memory_bank.bank, apart.memory_bank.bank)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_bank_is_updated_where_the_queries_require_a_gradient_and_nowhere_else(mode, generator):
    theirs = getattr(NTXentLoss(memory_bank_size=(12, 5)), mode)()
    ours = swap_memory_bank(copy.deepcopy(theirs), "identity")
    for criterion in (theirs, ours):
        torch.manual_seed(0)
        criterion(*views(None))
        assert criterion.memory_bank.bank_ptr == 0
        with torch.no_grad():
            criterion(views(None)[0].requires_grad_(), views(None)[1])
        assert criterion.memory_bank.bank_ptr == 0
        criterion(views(None)[0], views(None)[1].requires_grad_()).backward()  # only the keys have a gradient
        assert criterion.memory_bank.bank_ptr == 0
        criterion(views(None)[0].requires_grad_(), views(None)[1])
        assert criterion.memory_bank.bank_ptr == 4
    pair = views(generator)
    torch.testing.assert_close(ours(*pair), theirs(*pair))


@pytest.mark.parametrize(("dtype", "rel"), [(torch.bfloat16, 0.03), (torch.float16, 0.004)])
def test_half_precision_is_that_of_its_inputs_and_the_loss_has_lightlys_type(dtype, rel, generator):
    theirs = NTXentLoss(temperature=0.2, memory_bank_size=(8, 5)).to(dtype)
    ours = swap_memory_bank(copy.deepcopy(theirs), "identity")
    for _ in range(4):
        pair = views(generator).to(dtype)
        assert_close(result(ours, *pair), result(theirs, *pair), rel)
    assert ours.memory_bank.memory.dtype == dtype


def test_under_autocast_products_are_computed_in_float32(generator):
    ours = swap_memory_bank(NTXentLoss(temperature=0.2, memory_bank_size=(8, 5)), "xbn")
    plain, theirs = copy.deepcopy(ours), NTXentLoss(memory_bank_size=(8, 5))
    for _ in range(3):
        pair = views(generator).bfloat16()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, lightlys = result(ours, *pair), result(theirs, *pair)
        assert found[0].dtype == lightlys[0].dtype == torch.float32
        assert torch.equal(found[0], result(plain, *pair.float())[0])
        assert found[1].dtype == torch.bfloat16


def test_double_precision_is_answered_in_kind(generator):
    criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(8, 5)), "xbn")
    assert all(value.dtype == torch.float64 for value in result(criterion, *views(generator).double()))
    assert criterion.double().memory_bank.memory.compute_dtype == torch.float64
    queries, keys = views(generator).double()
    assert torch.autograd.gradcheck(criterion, (queries, keys.requires_grad_()))  # which does not change the bank


def test_it_is_the_same_object_with_the_same_attributes_also_deep_in_a_model(generator):
    criterion = NTXentLoss(temperature=0.3, memory_bank_size=(12, 5), gather_distributed=True)
    model = nn.ModuleDict({"heads": nn.ModuleList([nn.Linear(2, 2), criterion])})
    keys, attributes = set(criterion.state_dict()), set(criterion.__dict__)
    swap_memory_bank(model, "xbn")
    assert model["heads"][1] is criterion
    assert isinstance(criterion, NTXentLoss)
    assert criterion.is_fused
    assert (criterion.temperature, criterion.gather_distributed) == (0.3, True)
    assert attributes <= set(criterion.__dict__)
    assert {key for key in criterion.state_dict() if not key.startswith("memory_bank.")} == keys
    assert "NTXentLoss(\n  fused\n  (memory_bank): MemoryBankModule(\n    size=(12, 5)\n" in repr(criterion)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda criterion: pickle.loads(pickle.dumps(criterion))])
def test_copies_and_pickles_go_on_alike_and_apart(duplicate, generator):
    criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(12, 5)), "auto")
    for _ in range(4):
        result(criterion, *views(generator))
    other = duplicate(criterion)
    assert other.is_fused
    pair = views(generator)
    for one, two in zip(result(criterion, *pair), result(other, *pair), strict=True):
        assert torch.equal(one, two)
    result(other, *views(generator))
    assert not torch.equal(other.memory_bank.bank, criterion.memory_bank.bank)


def test_a_backward_pass_may_follow_later_updates(generator):
    criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(8, 5)), "xbn")
    result(criterion, *views(generator))
    alone, pair = copy.deepcopy(criterion), views(generator)
    leaf = pair[0].clone().requires_grad_()
    loss = criterion(leaf, pair[1])
    for _ in range(3):
        result(criterion, *views(generator))
    loss.backward()
    assert torch.equal(leaf.grad, result(alone, *pair)[1])


def test_rows_that_are_not_finite_make_the_loss_nan_and_stay_out(generator):
    criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(12, 5)), "xbn")
    queries, keys = views(generator)
    keys[1, 2] = torch.nan
    assert criterion(queries.requires_grad_(), keys).isnan()
    assert criterion.memory_bank.bank.isfinite().all()
    assert criterion(*views(generator)).isfinite()


def test_what_is_not_fused_says_why():
    alone = LightlyBank((8, 5))
    model = nn.ModuleDict({"own": OwnLoss(memory_bank_size=(8, 5)), "co2": CO2Regularizer(memory_bank_size=(8, 5))})
    model["odd"] = NTXentLoss(memory_bank_size=(8, 5))
    model["odd"].memory_bank = LightlyNNBank((8, 5))
    swap_memory_bank(model)
    swap_memory_bank(alone)
    asked = swap_memory_bank(NTXentLoss(memory_bank_size=(8, 5)), fused=False)
    reasons = {
        model["own"]: "not fused: OwnLoss is not NTXentLoss itself",
        model["co2"]: "not fused: CO2Regularizer is not NTXentLoss itself",
        model["odd"]: "not fused: NNMemoryBankModule is not lightly's bank itself",
        alone: "not fused: swapped without a criterion",
        asked: "not fused: asked for by fused=False",
    }
    for module, reason in reasons.items():
        assert reason in repr(module)
    assert [type(model[name]) for name in model] == [OwnLoss, CO2Regularizer, NTXentLoss]


def change_temperature(criterion):
    criterion.temperature = -0.5


def change_cross_entropy(criterion):
    criterion.cross_entropy = nn.CrossEntropyLoss(label_smoothing=0.1)


def change_bank(criterion):
    criterion.memory_bank = LightlyBank((8, 5))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_temperature, "the temperature is not a positive number"),
        (change_cross_entropy, "the cross entropy has settings of its own"),
        (change_bank, "the memory bank was replaced"),
    ],
)
def test_settings_that_cannot_be_fused_are_computed_as_lightly_does(change, reason, generator):
    torch.manual_seed(0)
    theirs = NTXentLoss(memory_bank_size=(8, 5))
    ours = swap_memory_bank(copy.deepcopy(theirs), "identity")
    for criterion in (theirs, ours):
        torch.manual_seed(1)
        change(criterion)
    assert f"not fused: {reason}" in repr(ours)
    for _ in range(3):
        pair = views(generator)
        assert_close(result(ours, *pair), result(theirs, *pair))


def test_a_changed_temperature_counts_from_the_next_call_on(generator):
    theirs = NTXentLoss(temperature=0.5, memory_bank_size=(8, 5))
    ours = swap_memory_bank(copy.deepcopy(theirs), "identity")
    theirs.temperature = ours.temperature = 0.07
    pair = views(generator)
    assert_close(result(ours, *pair), result(theirs, *pair))
