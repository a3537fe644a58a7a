"""MemoryInfoNCELoss with the other keys of the batch as negatives, too."""

import pytest
import torch
import torch.nn.functional as F

from adaptive_memory_bank import AdaptiveMemoryBank
from infonce_reference import (
    blocks,  # noqa: F401  (an autouse fixture)
    make,
    views,
)


def naive(queries, keys, ids, bank, temperature):
    """The loss written out: one query at a time, its key first, then the other keys, then the rows."""
    queries, keys, rows = (F.normalize(each, dim=1) for each in (queries, keys, bank.embeddings))
    row_ids = torch.full((len(rows),), -1) if bank.labels is None else bank.labels
    losses = []
    for index, query in enumerate(queries):
        logits = [query @ keys[index]]
        logits += [query @ key for other, key in enumerate(keys) if other != index and ids[other] != ids[index]]
        logits += [query @ row for row, image in zip(rows, row_ids, strict=True) if image != ids[index]]
        logits = torch.stack(logits) / temperature
        losses.append(logits.logsumexp(0) - logits[0])
    return torch.stack(losses).mean()


def gradients(loss, pair):
    leaves = [view.clone().requires_grad_() for view in pair]
    value = loss(*leaves)
    value.backward()
    return value.detach(), *(leaf.grad for leaf in leaves)


@pytest.mark.parametrize("temperature", [0.1, 0.01])
@pytest.mark.parametrize("adapter", ["identity", "auto"])
@pytest.mark.parametrize("with_ids", [False, True])
def test_equals_the_written_out_loss_in_value_and_in_both_gradients(with_ids, adapter, temperature):
    ours = make(adapter=adapter, dtype=torch.float64, temperature=temperature, batch_negatives=True)
    shadow = AdaptiveMemoryBank(12, 5, adapter, dtype=torch.float64)
    for step in range(5):  # from an empty bank to one that wraps
        pair = [view.double() for view in views(step)]
        ids = torch.tensor([step, 7, 7, step + 1]) if with_ids else torch.arange(4)
        shadow.adapt(F.normalize(pair[1], dim=1))
        found = gradients(lambda *sides: ours(*sides, ids if with_ids else None), pair)  # noqa: B023
        wanted = gradients(lambda *sides: naive(*sides, ids, shadow, temperature), pair)  # noqa: B023
        torch.testing.assert_close(found, wanted)
        shadow.enqueue(F.normalize(pair[1], dim=1), ids if with_ids else None)


def test_known_value():
    """Two queries on their keys, at a right angle to each other, an empty bank, temperature 1: log(e^1 + e^0) - 1."""
    loss = make(size=4, dim=2, temperature=1.0, batch_negatives=True)
    rows = torch.eye(2)
    torch.testing.assert_close(loss(rows, rows), torch.tensor(torch.e + 1).log() - 1)
    torch.testing.assert_close(loss.stats(), {"steps": 1.0, "empty_steps": 0.0})


def test_one_image_in_the_whole_batch_has_no_negatives():
    loss = make(batch_negatives=True)
    value, *found = gradients(lambda *sides: loss(*sides, torch.zeros(4, dtype=torch.int64)), views(0))
    assert value == 0
    assert all(gradient.eq(0).all() for gradient in found)
    assert loss.stats()["empty_steps"] == 1


def test_the_setting_is_shown():
    assert "batch_negatives=True" in repr(make(batch_negatives=True))
