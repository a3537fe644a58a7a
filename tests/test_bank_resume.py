"""Save, load, go on: equal to never having stopped."""

import copy
import io
import pickle

import pytest
import torch

from adaptive_memory_bank import AdaptiveMemoryBank

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
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]) if isinstance(value, torch.Tensor) else value == second[name], name


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
