"""lightly's memory bank, adaptive: the queue of MoCo, CO2 and NNCLR."""

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from lightly.models.modules.memory_bank import MemoryBankModule as LightlyBank
from lightly.models.modules.nn_memory_bank import NNMemoryBankModule as LightlyNNBank
from lightly.utils import dist
from torch import Tensor, nn

from adaptive_memory_bank.adapters import Adapter, Identity, make_adapter
from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.batch import Batch
from adaptive_memory_bank.distributed import gather_batch

__all__ = ["MemoryBankModule", "NNMemoryBankModule", "swap_memory_bank"]

M = TypeVar("M", bound=nn.Module)


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
        >>> keys = F.normalize(torch.randn(3, 4), dim=1)
        >>> output, negatives = bank(keys, update=True)
        >>> negatives.shape, len(bank.memory)
        (torch.Size([4, 8]), 3)
    """

    _unit_length = True

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
        self.memory = None if self.size[0] == 0 else _Queue(original.bank, adapter)

    @property
    def bank(self) -> Tensor:
        """All rows as handed out, (rows, dim): a fresh tensor."""
        return torch.empty(self.size) if self.memory is None else self.memory.snapshot(self._unit_length)

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
        if self.memory.filler.rows.device != output.device:  # criteria are seldom moved by hand
            self.memory.to(output.device)
        negatives = (self._update(output.detach()) if update else self.bank).to(output.dtype)
        return output, negatives.T if self.feature_dim_first else negatives

    def _update(self, rows: Tensor) -> Tensor:
        """Adapt and enqueue; returns the rows of the bank in between."""
        assert self.memory is not None
        self.memory.check(rows)
        batch = self.memory.take(self._gather(rows))
        self.memory.adapt_to(batch)
        snapshot = self.bank
        self.memory.store(batch)
        return snapshot

    def _gather(self, rows: Tensor) -> Tensor:
        assert self.memory is not None
        if not self.gather_distributed:
            return rows
        if not len(self.memory) and dist.world_size() > 1:  # ranks may have drawn different random rows
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

    _unit_length = False

    def __init__(self, size: int | Sequence[int], adapter: Adapter | str = "auto") -> None:
        MemoryBankModule.__init__(self, size, adapter)


def swap_memory_bank(module: M, adapter: Adapter | str | Callable[[], Adapter] = "auto") -> M:
    """Make every lightly memory bank inside a module adaptive, in place.

    Sizes, settings and the rows there are stay; those rows leave first, and until then no moment counts them.

    Args:
        module: A bank, a criterion with one, a model with several: any module.
        adapter: A name, an `Adapter` (each bank gets a copy), or a callable that makes one per bank.

    Returns:
        The same module.

    Example:
        >>> from lightly.loss import NTXentLoss
        >>> criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(64, 8)), "xbn")
        >>> criterion(torch.randn(4, 8, requires_grad=True), torch.randn(4, 8)).shape, len(criterion.memory_bank.memory)
        (torch.Size([]), 4)
    """
    banks = [part for part in module.modules() if isinstance(part, LightlyBank)]
    plain: list[Any] = [bank for bank in banks if not isinstance(bank, MemoryBankModule) and bank.size[0] > 0]
    if not plain:
        disabled = sum(bank.size[0] == 0 for bank in banks)
        raise ValueError(
            f"`module` must contain a lightly memory bank, but {type(module).__name__} has none to swap ({disabled} of "
            f"size 0, {len(banks) - disabled} adaptive already); pass a size such as memory_bank_size=(4096, 128)."
        )
    parts = [(bank, _adaptive(bank.__class__), _own_adapter(adapter)) for bank in plain]
    for bank, kind, own in parts:  # all checks are done: no failure leaves a module half swapped
        _swap(bank, kind, own)
    return module


def _own_adapter(adapter: Adapter | str | Callable[[], Adapter]) -> Adapter:
    if isinstance(adapter, Adapter):
        adapter = copy.deepcopy(adapter)
        adapter.release()
        return adapter
    return make_adapter(adapter if isinstance(adapter, str) or not callable(adapter) else adapter())


def _swap(bank: LightlyBank, kind: Any, adapter: Adapter) -> None:
    """Change the class of a bank, so that every reference to it becomes one to the adaptive bank."""
    # The oldest row moves to slot 0, which is replaced first; a fresh bank has it there.
    filler = bank.bank.detach().roll(-int(bank.bank_ptr), dims=0)
    del bank.bank, bank.bank_ptr
    bank.__class__ = kind
    bank.memory = _Queue(filler, adapter).to(filler.device)


@cache
def _adaptive(kind: Any) -> Any:
    """Return the adaptive twin of a class of banks."""
    if kind in (LightlyBank, LightlyNNBank):
        return MemoryBankModule if kind is LightlyBank else NNMemoryBankModule
    for name in ("_dequeue_and_enqueue", "_init_memory_bank"):
        if getattr(kind, name) is not getattr(LightlyBank, name):
            raise TypeError(f"{kind.__name__} has its own `{name}`, which an adaptive bank would never call.")
    nearest = issubclass(kind, LightlyNNBank)
    return type(kind.__name__, (_Swapped, kind, NNMemoryBankModule if nearest else MemoryBankModule), {"kind": kind})


class _Swapped:
    """Lets instances of classes made at run time be pickled, by way of the class they were made from."""

    kind: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.kind,), self.__dict__


def _unpickled(kind: Any) -> Any:
    made = _adaptive(kind)
    return made.__new__(made)


class _Queue(AdaptiveMemoryBank):
    """A bank whose unfilled slots hold random unit vectors."""

    def __init__(self, filler: Tensor, adapter: Adapter | str) -> None:
        size, dim = filler.shape
        super().__init__(size, dim, adapter, dtype=filler.dtype)
        self.filler = _Filler(filler)

    def snapshot(self, unit_length: bool) -> Tensor:
        """All slots, (size, dim), the filled ones realigned."""
        rows = self.embeddings
        if unit_length and not isinstance(self.adapter, Identity):
            rows = F.normalize(rows, dim=1)
        if not self.is_full:
            rows = torch.cat([rows, self.filler.rows[len(self) :].to(rows.dtype)])
        return rows.to(self.dtype)

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


class _Filler(nn.Module):
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
