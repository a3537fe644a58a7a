"""lightly's banks become adaptive, and lightly's again, wherever in a module they are."""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss
from lightly.models.modules.memory_bank import MemoryBankModule as LightlyBank
from lightly.models.modules.nn_memory_bank import NNMemoryBankModule as LightlyNNBank
from torch import nn

from adaptive_memory_bank.adapters import Adapter, Identity, make_adapter
from adaptive_memory_bank.integrations.lightly.banks import MemoryBankModule, NNMemoryBankModule
from adaptive_memory_bank.integrations.lightly.criterion import FusedNTXentLoss
from adaptive_memory_bank.integrations.lightly.queue import Queue
from adaptive_memory_bank.losses.walk import Workspace

M = TypeVar("M", bound=nn.Module)


def swap_memory_bank(module: M, adapter: Adapter | str | Callable[[], Adapter] = "auto", *, fused: bool = True) -> M:
    """Make every lightly memory bank inside a module adaptive, in place, and `NTXentLoss` on it fast.

    Sizes, settings and the rows there are stay; those rows leave first, and until then no moment counts them. A bank
    that is adaptive already keeps its rows and goes on with the new adapter. A criterion that is exactly `NTXentLoss`
    is computed together with its bank, block by block: the same values and gradients, sooner; its ``repr`` says so.
    Others compute as ever, with rows that the bank hands out.

    Args:
        module: A criterion with a bank, a model with several, a bank: any module.
        adapter: A name, an `Adapter` (each bank gets a copy), or a callable that makes one per bank.
        fused: Whether to fuse criteria; False swaps the banks alone.

    Returns:
        The same module.

    Example:
        >>> import torch
        >>> criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(64, 8)), "xbn")
        >>> criterion(torch.randn(4, 8, requires_grad=True), torch.randn(4, 8)).shape, len(criterion.memory_bank.memory)
        (torch.Size([]), 4)
        >>> isinstance(criterion, NTXentLoss), criterion.is_fused
        (True, True)
    """
    banks: list[Any] = [part for part in module.modules() if isinstance(part, LightlyBank) and part.size[0] > 0]
    if not banks:
        disabled = sum(isinstance(part, LightlyBank) for part in module.modules())
        raise ValueError(
            f"`module` must contain a lightly memory bank, but {type(module).__name__} has none to swap ({disabled} of "
            "size 0); pass a size such as memory_bank_size=(4096, 128)."
        )
    parts = [(bank, _adaptive(bank.__class__), _own_adapter(adapter)) for bank in banks]
    for bank, kind, own in parts:  # all checks are done: no failure leaves a module half swapped
        _swap(bank, kind, own)
    _fuse(module, fused)
    return module


def export_memory_bank(module: M) -> M:
    """Give a module its original lightly banks and criteria back, in place, with rows and position as they are.

    The rows are those that the adaptive banks hand out: realigned, and no longer moved.

    Args:
        module: Any module with adaptive banks, whether swapped or made as such.

    Returns:
        The same module.

    Example:
        >>> criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(64, 8)), "xbn")
        >>> type(export_memory_bank(criterion)).__name__, criterion.memory_bank.bank.shape
        ('NTXentLoss', torch.Size([64, 8]))
    """
    banks: list[Any] = [part for part in module.modules() if isinstance(part, MemoryBankModule) and part.size[0] > 0]
    if not banks:
        raise ValueError(f"`module` must contain an adaptive lightly bank, but {type(module).__name__} has none.")
    for bank, kind in [(bank, _original(bank.__class__)) for bank in banks]:
        rows, position = bank.bank, bank.bank_ptr
        del bank.memory
        bank.__dict__.pop("not_fused", None)
        bank.__class__ = kind
        bank.register_buffer("bank", rows, persistent=False)
        bank.register_buffer("bank_ptr", position.to(rows.device), persistent=False)
    _fuse(module, False)
    return module


def _own_adapter(adapter: Adapter | str | Callable[[], Adapter]) -> Adapter:
    if isinstance(adapter, Adapter):
        adapter = copy.deepcopy(adapter)
        adapter.release()
        return adapter
    return make_adapter(adapter if isinstance(adapter, str) or not callable(adapter) else adapter())


def _swap(bank: Any, kind: Any, adapter: Adapter) -> None:
    """Change the class of a bank, so that every reference to it becomes one to the adaptive bank."""
    if isinstance(bank, MemoryBankModule):
        _change_adapter(bank, adapter)
        return
    # The oldest row moves to slot 0, which is replaced first; a fresh bank has it there.
    rows = bank.bank.detach()
    filler = rows[(torch.arange(len(rows), device=rows.device) + bank.bank_ptr.to(rows.device)) % len(rows)]
    del bank.bank, bank.bank_ptr
    bank.__class__ = kind
    bank.memory = Queue(filler, adapter).to(filler.device)


def _change_adapter(bank: MemoryBankModule, adapter: Adapter) -> None:
    assert bank.memory is not None
    if bank.unit_length and isinstance(adapter, Identity):  # which hands rows out as they are stored
        bank.memory.replace(F.normalize(bank.memory.embeddings, dim=1))
    bank.memory.change_adapter(adapter)


def _fuse(module: nn.Module, fused: bool) -> None:
    """Fuse the criteria that can be, or make all of them lightly's own, and tell the banks which is which."""
    owners = {child: part for part in module.modules() for child in part.children()}
    for bank in (part for part in module.modules() if isinstance(part, MemoryBankModule)):
        bank.not_fused = _reason(bank, owners.get(bank), fused)
    part: Any
    for part in module.modules():
        if type(part) in (NTXentLoss, FusedNTXentLoss):
            can = fused and type(part.memory_bank) is MemoryBankModule
            part.__class__ = FusedNTXentLoss if can else NTXentLoss
            part.__dict__.pop("_workspace", None)
            if can:
                part._workspace = Workspace()


def _reason(bank: MemoryBankModule, owner: nn.Module | None, fused: bool) -> str:
    """Why the loss on a bank is not fused; empty where it is."""
    if not fused:
        return "asked for by fused=False"
    if type(owner) not in (NTXentLoss, FusedNTXentLoss):
        return "swapped without a criterion" if owner is None else f"{type(owner).__name__} is not NTXentLoss itself"
    return "" if type(bank) is MemoryBankModule else f"{type(bank).__name__} is not lightly's bank itself"


@cache
def _adaptive(kind: Any) -> Any:
    """Return the adaptive twin of a class of banks; one that is adaptive already is its own."""
    if issubclass(kind, MemoryBankModule):
        return kind
    if kind in (LightlyBank, LightlyNNBank):
        return MemoryBankModule if kind is LightlyBank else NNMemoryBankModule
    for name in ("_dequeue_and_enqueue", "_init_memory_bank"):
        if getattr(kind, name) is not getattr(LightlyBank, name):
            raise TypeError(f"{kind.__name__} has its own `{name}`, which an adaptive bank would never call.")
    nearest = issubclass(kind, LightlyNNBank)
    return type(kind.__name__, (_Swapped, kind, NNMemoryBankModule if nearest else MemoryBankModule), {"kind": kind})


def _original(kind: Any) -> Any:
    """Return the class that an adaptive bank was swapped from, or could have been."""
    if issubclass(kind, _Swapped):
        return kind.kind
    if kind in (MemoryBankModule, NNMemoryBankModule):
        return LightlyBank if kind is MemoryBankModule else LightlyNNBank
    raise TypeError(f"{kind.__name__} derives from an adaptive bank: there is no original to give back.")


class _Swapped:
    """Lets instances of classes made at run time be pickled, by way of the class they were made from."""

    kind: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.kind,), self.__dict__


def _unpickled(kind: Any) -> Any:
    made = _adaptive(kind)
    return made.__new__(made)
