"""What every adapter promises."""

import copy
import pickle

import pytest
import torch

from adaptive_memory_bank import AXBN, EMA, XBN, Adapter, AdaptiveMemoryBank, AutoAXBN, Identity, Moments
from adaptive_memory_bank.adapters import ADAPTERS, make_adapter

FACTORIES = {
    "identity": Identity,
    "xbn": XBN,
    "ema": EMA,
    "axbn": AXBN,
    "axbn, slow": lambda: AXBN(q=0.01, r=1.0, gain_interval=3),
    "auto": AutoAXBN,
}
every_adapter = pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES.keys())


def batches(count, seed=0, size=8, dim=5):
    generator = torch.Generator().manual_seed(seed)
    return [Moments.of(0.1 * step + torch.randn(size, dim, generator=generator)) for step in range(count)]


def as_tensors(target):
    return [] if target is None else [target.mean, target.std]


@every_adapter
def test_the_first_batch_is_taken_whole(make):
    adapter, (batch,) = make(), batches(1)
    adapter.reset(5)
    assert_same(as_tensors(adapter.observe(batch)), [] if isinstance(adapter, Identity) else [batch.mean, batch.std])


@every_adapter
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_saved_and_loaded_it_goes_on_as_if_never_stopped(make, steps):
    whole, resumed = make(), make()
    whole.reset(5)
    resumed.reset(5)
    for batch in batches(steps):
        whole.observe(batch)
    resumed.load_state_dict(whole.state_dict())
    copies = [resumed, copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))]
    for batch in batches(9, seed=1):
        expected = as_tensors(whole.observe(batch))
        for other in copies:
            assert_same(as_tensors(other.observe(batch)), expected)


@every_adapter
def test_reset_equals_new(make):
    used, new = make(), make()
    used.reset(5)
    new.reset(5)
    for batch in batches(4):
        used.observe(batch)
    used.reset(5)
    for batch in batches(4, seed=2):
        assert_same(as_tensors(used.observe(batch)), as_tensors(new.observe(batch)))


@every_adapter
def test_a_target_is_not_changed_by_later_batches(make):
    adapter = make()
    adapter.reset(5)
    first = as_tensors(adapter.observe(batches(1)[0]))
    before = [value.clone() for value in first]
    for batch in batches(5, seed=3):
        adapter.observe(batch)
    assert_same(first, before)


@every_adapter
def test_constant_batches_give_no_nan(make):
    adapter = make()
    adapter.reset(2)
    for level in (0.0, 0.0, 5.0):
        target = adapter.observe(Moments.of(torch.full((4, 2), level)))
        assert all(value.isfinite().all() for value in as_tensors(target))


@every_adapter
def test_half_precision_never_reaches_the_filter(make):
    adapter = make()
    adapter.reset(5)
    for batch in batches(3):
        adapter.observe(batch)
    before = {name: value.clone() for name, value in adapter.state_dict().items()}
    adapter.half()
    after = adapter.state_dict()
    assert all(after[name].dtype == value.dtype and torch.equal(after[name], value) for name, value in before.items())
    adapter.double()
    assert all(value.dtype in (torch.float64, torch.int64) for value in adapter.state_dict().values())


@pytest.mark.parametrize("name", ADAPTERS)
def test_it_is_made_from_its_name(name):
    bank = AdaptiveMemoryBank(size=4, dim=2, adapter=name)
    assert type(bank.adapter) is ADAPTERS[name].load()
    assert type(make_adapter(name)) is ADAPTERS[name].load()


def test_hyper_parameters_are_shown():
    assert repr(AXBN(q=2)) == "AXBN(q=2.0, r=0.01, p0=1.0, gain_interval=100)"
    assert repr(EMA(0.5)) == "EMA(momentum=0.5)"
    assert repr(AutoAXBN()) == "AutoAXBN(smoothing=0.975, floor=0.01)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EMA(-0.1), r"`momentum` must be in \[0, 1\), got -0.1"),
        (lambda: EMA(1.0), r"`momentum` must be in \[0, 1\), got 1.0"),
        (lambda: AXBN(q=-1), "`q` must be a finite number of at least 0, got -1"),
        (lambda: AXBN(r=float("nan")), "`r` must be a finite number of at least 0, got nan"),
        (lambda: AXBN(p0=-2), "`p0` must be a finite number of at least 0, got -2"),
        (lambda: AXBN(gain_interval=0), "`gain_interval` must be a positive integer, got 0"),
        (lambda: AutoAXBN(smoothing=1.0), r"`smoothing` must be in \[0, 1\), got 1.0"),
        (lambda: AutoAXBN(floor=0.0), "`floor` must be a positive number, got 0.0"),
        (
            lambda: make_adapter("xnb"),
            "one of identity, xbm, xbn, ema, axbn, kalman, auto, or `package.module:Class`, got 'xnb'",
        ),
    ],
)
def test_bad_hyper_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_class_or_a_number_is_no_adapter():
    with pytest.raises(TypeError, match=r"Did you mean XBN\(\)\?"):
        make_adapter(XBN)
    with pytest.raises(TypeError, match="must be an Adapter or a name, got 3"):
        make_adapter(3)
    with pytest.raises(TypeError, match="has been made already"):
        make_adapter(XBN(), momentum=0.5)


def test_an_adapter_without_observe_says_so():
    with pytest.raises(NotImplementedError, match="Adapter must write `observe"):
        Adapter().observe(batches(1)[0])


def assert_same(found, expected):
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
