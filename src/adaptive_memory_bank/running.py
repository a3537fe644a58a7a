"""Mean and M2 (sum of squared deviations) of rows that come and go."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from adaptive_memory_bank.masks import at_least_1


class Rows(NamedTuple):
    """Some rows, of which gaps do not count."""

    values: Tensor  # (n, dim), float32 or float64
    gaps: Tensor | None  # (n,), boolean; None where there is none

    @property
    def held(self) -> int | Tensor:
        """How many there are: a number, or where there may be gaps a tensor of one."""
        return len(self.values) if self.gaps is None else (~self.gaps).sum()

    def near(self) -> Tensor:
        """A value near their mean, (dim,), from the first of them: it keeps squares small."""
        few = Rows(self.values[:1024], None if self.gaps is None else self.gaps[:1024])
        return few.minus(torch.zeros_like(few.values[0])).sum(0) / at_least_1(few.held)

    def minus(self, center: Tensor) -> Tensor:
        """Deviations (n, dim), a fresh tensor, with zeros for gaps."""
        deviations = self.values - center
        return deviations if self.gaps is None else deviations.masked_fill_(self.gaps[:, None], 0)


class Sums(NamedTuple):
    """Mean and M2 of as many rows as are held.

    Example:
        >>> before = Sums(torch.tensor([1.0]), torch.tensor([2.0]), 2)  # 0 and 2
        >>> after = before.moved(Rows(torch.tensor([[7.0]]), None), leaving=Rows(torch.tensor([[0.0]]), None))
        >>> after.mean.item(), after.m2.item()  # 2 and 7: twice 2.5 squared
        (4.5, 12.5)
    """

    mean: Tensor  # (dim,)
    m2: Tensor  # (dim,)
    held: int | Tensor

    def moved(self, arriving: Rows, leaving: Rows | None) -> "Sums":
        """The same once some rows came and as many went, gaps included (Chan et al. 1983, about the mean before)."""
        center, coming = self.mean, arriving.held
        if isinstance(self.held, Tensor):
            center = torch.where(self.held > 0, center, arriving.near())
        elif not self.held:
            center = arriving.near()
        change = arriving.minus(center)
        if leaving is None:
            return _about(center, change.sum(0), self.m2 + change.square().sum(0), self.held + coming)
        before = leaving.minus(center)
        difference = change - before
        second = change.add_(before).mul_(difference).sum(0)  # a^2 - b^2 = (a + b) (a - b)
        return _about(center, difference.sum(0), self.m2 + second, self.held + coming - leaving.held)

    @classmethod
    def of(cls, blocks: Iterable[Rows], held: int | Tensor, like: Tensor) -> "Sums":
        """Measure all rows, block by block; without any, zeros like (dim,)."""
        first, second, center = torch.zeros_like(like), torch.zeros_like(like), torch.zeros_like(like)
        for number, rows in enumerate(blocks):
            center = rows.near() if number == 0 else center
            change = rows.minus(center)
            first += change.sum(0)
            second += change.square_().sum(0)
        return _about(center, first, second, held)


def _about(center: Tensor, first: Tensor, second: Tensor, held: int | Tensor) -> Sums:
    """Sums from the first two moments about a center."""
    divisor = at_least_1(held)
    step = first / divisor
    m2 = torch.addcmul(second, step, first, value=-1).clamp_(min=0)
    if isinstance(held, Tensor) or held < 2:  # of one row that is left, rounding may leave something
        m2 = m2 * (held > 1)
    return Sums(center + step, m2, held)
