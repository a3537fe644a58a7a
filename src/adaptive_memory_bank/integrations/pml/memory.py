"""pytorch-metric-learning's cross-batch memory with an adapter, fused where its loss is known."""

from typing import Any

import torch
from pytorch_metric_learning.losses.base_loss_wrapper import BaseLossWrapper
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor, nn

from adaptive_memory_bank.adapters import Adapter
from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.checks import check_start_after
from adaptive_memory_bank.distributed import rank_order
from adaptive_memory_bank.graphs import outside_graphs
from adaptive_memory_bank.integrations.pml.fusion import CannotFuseError, fuse
from adaptive_memory_bank.integrations.pml.queue import AdaptiveQueue, whole
from adaptive_memory_bank.losses.compare import Compared, Plan, loss_against_bank
from adaptive_memory_bank.losses.lent_rows import LentRows
from adaptive_memory_bank.losses.steps import StepCounter
from adaptive_memory_bank.losses.walk import Workspace
from adaptive_memory_bank.masks import reading_is_free

Indices = tuple[Tensor, ...]  # a1, p, a2, n or a, p, n


class CrossBatchMemory(AdaptiveQueue):
    """PML's `CrossBatchMemory` with an adapter: the memory is realigned to every batch before the batch joins it.

    Same calls and attributes as the original, and with ``adapter="identity"`` the same losses. With ``enqueue_mask``
    (PML's recipe for MoCo) the memory follows the rows that are enqueued, the keys, and no others.

    ``SupConLoss``, ``ContrastiveLoss``, ``NTXentLoss`` and ``MultiSimilarityLoss``, with no miner, ``PairMarginMiner``
    or ``MultiSimilarityMiner``, are fused: computed in one walk over the memory, gradient included, without lists of
    pairs, with the original's values and gradients. Cosine and the Euclidean distance of unit vectors are known, and
    means over all losses or over those above 0; everything else, subclasses, regularizers, ``indices_tuple`` and
    ``collect_stats`` take PML's own way. `is_fused` tells which, and the module's ``repr`` why. What is fused is
    computed in float32 or better, has no second derivatives, takes a row of zeros to be at right angles to all others,
    and is NaN for a batch with rows that are not finite; a miner's ``num_pos_pairs`` and ``num_neg_pairs`` are tensors
    except on a CPU, so that nothing waits for the device.

    Beyond the original: position and fill are saved, a batch may be larger than the memory, a mask may be empty, the
    memory stays in float32 (or better) whatever the batch comes in, a subclass of a supported loss is supported, rows
    with NaN or infinity are not stored, several forward passes may precede one backward pass, and every rank inside
    PML's ``DistributedLossWrapper`` holds the same memory.

    Args:
        loss: A loss of `supported_losses()`, or a subclass of one.
        embedding_size: Dimensions of an embedding.
        memory_size: Rows it holds.
        miner: Picks pairs or triplets of batch and memory; None takes all.
        adapter: An `Adapter`, or its name.
        start_after: Training steps before the memory is used. Rows of an encoder that has not settled yet are of little
            worth: until then the loss is the one within the batch, with the same miner, while the memory adapts and
            enqueues from the first step on. Only steps in ``train()`` mode count; their number is in ``state_dict()``.
        fused: Whether a loss that can be fused is. False takes PML's own way.
        gather_distributed: In a distributed run, enqueue the batches of all ranks, in rank order: each rank compares
            its own queries with the memory of all. Takes the place of ``DistributedLossWrapper``, with which every rank
            computes the loss of all queries. Each rank has the loss of its own queries, and DistributedDataParallel
            averages gradients: together they are the loss of one process with all queries, where the ranks have the
            same number of what the loss averages over (queries, or pairs).
        **kwargs: ``collect_stats``, as the original takes it.

    Example:
        >>> from pytorch_metric_learning.losses import SupConLoss
        >>> memory = CrossBatchMemory(SupConLoss(), embedding_size=8, memory_size=32, adapter="xbn")
        >>> for _ in range(3):
        ...     loss = memory(torch.randn(12, 8, requires_grad=True), torch.randint(4, (12,)))
        >>> loss.shape, memory.queue_idx, memory.has_been_filled, memory.embedding_memory.shape
        (torch.Size([]), 4, True, torch.Size([32, 8]))
        >>> memory.is_fused
        True
        >>> memory.to_pml()(torch.randn(12, 8), torch.randint(4, (12,))).shape
        torch.Size([])
    """

    def __init__(
        self,
        loss: nn.Module,
        embedding_size: int,
        memory_size: int = 1024,
        miner: nn.Module | None = None,
        adapter: Adapter | str = "auto",
        *,
        start_after: int = 0,
        fused: bool = True,
        gather_distributed: bool = False,
        **kwargs: Any,
    ) -> None:
        super(BaseLossWrapper, self).__init__(**kwargs)  # which knows losses by name alone, and so no subclass
        self._check_supported(loss)
        self.loss, self.miner = loss, miner
        self.embedding_size, self.memory_size = embedding_size, memory_size
        self.start_after, self.fused = check_start_after(start_after), fused
        self.bank = AdaptiveMemoryBank(memory_size, embedding_size, adapter, gather_distributed=gather_distributed)
        self.steps = StepCounter("Try other margins of the miner, or no miner.")
        self._workspace, self._lent = Workspace(), LentRows()
        self.reset_queue()
        self.add_to_recordable_attributes(list_of_names=["embedding_size", "memory_size", "queue_idx"], is_stat=False)

    @property
    def is_fused(self) -> bool:
        """Whether a step is computed in one walk over the memory, with the loss and the miner as they are now."""
        return isinstance(self._plan(), Plan)

    @outside_graphs
    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Indices | None = None,
        enqueue_mask: Tensor | None = None,
        ref_labels: None = None,
    ) -> Any:
        """Adapt to the batch, enqueue it, and compare it with the memory.

        Args:
            embeddings: Shape (B, embedding_size).
            labels: Shape (B,).
            indices_tuple: Further pairs or triplets, concatenated as they are: anchors index the batch, the rest the
                memory. Not used before the start, when nothing is compared with the memory.
            enqueue_mask: Shape (B,), boolean: True rows are enqueued, the others are compared with the memory (before
                the start, with the True rows of the same batch). Best on the CPU, where it is read.
            ref_labels: Not supported; PML's ``DistributedLossWrapper`` passes None here outside distributed runs.

        Returns:
            What the inner loss returns.
        """
        _check(embeddings, indices_tuple, enqueue_mask, ref_labels)
        self.reset_stats()
        labels = c_f.to_device(labels, embeddings)
        self._remember(embeddings, labels, enqueue_mask)
        if self.steps.count < self.start_after:
            value = self._within_batch(embeddings, labels, enqueue_mask)
        else:
            value = self._against_memory(embeddings, labels, enqueue_mask, indices_tuple)
        if self.training:
            self.steps.add_loss(value)
        return value

    def stats(self) -> dict[str, float]:
        """Training steps so far: ``steps``, and of them ``empty_steps``, whose loss was exactly 0.

        The device is asked only now (and every 100 steps, for a warning once more than half of those were empty).
        """
        return self.steps.stats()

    def create_indices_tuple(
        self,
        embeddings: Tensor,
        labels: Tensor,
        E_mem: Tensor,  # noqa: N803  # PML's names: they may be passed by keyword
        L_mem: Tensor,  # noqa: N803
        input_indices_tuple: Indices | None,
        do_remove_self_comparisons: bool,
    ) -> Indices:
        """Pairs or triplets of batch and memory, without those of a row and itself, plus the given ones."""
        pairs: Indices = super().create_indices_tuple(embeddings, labels, E_mem, L_mem, None, False)
        if do_remove_self_comparisons:
            other = pairs[1] != self.bank.rows_in(self.curr_batch_idx)[pairs[0]]
            kept = len(pairs) if len(pairs) == 3 else 2  # of four, the last two are negative pairs
            pairs = (*(index[other] for index in pairs[:kept]), *pairs[kept:])
        if input_indices_tuple is None:
            return pairs
        convert = lmu.convert_to_pairs if len(pairs) == 4 else lmu.convert_to_triplets
        combined: Indices = c_f.concatenate_indices_tuples(pairs, convert(input_indices_tuple, labels))
        return combined

    def extra_repr(self) -> str:
        """Show whether the loss is fused, and why not."""
        plan = self._plan()
        return "fused=True" if isinstance(plan, Plan) else f"fused=False ({plan})"

    def _check_supported(self, loss: nn.Module) -> None:
        """Judge a class of one's own by the PML loss it comes from."""
        for kind in type(loss).__mro__:
            if kind.__name__ in self.supported_losses() or kind.__module__.startswith("pytorch_metric_learning."):
                self.check_loss_support(kind.__name__)
                return
        self.check_loss_support(type(loss).__name__)

    def _plan(self) -> Plan | str:
        """How loss and miner are fused, or why they are not. Asked at every step: both may be changed at any time."""
        if not self.fused:
            return "as asked for"
        if self.collect_stats:
            return "the memory collects statistics"
        if type(self).create_indices_tuple is not CrossBatchMemory.create_indices_tuple:
            return "create_indices_tuple is overridden"
        try:
            return fuse(self.loss, self.miner)
        except CannotFuseError as reason:
            return str(reason)

    def _against_memory(
        self, embeddings: Tensor, labels: Tensor, mask: Tensor | None, indices_tuple: Indices | None
    ) -> Any:
        anchors, anchor_labels = (embeddings, labels) if mask is None else _select(~mask, embeddings, labels)
        if not self.bank.slots_in_use or not len(anchors):
            return embeddings.sum() * 0  # nothing to compare: several losses fail on empty tensors
        plan = self._plan() if indices_tuple is None else None
        if isinstance(plan, Plan):
            slots = self.curr_batch_idx if mask is None else torch.full_like(anchor_labels, -1, dtype=torch.int64)
            return self._fused_loss(anchors, anchor_labels, slots, plan)
        rows, row_labels = self._lent.read(self.bank).to(embeddings.dtype), self._row_labels.to(labels.dtype)
        if not len(rows):
            return embeddings.sum() * 0
        pairs = self.create_indices_tuple(anchors, anchor_labels, rows, row_labels, indices_tuple, mask is None)
        return self.loss(anchors, anchor_labels, pairs, rows, row_labels)

    def _fused_loss(self, anchors: Tensor, labels: Tensor, slots: Tensor, plan: Plan) -> Tensor:
        value, pairs = loss_against_bank(
            self.bank, anchors, whole(labels), slots=slots, plan=plan, workspace=self._workspace
        )
        if self.miner is not None:
            _tell(self.miner, pairs)
        return value

    def _within_batch(self, embeddings: Tensor, labels: Tensor, mask: Tensor | None) -> Any:
        """The loss of the batch with itself; with a mask, of the rest with the masked rows."""
        if mask is None:
            sides: tuple[Tensor, ...] = (embeddings, labels)
        else:
            sides = (*_select(~mask, embeddings, labels), *_select(mask, embeddings, labels))
        if not all(map(len, sides)):
            return embeddings.sum() * 0
        pairs = None if self.miner is None else self.miner(*sides)
        return self.loss(*sides[:2], pairs, *sides[2:])

    def _remember(self, embeddings: Tensor, labels: Tensor, mask: Tensor | None) -> None:
        """Enqueue a batch (of it, what is masked), in the same order on every rank."""
        order = None if self.bank.gather_distributed else rank_order(len(embeddings))
        if order is None:
            queued = (embeddings, labels) if mask is None else _select(mask, embeddings, labels)
            self.add_to_memory(*queued, len(queued[0]))
            return
        if mask is not None:
            order = order.to(mask.device)
            order = order[mask[order]]
        order = order.to(embeddings.device)
        self.add_to_memory(embeddings[order], labels[order], len(order))
        if mask is None:
            self.curr_batch_idx = self.curr_batch_idx.new_empty(len(order)).index_copy_(0, order, self.curr_batch_idx)


def _tell(miner: nn.Module, pairs: Compared) -> None:
    """Leave the numbers of pairs where users look for them, as integers if no device has to be waited for."""
    free = reading_is_free(pairs.positive.device)
    for name, count in (("num_pos_pairs", pairs.positive), ("num_neg_pairs", pairs.negative)):
        setattr(miner, name, int(count) if free else count)


def _select(mask: Tensor, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Embeddings and labels of the True entries, which are looked up where the mask is: on a CPU, no GPU waits."""
    rows = mask.nonzero()[:, 0].to(embeddings.device)
    return embeddings[rows], labels[rows]


def _check(embeddings: Tensor, indices_tuple: Any, enqueue_mask: Tensor | None, ref_labels: Any) -> None:
    if ref_labels is not None or (enqueue_mask is not None and enqueue_mask.dtype != torch.bool):
        raise ValueError("CrossBatchMemory takes no ref_emb and ref_labels, and `enqueue_mask` must be boolean.")
    if indices_tuple is not None and enqueue_mask is not None:
        raise ValueError("indices_tuple and enqueue_mask are mutually exclusive")
    if enqueue_mask is not None and len(enqueue_mask) != len(embeddings):
        raise ValueError(
            f"`enqueue_mask` must have one entry per embedding, got {len(enqueue_mask)} for {len(embeddings)}."
        )
