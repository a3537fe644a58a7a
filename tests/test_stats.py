"""What a bank tells of itself."""

import copy
import math

import pytest
import torch

from adaptive_memory_bank import AXBN, EMA, XBN, AdaptiveMemoryBank, AutoAXBN, Identity
from adaptive_memory_bank.stats import RUNS, Ages

NAMES = ["fill", "age", "gain_mean", "gain_std", "shift", "stretch", "rejected_rows"]


def batches(count, rows=6, dim=4, drift=0.1):
    generator = torch.Generator().manual_seed(0)
    return [(1 + drift * step) * torch.randn(rows, dim, generator=generator) + drift * step for step in range(count)]


def test_an_empty_bank_has_all_of_them_at_zero():
    stats = AdaptiveMemoryBank(8, 4).stats()
    assert list(stats) == NAMES
    assert all(type(value) is float and value == 0 for value in stats.values())


def test_fill_is_the_share_of_slots_with_a_row():
    bank = AdaptiveMemoryBank(16, 4)
    bank.update(batches(1)[0])
    assert bank.stats()["fill"] == 6 / 16


def naive_age(lengths, size):
    came = [update for update, rows in enumerate(lengths, start=1) for _ in range(rows)][-size:]
    return len(lengths) - sum(came) / len(came)


@pytest.mark.parametrize("lengths", [[6], [6, 6], [6] * 7, [1, 9, 2, 30, 3, 3], [20], [25]])
def test_age_is_that_of_a_list_of_all_rows(lengths):
    bank = AdaptiveMemoryBank(20, 4)
    for rows in lengths:
        bank.enqueue(torch.randn(rows, 4))
    assert bank.stats()["age"] == pytest.approx(naive_age(lengths, 20))


def test_age_takes_little_memory_and_is_right_within_a_hundredth_of_a_percent():
    lengths = [1 + step % 3 for step in range(12_000)]
    ages = Ages()
    for rows in lengths:
        ages.add(rows, size=5_000)
        assert len(ages.runs) <= RUNS + 2
    assert ages.rows == sum(rows for rows, _ in ages.runs) == 5_000
    assert ages.mean() == pytest.approx(naive_age(lengths, 5_000), rel=1e-4)


def test_rows_embedded_anew_and_rows_from_elsewhere_have_age_zero():
    bank = AdaptiveMemoryBank(12, 4)
    for rows in batches(3):
        bank.update(rows)
    assert bank.stats()["age"] == 0.5  # six of age 1, six of age 0
    bank.replace(torch.randn(12, 4))
    assert bank.stats()["age"] == 0
    bank.update(batches(1)[0])
    assert bank.stats()["age"] == 0.5
    bank.restore(torch.randn(3, 4), None, cursor=3)
    assert bank.stats()["age"] == 0
    bank.reset()
    assert bank.stats() == AdaptiveMemoryBank(12, 4).stats()


@pytest.mark.parametrize(("adapter", "gain"), [(Identity(), 0.0), (XBN(), 1.0), (EMA(momentum=0.3), 0.7)])
def test_the_gain_of_simple_adapters_is_known(adapter, gain):
    bank = AdaptiveMemoryBank(20, 4, adapter)
    for rows in batches(4):
        bank.update(rows)
    assert bank.stats()["gain_mean"] == pytest.approx(gain, rel=1e-5)
    assert bank.stats()["gain_std"] == pytest.approx(gain, rel=1e-5)


@pytest.mark.parametrize("adapter", [AXBN(q=0.1, r=5.0), AutoAXBN()])
@pytest.mark.parametrize("labelled", [False, True])
def test_the_gain_of_a_filter_is_its_own(adapter, labelled):
    bank = AdaptiveMemoryBank(20, 4, copy.deepcopy(adapter))
    for rows in batches(9):
        bank.update(rows, torch.arange(6) // 2 if labelled else None)
    own = bank.adapter.gain.expand(2).tolist()
    assert [bank.stats()["gain_mean"], bank.stats()["gain_std"]] == pytest.approx(own, rel=1e-4)


def test_the_first_batch_is_believed_and_moves_no_rows():
    bank = AdaptiveMemoryBank(20, 4, "auto")
    bank.update(batches(1)[0])
    assert list(bank.stats().values())[2:6] == [1.0, 1.0, 0.0, 0.0]


def test_shift_and_stretch_of_a_known_realignment():
    """Rows 0, 2 (mean 1, std sqrt 2) go to 10, 16 (mean 13, std 3 sqrt 2): by 12 / sqrt 2, scaled by 3.

    The other dimension has no spread: it has no unit to be measured in.
    """
    bank = AdaptiveMemoryBank(8, 2, "xbn")
    bank.enqueue(torch.tensor([[0.0, 5.0], [2.0, 5.0]]))
    bank.adapt(torch.tensor([[10.0, 1.0], [16.0, 1.0]]))
    stats = bank.stats()
    assert stats["shift"] == pytest.approx(12 / math.sqrt(2))
    assert stats["stretch"] == pytest.approx(math.log(3))


def test_shift_and_stretch_are_those_of_the_rows():
    bank = AdaptiveMemoryBank(20, 4, "auto")
    for rows in batches(9):
        before = bank.embeddings.double()
        bank.adapt(rows)
        after, stats = bank.embeddings.double(), bank.stats()
        if len(before):
            moved = (after.mean(0) - before.mean(0)) / before.std(0)
            scaled = (after.std(0) / before.std(0)).log()
            assert stats["shift"] == pytest.approx(moved.square().mean().sqrt().item(), rel=1e-3)
            assert stats["stretch"] == pytest.approx(scaled.square().mean().sqrt().item(), rel=1e-3, abs=1e-6)
        bank.enqueue(rows)


def test_rejected_rows_are_counted_and_warned_about_once():
    bank = AdaptiveMemoryBank(20, 4)
    bank.update(torch.full((3, 4), torch.nan))
    with pytest.warns(UserWarning, match="3 rows with NaN or infinity were offered to the memory bank and refused"):
        assert bank.stats()["rejected_rows"] == 3
    bank.update(torch.full((1, 4), torch.inf))
    assert bank.stats()["rejected_rows"] == 4  # and says nothing more: warnings are errors here
    resumed = AdaptiveMemoryBank(20, 4)
    resumed.load_state_dict(bank.state_dict())
    assert resumed.stats()["rejected_rows"] == 4


def test_rejected_rows_are_warned_about_within_a_hundred_updates_where_nobody_asks():
    bank = AdaptiveMemoryBank(20, 4)
    good, bad = torch.randn(3, 4), torch.tensor([[torch.nan] * 4, [0.0] * 4])
    for _ in range(98):
        bank.update(good)
    bank.update(bad)
    with pytest.warns(UserWarning, match="1 rows with NaN"):
        bank.update(good)
    for _ in range(100):
        bank.update(bad)


@pytest.mark.parametrize("adapter", ["identity", "xbn", "ema", "axbn", "auto"])
def test_a_loaded_bank_tells_the_same_now_and_later(adapter):
    bank, resumed = AdaptiveMemoryBank(20, 4, adapter), AdaptiveMemoryBank(20, 4, adapter)
    for rows in batches(5):
        bank.update(rows)
    resumed.load_state_dict(bank.state_dict())
    assert resumed.stats() == bank.stats()
    for each in (bank, resumed):
        each.update(batches(6)[-1])
    assert resumed.stats() == bank.stats()
