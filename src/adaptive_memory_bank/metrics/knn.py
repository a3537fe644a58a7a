"""The weighted kNN accuracy by which self-supervised training is watched."""

import torch
from torch import Tensor

from adaptive_memory_bank.metrics.inputs import clamp_k, integer_labels, positive_integer, unit_pair
from adaptive_memory_bank.metrics.similarity import largest, similarity_blocks, split


@torch.no_grad()
def knn_accuracy(
    features: Tensor,
    labels: Tensor,
    bank_features: Tensor,
    bank_labels: Tensor,
    num_classes: int,
    k: int = 200,
    temperature: float = 0.1,
    *,
    progress: bool = False,
) -> float:
    """Return the share of features whose label is the one their nearest bank rows vote for.

    Each of the `k` most similar bank rows (cosine s) votes for its label with weight `exp(s / temperature)` (Wu et al.,
    "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", 2018). On unit rows this is lightly's
    `knn_predict`; other rows are normalised first, as lightly's `KNNClassifier` does.

    Args:
        features: (N, dim) embeddings to classify.
        labels: (N,) integers in [0, num_classes).
        bank_features: (M, dim) embeddings that vote.
        bank_labels: (M,) integers in [0, num_classes).
        num_classes: number of classes.
        k: number of votes; clamped with a warning to the size of the bank.
        temperature: the smaller, the more the nearest votes count.
        progress: show a progress bar (needs tqdm).

    Example:
        >>> bank = torch.tensor([[1.0, 0.0], [0.8, 0.2], [0.0, 1.0]])
        >>> knn_accuracy(bank, torch.tensor([0, 0, 1]), bank, torch.tensor([0, 0, 1]), num_classes=2, k=2)
        1.0
    """
    units, others = unit_pair(features, bank_features, ("features", "bank_features"))
    num_classes = positive_integer(num_classes, "num_classes")
    wanted = _class_labels(labels, "labels", units, num_classes)
    votes = _class_labels(bank_labels, "bank_labels", others, num_classes)
    k = clamp_k(positive_integer(k, "k"), "k", len(others))
    if not temperature > 0:
        raise ValueError(f"`temperature` must be positive, got {temperature}.")
    correct = torch.zeros((), dtype=torch.int64, device=units.device)
    everything = torch.arange(len(units), device=units.device)
    for chunk, block in similarity_blocks(units, others, split(everything, units, others), progress=progress):
        similar, rows = largest(block, k)
        # Relative to the best vote, which changes no winner: exp(1 / 0.01) would overflow float32.
        weights = ((similar - similar[:, :1]) / temperature).exp_()
        scores = weights.new_zeros(len(chunk), num_classes).scatter_add_(1, votes[rows], weights)
        correct += (scores.argmax(dim=1) == wanted[chunk]).sum()
    return correct.item() / len(units)


def _class_labels(labels: Tensor, name: str, rows: Tensor, num_classes: int) -> Tensor:
    labels = integer_labels(labels, name, rows)
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        raise ValueError(f"`{name}` must lie in [0, {num_classes}), got labels from {low} to {high}.")
    return labels
