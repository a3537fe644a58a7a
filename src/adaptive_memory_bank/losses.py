"""Contrastive losses of a batch against a memory bank, fused: faster and smaller than bank, miner and loss apart."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adaptive_memory_bank._fused import Workspace
from adaptive_memory_bank._infonce import log_sum_exp
from adaptive_memory_bank._supcon import ALL_PAIRS, Margins, Pairs, supcon_batch_rows, supcon_rows
from adaptive_memory_bank.bank import AdaptiveMemoryBank, check_labels, check_rows
from adaptive_memory_bank.steps import StepCounter, check_start_after

__all__ = ["MemoryInfoNCELoss", "MemorySupConLoss", "Pairs"]


class _MemoryLoss(nn.Module):
    """Has a bank and a temperature, and counts its training steps."""

    def __init__(self, bank: AdaptiveMemoryBank, temperature: float, advice: str) -> None:
        super().__init__()
        if not isinstance(bank, AdaptiveMemoryBank):
            raise TypeError(f"`bank` must be an AdaptiveMemoryBank, got {type(bank).__name__}.")
        if not (_is_number(temperature) and 0 < temperature < math.inf):
            raise ValueError(f"`temperature` must be a positive number, got {temperature!r}.")
        self.bank = bank
        self._workspace = Workspace()
        self.temperature = float(temperature)
        self.steps = StepCounter(advice)

    def stats(self) -> dict[str, float]:
        """Training steps so far: ``steps``, and of them ``empty_steps``, which had nothing to compare and loss 0.

        The device is asked only now (and every 100 steps, for a warning once more than half of those were empty).
        """
        return self.steps.stats()

    def _unit(self, rows: Tensor) -> Tensor:
        """Unit vectors, at the precision of the bank's arithmetic."""
        return F.normalize(rows.to(self.bank.ring.scale.dtype), dim=1)


class MemorySupConLoss(_MemoryLoss):
    """Supervised contrastive loss of a batch against a memory bank (XBM), with mined pairs.

    A step realigns the bank to the batch, enqueues the batch, and compares each query i with all rows j but itself:
    ``log sum_(j kept) exp(s_ij / t) - mean_(j kept, positive) s_ij / t``, averaged over the queries for which this is
    above 0; ``s`` is cosine similarity, 0 for a row of zeros. Mining keeps positives farther and negatives nearer than
    a margin, in Euclidean distance of unit vectors: ``d^2 = 2 - 2 s``. With the ``identity`` adapter this is
    pytorch-metric-learning's ``CrossBatchMemory(SupConLoss(), miner=PairMarginMiner())``, in value and gradient.

    The gradient is computed along with the loss, so a later enqueue cannot disturb it, and cannot be differentiated
    again. A batch with rows that are not finite has loss NaN; the bank leaves them out. In ``eval()`` mode the bank is
    used as it is.

    References: Wang et al., "Cross-Batch Memory for Embedding Learning", CVPR 2020; Khosla et al., "Supervised
    Contrastive Learning", NeurIPS 2020.

    Args:
        bank: Holds labelled rows.
        temperature: Divides similarities.
        pos_margin: Positives count if farther than this.
        neg_margin: Negatives count if nearer than this.
        mine: Whether margins apply; otherwise all pairs count.
        batch_weight: Weight of the same loss within the batch, added if not 0; 1.0 is XBM*.
        start_after: Training steps before the bank is used. Rows of an encoder that has not settled yet are of little
            worth: until then the loss is the one within the batch (same margins, weight 1), while the bank adapts and
            enqueues from the first step on. Only steps in ``train()`` mode count; their number is in ``state_dict()``.

    Attributes:
        last_pairs: ``(positive, negative)`` pairs kept against the bank in the last step, or within the batch before
            the start. Without any positive or any negative, or with one of each at most, the loss is 0 and teaches
            nothing; `stats` counts such steps.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> loss = MemorySupConLoss(AdaptiveMemoryBank(size=8, dim=2, adapter="xbn"), mine=False)
        >>> queries = torch.randn(4, 2, requires_grad=True)
        >>> loss(queries, torch.tensor([0, 0, 1, 1])).backward()
        >>> queries.grad.shape, loss.last_pairs
        (torch.Size([4, 2]), Pairs(positive=4, negative=8))
        >>> loss.stats()
        {'steps': 1.0, 'empty_steps': 0.0}
    """

    def __init__(
        self,
        bank: AdaptiveMemoryBank,
        temperature: float = 0.1,
        *,
        pos_margin: float = 0.2,
        neg_margin: float = 0.8,
        mine: bool = True,
        batch_weight: float = 0.0,
        start_after: int = 0,
    ) -> None:
        super().__init__(bank, temperature, "Try other margins, or mine=False.")
        for name, margin in (("pos_margin", pos_margin), ("neg_margin", neg_margin)):
            if not _is_number(margin) or math.isnan(margin):
                raise ValueError(f"`{name}` must be a number, got {margin!r}.")
        if not (_is_number(batch_weight) and 0 <= batch_weight < math.inf):
            raise ValueError(f"`batch_weight` must not be negative, got {batch_weight!r}.")
        self.pos_margin, self.neg_margin, self.mine = pos_margin, neg_margin, mine
        self.batch_weight = float(batch_weight)
        self.start_after = check_start_after(start_after)
        self.last_pairs = Pairs(0, 0)

    def forward(self, queries: Tensor, labels: Tensor) -> Tensor:
        """Adapt, enqueue, compare.

        Args:
            queries: Embeddings (B, dim), any floating point type, any length.
            labels: Their classes (B,), integers.

        Returns:
            The loss, a scalar.
        """
        check_rows("queries", queries, self.bank.ring)
        check_labels("labels", labels, queries)
        self.bank._check_labelled(labels)
        if self.training:
            self.bank.update(queries, labels)
        slots = self.bank.last_slots if self.training else torch.full_like(labels, -1)
        loss = self._finite_loss(queries, labels.to(queries.device), slots.to(queries.device))
        if self.training:
            self.steps.add_loss(loss)
        return loss

    def _finite_loss(self, queries: Tensor, labels: Tensor, slots: Tensor) -> Tensor:
        """NaN, with a gradient that is NaN, where a query is not finite."""
        finite = queries.detach().square().sum(1).isfinite()
        if finite.all():
            return self._loss(queries, labels, slots)
        return self._loss(queries[finite], labels[finite], slots[finite]) * torch.nan

    def _loss(self, queries: Tensor, labels: Tensor, slots: Tensor) -> Tensor:
        with torch.autocast(queries.device.type, enabled=False):
            unit = self._unit(queries)
            if self.steps.count < self.start_after:
                loss, self.last_pairs = self._within_batch(unit, labels)
                return loss
            loss, self.last_pairs = self._against_bank(unit, labels, slots)
            return loss + self.batch_weight * self._within_batch(unit, labels)[0] if self.batch_weight else loss

    def _against_bank(self, unit: Tensor, labels: Tensor, slots: Tensor) -> tuple[Tensor, Pairs]:
        rows, pairs = supcon_rows(
            self.bank.ring,
            unit,
            labels,
            slots=slots,
            temperature=self.temperature,
            margins=self._margins,
            workspace=self._workspace,
        )
        return _mean_above_zero(rows, pairs, unit), pairs

    def _within_batch(self, unit: Tensor, labels: Tensor) -> tuple[Tensor, Pairs]:
        rows, pairs = supcon_batch_rows(unit, labels, temperature=self.temperature, margins=self._margins)
        return _mean_above_zero(rows, pairs, unit), pairs

    @property
    def _margins(self) -> Margins:
        return Margins.of(self.pos_margin, self.neg_margin) if self.mine else ALL_PAIRS

    def extra_repr(self) -> str:
        """Show the settings."""
        mining = f"pos_margin={self.pos_margin}, neg_margin={self.neg_margin}" if self.mine else "mine=False"
        weights = f"batch_weight={self.batch_weight}, start_after={self.start_after}"
        return f"temperature={self.temperature}, {mining}, {weights}"


class MemoryInfoNCELoss(_MemoryLoss):
    """InfoNCE of queries and their keys against a memory bank of negatives (MoCo).

    A step realigns the bank to the keys, compares, and enqueues the keys: ``-log(exp(q . k / t) / (exp(q . k / t) +
    sum_j exp(q . z_j / t)))``, averaged over the batch; everything has unit length, realigned rows too. With the
    ``identity`` adapter and a full bank this is lightly's ``NTXentLoss(memory_bank_size=...)``.

    A bank of a fifth of the data set holds an earlier view of every fifth query. With the ids of the images, such rows
    are no negatives of that query: the sum is over the rows of other images.

    The gradient against the bank is computed along with the loss, so a later enqueue cannot disturb it (a symmetric
    loss may call this twice before one backward), and cannot be differentiated again. In ``eval()`` mode the bank is
    used as it is.

    Reference: He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020.

    Args:
        bank: Holds rows without labels, or with the ids of their images as labels.
        temperature: Divides similarities.

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

    def __init__(self, bank: AdaptiveMemoryBank, temperature: float = 0.1) -> None:
        super().__init__(bank, temperature, "The bank holds no rows of other images: make it larger, or check the ids.")

    def forward(self, queries: Tensor, keys: Tensor, ids: Tensor | None = None) -> Tensor:
        """Adapt, compare, enqueue.

        Args:
            queries: Embeddings (B, dim), any floating point type, any length.
            keys: Embeddings (B, dim) of other views of the same images, in the same order.
            ids: Which images they are, (B,), integers; rows of the same image are no negatives. All calls with one
                bank have them or none has.

        Returns:
            The loss, a scalar.
        """
        self._check(queries, keys, ids)
        with torch.autocast(queries.device.type, enabled=False):
            queries, keys = self._unit(queries), self._unit(keys)
            if self.training:
                self.bank.adapt(keys)  # without ids: images are no classes
            negative = log_sum_exp(
                self.bank.ring,
                queries,
                None if ids is None else ids.to(queries.device),
                temperature=self.temperature,
                workspace=self._workspace,
            )
            if self.training:
                self.bank.enqueue(keys, ids)
                self.steps.add((negative == -torch.inf).all())
            positive = (queries * keys).sum(1) / self.temperature
            return (torch.logaddexp(negative, positive) - positive).mean()

    def _check(self, queries: Tensor, keys: Tensor, ids: Tensor | None) -> None:
        check_rows("queries", queries, self.bank.ring)
        check_rows("keys", keys, self.bank.ring)
        if queries.shape != keys.shape:
            raise ValueError(f"`keys` must have shape {tuple(queries.shape)} but has shape {tuple(keys.shape)}.")
        if ids is not None:
            check_labels("ids", ids, queries)
        self.bank._check_labelled(ids)

    def extra_repr(self) -> str:
        """Show the temperature."""
        return f"temperature={self.temperature}"


def _mean_above_zero(losses: Tensor, pairs: Pairs, queries: Tensor) -> Tensor:
    """Average as pytorch-metric-learning does: over losses above 0, and 0 where there is nothing to compare."""
    counted = losses > 0
    comparable = min(pairs) > 0 and max(pairs) > 1
    if not (comparable and counted.any()):
        return (queries * 0).sum()
    return losses.where(counted, 0).sum() / counted.sum()  # indexing would cost more, forward and backward


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
