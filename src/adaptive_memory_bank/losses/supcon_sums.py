"""The supervised contrastive loss of each query against a whole bank, with its gradient, in one walk."""

import torch
from torch import Tensor

from adaptive_memory_bank.losses.pairs import Margins
from adaptive_memory_bank.losses.related import RelatedRows
from adaptive_memory_bank.losses.soft_sum import SoftSum, wants_gradient, with_gradient
from adaptive_memory_bank.losses.walk import Block, Workspace, unit_factors, walk
from adaptive_memory_bank.ring import LazyRing

SMALLEST_TERM = 2.0**-47  # below the exponential of any bounded logit, above that of `SoftSum.nothing`


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
        related = RelatedRows.of(ring, queries, labels)
        negatives = _Negatives(SoftSum(queries, temperature, gradient=wanted), margins.negative_above / temperature)
        for index, block in enumerate(walk(ring, queries / temperature, workspace)):
            negatives.add(block, related.part(index))
        kept = (
            related.same & (related.slots[:, None] != slots) & (related.logits < margins.positive_below / temperature)
        )
        if counted is not None:
            kept &= counted
            negatives.kept *= counted
        losses, gradient = _combine(ring, related, kept, negatives.soft)
        pairs = torch.stack([kept.sum(), negatives.kept.sum(dtype=torch.float64).long()])
    return with_gradient(queries, losses, None if gradient is None else gradient / temperature), pairs


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


class _Negatives:
    """Kept pairs of different labels: how many, and their sums."""

    def __init__(self, soft: SoftSum, above: float) -> None:
        self.soft, self.above = soft, above
        self.kept = torch.zeros_like(soft.total)  # (B,), whole numbers
        self.memory: Tensor | None = None

    def add(self, block: Block, related: RelatedRows) -> None:
        """Count a block in, and note the logits of related rows, which do not come by again."""
        logits = block.logits
        related.hide(logits, self.soft.nothing)
        if self.above > -torch.inf:
            torch.threshold_(logits, self.above, self.soft.nothing)
        if not self.soft.bounded:
            self.kept += (logits > self.soft.nothing).sum(0)
        terms = self.soft.terms(logits)
        if self.soft.bounded:  # the same in a third of the time: sums of a power of two are exact
            ones = torch.clamp(terms, max=SMALLEST_TERM, out=self._scratch(terms))
            self.kept += ones.sum(0).div_(SMALLEST_TERM).round_()
        self.soft.weigh(terms, block)

    def _scratch(self, like: Tensor) -> Tensor:
        if self.memory is None:  # the first block is the largest
            self.memory = torch.empty_like(like)
        return self.memory[: len(like)]


def _combine(ring: LazyRing, related: RelatedRows, kept: Tensor, negatives: SoftSum) -> tuple[Tensor, Tensor | None]:
    """Losses (B,) and their gradient (B, dim) in the queries over temperature, if wanted."""
    if not len(related.slots):
        return torch.zeros_like(negatives.total), None if negatives.weighted is None else negatives.weighted.zero_()
    count, counted, dropped = kept.sum(0).clamp_(min=1), kept.any(0), ~kept
    mean = related.logits.masked_fill(dropped, 0).sum(0) / count
    # Masked after exp, which is slow for infinities. A lone positive has term 1 and so loss 0, to the last bit.
    top = related.logits.masked_fill(dropped, -torch.inf).amax(0).masked_fill_(~counted, 0)
    terms = (related.logits - top).exp_().masked_fill_(dropped, 0)  # (h, B)
    whole = torch.logaddexp(negatives.log(), terms.sum(0).log_() + top)
    losses = torch.where(counted, whole - mean, 0)
    gradient = negatives.over(whole)
    if gradient is not None:
        weights = terms.mul_((top - whole).exp_()).sub_(kept / count)
        for slots, part in zip(
            torch.split(related.slots, related.step), torch.split(weights, related.step), strict=True
        ):
            rows = ring.gather(slots)
            gradient.addmm_(part.T, rows.mul_(unit_factors(rows)))
        gradient.masked_fill_(~counted[:, None], 0)  # NaN where there was no pair at all
    return losses, gradient
