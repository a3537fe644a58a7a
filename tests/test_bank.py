"""The ring and the adaptation: the bank against the literal formula."""

import math
import subprocess
import sys

import pytest
import torch

from adaptive_memory_bank import AXBN, EMA, AdaptiveMemoryBank, Moments
from reference import NaiveAdapter, NaiveBank

NAMES = ("identity", "xbn", "ema", "axbn", "auto")
every_adapter = pytest.mark.parametrize("name", NAMES)


def drifting_batches(steps, batch_size, dim, *, seed=0, speed=0.2):
    """Rows in classes of 4 whose mean and spread walk quickly."""
    generator = torch.Generator().manual_seed(seed)
    mean, log_std = torch.zeros(dim), torch.zeros(dim)
    for _ in range(steps):
        labels = torch.randint(0, 50, (batch_size // 4,), generator=generator).repeat_interleave(4)
        rows = mean + log_std.exp() * torch.randn(batch_size, dim, generator=generator)
        yield rows + 0.5 * labels[:, None].remainder(3), labels
        mean = (mean + speed * torch.randn(dim, generator=generator)).clamp(-3, 3)
        log_std = (log_std + speed * torch.randn(dim, generator=generator)).clamp(-1, 1)


@every_adapter
def test_it_equals_the_literal_formula_after_thousands_of_steps_of_strong_drift(name):
    bank = AdaptiveMemoryBank(size=500, dim=8, adapter=name)
    naive = NaiveBank(500, 8, NaiveAdapter(name))
    for step, (rows, labels) in enumerate(drifting_batches(3000, 32, 8)):  # 192 laps of the ring
        bank.update(rows, labels)
        naive.update(rows, labels)
        if step % 500 == 499:
            naive.assert_equals(bank)
    naive.assert_equals(bank)


def test_moco_s_order_adapts_to_the_keys_before_they_are_stored():
    bank = AdaptiveMemoryBank(size=12, dim=3, adapter="xbn")
    naive = NaiveBank(12, 3, NaiveAdapter("xbn"))
    for rows, _ in drifting_batches(20, 8, 3):
        for one in (bank, naive):
            one.adapt(rows)
        naive.assert_equals(bank)
        if len(bank):
            torch.testing.assert_close(bank.embeddings.mean(0), rows.mean(0), rtol=1e-5, atol=1e-5)
        for one in (bank, naive):
            one.enqueue(rows)
        naive.assert_equals(bank)


@every_adapter
def test_moments_are_those_of_the_rows_it_serves(name):
    bank = AdaptiveMemoryBank(size=50, dim=4, adapter=name)
    for rows, labels in drifting_batches(40, 16, 4):
        bank.update(rows, labels)
        expected = Moments.of(bank.embeddings)
        for field in ("mean", "std", "mean_variance", "std_variance"):
            torch.testing.assert_close(getattr(bank.moments, field), getattr(expected, field), rtol=1e-4, atol=1e-5)
        assert bank.moments.count == len(bank)


def test_a_batch_that_crosses_the_end_loses_nothing():
    bank = AdaptiveMemoryBank(size=5, dim=1, adapter="identity")
    for start in (0, 3, 6):
        bank.update(torch.arange(start, start + 3.0)[:, None], torch.arange(start, start + 3))
    # slots after 0..8 in a ring of 5: 5 6 7 8 and, oldest, 4 in its place
    assert bank.labels.tolist() == [5, 6, 7, 8, 4]
    assert bank.embeddings[:, 0].tolist() == [5, 6, 7, 8, 4]


@pytest.mark.parametrize("batch_size", [5, 7, 10, 23])
def test_a_batch_larger_than_the_bank_leaves_its_newest_rows(batch_size):
    bank, naive = AdaptiveMemoryBank(5, 1, "identity"), NaiveBank(5, 1, NaiveAdapter("identity"))
    for start in (100, 200):
        rows, labels = torch.arange(start, start + float(batch_size))[:, None], torch.arange(start, start + batch_size)
        bank.update(rows, labels)
        naive.update(rows, labels)
        naive.assert_equals(bank)
        assert sorted(bank.labels.tolist()) == labels[-5:].tolist()


def test_unfilled_rows_are_never_served_nor_counted():
    bank = AdaptiveMemoryBank(size=10, dim=2, adapter="xbn")
    assert len(bank) == 0
    assert bank.embeddings.shape == (0, 2)
    assert bank.similarity(torch.randn(3, 2)).shape == (3, 0)
    assert bank.labels is None
    bank.update(torch.full((4, 2), 7.0))
    assert bank.embeddings.tolist() == [[7.0, 7.0]] * 4
    assert bank.moments.count == 4
    assert bank.moments.mean.tolist() == [7.0, 7.0]
    assert not bank.is_full


def test_the_filter_observes_also_while_the_bank_is_empty():
    bank = AdaptiveMemoryBank(size=4, dim=1, adapter=EMA(0.5))
    bank.adapt(torch.tensor([[0.0], [2.0]]))
    bank.adapt(torch.tensor([[4.0], [6.0]]))
    assert bank.adapter.mean.item() == 3.0  # 0.5 * 1 + 0.5 * 5


def test_degenerate_dimensions_match_the_mean_only():
    bank = AdaptiveMemoryBank(size=8, dim=3, adapter="xbn")
    first = torch.tensor([[1.0, 2.0, -1.0], [1.0, 4.0, 1.0]])  # no spread in column 0
    second = torch.tensor([[5.0, 9.0, 0.0], [7.0, 9.0, 4.0]])  # no spread in column 1
    bank.update(first)
    bank.adapt(second)
    # column 0: moved to 6, column 1: moved to 9 with its own spread, column 2: spread doubled about 2
    torch.testing.assert_close(bank.embeddings, torch.tensor([[6.0, 8.0, 0.0], [6.0, 10.0, 4.0]]))


def test_a_single_stored_row_takes_the_mean():
    bank = AdaptiveMemoryBank(size=8, dim=1, adapter="xbn")
    bank.enqueue(torch.tensor([[5.0]]))
    bank.adapt(torch.tensor([[0.0], [2.0]]))
    assert bank.embeddings.tolist() == [[1.0]]


@pytest.mark.parametrize("count", [0, 1])
def test_a_batch_without_spread_realigns_nothing(count):
    bank = AdaptiveMemoryBank(size=8, dim=2, adapter="xbn")
    bank.update(torch.randn(4, 2))
    before = bank.embeddings
    bank.adapt(torch.full((count, 2), 9.0))
    assert torch.equal(bank.embeddings, before)
    bank.update(torch.full((count, 2), 9.0))
    assert len(bank) == 4 + count


@every_adapter
def test_constant_batches_never_make_nan(name):
    bank = AdaptiveMemoryBank(size=6, dim=2, adapter=name)
    for level in (0.0, 0.0, 1e6, -3.0, 0.0):
        bank.update(torch.full((4, 2), level))
        assert bank.embeddings.isfinite().all()


@every_adapter
def test_rows_that_are_not_finite_stay_outside_and_are_counted(name):
    bank, clean = AdaptiveMemoryBank(24, 2, name), AdaptiveMemoryBank(24, 2, name)
    good, labels = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 0, 1, 1, 2, 2])
    bad = torch.tensor([[math.nan, 0.0], [0.0, math.inf], [1e25, 0.0]])
    for _ in range(2):
        bank.update(torch.cat([good[:3], bad, good[3:]]), torch.cat([labels[:3], labels[:3], labels[3:]]))
        clean.update(good, labels)
    bank.update(bad, torch.zeros(3, dtype=torch.int64))
    torch.testing.assert_close(bank.embeddings, clean.embeddings)
    assert torch.equal(bank.labels, clean.labels)
    assert len(bank) == len(clean) == 12
    assert (bank.rejected_rows, clean.rejected_rows) == (9, 0)
    torch.testing.assert_close(bank.moments.mean, clean.moments.mean)
    torch.testing.assert_close(bank.moments.std, clean.moments.std)
    expected = torch.full((6, 21), -math.inf)  # a column per slot
    expected[:, ~bank.ring.gaps] = clean.similarity(good)
    torch.testing.assert_close(bank.similarity(good), expected)


@every_adapter
def test_a_batch_of_which_one_row_is_left_is_stored_and_not_adapted_to(name):
    bank, clean = AdaptiveMemoryBank(20, 2, name), AdaptiveMemoryBank(20, 2, name)
    refused = torch.tensor([[math.nan, 0.0], [1.0, 2.0], [math.inf, 0.0]])
    for step, (rows, labels) in enumerate(drifting_batches(4, 4, 2)):
        bank.update(rows, labels)
        clean.update(rows, labels)
        if step == 1:
            bank.update(refused, torch.arange(3))
            clean.update(refused[1:2], torch.arange(1, 2))
        torch.testing.assert_close(bank.embeddings, clean.embeddings)
    assert (bank.cursor, len(bank)) == (19, 17)


def test_refused_rows_before_any_other_leave_nothing_behind():
    bank = AdaptiveMemoryBank(8, 2, "auto")
    bank.update(torch.full((3, 2), math.nan))
    assert (len(bank), bank.cursor, bank.embeddings.shape) == (0, 3, (0, 2))
    rows = 1000 + torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    bank.update(rows)
    torch.testing.assert_close(bank.embeddings, rows)
    torch.testing.assert_close(bank.moments.std, rows.std(0), rtol=1e-3, atol=0)


@pytest.mark.parametrize(("dtype", "huge"), [(torch.float32, 1e30), (torch.float64, 1e200)])
def test_a_row_whose_square_leaves_the_range_is_refused_and_the_others_are_not(dtype, huge):
    bank = AdaptiveMemoryBank(size=4, dim=1, adapter="identity", dtype=dtype)
    bank.update(torch.tensor([[huge], [1.0]], dtype=dtype))
    assert bank.embeddings.tolist() == [[1.0]]
    bank.update(torch.tensor([[8e14], [8e14]], dtype=dtype))  # storable, each by itself
    assert len(bank) == 3


def test_a_row_too_large_for_half_precision_is_not_finite_there():
    bank = AdaptiveMemoryBank(size=4, dim=1, adapter="identity", dtype=torch.float16)
    bank.update(torch.tensor([[1e5], [1.0]]))
    assert bank.embeddings.tolist() == [[1.0]]
    assert bank.rejected_rows == 1


def test_reset_equals_new():
    for name in NAMES:
        used, new = AdaptiveMemoryBank(10, 4, name), AdaptiveMemoryBank(10, 4, name)
        for rows, labels in drifting_batches(5, 8, 4):
            used.update(rows * torch.tensor([1.0, 1.0, 1.0, math.nan]) if len(used) else rows, labels)
        used.reset()
        assert str(used.state_dict()) == str(new.state_dict())
        for rows, _ in drifting_batches(5, 8, 4, seed=1):
            used.update(rows)  # also: labels are optional again
            new.update(rows)
        assert torch.equal(used.embeddings, new.embeddings)


def test_embeddings_and_labels_are_safe_to_keep():
    bank = AdaptiveMemoryBank(size=4, dim=2, adapter="identity")
    bank.update(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64))
    kept, labels = bank.embeddings, bank.labels
    bank.update(torch.full((4, 2), 5.0), torch.ones(4, dtype=torch.int64))
    assert kept.tolist() == [[1.0, 1.0]] * 4
    assert labels.tolist() == [0] * 4
    kept.zero_()
    assert bank.embeddings.tolist() == [[5.0, 5.0]] * 4


def test_it_is_invisible_to_buffers_but_not_to_state_dict():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), AdaptiveMemoryBank(4, 2, AXBN()))
    assert list(model.buffers()) == []
    assert [type(module).__name__ for module in model.modules()] == ["Sequential", "Linear", "AdaptiveMemoryBank"]
    names = {name.removeprefix("1.") for name in model.state_dict()}
    stored = {"ring.stored", "ring.stored_labels", "ring.stored_mean", "ring.stored_m2"}
    assert stored | {"ring.map.scale", "ring.map.shift", "adapter.gain"} <= names


def test_importing_it_loads_torch_and_nothing_heavier():
    heavy = "torchvision lightly pytorch_metric_learning timm wandb pytorch_lightning lightning sklearn PIL plotly tqdm"
    code = (
        "import torch, sys; before = set(sys.modules); import adaptive_memory_bank;"
        "import adaptive_memory_bank.losses, adaptive_memory_bank.metrics;"
        f"print(sorted(set('{heavy}'.split()) & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_repr_tells_size_fill_and_adapter():
    bank = AdaptiveMemoryBank(4, 2, EMA(0.5))
    assert "size=4, dim=2, filled=0" in repr(bank)
    assert "EMA(momentum=0.5)" in repr(bank)


def test_last_slots_tell_where_the_rows_of_the_last_enqueue_landed():
    bank = AdaptiveMemoryBank(size=5, dim=1, adapter="identity")
    bank.update(torch.arange(3.0)[:, None])
    bank.update(torch.tensor([[3.0], [math.nan], [5.0], [6.0]]))  # slots 3, 4 (a gap), 0 and 1
    assert bank.last_slots.tolist() == [3, -1, 0, 1]
    assert bank.rows_in(bank.last_slots).tolist() == [3, -1, 0, 1]
    bank.update(torch.tensor([[7.0], [8.0]]))
    assert bank.embeddings.flatten().tolist() == [5.0, 6.0, 7.0, 8.0]  # slot 4 is the gap still
    bank.update(torch.tensor([[math.nan], [9.0]]))
    assert (bank.last_slots.tolist(), bank.rows_in(bank.last_slots).tolist()) == ([-1, 0], [-1, 0])
    assert bank.embeddings.flatten().tolist() == [9.0, 6.0, 7.0, 8.0]
    bank.update(torch.arange(7.0)[:, None])  # two more than it holds: the first two do not stay
    assert bank.last_slots.tolist() == [-1, -1, 3, 4, 0, 1, 2]


def test_update_is_take_adapt_and_store():
    whole, parts = AdaptiveMemoryBank(10, 4, "auto"), AdaptiveMemoryBank(10, 4, "auto")
    for rows, labels in drifting_batches(5, 8, 4):
        rows[2] = math.nan
        whole.update(rows, labels)
        batch = parts.take(rows, labels)
        assert batch.kept.tolist() == [index != 2 for index in range(8)]
        parts.adapt_to(batch)
        parts.store(batch)
        assert str(whole.state_dict()) == str(parts.state_dict())


def test_restored_rows_are_read_back_and_the_filter_stays():
    bank = AdaptiveMemoryBank(4, 2, "xbn")
    bank.update(torch.randn(4, 2), torch.arange(4))
    bank.restore(torch.eye(2), torch.tensor([7, 8]), cursor=2)
    assert torch.equal(bank.embeddings, torch.eye(2))
    assert (bank.labels.tolist(), bank.cursor, bank.is_full) == ([7, 8], 2, False)


def test_a_released_adapter_may_serve_another_bank():
    bank = AdaptiveMemoryBank(4, 2, "ema")
    assert AdaptiveMemoryBank(8, 2, bank.release_adapter()).adapter is bank.adapter


def test_a_model_with_a_bank_can_be_initialised_by_apply():
    bank, seen = AdaptiveMemoryBank(4, 2, "ema"), []
    torch.nn.Sequential(bank).apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["AffineMap", "LazyRing", "EMA", "AdaptiveMemoryBank", "Sequential"]
