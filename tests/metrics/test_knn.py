import math

import pytest
import torch
import torch.nn.functional as F
from lightly.utils.benchmarking import knn_predict

from adaptive_memory_bank.metrics import knn_accuracy, similarity


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (7, 0.07), (200, 0.1), (500, 1.0)])
@pytest.mark.parametrize("block_bytes", [2**12, 2**25])
def test_equals_lightly(monkeypatch, clustered, k, temperature, block_bytes):
    monkeypatch.setattr(similarity, "BLOCK_BYTES", block_bytes)
    features, labels = clustered(300, 10, 8, dtype=torch.float64)
    bank, bank_labels = clustered(500, 10, 8, seed=1, dtype=torch.float64)
    predicted = knn_predict(F.normalize(features), F.normalize(bank).T, bank_labels, 10, k, temperature)[:, 0]
    expected = (predicted == labels).double().mean().item()
    assert knn_accuracy(features, labels, bank, bank_labels, 10, k, temperature) == expected
    assert 0.2 < expected < 0.95


def test_every_prediction_equals_lightlys(clustered):
    features, _ = clustered(60, 10, 8, dtype=torch.float64)
    bank, bank_labels = clustered(500, 10, 8, seed=1, dtype=torch.float64)
    predicted = knn_predict(F.normalize(features), F.normalize(bank).T, bank_labels, 10, 50, 0.1)[:, 0]
    for row, label in zip(features, predicted, strict=True):
        assert knn_accuracy(row[None], label[None], bank, bank_labels, num_classes=10, k=50) == 1.0


def test_known_value():
    # The query at 0 degrees sees class 1 at 0 degrees (weight e^(1/t)) and class 0 twice at 60 degrees (2 e^(0.5/t)):
    # class 1 wins while e^(0.5/t) > 2, so for t < 0.5 / ln 2 = 0.72.
    bank = torch.tensor([[1.0, 0.0], [0.5, 0.75**0.5], [0.5, -(0.75**0.5)]])
    arguments = (torch.tensor([[2.0, 0.0]]), torch.tensor([1]), bank, torch.tensor([1, 0, 0]), 2, 3)
    assert knn_accuracy(*arguments, temperature=0.71) == 1.0
    assert knn_accuracy(*arguments, temperature=0.73) == 0.0


def test_a_small_temperature_does_not_overflow(clustered):
    features, labels = clustered(50, 5, 8)
    # At this temperature the nearest row outvotes all others; in float32 exp(1 / 0.001) alone would be infinite.
    nearest_vote = knn_accuracy(features, labels, *clustered(100, 5, 8, seed=1), num_classes=5, k=1)
    votes = knn_accuracy(features, labels, *clustered(100, 5, 8, seed=1), num_classes=5, k=50, temperature=1e-6)
    assert votes == nearest_vote


def test_k_beyond_the_bank_is_clamped_with_a_warning(clustered):
    features, labels = clustered(20, 3, 8)
    bank = clustered(30, 3, 8, seed=1)
    with pytest.warns(UserWarning, match="`k` of 200 is clamped to 30, the rows there are to find"):
        clamped = knn_accuracy(features, labels, *bank, num_classes=3)
    assert clamped == knn_accuracy(features, labels, *bank, num_classes=3, k=30)


ROWS, LABELS = torch.eye(3), torch.arange(3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((ROWS * math.nan, LABELS, ROWS, LABELS, 3, 1), ValueError, "`features` must be finite"),
        ((ROWS, LABELS, ROWS * math.inf, LABELS, 3, 1), ValueError, "`bank_features` must be finite"),
        ((ROWS, LABELS, None, LABELS, 3, 1), TypeError, "`bank_features` must be a tensor, got NoneType"),
        ((ROWS, LABELS, torch.eye(2), LABELS, 3, 1), ValueError, "must have the same dimension, got 3 and 2"),
        ((ROWS, LABELS, ROWS, LABELS, 2, 1), ValueError, r"`labels` must lie in \[0, 2\), got labels from 0 to 2"),
        (
            (ROWS, LABELS, ROWS, LABELS - 1, 3, 1),
            ValueError,
            r"`bank_labels` must lie in \[0, 3\), got .* from -1 to 1",
        ),
        ((ROWS, LABELS, ROWS, LABELS, 0, 1), ValueError, "`num_classes` must be a positive integer, got 0"),
        ((ROWS, LABELS, ROWS, LABELS, 3, -1), ValueError, "`k` must be a positive integer, got -1"),
        ((ROWS, LABELS, ROWS, LABELS, 3, 1, 0.0), ValueError, "`temperature` must be positive, got 0.0"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        knn_accuracy(*arguments)
