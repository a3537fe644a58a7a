"""First and second moments of a set of embeddings, and how far to trust them."""

from typing import NamedTuple

import torch
from torch import Tensor

from adaptive_memory_bank.masks import at_least_1, reading_is_free


class Moments(NamedTuple):
    """Mean and spread of some rows, per dimension, with the sampling variance of both.

    Rows that come in classes (P x K batches) are not independent draws: 16 rows of 4 classes say about as much of the
    mean as 4 rows do, and their plain standard deviation misses part of the variance between classes. ``std`` is the
    plain one, ``population_std`` the one corrected for that (one-way analysis of variance); without labels, or where
    every row has its own class, they are the same.

    Args:
        mean: ``E``, shape (dim,).
        std: Sample standard deviation ``s`` (correction 1), shape (dim,).
        count: Number of rows: an integer, or a tensor of one where only the device knows how many rows were refused.
        population_std: ``sqrt(s_w^2 + s_b^2)``: within-class and between-class variance, shape (dim,).
        mean_variance: Sampling variance of ``mean``, shape (dim,).
        std_variance: Sampling variance of ``population_std``, shape (dim,).

    Example:
        >>> rows = torch.tensor([[0.0], [2.0], [4.0], [6.0]])
        >>> moments = Moments.of(rows)
        >>> moments.mean.item(), round(moments.std.item(), 4), moments.count
        (3.0, 2.582, 4)
        >>> in_classes = Moments.of(rows, torch.tensor([0, 0, 1, 1]))
        >>> round(in_classes.population_std.item(), 4)  # class means 1 and 5: s_b^2 = 8 - 2/2, s_w^2 = 2
        3.0
    """

    mean: Tensor
    std: Tensor
    count: int | Tensor  # type: ignore[assignment]  # hides tuple.count, which moments do not need
    population_std: Tensor
    mean_variance: Tensor
    std_variance: Tensor

    @classmethod
    def plain(cls, mean: Tensor, std: Tensor, count: int | Tensor) -> "Moments":
        """Moments of ``count`` independent rows: variances ``s^2/n`` and ``s^2/(2(n-1))``.

        Example:
            >>> Moments.plain(torch.zeros(1), torch.ones(1), 11).std_variance.item()  # 1 / (2 * 10)
            0.05000000074505806
        """
        variance = std.square()
        return cls(mean, std, count, std, variance / at_least_1(count), variance / (2 * at_least_1(count - 1)))

    @classmethod
    def of(cls, rows: Tensor, labels: Tensor | None = None, kept: Tensor | None = None) -> "Moments":
        """Measure rows, aware of their classes where labels are given. Never NaN: a single row has spread 0.

        Args:
            rows: Shape (B, dim), floating point.
            labels: Shape (B,), integers, or None for independent rows.
            kept: Shape (B,), boolean: rows that count; the others are zeros. None counts all.
        """
        count = len(rows) if kept is None else kept.sum()
        mean = rows.sum(0) / at_least_1(count)
        deviations = _kept(rows - mean, kept).square_()
        plain = cls.plain(mean, (deviations.sum(0) / at_least_1(count - 1)).sqrt(), count)
        if labels is None or len(rows) < 2:
            return plain
        return _in_classes(plain, rows, labels, kept)


def _kept(values: Tensor, kept: Tensor | None) -> Tensor:
    """Values (B, ...) in place, zeros where the row does not count."""
    return values if kept is None else values.masked_fill_(~kept[:, None], 0)


def _in_classes(plain: Moments, rows: Tensor, labels: Tensor, kept: Tensor | None) -> Moments:
    """One-way analysis of variance with classes of any size (method of moments, unweighted class means).

    With C classes of n_c rows, N in all: E[var(class means)] = s_b^2 + s_w^2 mean(1/n_c), and the mean of all rows
    varies by s_b^2 sum((n_c/N)^2) + s_w^2/N; for equal classes that is var(class means)/C.

    No value is read: with empty classes beyond the last, no shape needs to depend on how many there are.
    """
    n = plain.count
    index, sizes = _classes(labels, kept)
    filled, sizes = (sizes > 0).to(rows.dtype), sizes.to(rows.dtype)
    c, shares = filled.sum(), filled / sizes.clamp(min=1)  # 1/n_c
    class_means = rows.new_zeros(len(sizes), rows.shape[1]).index_add_(0, index, rows) * shares[:, None]
    within = _kept(rows - class_means[index], kept).square_().sum(0) / (n - c)  # s_w^2
    deviations = (class_means - class_means.sum(0) / c).mul_(filled[:, None])
    of_means = deviations.square_().sum(0) / (c - 1)
    inverse_size = shares.sum() / c  # 1/K for classes of K rows
    between = of_means - within * inverse_size  # s_b^2, before it is kept from falling below zero
    population = within + between.clamp(min=0)
    mean_variance = (between * (sizes / n).square().sum() + within / n).clamp(min=0)
    # Delta method: Var(std) = Var(v) / (4 v) for v = of_means + (1 - 1/K) within, of which each part, measured with f
    # degrees of freedom, varies by 2 part^2 / f. Half a degree more stands for the next order: with 4 classes of 4 it
    # takes an excess of 25 % over the true variance down to 7 %.
    half_spread = of_means.square() / (c - 0.5) + ((1 - inverse_size) * within).square() / (n - c + 0.5)
    std_variance = half_spread / (2 * population.clamp(min=torch.finfo(rows.dtype).tiny))
    # One class hides the variance between classes, as many classes as rows leave none within: both stay plain (and
    # are 0 / 0 above).
    telling = (c > 1) & (c < n)
    return plain._replace(
        population_std=torch.where(telling, population.sqrt(), plain.std),
        mean_variance=torch.where(telling, mean_variance, plain.mean_variance),
        std_variance=torch.where(telling, std_variance, plain.std_variance),
    )


def _classes(labels: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    """The class of each row (N,), counted from 0, and the sizes of the classes, (C,) or more: some may be 0."""
    if kept is None and reading_is_free(labels.device):  # twice as fast, but its shape depends on values
        _, index, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
        return index, sizes
    return _classes_by_sorting(labels, kept)


def _classes_by_sorting(labels: Tensor, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """As `_classes`, with as many sizes as rows.

    Example:
        >>> _classes_by_sorting(torch.tensor([7, -1, 7, 5]))
        (tensor([2, 0, 2, 1]), tensor([1, 1, 2, 0]))
    """
    ascending, order = labels.sort()
    begins = torch.zeros_like(labels, dtype=torch.int64)
    begins[1:] = ascending[1:] != ascending[:-1]
    index = torch.empty_like(begins).scatter_(0, order, begins.cumsum(0))
    ones = torch.ones_like(index) if kept is None else kept.to(index.dtype)
    return index, torch.zeros_like(index).index_add_(0, index, ones)
