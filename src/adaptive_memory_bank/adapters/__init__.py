"""Adapters: filters over batch moments, and the names they go by."""

from __future__ import annotations

from adaptive_memory_bank.adapters.auto_axbn import AutoAXBN
from adaptive_memory_bank.adapters.axbn import AXBN
from adaptive_memory_bank.adapters.base import Adapter
from adaptive_memory_bank.adapters.ema import EMA
from adaptive_memory_bank.adapters.identity import Identity
from adaptive_memory_bank.adapters.xbn import XBN

ADAPTERS: dict[str, type[Adapter]] = {
    "identity": Identity,
    "xbm": Identity,
    "xbn": XBN,
    "ema": EMA,
    "axbn": AXBN,
    "kalman": AXBN,
    "auto": AutoAXBN,
}

__all__ = ["ADAPTERS", "AXBN", "EMA", "XBN", "Adapter", "AutoAXBN", "Identity", "make_adapter"]


def make_adapter(adapter: Adapter | str, /, **hyper_parameters: float) -> Adapter:
    """Return an adapter from its name, or the adapter itself.

    Args:
        adapter: An `Adapter`, or one of the names in ``ADAPTERS``.
        **hyper_parameters: Passed to the adapter's class, when a name is given.

    Example:
        >>> make_adapter("ema", momentum=0.9)
        EMA(momentum=0.9)
    """
    if isinstance(adapter, Adapter):
        if hyper_parameters:
            raise TypeError("Hyper-parameters go with an adapter's name; this adapter has been made already.")
        return adapter
    if not isinstance(adapter, str):
        hint = f" Did you mean {adapter.__name__}()?" if isinstance(adapter, type) else ""
        raise TypeError(f"`adapter` must be an Adapter or a name, got {adapter!r}.{hint}")
    if adapter not in ADAPTERS:
        raise ValueError(f"`adapter` must be one of {', '.join(ADAPTERS)}, got '{adapter}'.")
    return ADAPTERS[adapter](**hyper_parameters)
