"""The multi-similarity loss of each query against a whole bank, with its gradient, in one walk."""

from dataclasses import dataclass

import torch
from torch import Tensor

from adaptive_memory_bank.losses.compare import Compared, add_positives, mean_weights
from adaptive_memory_bank.losses.soft_sum import SoftSum
from adaptive_memory_bank.ring import LazyRing


@dataclass(frozen=True)
class MultiSimilarity:
    """``log(1 + sum_p exp(-alpha (s_ip - base))) / alpha + log(1 + sum_n exp(beta (s_in - base))) / beta``.

    Averaged over the queries i, with kept positives p, negatives n and cosine similarities ``s`` (Wang et al.,
    "Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning", CVPR 2019, eq. 15).
    """

    alpha: float
    beta: float
    base: float
    above_zero: bool = False

    def sums(self, queries: Tensor, *, gradient: bool) -> SoftSum:
        """Exponentials of ``beta`` times cosines."""
        return SoftSum(queries, 1 / self.beta, gradient=gradient)

    def combine(self, ring: LazyRing, pairs: Compared, negatives: SoftSum) -> tuple[Tensor, Tensor | None]:
        """The loss, (), and its gradient (B, dim)."""
        top, terms, total = self._positives(pairs)
        shift = self.beta * self.base
        whole = torch.logaddexp(negatives.log() - shift, torch.zeros_like(negatives.total))  # log(1 + sum_n)
        losses = (top + total.log()) / self.alpha + whole / self.beta
        weights = mean_weights(losses, torch.ones_like(losses, dtype=torch.bool), above_zero=self.above_zero)
        weights = weights * pairs.more_than_one
        gradient = negatives.over(whole + shift)
        if gradient is not None:
            gradient = add_positives(gradient, ring, pairs.related, terms.div_(total).neg_()).mul_(weights[:, None])
        return losses @ weights, gradient

    def _positives(self, pairs: Compared) -> tuple[Tensor, Tensor, Tensor]:
        """Largest exponent (B,), at least 0, and relative to it the terms (h, B) and their sum with one (B,)."""
        exponents = self.alpha * (self.base - pairs.related.logits / self.beta)
        top = exponents.new_zeros(1, exponents.shape[1])
        top = torch.cat([top, exponents.masked_fill(~pairs.kept, 0)]).amax(0)
        terms = (exponents - top).exp_().masked_fill_(~pairs.kept, 0)
        return top, terms, terms.sum(0) + (-top).exp()
