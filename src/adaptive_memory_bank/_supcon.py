"""The supervised contrastive loss of each query against a whole bank, with its gradient, in one walk."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from adaptive_memory_bank._fused import Block, SoftSum, walk, wants_gradient, with_gradient
from adaptive_memory_bank.ring import LazyRing


class Pairs(NamedTuple):
    """How many pairs a loss was made of."""

    positive: int
    negative: int


class Margins(NamedTuple):
    """Which pairs count: positives below a cosine, negatives above one; infinity where all do."""

    positive_below: float
    negative_above: float

    @classmethod
    def of(cls, pos_margin: float, neg_margin: float) -> Margins:
        """Turn Euclidean distances of unit vectors into cosines: ``d > m`` is ``cos < 1 - m^2/2``.

        Example:
            >>> Margins.of(1.0, 0.0)
            Margins(positive_below=0.5, negative_above=1.0)
            >>> Margins.of(-1.0, -1.0)  # every distance is larger than that
            Margins(positive_below=inf, negative_above=inf)
        """
        positive_below = torch.inf if pos_margin < 0 else 1 - pos_margin**2 / 2
        negative_above = torch.inf if neg_margin < 0 else 1 - neg_margin**2 / 2
        return cls(positive_below, negative_above)


ALL_PAIRS = Margins(torch.inf, -torch.inf)


def supcon_rows(
    ring: LazyRing, queries: Tensor, labels: Tensor, *, slots: Tensor, temperature: float, margins: Margins
) -> tuple[Tensor, Pairs]:
    """Loss of each query (B,), 0 where it has no positive, and the number of pairs kept over all queries.

    For a query i with kept positives P and negatives N, ``log sum_(j in P + N) exp(l_ij) - mean_(j in P) l_ij``, with
    ``l_ij`` the cosine similarity over temperature (Khosla et al., "Supervised Contrastive Learning", 2020, eq. 2).

    Args:
        ring: Holds the rows, with labels.
        queries: Unit vectors, shape (B, dim).
        labels: Shape (B,).
        slots: Where in the ring each query is itself, shape (B,), or -1.
        temperature: Divides the cosines.
        margins: Which pairs are kept.
    """
    wanted = wants_gradient(queries)
    with torch.no_grad():
        sums = _Sums(SoftSum(queries, temperature, gradient=wanted), labels, temperature, margins)
        related = _holds(labels, ring.labels[: ring.count])
        for block in walk(ring, queries / temperature):
            inside = related[block.start : block.start + len(block.rows)].nonzero()[:, 0]
            sums.add(block, inside, ring.labels[inside + block.start], slots - block.start)
        losses, gradient = sums.losses()
    return with_gradient(queries, losses, gradient), Pairs(int(sums.positives.sum()), int(sums.negatives))


def supcon_batch_rows(queries: Tensor, labels: Tensor, *, temperature: float, margins: Margins) -> tuple[Tensor, Pairs]:
    """The same within a batch of unit vectors (B, dim), differentiable on both sides: small, so plain autograd."""
    cosines = queries @ queries.T
    same = labels[:, None] == labels
    positive = (same & (cosines < margins.positive_below)).fill_diagonal_(False)
    negative = ~same & (cosines > margins.negative_above)
    logits, count = cosines / temperature, positive.sum(1)
    # The smallest number instead of minus infinity: a query without pairs must have gradient 0, not NaN.
    whole = logits.masked_fill(~(positive | negative), torch.finfo(logits.dtype).min).logsumexp(1)
    losses = whole - logits.where(positive, 0).sum(1) / count.clamp(min=1)
    return losses.where(count > 0, 0), Pairs(int(positive.sum()), int(negative.sum()))


def _holds(labels: Tensor, stored: Tensor) -> Tensor:
    """Whether each stored label (n,) is one of the labels (B,)."""
    if not len(labels):
        return torch.zeros_like(stored, dtype=torch.bool)
    known = labels.unique()
    return known[torch.searchsorted(known, stored).clamp_(max=len(known) - 1)] == stored


class _Sums:
    """What one walk gathers, per query."""

    def __init__(self, soft: SoftSum, labels: Tensor, temperature: float, margins: Margins) -> None:
        self.soft = soft
        self.labels, self.temperature, self.mine = labels, temperature, margins != ALL_PAIRS
        self.positive_below = margins.positive_below / temperature
        self.negative_above = margins.negative_above / temperature
        self.positives = labels.new_zeros(len(labels))  # how many were kept
        self.positive_logits = torch.zeros_like(soft.total)  # their sum
        self.positive_rows = None if soft.weighted is None else torch.zeros_like(soft.weighted)  # their sum
        self.negatives = labels.new_zeros(())  # how many were kept, over all queries

    def add(self, block: Block, inside: Tensor, stored_labels: Tensor, own: Tensor) -> None:
        """Count a block in.

        Args:
            block: Rows and logits.
            inside: Which rows (h,) of the block have the label of any query; all positives are among them.
            stored_labels: The labels (h,) of those.
            own: Which row of the block each query (B,) is itself, if any.
        """
        logits = block.logits[inside]  # (h, B)
        same = stored_labels[:, None] == self.labels
        kept = same & (inside[:, None] != own) & (logits < self.positive_below)
        block.logits[inside] = logits.masked_fill(same, -torch.inf)
        self._keep_negatives(block.logits, same)
        self.soft.raise_offset(block.logits, logits.masked_fill(~kept, -torch.inf))
        terms = self.soft.exponentials(block.logits)
        self.soft.total += terms.sum(0)
        if len(inside):
            self._add_positives(block, inside, logits, kept)
        self.soft.add_weighted(terms, block.rows)

    def _keep_negatives(self, logits: Tensor, same: Tensor) -> None:
        if not self.mine:
            self.negatives += logits.numel() - same.sum()
            return
        torch.threshold_(logits, self.negative_above, -torch.inf)
        self.negatives += (logits > -torch.inf).sum()

    def _add_positives(self, block: Block, inside: Tensor, logits: Tensor, kept: Tensor) -> None:
        self.positives += kept.sum(0)
        self.positive_logits += logits.where(kept, 0).sum(0)
        terms = self.soft.exponentials(logits.masked_fill_(~kept, -torch.inf))
        self.soft.positive += terms.sum(0)
        block.logits.index_add_(0, inside, terms)
        if self.positive_rows is not None:
            self.positive_rows.addmm_(kept.T.to(terms.dtype), block.rows[inside])

    def losses(self) -> tuple[Tensor, Tensor | None]:
        """Losses (B,) and their gradient (B, dim) in the queries, if wanted."""
        soft, count = self.soft, self.positives.clamp(min=1)
        mean = self.positive_logits / count
        # A lone positive is its own sum, to the last bit: without negatives its loss is 0, and not a rounding error.
        positive = torch.where(self.positives == 1, mean, soft.positive.log() + soft.offset)
        losses = torch.logaddexp(soft.total.log() + soft.offset, positive) - mean
        losses = torch.where(self.positives > 0, losses, 0)
        if soft.weighted is None or self.positive_rows is None:
            return losses, None
        total = (soft.total + soft.positive).clamp_(min=torch.finfo(losses.dtype).tiny)
        gradient = soft.weighted / total[:, None] - self.positive_rows / count[:, None]
        return losses, gradient / self.temperature
