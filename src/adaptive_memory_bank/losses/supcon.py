"""The supervised contrastive loss against a memory bank."""

import math

import torch
from torch import Tensor

from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.checks import check_start_after, is_number
from adaptive_memory_bank.graphs import outside_graphs
from adaptive_memory_bank.losses.base import MemoryLoss
from adaptive_memory_bank.losses.compare import Queries
from adaptive_memory_bank.losses.pairs import ALL_PAIRS, Margins, Pairs
from adaptive_memory_bank.losses.supcon_sums import losses_against_bank, losses_within_batch
from adaptive_memory_bank.masks import all_known


class MemorySupConLoss(MemoryLoss):
    """Supervised contrastive loss of a batch against a memory bank (XBM), with mined pairs.

    A step realigns the bank to the batch, enqueues the batch, and compares each query i with all rows j but itself:
    ``log sum_(j kept) exp(s_ij / t) - mean_(j kept, positive) s_ij / t``, averaged over the queries for which this is
    above 0; ``s`` is cosine similarity, 0 for a row of zeros. Mining keeps positives farther and negatives nearer than
    a margin, in Euclidean distance of unit vectors: ``d^2 = 2 - 2 s``. With the ``identity`` adapter this is
    pytorch-metric-learning's ``CrossBatchMemory(SupConLoss(), miner=PairMarginMiner())``, in value and gradient.

    The gradient is computed along with the loss: a later enqueue does not change it, and second derivatives are not
    available. A batch with rows that are not finite has loss NaN; the bank leaves them out. In ``eval()`` mode the bank
    is used as it is.

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
            nothing; `stats` counts such steps. Reading it waits for the device.
        last_pair_counts: The same as a tensor (2,), on the device of the queries: reading it later need not wait.

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
            if not is_number(margin) or math.isnan(margin):
                raise ValueError(f"`{name}` must be a number, got {margin!r}.")
        if not (is_number(batch_weight) and 0 <= batch_weight < math.inf):
            raise ValueError(f"`batch_weight` must not be negative, got {batch_weight!r}.")
        self.pos_margin, self.neg_margin, self.mine = pos_margin, neg_margin, mine
        self.batch_weight = float(batch_weight)
        self.start_after = check_start_after(start_after)
        self.last_pair_counts = torch.zeros(2, dtype=torch.int64)

    @property
    def last_pairs(self) -> Pairs:
        """Pairs kept in the last step (see the class)."""
        return Pairs(*self.last_pair_counts.tolist())

    @outside_graphs
    def forward(self, queries: Tensor, labels: Tensor) -> Tensor:
        """Adapt, enqueue, compare.

        Args:
            queries: Embeddings (B, dim), any floating point type, any length.
            labels: Their classes (B,), integers.

        Returns:
            The loss, a scalar.
        """
        if labels is None:
            raise TypeError("`labels` must be a tensor of integers, got None.")
        self.bank.check(queries, labels, names=("queries", "labels"))
        if self.training:
            batch = self.bank.take(queries, labels)
            self.bank.adapt_to(batch)
            self.bank.store(batch)
        slots = self.bank.last_slots if self.training else torch.full_like(labels, -1)
        loss = self._finite_loss(queries, labels.to(queries.device), slots.to(queries.device))
        if self.training:
            self.steps.add_loss(loss)
        return loss

    def _finite_loss(self, queries: Tensor, labels: Tensor, slots: Tensor) -> Tensor:
        """NaN, with a gradient that is NaN, where a query is not finite."""
        finite = queries.detach().square().sum(1).isfinite()
        if all_known(finite):
            return self._loss(queries, labels, slots, None)
        loss = self._loss(queries.where(finite[:, None], 0), labels, slots, finite)
        return loss + queries.sum() * torch.where(finite.all(), 0.0, torch.nan)

    def _loss(self, queries: Tensor, labels: Tensor, slots: Tensor, counted: Tensor | None) -> Tensor:
        with torch.autocast(queries.device.type, enabled=False):
            unit = self._unit(queries)
            if self.steps.count < self.start_after:
                loss, self.last_pair_counts = self._within_batch(unit, labels, counted)
                return loss
            loss, self.last_pair_counts = self._against_bank(unit, labels, slots, counted)
            if not self.batch_weight:
                return loss
            return loss + self.batch_weight * self._within_batch(unit, labels, counted)[0]

    def _against_bank(
        self, unit: Tensor, labels: Tensor, slots: Tensor, counted: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        losses, pairs = losses_against_bank(
            self.bank.ring,
            Queries(unit, labels, slots, counted),
            temperature=self.temperature,
            margins=self._margins,
            workspace=self._workspace,
            ranks=self.bank.ranks_of(unit),
        )
        return _mean_above_zero(losses, pairs), pairs

    def _within_batch(self, unit: Tensor, labels: Tensor, counted: Tensor | None) -> tuple[Tensor, Tensor]:
        losses, pairs = losses_within_batch(
            unit, labels, counted=counted, temperature=self.temperature, margins=self._margins
        )
        return _mean_above_zero(losses, pairs), pairs

    @property
    def _margins(self) -> Margins:
        return Margins.of(self.pos_margin, self.neg_margin) if self.mine else ALL_PAIRS

    def extra_repr(self) -> str:
        """Show the settings."""
        mining = f"pos_margin={self.pos_margin}, neg_margin={self.neg_margin}" if self.mine else "mine=False"
        weights = f"batch_weight={self.batch_weight}, start_after={self.start_after}"
        return f"temperature={self.temperature}, {mining}, {weights}"


def _mean_above_zero(losses: Tensor, pairs: Tensor) -> Tensor:
    """Average as pytorch-metric-learning does: over losses above 0, and 0 where there is nothing to compare."""
    counted = losses > 0
    comparable = (pairs.min() > 0) & (pairs.max() > 1)
    # Masks instead of indices and branches: these would make a GPU wait, and cost more on a CPU.
    return losses.where(counted, 0).sum() / counted.sum().clamp(min=1) * comparable
