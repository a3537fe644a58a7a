"""The supervised contrastive loss of each query against a whole bank, with its gradient, in one walk."""

from dataclasses import dataclass

import torch
from torch import Tensor

from adaptive_memory_bank.losses.compare import Compared, Queries, add_positives, compare, mean_weights
from adaptive_memory_bank.losses.pairs import Margins
from adaptive_memory_bank.losses.soft_sum import SoftSum, wants_gradient, with_gradient
from adaptive_memory_bank.losses.walk import Workspace
from adaptive_memory_bank.ring import LazyRing


def losses_against_bank(
    ring: LazyRing,
    queries: Tensor,
    labels: Tensor,
    *,
    slots: Tensor,
    counted: Tensor | None,
    temperature: float,
    margins: Margins,
    workspace: Workspace,
) -> tuple[Tensor, Tensor]:
    """Loss of each query (B,), 0 where it has no positive, and the pairs kept: positive and negative, (2,).

    For a query i with kept positives P and negatives N, ``log sum_(j in P + N) exp(l_ij) - mean_(j in P) l_ij``, with
    ``l_ij`` the cosine similarity over temperature (Khosla et al., "Supervised Contrastive Learning", 2020, eq. 2).

    Args:
        ring: Holds the rows, with labels.
        queries: Unit vectors, shape (B, dim).
        labels: Shape (B,).
        slots: Where in the ring each query is itself, shape (B,), or -1.
        counted: Which queries have pairs, shape (B,); None for all. The others are zeros.
        temperature: Divides the cosines.
        margins: Which pairs are kept.
        workspace: Memory for a block of rows.
    """
    wanted = wants_gradient(queries)
    with torch.no_grad():
        sums = SoftSum(queries, temperature, gradient=wanted)
        compared = Queries(queries, labels, slots, counted)
        pairs = compare(ring, compared, sums=sums, mining=margins, workspace=workspace)
        losses, gradient = _losses(ring, pairs, sums)
    return with_gradient(queries, losses, gradient), pairs.counts


def losses_within_batch(
    queries: Tensor, labels: Tensor, *, counted: Tensor | None, temperature: float, margins: Margins
) -> tuple[Tensor, Tensor]:
    """The same within a batch of unit vectors (B, dim), differentiable on both sides: small, so plain autograd."""
    cosines = queries @ queries.T
    same = labels[:, None] == labels
    positive = (same & (cosines < margins.positive_below)).fill_diagonal_(False)
    negative = ~same & (cosines > margins.negative_above)
    if counted is not None:
        both = counted[:, None] & counted
        positive, negative = positive & both, negative & both
    logits, count = cosines / temperature, positive.sum(1)
    # The smallest number instead of minus infinity: a query without pairs must have gradient 0, not NaN.
    whole = logits.masked_fill(~(positive | negative), torch.finfo(logits.dtype).min).logsumexp(1)
    losses = whole - logits.where(positive, 0).sum(1) / count.clamp(min=1)
    return losses.where(count > 0, 0), torch.stack([positive.sum(), negative.sum()])


@dataclass(frozen=True)
class SupCon:
    """The mean of these losses over the queries, or over those with a loss above 0."""

    temperature: float
    above_zero: bool = True

    def sums(self, queries: Tensor, *, gradient: bool) -> SoftSum:
        """Exponentials of cosines over temperature."""
        return SoftSum(queries, self.temperature, gradient=gradient)

    def combine(self, ring: LazyRing, pairs: Compared, negatives: SoftSum) -> tuple[Tensor, Tensor | None]:
        """The loss, (), and its gradient (B, dim); 0 without positives or without negatives."""
        losses, gradient = _losses(ring, pairs, negatives)
        weights = mean_weights(losses, torch.ones_like(losses, dtype=torch.bool), above_zero=self.above_zero)
        weights = weights * pairs.of_both_kinds
        return losses @ weights, None if gradient is None else gradient.mul_(weights[:, None])


def _losses(ring: LazyRing, pairs: Compared, negatives: SoftSum) -> tuple[Tensor, Tensor | None]:
    """Losses (B,) and their gradient (B, dim), if wanted."""
    kept, logits = pairs.kept, pairs.related.logits
    if not len(kept):
        return torch.zeros_like(negatives.total), None if negatives.weighted is None else negatives.weighted.zero_()
    count, counted, dropped = kept.sum(0).clamp_(min=1), kept.any(0), ~kept
    mean = logits.masked_fill(dropped, 0).sum(0) / count
    # Masked after exp, which is slow for infinities. A lone positive has term 1 and so loss 0, to the last bit.
    top = logits.masked_fill(dropped, -torch.inf).amax(0).masked_fill_(~counted, 0)
    terms = (logits - top).exp_().masked_fill_(dropped, 0)  # (h, B)
    whole = torch.logaddexp(negatives.log(), terms.sum(0).log_() + top)
    losses = torch.where(counted, whole - mean, 0)
    gradient = negatives.over(whole)
    if gradient is not None:
        weights = terms.mul_((top - whole).exp_()).sub_(kept.to(terms.dtype) / count)
        add_positives(gradient, ring, pairs.related, weights)
        gradient.masked_fill_(~counted[:, None], 0).mul_(negatives.sharpness)  # NaN where there was no pair at all
    return losses, gradient
