"""All rows of a bank for losses that want a tensor of them, in memory that is used again once nobody holds it."""

import torch
from torch import Tensor

from adaptive_memory_bank.bank import AdaptiveMemoryBank


class LentRows:
    """Reads a bank into memory that it lends: the same again and again, or new memory where the last is still held.

    On a CPU, taking as much memory as a large bank costs several times as much as filling it. But a graph that waits
    for its backward pass may hold the rows of an earlier step, and then these must stay as they are.

    A copy starts without any, and nothing of it is saved.

    Example:
        >>> bank = AdaptiveMemoryBank(size=4, dim=2, adapter="identity")
        >>> bank.update(torch.ones(3, 2))
        >>> lent = LentRows()
        >>> rows, again = lent.read(bank), lent.read(bank)  # the first are still held
        >>> rows.shape, rows.data_ptr() == again.data_ptr()
        (torch.Size([3, 2]), False)
        >>> address = again.data_ptr()
        >>> del again
        >>> lent.read(bank).data_ptr() == address
        True
    """

    def __init__(self) -> None:
        self._memory: Tensor | None = None
        self._holders = 0  # of the memory while it is not lent

    def read(self, bank: AdaptiveMemoryBank) -> Tensor:
        """Realigned rows (n, dim), without gradient."""
        if bank.device.type != "cpu" or bank.ring.gaps is not None:  # memory is cheap to take, or rows are left out
            return bank.embeddings
        memory = self._memory
        if memory is None or not self._fits(memory, bank) or _holders(memory) != self._holders:
            self._memory = memory = torch.empty(bank.size, bank.dim, dtype=bank.compute_dtype)
            self._holders = _holders(memory)
        return bank.ring.read(out=memory[: bank.slots_in_use])

    @staticmethod
    def _fits(memory: Tensor, bank: AdaptiveMemoryBank) -> bool:
        return memory.shape == (bank.size, bank.dim) and memory.dtype == bank.compute_dtype

    def __reduce__(self) -> tuple[type["LentRows"], tuple[()]]:
        return LentRows, ()


def _holders(memory: Tensor) -> int:
    """How many tensors, of Python or of a graph, share this memory."""
    count: int = torch._C._storage_Use_Count(memory.untyped_storage()._cdata)
    return count
