"""The map on its own: known values, inverse, moments."""

import pytest
import torch

from adaptive_memory_bank import Moments
from adaptive_memory_bank.affine import AffineMap


def matched(rows, target):
    made = AffineMap(rows.shape[1], rows.dtype)
    made.match(rows.mean(0), rows.std(0), Moments.of(target))
    return made


def random_rows(seed, count=20, dim=3):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_new_map_is_the_identity_and_hands_out_copies():
    rows, made = random_rows(0), AffineMap(3, torch.float64)
    assert made.is_identity
    assert torch.equal(made.to_embeddings(rows), rows)
    assert made.to_embeddings(rows).data_ptr() != rows.data_ptr()
    out = torch.empty_like(rows)
    assert made.to_embeddings(rows, out) is out
    assert torch.equal(out, rows)


def test_mean_and_spread_of_the_mapped_rows_are_the_target_s():
    """Rows 0, 2 (mean 1, std sqrt 2) and a target of 10, 16 (mean 13, std 3 sqrt 2): z = 3 (s - 1) + 13."""
    made = matched(torch.tensor([[0.0], [2.0]]), torch.tensor([[10.0], [16.0]]))
    assert made.to_embeddings(torch.tensor([[1.0], [5.0]])).tolist() == [[13.0], [25.0]]
    out = torch.empty(1, 1)
    made.to_embeddings(torch.tensor([[5.0]]), out)
    assert out.item() == 25.0


def test_it_is_matched_to_the_stored_rows_and_not_to_what_it_did_before():
    made = matched(random_rows(0), random_rows(1))
    made.match(random_rows(0).mean(0), random_rows(0).std(0), Moments.of(random_rows(2)))
    expected = matched(random_rows(0), random_rows(2))
    torch.testing.assert_close(made.to_embeddings(random_rows(5)), expected.to_embeddings(random_rows(5)))


def test_to_stored_undoes_to_embeddings_and_reset_undoes_match():
    made, rows = matched(random_rows(0), 3 + 2 * random_rows(1)), random_rows(2)
    torch.testing.assert_close(made.to_stored(made.to_embeddings(rows)), rows)
    made.reset()
    assert torch.equal(made.to_stored(rows), rows)
    assert torch.equal(made.to_embeddings(rows), rows)


def test_moments_of_mapped_rows_are_mapped_moments():
    made, rows = matched(random_rows(0), 3 + 2 * random_rows(1)), random_rows(2)
    expected, found = (
        Moments.of(made.to_embeddings(rows)),
        made.to_embedding_moments(rows.mean(0), rows.std(0), len(rows)),
    )
    for field, value in expected._asdict().items():
        torch.testing.assert_close(getattr(found, field), value)


@pytest.mark.parametrize("flat", ["rows", "target"])
def test_a_dimension_without_spread_is_shifted_and_keeps_its_scale(flat):
    rows, target = random_rows(0), 3 + 2 * random_rows(1)
    (rows if flat == "rows" else target)[:, 1] = 7.0
    mapped = matched(rows, target).to_embeddings(rows)
    torch.testing.assert_close(mapped[:, 1], rows[:, 1] - rows[:, 1].mean() + target[:, 1].mean())
    torch.testing.assert_close(mapped[:, 0].std(), target[:, 0].std())


def test_half_leaves_it_exact_and_its_state_goes_on():
    made = matched(random_rows(0).float(), random_rows(1).float())
    assert made.half().dtype == torch.float32
    other = AffineMap(3, torch.float32)
    other.load_state_dict(made.state_dict())
    assert torch.equal(other.to_embeddings(random_rows(2).float()), made.to_embeddings(random_rows(2).float()))


def test_a_copy_is_as_it_is_now_and_stays_so():
    made = matched(random_rows(0), random_rows(1))
    kept, before = made.copied(), made.to_embeddings(random_rows(2))
    made.reset()
    assert torch.equal(kept.to_embeddings(random_rows(2)), before)
    assert made.copied().is_identity
