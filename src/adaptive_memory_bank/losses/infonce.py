"""InfoNCE against a memory bank: the loss, and the sum over its negatives in one walk."""

from itertools import repeat

import torch
from torch import Tensor

from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.distributed import Alone, Ranks
from adaptive_memory_bank.graphs import outside_graphs
from adaptive_memory_bank.losses.base import MemoryLoss
from adaptive_memory_bank.losses.related import RelatedRows
from adaptive_memory_bank.losses.soft_sum import SoftSum, with_gradient
from adaptive_memory_bank.losses.walk import Workspace, walk
from adaptive_memory_bank.ring import LazyRing


class MemoryInfoNCELoss(MemoryLoss):
    """InfoNCE of queries and their keys against a memory bank of negatives (MoCo).

    A step realigns the bank to the keys, compares, and enqueues the keys: ``-log(exp(q . k / t) / (exp(q . k / t) +
    sum_j exp(q . z_j / t)))``, averaged over the batch; everything has unit length, realigned rows too. With the
    ``identity`` adapter and a full bank this is lightly's ``NTXentLoss(memory_bank_size=...)``.

    A bank of a fifth of the data set holds an earlier view of every fifth query. With the ids of the images, such rows
    are not negatives of that query: the sum is over the rows of other images.

    With ``batch_negatives`` the sum is over the other keys of the batch, too (in a distributed run, of this rank's
    batch), and has a gradient in them: for two encoders that learn from each other, such as those of images and texts,
    each with a bank.

    The gradient against the bank is computed along with the loss: a later enqueue does not change it (a symmetric loss
    may call this twice before one backward), and second derivatives are not available. In ``eval()`` mode the bank is
    used as it is.

    Reference: He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020.

    Args:
        bank: Holds rows without labels, or with the ids of their images as labels.
        temperature: Divides similarities.
        batch_negatives: Whether the keys of the other queries are negatives, too.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> loss = MemoryInfoNCELoss(AdaptiveMemoryBank(size=8, dim=2, adapter="xbn"))
        >>> loss(torch.randn(4, 2), torch.randn(4, 2))  # an empty bank has no negatives
        tensor(0.)
        >>> loss(torch.randn(4, 2), torch.randn(4, 2)) > 0
        tensor(True)

        >>> loss = MemoryInfoNCELoss(AdaptiveMemoryBank(size=8, dim=2, adapter="xbn"))
        >>> for _ in range(2):  # the same images twice: the second time, each has three rows of others
        ...     value = loss(torch.randn(4, 2), torch.randn(4, 2), torch.arange(4))
        >>> loss.bank.labels
        tensor([0, 1, 2, 3, 0, 1, 2, 3])
    """

    def __init__(self, bank: AdaptiveMemoryBank, temperature: float = 0.1, *, batch_negatives: bool = False) -> None:
        super().__init__(bank, temperature, "The bank holds no rows of other images: make it larger, or check the ids.")
        self.batch_negatives = batch_negatives

    @outside_graphs
    def forward(self, queries: Tensor, keys: Tensor, ids: Tensor | None = None) -> Tensor:
        """Adapt, compare, enqueue.

        Args:
            queries: Embeddings (B, dim), any floating point type, any length.
            keys: Embeddings (B, dim) of other views of the same images, in the same order.
            ids: Which images they are, (B,), integers; rows of the same image are not negatives. All calls with one
                bank have them or none has.

        Returns:
            The loss, a scalar.
        """
        self._check(queries, keys, ids)
        with torch.autocast(queries.device.type, enabled=False):
            queries, keys = self._unit(queries), self._unit(keys)
            ids = None if ids is None else ids.to(queries.device)
            negative = self._adapt_compare_enqueue(queries, keys, ids)
            positive, in_batch = self._against_keys(queries, keys, ids)
            losses = torch.logaddexp(negative, in_batch) - positive
            loss: Tensor = losses.sum() / max(len(losses), 1)  # also of no queries at all, on one of many ranks
        if self.training:
            self.steps.add_loss(loss)
        return loss

    def _adapt_compare_enqueue(self, queries: Tensor, keys: Tensor, ids: Tensor | None) -> Tensor:
        """Logarithm of the sum over the negatives of each query, (B,)."""
        if not self.training:
            return self._negatives(queries, ids)
        batch = self.bank.take(keys, ids)
        self.bank.adapt_to(batch._replace(labels=None))  # images are not classes
        negative = self._negatives(queries, ids)
        self.bank.store(batch)
        return negative

    def _negatives(self, queries: Tensor, ids: Tensor | None) -> Tensor:
        return log_sum_exp(self.bank, queries, ids, temperature=self.temperature, workspace=self._workspace)

    def _against_keys(self, queries: Tensor, keys: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """Logits of the positives, and log-sums over all keys that a query is compared with, (B,) each."""
        if not self.batch_negatives:
            positive = (queries * keys).sum(1) / self.temperature
            return positive, positive
        logits = queries @ keys.T / self.temperature
        if ids is not None:
            other_views = (ids[:, None] == ids).fill_diagonal_(False)
            logits = logits.masked_fill(other_views, -torch.inf)
        return logits.diagonal(), logits.logsumexp(1)

    def _check(self, queries: Tensor, keys: Tensor, ids: Tensor | None) -> None:
        self.bank.check_queries(queries)
        self.bank.check(keys, ids, names=("keys", "ids"))
        if queries.shape != keys.shape:
            raise ValueError(f"`keys` must have shape {tuple(queries.shape)} but has shape {tuple(keys.shape)}.")

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"temperature={self.temperature}, batch_negatives={self.batch_negatives}"


def log_sum_exp(
    bank: AdaptiveMemoryBank, queries: Tensor, ids: Tensor | None, *, temperature: float, workspace: Workspace
) -> Tensor:
    """``log sum_j exp(q_i . z_j / temperature)`` over the rows of other images, (B,), differentiable in the queries.

    Minus infinity, with gradient 0, for a query without such rows.

    Args:
        bank: Holds the rows, with ids as labels if there are ids.
        queries: Unit vectors, shape (B, dim).
        ids: The image of each query, shape (B,); None takes all rows for those of other images.
        temperature: Divides the cosines.
        workspace: Memory for a block of rows.
    """
    ring, ranks = bank.ring, bank.ranks_of(queries)
    with torch.no_grad():
        asked, *known = ranks.gather(queries, *([] if ids is None else [ids]))
        related = RelatedRows.of(ring, asked, known[0]) if known else None
        sums = SoftSum(asked, temperature, gradient=ranks.want_gradient)
        parts = repeat(None) if related is None else related.parts()
        for block, part in zip(walk(ring, asked / temperature, workspace), parts, strict=False):
            if part is not None:
                part.hide(block.logits, sums.nothing)
            sums.add(block)
        alone = _without_negatives(ring, related)
        if not isinstance(ranks, Alone):
            alone = _add_up(sums, alone, ranks)
        values, gradient = sums.log(), None
        if alone is not None:
            values.masked_fill_(alone, -torch.inf)
        mean_row = sums.over(values)
        if mean_row is not None:
            gradient = (mean_row if alone is None else mean_row.masked_fill_(alone[:, None], 0)).div_(temperature)
            gradient = ranks.sum_to_owners(gradient)
    return with_gradient(queries, values[ranks.own], gradient)


def _add_up(sums: SoftSum, alone: Tensor | None, ranks: Ranks) -> Tensor:
    """Sum over the ranks; returns which queries (Q,) have no negatives on any of them."""
    here = torch.ones_like(sums.total) if alone is None else (~alone).to(sums.total).expand_as(sums.total)
    sums.agree(ranks)
    sums.total, negatives = ranks.sum(sums.total, here)
    return negatives == 0


def _without_negatives(ring: LazyRing, related: RelatedRows | None) -> Tensor | None:
    """Which queries (B,) or (1,) all rows belong to; None where that cannot be, as in nearly every step on a CPU.

    Counted, not read off the sums: a hidden row adds next to nothing, but not always exactly nothing.
    """
    if not ring.count:
        return torch.ones(1, dtype=torch.bool, device=ring.device)
    if related is None:
        return None if ring.gaps is None else ring.gaps.all()[None]
    if len(related.slots) < ring.count:
        return None
    return (related.same if ring.gaps is None else related.same | ring.gaps[:, None]).all(0)
