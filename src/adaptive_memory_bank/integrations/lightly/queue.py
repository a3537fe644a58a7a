"""A bank that begins with random rows, as lightly's does."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adaptive_memory_bank.adapters import Adapter, Identity
from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.batch import Batch
from adaptive_memory_bank.losses.queue import log_sum_exp_with
from adaptive_memory_bank.losses.walk import Workspace, unit_factors


class Queue(AdaptiveMemoryBank):
    """A bank whose unfilled slots hold random unit vectors: no moment counts them and no adapter moves them.

    Args:
        filler: The random rows, (size, dim).
        adapter: An `Adapter`, or its name.
    """

    def __init__(self, filler: Tensor, adapter: Adapter | str) -> None:
        size, dim = filler.shape
        super().__init__(size, dim, adapter, dtype=filler.dtype)
        self.filler = Filler(filler)

    def snapshot(self, unit_length: bool) -> Tensor:
        """All slots, (size, dim), the filled ones realigned (and at unit length, if any adapter moves them)."""
        rows, _ = self.by_slot()  # a fresh tensor: it may be changed in place
        if unit_length and not isinstance(self.adapter, Identity):
            rows *= unit_factors(rows)
        if not self.is_full:
            rows = torch.cat([rows, self.unfilled.to(rows.dtype)])
        return rows.to(self.dtype)

    @property
    def unfilled(self) -> Tensor:
        """The random rows of the slots that are not filled yet, (size - n, dim)."""
        return self.filler.rows[self.slots_in_use :]

    def log_sum_exp(self, queries: Tensor, *, temperature: float, workspace: Workspace) -> Tensor:
        """``log sum_j exp(q_i . z_j / temperature)`` over all slots, (B,), differentiable in unit queries (B, dim)."""
        return log_sum_exp_with(self, self.unfilled, queries, temperature=temperature, workspace=workspace)

    def store(self, batch: Batch) -> None:
        """Enqueue a batch; a full bank needs no random rows any more."""
        super().store(batch)
        if self.is_full:
            self.filler.rows = self.filler.rows[:0].clone()

    def reset(self) -> None:
        """Empty the bank; random rows take the place of those it had."""
        super().reset()
        if not len(self.filler.rows):
            random = torch.randn(self.size, self.dim, dtype=self.dtype, device=self.device)
            self.filler.rows = F.normalize(random, dim=1)


class Filler(nn.Module):
    """Random rows for the slots that are not filled yet; none once all are."""

    rows: Tensor  # (size, dim) or (0, dim)

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(f"{prefix}rows")
        if saved is not None and saved.shape != self.rows.shape:
            self.rows = self.rows.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
