"""The ring on its own: where rows land, and every way to read them. Values against the literal formula: test_bank."""

import pytest
import torch

from adaptive_memory_bank import Moments
from adaptive_memory_bank import ring as ring_module
from adaptive_memory_bank.ring import LazyRing


def random_rows(seed, count, dim=3):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def realigned_ring(size=10, count=7):
    """A ring whose map is not the identity."""
    ring = LazyRing(size, 3, torch.float64)
    ring.write(random_rows(0, count), torch.arange(count))
    ring.realign(Moments.of(5 + 2 * random_rows(1, 6)))
    return ring


@pytest.mark.parametrize(
    ("cursor", "count", "slots"),
    [(0, 3, [0, 1, 2]), (3, 4, [3, 4, 0, 1]), (3, 0, []), (3, 7, [-1, -1, 0, 1, 2, 3, 4])],  # size 5
)
def test_next_slots_are_where_a_write_puts_the_rows(cursor, count, slots):
    ring = LazyRing(5, 1, torch.float32)
    ring.write(torch.full((cursor, 1), -1.0), None)
    assert ring.next_slots(count).tolist() == slots
    values = torch.arange(float(count))[:, None]
    ring.write(values, None)
    for value, slot in zip(values, slots, strict=True):
        if slot >= 0:
            assert ring.read()[slot] == value


def test_parts_slots_and_blocks_are_read_as_all_rows_are(monkeypatch):
    ring = realigned_ring()
    rows = ring.read()
    assert rows.shape == (7, 3)
    assert torch.equal(ring.read(2, 5), rows[2:5])
    assert torch.equal(ring.read(5, 10), rows[5:])  # never an unfilled slot
    assert torch.equal(ring.gather(torch.tensor([4, 0, 4])), rows[[4, 0, 4]])
    out = torch.empty(2, 3, dtype=torch.float64)
    assert ring.read(1, 3, out=out) is out
    assert torch.equal(out, rows[1:3])
    monkeypatch.setattr(ring_module, "BLOCK_BYTES", 2 * 3 * 8)  # two rows of three doubles
    blocks = list(ring.blocks())
    assert [len(block) for block in blocks] == [2, 2, 2, 1]
    assert torch.equal(torch.cat(blocks), rows)


def test_folding_changes_neither_rows_nor_moments():
    ring = realigned_ring()
    rows, moments = ring.read(), ring.moments
    ring.fold()
    torch.testing.assert_close(ring.read(), rows)
    torch.testing.assert_close(ring.moments.std, moments.std)
    assert ring.map.is_identity


@pytest.mark.parametrize(("count", "cursor"), [(4, 4), (10, 0), (10, 6)])
def test_restored_rows_are_in_their_slots_and_the_next_goes_to_the_cursor(count, cursor):
    ring, rows = realigned_ring(), random_rows(3, count)
    ring.restore(rows, torch.arange(count) + 50, cursor)
    assert torch.equal(ring.read(), rows)
    assert ring.labels.tolist() == list(range(50, 50 + count))
    torch.testing.assert_close(ring.moments.mean, rows.mean(0))
    ring.write(torch.zeros(1, 3, dtype=torch.float64), torch.tensor([99]))
    assert ring.read()[cursor].eq(0).all()
    assert ring.labels[cursor] == 99
    assert ring.count == max(count, cursor + 1)
