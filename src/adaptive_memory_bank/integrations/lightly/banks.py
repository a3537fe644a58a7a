"""lightly's memory banks with an adapter."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightly.models.modules.memory_bank import MemoryBankModule as LightlyBank
from lightly.models.modules.nn_memory_bank import NNMemoryBankModule as LightlyNNBank
from lightly.utils import dist
from torch import Tensor, nn

from adaptive_memory_bank.adapters import Adapter
from adaptive_memory_bank.distributed import gather_batch
from adaptive_memory_bank.integrations.lightly.queue import Queue


class MemoryBankModule(LightlyBank):  # type: ignore[misc]  # lightly is not typed
    """lightly's `MemoryBankModule` with an adapter: rows are realigned to the keys of every update.

    With ``update=True`` the order is MoCo's: adapt to the batch, hand out a snapshot, enqueue the batch. Slots that
    are not filled yet hold random unit vectors, as lightly's do; no moment counts them and no adapter moves them.
    Realigned rows are handed out at unit length. `Identity` leaves every bit alone.

    Beyond the original: nothing is lost where the ring wraps, the queue is in ``state_dict()``, and
    DistributedDataParallel does not overwrite it with that of rank 0.

    Args:
        size: ``(rows, dim)``, or 0 for no bank.
        adapter: An `Adapter`, or its name.
        gather_distributed: Take the batches of all ranks, so that every rank holds the same bank.
        feature_dim_first: Hand out ``(dim, rows)`` instead of ``(rows, dim)``.

    Example:
        >>> bank = MemoryBankModule(size=(8, 4), adapter="xbn")
        >>> keys = torch.nn.functional.normalize(torch.randn(3, 4), dim=1)
        >>> output, negatives = bank(keys, update=True)
        >>> negatives.shape, len(bank.memory)
        (torch.Size([4, 8]), 3)
    """

    unit_length = True  # of the rows that it hands out
    not_fused = ""  # why the loss on this bank is not, as far as `swap_memory_bank` knows

    def __init__(
        self,
        size: int | Sequence[int],
        adapter: Adapter | str = "auto",
        gather_distributed: bool = False,
        feature_dim_first: bool = True,
    ) -> None:
        nn.Module.__init__(self)
        # lightly's own class checks the size and draws the random rows: same errors, same seeds.
        original = LightlyBank(size, gather_distributed, feature_dim_first)
        self.size: tuple[int, ...] = original.size
        self.gather_distributed = gather_distributed
        self.feature_dim_first = feature_dim_first
        self.memory = None if self.size[0] == 0 else Queue(original.bank, adapter)

    @property
    def bank(self) -> Tensor:
        """All rows as handed out, (rows, dim): a fresh tensor."""
        return torch.empty(self.size) if self.memory is None else self.memory.snapshot(self.unit_length)

    @property
    def bank_ptr(self) -> Tensor:
        """The slot of the next row, (1,)."""
        return torch.tensor([0 if self.memory is None else self.memory.cursor])

    def forward(
        self, output: Tensor, labels: Tensor | None = None, update: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Query the bank for negatives, as they are before ``output`` joins them.

        Args:
            output: Shape (B, dim).
            labels: Ignored, as by lightly.
            update: Adapt to ``output``, and enqueue it after the snapshot.

        Returns:
            ``output`` as it came, and the rows of the bank (None without one).
        """
        if self.memory is None:
            return output, None
        rows = self.read(output, lambda memory: memory.snapshot(self.unit_length), update=update).to(output.dtype)
        return output, rows.T if self.feature_dim_first else rows

    def read(self, output: Tensor, use: Callable[[Queue], Tensor], *, update: bool) -> Tensor:
        """Read the memory in whatever way: adapted to ``output``, and before it is enqueued, if ``update``.

        Args:
            output: Shape (B, dim).
            use: What to do with the memory.
            update: Whether to adapt and enqueue.

        Returns:
            What ``use`` returned.
        """
        assert self.memory is not None
        if self.memory.device != output.device:  # criteria are seldom moved by hand
            self.memory.to(output.device)
        if not update:
            return use(self.memory)
        self.memory.check(output)
        batch = self.memory.take(self._gather(output.detach()))
        self.memory.adapt_to(batch)
        used = use(self.memory)
        self.memory.store(batch)
        return used

    def _gather(self, rows: Tensor) -> Tensor:
        assert self.memory is not None
        if not self.gather_distributed:
            return rows
        if not self.memory.slots_in_use and dist.world_size() > 1:  # ranks may have drawn different random rows
            torch.distributed.broadcast(self.memory.filler.rows, src=0)
        return gather_batch(rows, None)[0]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        own = f"{prefix}memory."
        if self.memory is not None and not any(key.startswith(own) for key in state_dict):
            warnings.warn(
                "The checkpoint has no memory bank (lightly saves none): the queue starts empty and refills.",
                stacklevel=2,
            )
            self.memory.reset()
            state_dict.update(self.memory.state_dict(prefix=own))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Show the size, and why the loss on it is not fused."""
        return f"size={self.size}" + (f", not fused: {self.not_fused}" if self.not_fused else "")


class NNMemoryBankModule(LightlyNNBank, MemoryBankModule):  # type: ignore[misc]
    """lightly's `NNMemoryBankModule` with an adapter: returns the nearest realigned row.

    Rows are projections of any length here, and handed out as such.

    Args:
        size: ``(rows, dim)``.
        adapter: An `Adapter`, or its name.

    Example:
        >>> bank = NNMemoryBankModule(size=(8, 4), adapter="xbn")
        >>> bank(torch.randn(3, 4), update=True).shape
        torch.Size([3, 4])
    """

    unit_length = False

    def __init__(self, size: int | Sequence[int], adapter: Adapter | str = "auto") -> None:
        MemoryBankModule.__init__(self, size, adapter)
