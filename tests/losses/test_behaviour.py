"""MemorySupConLoss: gradients, precision, state, ranks, errors."""

import copy

import pytest
import torch
import torch.multiprocessing as mp
from torch.utils._python_dispatch import TorchDispatchMode

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemorySupConLoss, walk
from distributed_losses import SIZES, batch, work
from supcon_reference import (
    blocks,  # noqa: F401  (an autouse fixture)
    make,
    naive,
    random_batch,
    value_and_gradient,
)


def test_two_forwards_then_one_backward():
    together, apart = make(10, adapter="axbn"), make(10, adapter="axbn")
    leaves, losses = [], []
    for step in range(4):
        rows, labels = random_batch(step)
        leaves.append(rows.clone().requires_grad_())
        losses.append(together(leaves[-1], labels))
    sum(losses).backward()
    for step, leaf in enumerate(leaves):
        assert torch.equal(leaf.grad, value_and_gradient(apart, *random_batch(step))[1])


def test_gradient_is_that_of_finite_differences():
    ours = make(16, dtype=torch.float64, batch_weight=1.0).eval()
    ours.bank.enqueue(random_batch(0, count=16)[0].double(), random_batch(0, count=16)[1])
    rows, labels = random_batch(1)
    assert torch.autograd.gradcheck(lambda queries: ours(queries, labels), rows.double().requires_grad_())


def test_queries_that_are_not_finite_give_nan_and_leave_the_bank_clean():
    ours, clean = make(20, mine=False), make(20, mine=False)
    rows, labels = random_batch(0)
    for value in (torch.nan, torch.inf):
        broken = rows.clone()
        broken[2, 1] = value
        loss, gradient = value_and_gradient(ours, broken, labels)
        assert loss.isnan()
        assert gradient.isnan().any()
        keep = torch.arange(8) != 2
        clean(rows[keep], labels[keep])
        assert ours.last_pairs == clean.last_pairs
    assert ours.bank.embeddings.isfinite().all()
    assert ours(rows, labels).isfinite()


def test_queries_without_pairs_and_an_empty_bank_give_zero_and_gradient_zero():
    for temperature in (0.1, 0.01):
        value, gradient = value_and_gradient(make(9, temperature=temperature).eval(), *random_batch(0))
        assert value == 0
        assert gradient.eq(0).all()
    loss = make(9, temperature=0.01)
    rows = torch.eye(6)
    rows[5] = rows[4] + 0.3 * rows[3]  # the only pair; all others are at a distance of about sqrt(2)
    labels = torch.tensor([0, 1, 2, 3, 4, 4])
    _, gradient = value_and_gradient(loss, rows, labels)
    assert gradient.isfinite().all()
    assert loss.last_pairs == (2, 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_queries_of_any_precision_are_compared_at_the_precision_of_the_bank(dtype):
    ours, exact = make(20, adapter="xbn"), make(20, adapter="xbn")
    for step in range(4):
        rows, labels = random_batch(step)
        value, gradient = value_and_gradient(ours, rows.to(dtype), labels)
        expected, expected_gradient = value_and_gradient(exact, rows.to(dtype).float(), labels)
        assert torch.equal(value, expected)
        assert gradient.dtype == dtype
        assert torch.equal(gradient, expected_gradient.to(dtype))


def test_autocast_changes_nothing():
    ours, plain = make(20, adapter="xbn", batch_weight=1.0), make(20, adapter="xbn", batch_weight=1.0)
    for step in range(4):
        rows, labels = random_batch(step)
        leaf = rows.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = ours(leaf, labels)
        value.backward()  # outside, as PyTorch asks for
        expected, expected_gradient = value_and_gradient(plain, rows, labels)
        assert torch.equal(value, expected)
        assert torch.equal(leaf.grad, expected_gradient)


def test_a_bank_in_half_precision_is_read_as_it_is_stored():
    ours = make(20, adapter="xbn", dtype=torch.bfloat16)
    for step in range(4):
        rows, labels = random_batch(step)
        value, bank = ours(rows, labels), ours.bank
        torch.testing.assert_close(value, naive(rows, labels, bank.embeddings, bank.labels, bank.last_slots))


def test_without_gradients_the_value_is_the_same():
    ours, plain = make(20), make(20)
    for step in range(3):
        rows, labels = random_batch(step)
        with torch.no_grad():
            value = ours(rows.requires_grad_(), labels)
        assert not value.requires_grad
        assert torch.equal(value, plain(rows, labels).detach())


def test_eval_mode_leaves_the_bank_as_it_is():
    ours = make(20, adapter="axbn")
    ours(*random_batch(0))
    before = ours.bank.embeddings
    value, gradient = value_and_gradient(ours.eval(), *random_batch(1))
    assert value > 0
    assert gradient.ne(0).any()
    assert torch.equal(ours.bank.embeddings, before)
    torch.testing.assert_close(value, naive(*random_batch(1), before, ours.bank.labels, [-1] * 8))


class Largest(TorchDispatchMode):
    """Notes the most numbers that any tensor made inside has."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and not tensor._is_view():
                self.numbers = max(self.numbers, tensor.numel())
        return result


def test_neither_the_similarities_nor_a_copy_of_the_bank_are_ever_made(monkeypatch):
    monkeypatch.setitem(walk.BLOCK_BYTES, "cpu", 1 << 16)
    size = 16_384  # so that an eighth of the similarities is more than the table of labels
    ours = make(size, dim=64, adapter="axbn")
    ours.bank.enqueue(torch.rand(size, 64), torch.randint(0, 1000, (size,)))
    ours(torch.rand(64, 64), torch.arange(64))  # the map is folded at the end of a lap: keep away from it
    with Largest() as largest:
        value_and_gradient(ours, torch.rand(64, 64) + 1, torch.arange(64))
    assert largest.numbers <= 64 * size / 8
    with Largest() as proof:  # that this would be seen
        ours.bank.similarity(torch.rand(64, 64))
    assert proof.numbers == 64 * size


def test_pairs_are_counted_on_the_device_and_become_numbers_when_read():
    ours = make(20, mine=False)
    assert ours.last_pairs == (0, 0)
    ours(*random_batch(0))
    assert all(type(number) is int for number in ours.last_pairs)
    assert ours.last_pairs == copy.deepcopy(ours).last_pairs != (0, 0)


def test_a_broken_query_without_any_pair_still_gives_a_gradient_of_nan():
    rows, labels = torch.eye(6)[:3], torch.arange(3)
    rows[2, 1] = torch.nan
    value, gradient = value_and_gradient(make(9), rows, labels)
    assert value.isnan()
    assert gradient.isnan().any()


def test_state_is_the_banks():
    ours, loaded = make(20, adapter="axbn"), make(20, adapter="axbn")
    for step in range(4):
        ours(*random_batch(step))
    loaded.load_state_dict(ours.state_dict())
    assert torch.equal(loaded(*random_batch(4)), ours(*random_batch(4)))
    settings = "temperature=0.1, pos_margin=0.2, neg_margin=0.8, batch_weight=0.0, start_after=0"
    assert repr(ours).startswith(f"MemorySupConLoss(\n  {settings}\n  (bank): ")


def test_on_two_ranks_a_query_is_left_out_where_its_own_row_landed(tmp_path, request):
    if "many" in request.node.name:
        pytest.skip("once is enough")
    mp.spawn(work, args=(str(tmp_path),), nprocs=2)
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    bank = AdaptiveMemoryBank(11, 3, "xbn", dtype=torch.float64)
    for step, sizes in enumerate(SIZES):
        both = [batch(step, rank) for rank in (0, 1)]
        bank.update(torch.cat([rows for rows, _ in both]), torch.cat([labels for _, labels in both]))
        for rank, own in enumerate(bank.rows_in(bank.last_slots).split(sizes)):
            rows, labels = both[rank]
            if rows.isfinite().all():
                expected = naive(rows, labels, bank.embeddings, bank.labels, own, mine=False)
                torch.testing.assert_close(ranks[rank][step], expected, rtol=1e-7, atol=1e-9)
            else:
                assert ranks[rank][step].isnan()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"temperature": 0}, ValueError, "`temperature` must be a positive number, got 0"),
        ({"temperature": "hot"}, ValueError, "`temperature` must be a positive number, got 'hot'"),
        ({"temperature": float("nan")}, ValueError, "`temperature` must be a positive number, got nan"),
        ({"pos_margin": None}, ValueError, "`pos_margin` must be a number, got None"),
        ({"neg_margin": float("nan")}, ValueError, "`neg_margin` must be a number, got nan"),
        ({"batch_weight": -1}, ValueError, "`batch_weight` must not be negative, got -1"),
    ],
)
def test_refuses_settings(options, error, message):
    with pytest.raises(error, match=message):
        make(4, **options)


def test_refuses_what_is_no_bank_and_batches_that_do_not_fit():
    with pytest.raises(TypeError, match="`bank` must be an AdaptiveMemoryBank, got Linear"):
        MemorySupConLoss(torch.nn.Linear(2, 2))
    for loss in (make(4), make(4).eval()):
        with pytest.raises(ValueError, match=r"`queries` must have shape \(B, 6\) but has shape \(2, 5\)"):
            loss(torch.zeros(2, 5), torch.zeros(2, dtype=torch.int64))
        with pytest.raises(ValueError, match=r"`labels` must have shape \(2,\)"):
            loss(torch.zeros(2, 6), torch.zeros(3, dtype=torch.int64))
        with pytest.raises(TypeError, match="`labels` must be a tensor of integers, got None"):
            loss(torch.zeros(2, 6), None)
        assert len(loss.bank) == 0
    unlabelled = make(4)
    unlabelled.bank.enqueue(torch.zeros(2, 6))
    with pytest.raises(ValueError, match="This bank holds unlabelled rows"):
        unlabelled(torch.zeros(2, 6), torch.zeros(2, dtype=torch.int64))


def test_a_copy_shares_no_memory_with_the_original_and_goes_on_alike():
    loss = make(20, adapter="auto")
    loss(*random_batch(0))
    other = copy.deepcopy(loss)
    assert other._workspace is not loss._workspace
    for step in (1, 2):
        assert torch.equal(loss(*random_batch(step)), other(*random_batch(step)))
