"""pytorch-metric-learning's cross-batch memory, adaptive."""

import warnings
from typing import Any

import torch
from pytorch_metric_learning.losses import CrossBatchMemory as PMLCrossBatchMemory
from pytorch_metric_learning.losses.base_loss_wrapper import BaseLossWrapper
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor, nn

from adaptive_memory_bank.adapters import Adapter
from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.checks import check_start_after
from adaptive_memory_bank.distributed import rank_order
from adaptive_memory_bank.losses.steps import StepCounter

__all__ = ["CrossBatchMemory"]

Indices = tuple[Tensor, ...]  # a1, p, a2, n or a, p, n


class CrossBatchMemory(PMLCrossBatchMemory):  # type: ignore[misc]  # PML is not typed
    """PML's `CrossBatchMemory` with an adapter: the memory is realigned to every batch before the batch joins it.

    Same calls and attributes as the original, and with ``adapter="identity"`` the same losses. With ``enqueue_mask``
    (PML's recipe for MoCo) the memory follows the rows that are enqueued, the keys, and no others.

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
        **kwargs: ``collect_stats``, as the original takes it.

    Example:
        >>> from pytorch_metric_learning.losses import SupConLoss
        >>> memory = CrossBatchMemory(SupConLoss(), embedding_size=8, memory_size=32, adapter="xbn")
        >>> for _ in range(3):
        ...     loss = memory(torch.randn(12, 8, requires_grad=True), torch.randint(4, (12,)))
        >>> loss.shape, memory.queue_idx, memory.has_been_filled, memory.embedding_memory.shape
        (torch.Size([]), 4, True, torch.Size([32, 8]))
    """

    curr_batch_idx: Tensor  # (B,): the slots of the last batch; -1 for rows that were not stored

    def __init__(
        self,
        loss: nn.Module,
        embedding_size: int,
        memory_size: int = 1024,
        miner: nn.Module | None = None,
        adapter: Adapter | str = "auto",
        *,
        start_after: int = 0,
        **kwargs: Any,
    ) -> None:
        super(BaseLossWrapper, self).__init__(**kwargs)  # which knows losses by name alone, and so no subclass
        self._check_supported(loss)
        self.loss, self.miner = loss, miner
        self.embedding_size, self.memory_size = embedding_size, memory_size
        self.start_after = check_start_after(start_after)
        self.bank = AdaptiveMemoryBank(memory_size, embedding_size, adapter)
        self.steps = StepCounter("Try other margins of the miner, or no miner.")
        self.reset_queue()
        self.add_to_recordable_attributes(list_of_names=["embedding_size", "memory_size", "queue_idx"], is_stat=False)

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
                the start, with the True rows of the same batch).
            ref_labels: Not supported; PML's ``DistributedLossWrapper`` passes None here outside distributed runs.

        Returns:
            What the inner loss returns.
        """
        _check(embeddings, indices_tuple, enqueue_mask, ref_labels)
        self.reset_stats()
        labels = c_f.to_device(labels, embeddings)
        mask = None if enqueue_mask is None else c_f.to_device(enqueue_mask, embeddings)
        self._remember(embeddings, labels, mask)
        if self.steps.count < self.start_after:
            value = self._within_batch(embeddings, labels, mask)
        else:
            value = self._against_memory(embeddings, labels, mask, indices_tuple)
        if self.training:
            self.steps.add_loss(value)
        return value

    def stats(self) -> dict[str, float]:
        """Training steps so far: ``steps``, and of them ``empty_steps``, whose loss was exactly 0.

        The device is asked only now (and every 100 steps, for a warning once more than half of those were empty).
        """
        return self.steps.stats()

    def add_to_memory(self, embeddings: Tensor, labels: Tensor, batch_size: int) -> None:
        """Adapt to a batch and enqueue it. Sets ``curr_batch_idx``."""
        if not len(embeddings) == len(labels) == batch_size:
            raise ValueError(
                f"`batch_size` must be the number of embeddings and labels, got {batch_size} for {len(embeddings)} and "
                f"{len(labels)}."
            )
        bank = self.bank
        if bank.device != embeddings.device or embeddings.dtype == torch.float64 != bank.dtype:
            bank.to(embeddings.device, torch.promote_types(bank.dtype, embeddings.dtype))
        bank.update(embeddings.detach(), _whole(labels))
        self.curr_batch_idx = bank.last_slots

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
            other = pairs[1] != self.curr_batch_idx[pairs[0]]
            kept = len(pairs) if len(pairs) == 3 else 2  # of four, the last two are negative pairs
            pairs = (*(index[other] for index in pairs[:kept]), *pairs[kept:])
        if input_indices_tuple is None:
            return pairs
        convert = lmu.convert_to_pairs if len(pairs) == 4 else lmu.convert_to_triplets
        combined: Indices = c_f.concatenate_indices_tuples(pairs, convert(input_indices_tuple, labels))
        return combined

    def reset_queue(self) -> None:
        """Empty the memory and its filter; sizes that were assigned meanwhile come into force."""
        bank = self.bank
        if (bank.size, bank.dim) == (self.memory_size, self.embedding_size):
            bank.reset()
        else:
            sizes = self.memory_size, self.embedding_size
            self.bank = AdaptiveMemoryBank(*sizes, bank.release_adapter(), dtype=bank.dtype).to(bank.device)
        self.curr_batch_idx = torch.empty(0, dtype=torch.int64)

    @property
    def embedding_memory(self) -> Tensor:
        """Realigned rows, (memory_size, embedding_size), zeros where none is yet: a fresh tensor."""
        rows = self.bank.embeddings
        return torch.cat([rows, rows.new_zeros(self.bank.size - len(rows), self.bank.dim)])

    @embedding_memory.setter
    def embedding_memory(self, rows: Tensor) -> None:
        self._restore(rows, self.label_memory, self.queue_idx, self.has_been_filled)

    @property
    def label_memory(self) -> Tensor:
        """Labels, (memory_size,), zeros where none is yet: a fresh tensor."""
        labels = self._row_labels
        return torch.cat([labels, labels.new_zeros(self.bank.size - len(labels))])

    @label_memory.setter
    def label_memory(self, labels: Tensor) -> None:
        self._restore(self.embedding_memory, labels, self.queue_idx, self.has_been_filled)

    @property
    def queue_idx(self) -> int:
        """The slot of the next row."""
        return self.bank.cursor

    @queue_idx.setter
    def queue_idx(self, slot: int) -> None:
        self._restore(self.embedding_memory, self.label_memory, slot, self.has_been_filled)

    @property
    def has_been_filled(self) -> bool:
        """Whether every slot holds a row."""
        return self.bank.is_full

    @has_been_filled.setter
    def has_been_filled(self, filled: bool) -> None:
        self._restore(self.embedding_memory, self.label_memory, self.queue_idx, filled)

    def _check_supported(self, loss: nn.Module) -> None:
        """Judge a class of one's own by the PML loss it comes from."""
        for kind in type(loss).__mro__:
            if kind.__name__ in self.supported_losses() or kind.__module__.startswith("pytorch_metric_learning."):
                self.check_loss_support(kind.__name__)
                return
        self.check_loss_support(type(loss).__name__)

    def _against_memory(
        self, embeddings: Tensor, labels: Tensor, mask: Tensor | None, indices_tuple: Indices | None
    ) -> Any:
        anchors, anchor_labels = (embeddings, labels) if mask is None else (embeddings[~mask], labels[~mask])
        if not len(self.bank) or not len(anchors):
            return embeddings.sum() * 0  # nothing to compare: several losses fail on empty tensors
        rows, row_labels = self.bank.embeddings.to(embeddings.dtype), self._row_labels.to(labels.dtype)
        pairs = self.create_indices_tuple(anchors, anchor_labels, rows, row_labels, indices_tuple, mask is None)
        return self.loss(anchors, anchor_labels, pairs, rows, row_labels)

    def _within_batch(self, embeddings: Tensor, labels: Tensor, mask: Tensor | None) -> Any:
        """The loss of the batch with itself; with a mask, of the rest with the masked rows."""
        if mask is None:
            sides: tuple[Tensor, ...] = (embeddings, labels)
        else:
            sides = (embeddings[~mask], labels[~mask], embeddings[mask], labels[mask])
        if not all(map(len, sides)):
            return embeddings.sum() * 0
        pairs = None if self.miner is None else self.miner(*sides)
        return self.loss(*sides[:2], pairs, *sides[2:])

    def _remember(self, embeddings: Tensor, labels: Tensor, mask: Tensor | None) -> None:
        """Enqueue a batch (of it, what is masked), in the same order on every rank."""
        order = rank_order(len(embeddings)).to(embeddings.device)
        if mask is not None:
            order = order[mask[order]]
        self.add_to_memory(embeddings[order], labels[order], len(order))
        if mask is None:
            self.curr_batch_idx = self.curr_batch_idx.new_empty(len(order)).index_copy_(0, order, self.curr_batch_idx)

    @torch.no_grad()
    def _restore(self, rows: Tensor, labels: Tensor, cursor: int, full: bool) -> None:
        """Put rows and labels into their slots: all, or those before the cursor."""
        count, device = self.bank.size if full else cursor, self.bank.device
        self.bank.restore(rows[:count].to(device), labels[:count].to(device, torch.int64), cursor=cursor)

    @property
    def _row_labels(self) -> Tensor:
        """Labels of the rows, (n,): a fresh tensor."""
        labels = self.bank.labels
        return torch.empty(0, dtype=torch.int64, device=self.bank.device) if labels is None else labels

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load a checkpoint of PML's own class too: it has rows and labels, but neither position nor fill."""
        rows = state_dict.pop(f"{prefix}embedding_memory", None)
        labels = state_dict.pop(f"{prefix}label_memory", None)
        if rows is not None and labels is not None:
            self._load_original(rows, labels)
            state_dict.update(self.bank.state_dict(prefix=f"{prefix}bank."))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _load_original(self, rows: Tensor, labels: Tensor) -> None:
        shape = self.bank.size, self.bank.dim
        if rows.shape != shape:
            raise ValueError(f"A memory of shape {tuple(rows.shape)} cannot be loaded into one of {shape}")
        filled = rows.any(1).nonzero().flatten()  # PML begins with zeros
        count = int(filled[-1]) + 1 if len(filled) else 0
        full = count == self.bank.size
        warnings.warn(
            f"The checkpoint is of PML's own CrossBatchMemory, which saves neither position nor fill: {count} of "
            f"{self.bank.size} rows are not zero and were taken, the next goes to slot {0 if full else count}; the "
            "adapter starts anew. Assign `queue_idx` and `has_been_filled` if you know better.",
            stacklevel=2,
        )
        self.bank.reset()
        self._restore(rows, labels, 0 if full else count, full)


def _check(embeddings: Tensor, indices_tuple: Any, enqueue_mask: Tensor | None, ref_labels: Any) -> None:
    if ref_labels is not None or (enqueue_mask is not None and enqueue_mask.dtype != torch.bool):
        raise ValueError("CrossBatchMemory takes no ref_emb and ref_labels, and `enqueue_mask` must be boolean.")
    if indices_tuple is not None and enqueue_mask is not None:
        raise ValueError("indices_tuple and enqueue_mask are mutually exclusive")
    if enqueue_mask is not None and len(enqueue_mask) != len(embeddings):
        raise ValueError(
            f"`enqueue_mask` must have one entry per embedding, got {len(enqueue_mask)} for {len(embeddings)}."
        )


def _whole(labels: Tensor) -> Tensor:
    """Labels as integers: PML takes any type, and compares them for equality."""
    whole = labels.detach().to(torch.int64)
    if labels.is_floating_point() and not torch.equal(whole.to(labels.dtype), labels.detach()):
        raise ValueError("`labels` must be whole numbers.")
    return whole
