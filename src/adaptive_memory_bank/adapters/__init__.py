"""Adapters: filters over batch moments, and the one catalogue of them.

A new adapter is a file in this folder and an `Entry` in `CATALOGUE`; tables, charts and the command line follow.
"""

from dataclasses import dataclass

from adaptive_memory_bank.adapters.auto_axbn import AutoAXBN
from adaptive_memory_bank.adapters.axbn import AXBN
from adaptive_memory_bank.adapters.base import Adapter
from adaptive_memory_bank.adapters.ema import EMA
from adaptive_memory_bank.adapters.identity import Identity
from adaptive_memory_bank.adapters.xbn import XBN


@dataclass(frozen=True)
class Entry:
    """An adapter as others know it."""

    name: str  # in Python and on the command line
    adapter: type[Adapter]
    color: str  # of its curves, in every chart
    marker: str  # of its points, as Plotly names it
    aliases: tuple[str, ...] = ()


# The order is that of tables and legends. The colours can be told apart with the usual colour deficiencies, too.
CATALOGUE = (
    Entry("identity", Identity, "#e0812c", "square", aliases=("xbm",)),
    Entry("xbn", XBN, "#3d85e0", "diamond"),
    Entry("ema", EMA, "#1ba98c", "triangle-up"),
    Entry("axbn", AXBN, "#a46be0", "cross", aliases=("kalman",)),
    Entry("auto", AutoAXBN, "#d8436b", "star"),
)
ADAPTERS: dict[str, type[Adapter]] = {
    name: entry.adapter for entry in CATALOGUE for name in (entry.name, *entry.aliases)
}

__all__ = ["ADAPTERS", "AXBN", "CATALOGUE", "EMA", "XBN", "Adapter", "AutoAXBN", "Entry", "Identity", "make_adapter"]


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
