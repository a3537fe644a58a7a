"""Save, load, go on: equal to never having stopped."""

import copy
import io
import pickle

import pytest
import torch

from adaptive_memory_bank import AdaptiveMemoryBank
from exactly import assert_same

NAMES = ("identity", "xbn", "ema", "axbn", "auto")


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return step * 0.1 + torch.randn(7, 4, generator=generator), torch.randint(0, 3, (7,), generator=generator)


def through_a_file(bank):
    file = io.BytesIO()
    torch.save(bank.state_dict(), file)
    file.seek(0)
    other = AdaptiveMemoryBank(20, 4, type(bank.adapter)())
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


WAYS = {
    "file": through_a_file,
    "pickle": lambda bank: pickle.loads(pickle.dumps(bank)),
    "deepcopy": copy.deepcopy,
}


def assert_same_state(one, other):
    assert_same(dict(one.state_dict()), dict(other.state_dict()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])  # empty, filling, just past the first lap, later
def test_stopped_anywhere_it_goes_on_to_the_bit(name, way, steps):
    whole = AdaptiveMemoryBank(20, 4, name)
    for step in range(steps):
        whole.update(*batch(step))
    resumed = way(whole)
    assert_same_state(whole, resumed)
    for step in range(steps, steps + 6):
        whole.update(*batch(step))
        resumed.update(*batch(step))
        assert torch.equal(whole.embeddings, resumed.embeddings)
        assert torch.equal(whole.labels, resumed.labels)
    assert_same_state(whole, resumed)


def test_a_saved_state_is_not_changed_by_going_on():
    bank = AdaptiveMemoryBank(20, 4, "auto")
    bank.update(*batch(0))
    saved = copy.deepcopy(bank.state_dict())
    bank.update(*batch(1))
    other = AdaptiveMemoryBank(20, 4, "auto")
    other.load_state_dict(saved)
    other.update(*batch(1))
    assert_same_state(bank, other)


@pytest.mark.parametrize(("size", "dim"), [(20, 5), (10, 4)])
def test_loading_into_another_shape_names_both_and_changes_nothing(size, dim):
    bank, other = AdaptiveMemoryBank(20, 4, "axbn"), AdaptiveMemoryBank(size, dim, "axbn")
    bank.update(*batch(0))
    before = str(other.state_dict())
    message = f"size 20 and dim 4 cannot be loaded into one of size {size} and dim {dim}"
    with pytest.raises(ValueError, match=message):
        torch.nn.Sequential(other).load_state_dict(torch.nn.Sequential(bank).state_dict())
    assert str(other.state_dict()) == before


def test_rejected_rows_are_remembered():
    bank = AdaptiveMemoryBank(20, 4, "xbn")
    bank.update(torch.full((3, 4), float("nan")))
    assert through_a_file(bank).rejected_rows == 3


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize(
    ("saved", "name"), [("auto", "xbn"), ("xbn", "identity"), ("identity", "auto"), ("ema", "axbn")]
)
def test_the_state_of_another_adapter_loads_with_one_warning_and_a_new_filter(saved, name, steps):
    bank, other = AdaptiveMemoryBank(20, 4, saved), AdaptiveMemoryBank(20, 4, name)
    for step in range(steps):
        bank.update(*batch(step))
        other.update(*batch(step + 50))  # has a filter of its own, which must go
    state = torch.nn.Sequential(bank).state_dict()
    with pytest.warns(UserWarning, match=f"another adapter than {type(other.adapter).__name__}: rows") as warned:
        torch.nn.Sequential(other).load_state_dict(state)
    assert len(warned) == 1
    assert torch.equal(other.embeddings, bank.embeddings)
    assert torch.equal(other.labels, bank.labels)
    assert (other.cursor, len(other), other.stats()["age"]) == (bank.cursor, len(bank), bank.stats()["age"])
    fresh = AdaptiveMemoryBank(20, 4, name)
    assert_same(dict(other.adapter.state_dict()), dict(fresh.adapter.state_dict()))
    assert state.keys() == torch.nn.Sequential(bank).state_dict().keys()  # the user's checkpoint stays whole
    other.update(*batch(steps))


def test_a_checkpoint_that_does_not_name_its_adapter_is_judged_by_its_keys():
    bank, other = AdaptiveMemoryBank(20, 4, "auto"), AdaptiveMemoryBank(20, 4, "ema")
    state = bank.state_dict()
    for key in ("adapter", "stats"):
        del state["_extra_state"][key]
    AdaptiveMemoryBank(20, 4, "auto").load_state_dict(state)
    with pytest.warns(UserWarning, match="another adapter than EMA"):
        other.load_state_dict(state)


def test_a_state_without_this_bank_leaves_the_filter_alone():
    bank = AdaptiveMemoryBank(20, 4, "auto")
    bank.update(*batch(0))
    before = copy.deepcopy(bank.state_dict())
    bank.load_state_dict({}, strict=False)
    assert_same(dict(bank.state_dict()), dict(before))


@pytest.mark.parametrize("name", NAMES)
def test_with_another_adapter_rows_labels_and_position_stay(name):
    bank = AdaptiveMemoryBank(20, 4, "auto")
    for step in range(4):
        bank.update(*batch(step))
    rows, labels, cursor, former = bank.embeddings, bank.labels, bank.cursor, bank.adapter
    bank.change_adapter(name)
    assert torch.equal(bank.embeddings, rows)
    assert torch.equal(bank.labels, labels)
    assert bank.cursor == cursor
    assert bank.stats()["gain_mean"] == 0  # the new one has believed nothing yet
    bank.update(*batch(4))
    AdaptiveMemoryBank(20, 4, former)  # is free again
