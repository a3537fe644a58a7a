"""The supervised contrastive loss of each query against a whole bank, with its gradient, in one walk."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from adaptive_memory_bank.distributed import Alone, Ranks
from adaptive_memory_bank.losses.compare import Compared, Queries, add_positives, compare, mean_weights
from adaptive_memory_bank.losses.pairs import Margins
from adaptive_memory_bank.losses.soft_sum import SoftSum, with_gradient
from adaptive_memory_bank.losses.walk import Workspace
from adaptive_memory_bank.ring import LazyRing


def losses_against_bank(
    ring: LazyRing,
    queries: Queries,
    *,
    temperature: float,
    margins: Margins,
    workspace: Workspace,
    ranks: Ranks,
) -> tuple[Tensor, Tensor]:
    """Loss of each query (B,), 0 where it has no positive, and the pairs kept: positive and negative, (2,).

    For a query i with kept positives P and negatives N, ``log sum_(j in P + N) exp(l_ij) - mean_(j in P) l_ij``, with
    ``l_ij`` the cosine similarity over temperature (Khosla et al., "Supervised Contrastive Learning", 2020, eq. 2).

    Args:
        ring: Holds the rows, with labels; of a bank in shards those of this rank.
        queries: Those of this rank. What is not counted is zeros.
        temperature: Divides the cosines.
        margins: Which pairs are kept.
        workspace: Memory for a block of rows.
        ranks: Who holds the rows of the bank.
    """
    with torch.no_grad():
        asked = queries.of_all(ranks)
        sums = SoftSum(asked.unit, temperature, gradient=ranks.want_gradient)
        pairs = compare(ring, asked, sums=sums, mining=margins, workspace=workspace)
        found = _against_all_rows(ring, pairs, sums, ranks)
    counts = torch.stack([found.positive.sum(), found.negative.sum()])
    return with_gradient(queries.unit, found.losses, found.gradient), counts


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
        losses, gradient, *_ = _against_all_rows(ring, pairs, negatives, Alone(negatives.total))
        weights = mean_weights(losses, torch.ones_like(losses, dtype=torch.bool), above_zero=self.above_zero)
        weights = weights * pairs.of_both_kinds
        return losses @ weights, None if gradient is None else gradient.mul_(weights[:, None])


class _Found(NamedTuple):
    losses: Tensor  # (B,)
    gradient: Tensor | None  # (B, dim), if it is wanted
    positive: Tensor  # (B,): how many pairs
    negative: Tensor  # (B,)


def _against_all_rows(ring: LazyRing, pairs: Compared, negatives: SoftSum, ranks: Ranks) -> _Found:
    """What the queries of this rank find, from what the queries of all ranks, Q of them, find in this ring."""
    kept, logits = pairs.kept, pairs.related.logits
    dropped = ~kept
    # Masked after exp, which is slow for infinities. A lone positive has term 1 and so loss 0, to the last bit.
    top = ranks.largest(_largest(logits.masked_fill(dropped, -torch.inf)))
    top.masked_fill_(top == -torch.inf, 0)
    terms = (logits - top).exp_().masked_fill_(dropped, 0)  # (h, Q)
    negatives.agree(ranks)
    count, different, total, of_positives, negatives.total = ranks.sum(
        kept.sum(0), pairs.negatives, logits.masked_fill(dropped, 0).sum(0), terms.sum(0), negatives.total
    )
    own, counted = ranks.own, count > 0
    counts, count = (count[own], different[own]), count.clamp(min=1)
    whole = torch.logaddexp(negatives.log(), of_positives.log_() + top)
    losses = torch.where(counted, whole - total / count, 0)
    gradient = negatives.over(whole)
    if gradient is not None:
        weights = terms.mul_((top - whole).exp_()).sub_(kept.to(terms.dtype) / count)
        add_positives(gradient, ring, pairs.related, weights)
        gradient.masked_fill_(~counted[:, None], 0).mul_(negatives.sharpness)  # NaN where there was no pair at all
        gradient = ranks.sum_to_owners(gradient)
    return _Found(losses[own], gradient, *counts)


def _largest(values: Tensor) -> Tensor:
    """The largest of each column of (h, Q); minus infinity where there is none."""
    return values.amax(0) if len(values) else values.new_full(values.shape[1:], -torch.inf)
