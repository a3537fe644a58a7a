"""First and second moments of a set of embeddings, and how far to trust them."""

from typing import Any, NamedTuple

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
        count = rows.shape[0] if kept is None else kept.sum()
        mean = rows.sum(0) / at_least_1(count)
        deviations = _kept(rows - mean, kept).square_()
        std = (deviations.sum(0) / at_least_1(count - 1)).sqrt_()
        if labels is None or len(rows) < 2:
            return cls.plain(mean, std, count)
        return cls.in_classes(mean, std, count, Classes.of(rows, labels, kept))

    @classmethod
    def pooled(cls, counts: Tensor, means: Tensor, stds: Tensor) -> "Moments":
        """Plain moments of several sets of rows together, from those of each: (p,), (p, dim) and (p, dim).

        The count is a number where reading it is free.

        Example:
            >>> parts = [Moments.of(torch.tensor([[0.0], [2.0]])), Moments.of(torch.tensor([[4.0], [6.0]]))]
            >>> means, stds = torch.stack([part.mean for part in parts]), torch.stack([part.std for part in parts])
            >>> together = Moments.pooled(torch.tensor([2, 2]), means, stds)
            >>> together.mean.item(), round(together.std.item(), 4), together.count
            (3.0, 2.582, 4)
        """
        shares = counts[:, None].to(means.dtype)
        count = counts.sum().long()
        mean = (shares * means).sum(0) / at_least_1(count)
        m2 = (shares - 1).clamp(min=0) * stds.square() + shares * (means - mean).square()
        std = (m2.sum(0) / at_least_1(count - 1)).sqrt()
        return cls.plain(mean, std, int(count) if reading_is_free(count.device) else count)

    @classmethod
    def in_classes(cls, mean: Tensor, std: Tensor, count: int | Tensor, classes: "Classes") -> "Moments":
        """Moments of rows that come in classes, from the plain ones: a one-way analysis of variance.

        Classes may be of any size (method of moments, unweighted class means). With C classes of n_c rows, N in all:
        E[var(class means)] = s_b^2 + s_w^2 mean(1/n_c), and the mean of all rows varies by
        s_b^2 sum((n_c/N)^2) + s_w^2/N; for equal classes that is var(class means)/C.

        Where reading is free, the numbers that follow from the sizes alone are Python's. Elsewhere no value is read:
        with empty classes beyond the last, no shape needs to depend on how many there are.
        """
        n = count
        c, inverse_size, squared_shares = classes.proportions(n)
        # One class hides the variance between classes, as many classes as rows leave none within: both stay plain.
        if not isinstance(c, Tensor) and not 1 < c < n:
            return cls.plain(mean, std, n)
        within, of_means = classes.within / (n - c), classes.variance_of_means(c)  # s_w^2, s_b^2 + s_w^2/K
        population = torch.maximum(within, of_means + within * (1 - inverse_size))  # s_w^2 + s_b^2, s_b^2 not below 0
        mean_variance = (of_means * squared_shares + within * (1 / n - squared_shares * inverse_size)).clamp_(min=0)
        # Delta method: Var(std) = Var(v) / (4 v) for v = of_means + (1 - 1/K) within, of which each part, measured
        # with f degrees of freedom, varies by 2 part^2 / f. Half a degree more stands for the next order: with 4
        # classes of 4 it takes an excess of 25 % over the true variance down to 7 %.
        share = (1 - inverse_size) ** 2 / (2 * (n - c) + 1)
        spread = torch.addcmul(of_means.square_() / (2 * c - 1), within, within * share)
        std_variance = spread / population.clamp(min=torch.finfo(spread.dtype).tiny)
        found = cls(mean, std, n, population.sqrt_(), mean_variance, std_variance)
        return found if not isinstance(c, Tensor) else found.where((c > 1) & (c < n), cls.plain(mean, std, n))

    def where(self, telling: Tensor, otherwise: "Moments") -> "Moments":
        """These if ``telling``, a boolean tensor of one, is True; otherwise those of the same rows without classes."""
        mine, others = self[3:], otherwise[3:]
        return Moments(*self[:3], *(torch.where(telling, *pair) for pair in zip(mine, others, strict=True)))


class Classes(NamedTuple):
    """Rows summed up class by class. Some classes may be empty: with size 0, mean 0 and any label."""

    labels: Tensor  # (c,)
    sizes: Tensor  # (c,), floating point
    means: Tensor  # (c, dim)
    within: Tensor  # (dim,): squared deviations of all rows from the means of their classes, added up

    @classmethod
    def of(cls, rows: Tensor, labels: Tensor, kept: Tensor | None = None) -> "Classes":
        """Sum up rows (B, dim) with labels (B,); those not ``kept`` (B,), which are zeros, do not count."""
        present, index, sizes = _classes(labels, kept)
        sizes = sizes.to(rows.dtype)
        sums = rows.new_zeros(len(sizes), rows.shape[1]).index_add_(0, index, rows)
        means = sums / sizes.clamp(min=1)[:, None]
        return cls(present, sizes, means, _kept(rows - means.index_select(0, index), kept).square_().sum(0))

    def proportions(self, n: int | Tensor) -> tuple[Any, Any, Any]:
        """Number of classes C, mean of 1/n_c (1/K for classes of K rows), and sum of (n_c/N)^2 for ``n`` rows in all.

        Numbers, or tensors of one where reading means waiting or only a tensor knows the number of rows.
        """
        if not isinstance(n, Tensor) and reading_is_free(self.sizes.device):
            sizes = [size for size in self.sizes.tolist() if size]
            c = len(sizes)
            return c, sum(1 / size for size in sizes) / max(c, 1), sum((size / n) ** 2 for size in sizes)
        filled = (self.sizes > 0).to(self.means.dtype)
        classes = filled.sum()
        return classes, (filled / self.sizes.clamp(min=1)).sum() / classes, (self.sizes / n).square().sum()

    def variance_of_means(self, c: int | Tensor) -> Tensor:
        """Sample variance of the means of the ``c`` classes that are not empty, (dim,)."""
        deviations = self.means - self.means.sum(0) / c
        if isinstance(c, Tensor) or c < len(self.sizes):
            deviations *= (self.sizes > 0)[:, None]
        return deviations.square_().sum(0) / (c - 1)

    def joined(self) -> "Classes":
        """The same, with entries that have one label made one: a class that several ranks have rows of.

        Example:
            >>> halves = Classes(torch.tensor([7, 7]), torch.ones(2), torch.tensor([[0.0], [4.0]]), torch.zeros(1))
            >>> whole = halves.joined()  # rows 0 and 4: their mean is 2, and both are 2 away from it
            >>> whole.sizes.tolist(), whole.means.tolist(), whole.within.tolist()
            ([2.0], [[2.0]], [8.0])
        """
        present, index, entries = _classes(self.labels, None)
        sizes = self.sizes.new_zeros(len(entries)).index_add_(0, index, self.sizes)
        sums = torch.zeros_like(self.means[: len(entries)]).index_add_(0, index, self.means * self.sizes[:, None])
        means = sums / sizes.clamp(min=1)[:, None]
        between = (self.means - means[index]).square_().mul_(self.sizes[:, None]).sum(0)
        return Classes(present, sizes, means, self.within + between)


def _kept(values: Tensor, kept: Tensor | None) -> Tensor:
    """Values (B, ...) in place, zeros where the row does not count."""
    return values if kept is None else values.masked_fill_(~kept[:, None], 0)


def _classes(labels: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The labels of the classes (C,), the class of each row (N,), and the sizes of the classes (C,).

    There may be more classes than labels: these have size 0, and any label.
    """
    if kept is None and reading_is_free(labels.device):  # twice as fast, but its shape depends on values
        present, index, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
        return present, index, sizes
    return _classes_by_sorting(labels, kept)


def _classes_by_sorting(labels: Tensor, kept: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """As `_classes`, with as many classes as rows.

    Example:
        >>> _classes_by_sorting(torch.tensor([7, -1, 7, 5]))
        (tensor([-1,  5,  7,  0]), tensor([2, 0, 2, 1]), tensor([1, 1, 2, 0]))
    """
    ascending, order = labels.sort()
    begins = torch.zeros_like(labels, dtype=torch.int64)
    begins[1:] = ascending[1:] != ascending[:-1]
    index = torch.empty_like(begins).scatter_(0, order, begins.cumsum(0))
    ones = torch.ones_like(index) if kept is None else kept.to(index.dtype)
    present = torch.zeros_like(labels).scatter_(0, index, labels)
    return present, index, torch.zeros_like(index).index_add_(0, index, ones)
