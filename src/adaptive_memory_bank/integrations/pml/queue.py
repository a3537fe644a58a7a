"""The queue of pytorch-metric-learning's cross-batch memory, with a bank behind it."""

import warnings
from typing import Any, TypeVar

import torch
from pytorch_metric_learning.losses import CrossBatchMemory as PMLCrossBatchMemory
from torch import Tensor

from adaptive_memory_bank.adapters import Adapter
from adaptive_memory_bank.bank import AdaptiveMemoryBank

Self = TypeVar("Self", bound="AdaptiveQueue")


class AdaptiveQueue(PMLCrossBatchMemory):  # type: ignore[misc]  # PML is not typed
    """Rows, labels, position and fill under PML's names, kept in an `AdaptiveMemoryBank`.

    Attributes:
        bank: Holds the rows.
        curr_batch_idx: The slots of the last batch, (B,); -1 for rows that were not stored.
    """

    bank: AdaptiveMemoryBank
    curr_batch_idx: Tensor

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
        bank.update(embeddings.detach(), whole(labels))
        self.curr_batch_idx = bank.last_slots

    def reset_queue(self) -> None:
        """Empty the memory and its filter; sizes that were assigned meanwhile come into force."""
        bank = self.bank
        if (bank.size, bank.dim) == (self.memory_size, self.embedding_size):
            bank.reset()
        else:
            self.bank = self._new_bank(bank.release_adapter())
        self.curr_batch_idx = torch.empty(0, dtype=torch.int64)

    def swap_adapter(self: Self, adapter: Adapter | str) -> Self:
        """Realign the memory by another adapter from now on: rows, labels and position stay, its filter starts anew.

        Returns:
            The memory itself.
        """
        self.bank.change_adapter(adapter)
        return self

    def to_pml(self) -> PMLCrossBatchMemory:
        """PML's own memory with the rows as they are now, their labels and position, the same loss and miner."""
        original = PMLCrossBatchMemory(
            self.loss, self.embedding_size, self.memory_size, miner=self.miner, collect_stats=self.collect_stats
        )
        original.embedding_memory, original.label_memory = self.embedding_memory, self.label_memory
        original.queue_idx, original.has_been_filled = self.queue_idx, self.has_been_filled
        return original.train(self.training)

    @property
    def embedding_memory(self) -> Tensor:
        """Realigned rows, (memory_size, embedding_size), zeros where none is yet: a fresh tensor."""
        rows, _ = self.bank.by_slot()
        return torch.cat([rows, rows.new_zeros(self.bank.size - len(rows), self.bank.dim)])

    @embedding_memory.setter
    def embedding_memory(self, rows: Tensor) -> None:
        self._restore(rows, self.label_memory, self.queue_idx, self.has_been_filled)

    @property
    def label_memory(self) -> Tensor:
        """Labels, (memory_size,), zeros where none is yet: a fresh tensor."""
        _, labels = self.bank.by_slot()
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

    @property
    def _row_labels(self) -> Tensor:
        """Labels of the rows, (n,): a fresh tensor."""
        labels = self.bank.labels
        return torch.empty(0, dtype=torch.int64, device=self.bank.device) if labels is None else labels

    def _new_bank(self, adapter: Adapter | str) -> AdaptiveMemoryBank:
        """An empty bank of the sizes that are set, otherwise like the present one."""
        bank, sizes = self.bank, (self.memory_size, self.embedding_size)
        new = AdaptiveMemoryBank(*sizes, adapter, dtype=bank.dtype, gather_distributed=bank.gather_distributed)
        return new.to(bank.device)

    @torch.no_grad()
    def _restore(self, rows: Tensor, labels: Tensor, cursor: int, full: bool) -> None:
        """Put rows and labels into their slots: all, or those before the cursor."""
        count, device = self.bank.size if full else cursor, self.bank.device
        self.bank.restore(rows[:count].to(device), labels[:count].to(device, torch.int64), cursor=cursor)

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


def whole(labels: Tensor) -> Tensor:
    """Labels as integers: PML takes any type, and compares them for equality."""
    integers = labels.detach().to(torch.int64)
    if labels.is_floating_point() and not torch.equal(integers.to(labels.dtype), labels.detach()):
        raise ValueError("`labels` must be whole numbers.")
    return integers
