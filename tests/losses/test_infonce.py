"""MemoryInfoNCELoss, against lightly and against the formula."""

import pytest
import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss

from adaptive_memory_bank import AdaptiveMemoryBank
from infonce_reference import (
    blocks,  # noqa: F401  (an autouse fixture)
    make,
    views,
)


def value_and_gradients(loss, queries, keys):
    leaves = queries.clone().requires_grad_(), keys.clone().requires_grad_()
    value = loss(*leaves)
    value.backward()
    return value.detach(), leaves[0].grad, leaves[1].grad


def naive(queries, keys, rows, temperature=0.1):
    queries, keys, rows = (F.normalize(x, dim=1) for x in (queries, keys, rows))
    logits = torch.cat([(queries * keys).sum(1, keepdim=True), queries @ rows.T], dim=1) / temperature
    return F.cross_entropy(logits, torch.zeros(len(queries), dtype=torch.int64))


@pytest.mark.parametrize("temperature", [0.1, 0.5, 0.01])  # 0.01: exponentials that need an offset
def test_equals_lightly_in_value_and_gradients_once_the_queue_is_full(temperature):
    ours = make(temperature=temperature)
    theirs = NTXentLoss(temperature=temperature, memory_bank_size=(12, 5))
    for step in range(9):
        result, expected = (value_and_gradients(loss, *views(step)) for loss in (ours, theirs))
        if step >= 3:  # until then lightly compares with random rows
            for found, wanted in zip(result, expected, strict=True):
                assert (found - wanted).norm() <= 1e-5 * wanted.norm() + 1e-7
    torch.testing.assert_close(ours.bank.embeddings, theirs.memory_bank.bank)


@pytest.mark.parametrize("adapter", ["xbn", "axbn", "ema", "auto"])
def test_adapts_to_the_keys_compares_and_then_enqueues(adapter):
    ours = make(adapter=adapter, dtype=torch.float64)
    for step in range(6):
        queries, keys = (view.double() for view in views(step))
        shadow = AdaptiveMemoryBank(12, 5, adapter, dtype=torch.float64)
        shadow.load_state_dict(ours.bank.state_dict())
        shadow.adapt(F.normalize(keys, dim=1))
        value = ours(queries, keys)
        torch.testing.assert_close(value, naive(queries, keys, shadow.embeddings))
        shadow.enqueue(F.normalize(keys, dim=1))
        assert torch.equal(ours.bank.embeddings, shadow.embeddings)


def test_a_symmetric_loss_with_one_backward():
    ours, bank = make(adapter="xbn", dtype=torch.float64), AdaptiveMemoryBank(12, 5, "xbn", dtype=torch.float64)
    for step in range(5):
        pair = [view.double().requires_grad_() for view in views(step)]
        copy = [view.detach().clone().requires_grad_() for view in pair]
        (ours(pair[0], pair[1].detach()) + ours(pair[1], pair[0].detach())).backward()
        expected = 0
        for queries, keys in (copy, copy[::-1]):
            unit = F.normalize(keys.detach(), dim=1)
            bank.adapt(unit)
            expected = expected + naive(queries, keys.detach(), bank.embeddings)
            bank.enqueue(unit)
        expected.backward()
        for found, wanted in zip(pair, copy, strict=True):
            torch.testing.assert_close(found.grad, wanted.grad)


def test_known_value():
    """Query and key (1, 0), one negative (0, 1), temperature 1: log(e^1 + e^0) - 1."""
    ours = make(size=3, dim=2, temperature=1.0)
    ours.bank.enqueue(torch.tensor([[0.0, 1.0]]))
    query = torch.tensor([[1.0, 0.0]])
    torch.testing.assert_close(ours(query, 7 * query), torch.tensor(torch.e + 1).log() - 1)
    assert ours.bank.embeddings.tolist() == [[0.0, 1.0], [1.0, 0.0]]  # the key, at unit length


def test_gradient_is_that_of_finite_differences():
    ours = make(dtype=torch.float64).eval()
    ours.bank.enqueue(torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    assert torch.autograd.gradcheck(ours, tuple(view.double().requires_grad_() for view in views(1)))


@pytest.mark.parametrize("temperature", [0.1, 0.01])
def test_an_empty_bank_gives_zero_and_gradient_zero(temperature):
    value, *gradients = value_and_gradients(make(temperature=temperature), *views(0))
    assert value == 0
    assert all(gradient.eq(0).all() for gradient in gradients)


def test_eval_mode_leaves_the_bank_as_it_is():
    ours = make(adapter="xbn")
    ours(*views(0))
    before = ours.bank.embeddings
    torch.testing.assert_close(ours.eval()(*views(1)), naive(*views(1), before))
    assert torch.equal(ours.bank.embeddings, before)


def test_what_is_not_finite_gives_nan_and_leaves_the_bank_clean():
    ours = make(adapter="xbn")
    ours(*views(0))
    queries, keys = views(1)
    keys[0, 0] = torch.inf
    assert ours(queries, keys).isnan()
    assert ours.bank.embeddings.isfinite().all()
    assert ours.bank.rejected_rows == 1
    assert ours(*views(2)).isfinite()


def test_autocast_and_half_precision_are_compared_at_the_precision_of_the_bank():
    ours, plain = make(adapter="xbn"), make(adapter="xbn")
    for step in range(3):
        queries, keys = (view.bfloat16() for view in views(step))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value, gradient, _ = value_and_gradients(ours, queries, keys)
        expected, expected_gradient, _ = value_and_gradients(plain, queries.float(), keys.float())
        assert torch.equal(value, expected)
        assert torch.equal(gradient, expected_gradient.bfloat16())


def test_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="`temperature` must be a positive number, got -1"):
        make(temperature=-1)
    loss = make()
    with pytest.raises(ValueError, match=r"`keys` must have shape \(B, 5\) but has shape \(4, 6\)"):
        loss(torch.zeros(4, 5), torch.zeros(4, 6))
    with pytest.raises(ValueError, match=r"`keys` must have shape \(4, 5\) but has shape \(3, 5\)"):
        loss(torch.zeros(4, 5), torch.zeros(3, 5))
    with pytest.raises(TypeError, match=r"`queries` must be a floating point tensor, got torch\.int64"):
        loss(torch.zeros(4, 5, dtype=torch.int64), torch.zeros(4, 5))
    with pytest.raises(TypeError, match=r"`ids` must be a tensor of integers, got torch\.float32"):
        loss(torch.zeros(4, 5), torch.zeros(4, 5), torch.zeros(4))
    with pytest.raises(ValueError, match=r"`ids` must have shape \(4,\), one per row, got \(3,\)"):
        loss(torch.zeros(4, 5), torch.zeros(4, 5), torch.arange(3))
    assert len(loss.bank) == 0
    loss.bank.enqueue(torch.zeros(2, 5), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="This bank holds labelled rows"):
        loss(torch.zeros(4, 5), torch.zeros(4, 5))
    unlabelled = make()
    unlabelled(*views(0))
    with pytest.raises(ValueError, match="This bank holds unlabelled rows and was given rows with labels"):
        unlabelled(*views(0), torch.arange(4))
    assert repr(loss).startswith("MemoryInfoNCELoss(\n  temperature=0.1, batch_negatives=False\n")
