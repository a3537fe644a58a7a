import pytest
import torch
import torch.nn.functional as F

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.diagnostics import Drift, DriftAverage, Staleness, StoredSources, feature_drift


def test_drift_is_the_distance_between_embeddings_of_the_same_images():
    # Rows move by (3, 4), (0, 0) and (0, 1): distances 5, 0 and 1.
    before = torch.zeros(3, 2)
    after = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]])
    assert feature_drift(before, after) == Drift(mean=2.0, max=5.0)


def test_drift_needs_the_same_images_twice():
    with pytest.raises(ValueError, match=r"`after` must have shape \(3, 2\) but has shape \(2, 2\)"):
        feature_drift(torch.zeros(3, 2), torch.zeros(2, 2))


def test_an_epochs_drift_is_the_mean_over_its_steps():
    average = DriftAverage()
    for mean, largest in ((1.0, 2.0), (2.0, 4.0), (6.0, 9.0)):
        average.add(Drift(mean, largest))
    assert average.pop() == pytest.approx({"drift/mean": 3.0, "drift/max": 5.0})
    assert average.pop() == {}


def test_an_average_goes_on_from_its_state():
    first, second = DriftAverage(), DriftAverage()
    first.add(Drift(1.0, 2.0))
    second.load_state_dict(first.state_dict())
    for average in (first, second):
        average.add(Drift(3.0, 4.0))
    assert first.pop() == second.pop()


@pytest.mark.parametrize("batches", [1, 3, 7], ids=["part", "full", "wrapped"])
def test_sources_follow_the_ring_slot_by_slot(batches):
    generator = torch.Generator().manual_seed(0)
    bank, sources = AdaptiveMemoryBank(10, 4, "identity"), StoredSources(10, 4)
    shown: dict[int, torch.Tensor] = {}
    for batch in range(batches):
        rows, images = torch.randn(4, 4, generator=generator), torch.arange(4) + 4 * batch
        bank.update(rows)
        sources.enqueue(rows, images)
        shown.update(zip(images.tolist(), rows, strict=True))
    slots = torch.arange(len(bank))
    expected = torch.stack([shown[image] for image in sources.images(slots).tolist()])
    torch.testing.assert_close(bank.embeddings, expected)


def test_staleness_is_zero_for_an_encoder_that_rests_and_identity():
    generator = torch.Generator().manual_seed(0)
    bank, sources = AdaptiveMemoryBank(8, 4, "identity"), StoredSources(8, 4)
    rows = torch.randn(8, 4, generator=generator)
    bank.update(rows)
    sources.enqueue(rows, torch.arange(8))
    slots = sources.sample(8)
    assert sources.staleness(bank, slots, fresh=rows[sources.images(slots)]) == Staleness(0.0, 0.0)


def test_realignment_undoes_a_drift_that_is_an_affine_map():
    """The encoder moves by scale and shift; XBN sees it in a batch and brings all rows along."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(64, 8, generator=generator)
    scale, shift = 0.5 + torch.rand(8, generator=generator), torch.randn(8, generator=generator)
    bank, sources = AdaptiveMemoryBank(64, 8, "xbn"), StoredSources(64, 8)
    bank.update(start)
    sources.enqueue(start, torch.arange(64))
    moved = start * scale + shift
    bank.adapt(moved)
    found = sources.staleness(bank, torch.arange(64), fresh=moved)
    naive = (F.normalize(start, dim=1) - F.normalize(moved, dim=1)).norm(dim=1).mean().item()
    assert found.adapted < 1e-5
    assert found.unadapted == pytest.approx(naive, rel=1e-5)
    assert found.unadapted > 0.1


def test_a_sample_spreads_over_the_stored_rows():
    sources = StoredSources(100, 2)
    assert sources.sample(10).tolist() == []
    sources.enqueue(torch.randn(95, 2), torch.arange(95))
    sample = sources.sample(10)
    assert len(sample) <= 10
    assert sample.tolist() == list(range(0, 95, 10))


def test_staleness_refuses_another_bank():
    bank, sources = AdaptiveMemoryBank(8, 2, "identity"), StoredSources(8, 2)
    sources.enqueue(torch.randn(3, 2), torch.arange(3))
    with pytest.raises(ValueError, match="`bank` must hold the same rows: it has 0, 3 were followed"):
        sources.staleness(bank, torch.arange(3), torch.randn(3, 2))


def test_images_of_nothing_are_refused():
    with pytest.raises(ValueError, match="nothing was enqueued yet"):
        StoredSources(8, 2).images(torch.arange(1))


def test_the_sources_state_is_in_the_state_dict():
    first, second = StoredSources(8, 2), StoredSources(8, 2)
    first.enqueue(torch.randn(5, 2), torch.arange(5))
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.images(torch.arange(5)), torch.arange(5))
