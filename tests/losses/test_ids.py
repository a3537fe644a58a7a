"""MemoryInfoNCELoss with the ids of images: no image is its own negative."""

import copy

import pytest
import torch
import torch.nn.functional as F

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses.related import _slots_sharing
from infonce_reference import (
    blocks,  # noqa: F401  (an autouse fixture)
    make,
    views,
)


def naive(queries, keys, ids, rows, row_ids, temperature=0.1):
    """From the formula, one query and one row at a time."""
    losses = []
    for query, key, image in zip(F.normalize(queries, dim=1), F.normalize(keys, dim=1), ids, strict=True):
        logits = [query @ key / temperature]
        for row, row_image in zip(F.normalize(rows, dim=1), row_ids, strict=True):
            if row_image != image:
                logits.append(query @ row / temperature)
        losses.append(torch.stack(logits).logsumexp(0) - logits[0])
    return torch.stack(losses).mean()


def images(step, count=4, different=6):
    return torch.randint(different, (count,), generator=torch.Generator().manual_seed(100 + step))


def value_and_gradients(loss, queries, keys, *ids):
    leaves = queries.clone().requires_grad_(), keys.clone().requires_grad_()
    value = loss(*leaves, *ids)
    value.backward()
    return value.detach(), leaves[0].grad, leaves[1].grad


@pytest.mark.parametrize("temperature", [0.1, 0.01])  # 0.01: exponentials that need an offset
@pytest.mark.parametrize("adapter", ["identity", "xbn", "auto"])
def test_equals_the_formula_without_rows_of_the_same_image(adapter, temperature):
    ours = make(adapter=adapter, dtype=torch.float64, temperature=temperature)
    shadow = AdaptiveMemoryBank(12, 5, adapter, dtype=torch.float64)
    for step in range(7):
        (queries, keys), ids = (view.double() for view in views(step)), images(step)
        shadow.adapt(F.normalize(keys, dim=1))
        row_ids = torch.empty(0) if shadow.labels is None else shadow.labels
        found = value_and_gradients(ours, queries, keys, ids)
        expected = value_and_gradients(
            lambda *sides: naive(*sides, ids, shadow.embeddings, row_ids, temperature),  # noqa: B023
            queries,
            keys,
        )
        torch.testing.assert_close(found, expected)
        shadow.enqueue(F.normalize(keys, dim=1), ids)
        assert torch.equal(ours.bank.embeddings, shadow.embeddings)
        assert torch.equal(ours.bank.labels, shadow.labels)


def test_ids_that_never_come_again_change_nothing():
    with_ids, without = make(adapter="xbn"), make(adapter="xbn")
    for step in range(7):
        found = value_and_gradients(with_ids, *views(step), torch.arange(4) + 4 * step)
        torch.testing.assert_close(found, value_and_gradients(without, *views(step)), rtol=0, atol=0)


def test_gradient_is_that_of_finite_differences():
    ours, ids = make(dtype=torch.float64).eval(), torch.tensor([0, 1, 2, 2])
    rows = torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ours.bank.enqueue(rows, torch.arange(12) % 4)
    leaves = tuple(view.double().requires_grad_() for view in views(1))
    assert torch.autograd.gradcheck(lambda queries, keys: ours(queries, keys, ids), leaves)


@pytest.mark.parametrize("temperature", [0.1, 1 / 32, 0.01])
def test_a_query_all_of_whose_rows_are_its_own_image_has_loss_and_gradient_zero(temperature):
    ours = make(temperature=temperature).eval()
    ours.bank.enqueue(views(0)[0], torch.full((4,), 7))
    queries, keys = views(1)
    value, *gradients = value_and_gradients(ours, queries, keys, torch.tensor([7, 7, 7, 8]))
    alone = naive(queries[3:], keys[3:], torch.tensor([8]), ours.bank.embeddings, ours.bank.labels, temperature)
    torch.testing.assert_close(value, alone / 4)
    for gradient in gradients:
        assert gradient[:3].eq(0).all()
    value, *gradients = value_and_gradients(ours, queries, keys, torch.full((4,), 7))
    assert value == 0
    assert all(gradient.eq(0).all() for gradient in gradients)


def test_known_value():
    """Query and key (1, 0) at temperature 1; a row (1, 0) of the same image and (0, 1) of another: log(e + 1) - 1."""
    ours, query = make(size=3, dim=2, temperature=1.0), torch.tensor([[1.0, 0.0]])
    ours.bank.enqueue(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([5, 6]))
    torch.testing.assert_close(ours(query, query, torch.tensor([5])), torch.tensor(torch.e + 1).log() - 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_short_ids_are_taken(dtype):
    ours, plain = make(adapter="xbn", dtype=dtype), make(adapter="xbn", dtype=dtype)
    for step in range(4):
        queries, keys = (view.to(dtype) for view in views(step))
        found = value_and_gradients(ours, queries, keys, images(step).to(torch.uint8))
        expected = value_and_gradients(plain, queries.float(), keys.float(), images(step))
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1].to(dtype))


@pytest.mark.parametrize("way", ["state_dict", "copy"])
def test_stopped_and_resumed_it_still_knows_the_images(way):
    whole = make(adapter="auto")
    for step in range(4):
        whole(*views(step), images(step))
    resumed = copy.deepcopy(whole) if way == "copy" else make(adapter="auto")
    resumed.load_state_dict(whole.state_dict())
    for step in range(4, 8):
        assert torch.equal(resumed(*views(step), images(step)), whole(*views(step), images(step)))


def test_a_checkpoint_from_before_there_were_counts_loads():
    old, new = make(), make()
    old(*views(0))
    new.load_state_dict({name: value for name, value in old.state_dict().items() if not name.startswith("steps.")})
    assert torch.equal(new(*views(1)), old(*views(1)))


@pytest.mark.parametrize("unit", [1, 1 << 16, -(1 << 40)])  # from the second on all share their low bits
@pytest.mark.parametrize("count", [0, 1, 9])
def test_rows_that_share_a_label_are_found_whatever_the_labels(count, unit):
    generator = torch.Generator().manual_seed(count)
    for different in (3, 10**6):
        stored = unit * torch.randint(-different, different, (500,), generator=generator)
        labels = torch.cat([unit * torch.randint(-different, different, (count,), generator=generator), stored[:count]])
        known = set(labels.tolist())
        expected = [slot for slot, label in enumerate(stored.tolist()) if label in known]
        assert _slots_sharing(labels, stored).tolist() == expected
