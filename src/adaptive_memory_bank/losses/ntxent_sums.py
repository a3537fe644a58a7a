"""The normalised temperature-scaled cross entropy of every positive pair against a whole bank, in one walk."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptive_memory_bank.losses.compare import Compared, add_positives, mean_weights
from adaptive_memory_bank.losses.soft_sum import SoftSum
from adaptive_memory_bank.ring import LazyRing


@dataclass(frozen=True)
class NTXent:
    """``-log(exp(l_ip) / (exp(l_ip) + sum_(n in N) exp(l_in)))``, averaged over all kept positive pairs (i, p).

    N are the kept negatives of query i, and ``l`` cosine similarities over temperature (Sohn, "Improved Deep Metric
    Learning with Multi-class N-pair Loss Objective", NIPS 2016). As in pytorch-metric-learning, the smallest normal
    number is added to the share inside the logarithm: beyond 87 in float32, losses and gradients are cut off.
    """

    temperature: float
    above_zero: bool = False

    def sums(self, queries: Tensor, *, gradient: bool) -> SoftSum:
        """Exponentials of cosines over temperature."""
        return SoftSum(queries, self.temperature, gradient=gradient)

    def combine(self, ring: LazyRing, pairs: Compared, negatives: SoftSum) -> tuple[Tensor, Tensor | None]:
        """The loss, (), and its gradient (B, dim); 0 without positives or without negatives."""
        logits = pairs.related.logits
        whole = torch.logaddexp(negatives.log(), logits)  # (h, B)
        losses, slopes = whole - logits, None
        if 2 * negatives.sharpness + math.log(ring.count + 1) > -math.log(torch.finfo(logits.dtype).tiny):
            losses, slopes = _cut_off(losses)
        weights = mean_weights(losses, pairs.kept, above_zero=self.above_zero) * pairs.of_both_kinds
        value = (losses * weights).sum()
        if negatives.weighted is None:
            return value, None
        weights = (weights if slopes is None else weights * slopes).mul_(negatives.sharpness)
        of_negatives = (negatives.offset - whole).exp_().mul_(weights).sum(0)  # of the second sum of each query
        of_positives = (logits - whole).exp_().sub_(1).mul_(weights)
        gradient = negatives.weighted.sum().mul_(of_negatives[:, None])
        return value, add_positives(gradient, ring, pairs.related, of_positives)


def _cut_off(losses: Tensor) -> tuple[Tensor, Tensor]:
    """``-log(exp(-loss) + tiny)`` and its derivative in the loss."""
    smallest = torch.full_like(losses, math.log(torch.finfo(losses.dtype).tiny))
    cut = -torch.logaddexp(-losses, smallest)
    return cut, (cut - losses).exp_()
