"""Adapters: filters over batch moments, and the one catalogue of them.

A new adapter is a file in this folder and an `Entry` in `CATALOGUE`; tables, charts and the command line follow.
Adapters of others are found by `package.module:Class`, or by a name that their package declares as an entry point.
"""

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from adaptive_memory_bank.lazy import lazy_names, load_object

if TYPE_CHECKING:
    from adaptive_memory_bank.adapters.auto_axbn import AutoAXBN
    from adaptive_memory_bank.adapters.axbn import AXBN
    from adaptive_memory_bank.adapters.base import Adapter
    from adaptive_memory_bank.adapters.ema import EMA
    from adaptive_memory_bank.adapters.identity import Identity
    from adaptive_memory_bank.adapters.xbn import XBN

ENTRY_POINTS = "adaptive_memory_bank.adapters"
"""The group in which packages declare adapters of their own."""


@dataclass(frozen=True)
class Entry:
    """An adapter as others know it."""

    name: str  # in Python and on the command line
    path: str  # `module:Class`, the module in this folder
    color: str  # of its curves, in every chart
    marker: str  # of its points, as Plotly names it
    aliases: tuple[str, ...] = ()

    def load(self) -> "type[Adapter]":
        """Import its class."""
        adapter: type[Adapter] = load_object(f"{__name__}.{self.path}")
        return adapter


# The order is that of tables and legends. The colours can be told apart with the usual colour deficiencies, too.
CATALOGUE = (
    Entry("identity", "identity:Identity", "#e0812c", "square", aliases=("xbm",)),
    Entry("xbn", "xbn:XBN", "#3d85e0", "diamond"),
    Entry("ema", "ema:EMA", "#1ba98c", "triangle-up"),
    Entry("axbn", "axbn:AXBN", "#a46be0", "cross", aliases=("kalman",)),
    Entry("auto", "auto_axbn:AutoAXBN", "#d8436b", "star"),
)
ADAPTERS = {name: entry for entry in CATALOGUE for name in (entry.name, *entry.aliases)}

__all__ = [
    "ADAPTERS",
    "AXBN",
    "CATALOGUE",
    "EMA",
    "ENTRY_POINTS",
    "XBN",
    "Adapter",
    "AutoAXBN",
    "Entry",
    "Identity",
    "adapter_names",
    "find_adapter",
    "make_adapter",
]

__getattr__ = lazy_names(
    __name__,
    {"auto_axbn": "AutoAXBN", "axbn": "AXBN", "base": "Adapter", "ema": "EMA", "identity": "Identity", "xbn": "XBN"},
)


def adapter_names() -> tuple[str, ...]:
    """Every name of an adapter, aliases and those of other packages included.

    Example:
        >>> adapter_names()[:3]
        ('identity', 'xbm', 'xbn')
    """
    return (*ADAPTERS, *(point.name for point in entry_points(group=ENTRY_POINTS) if point.name not in ADAPTERS))


def find_adapter(name: str) -> "type[Adapter]":
    """The class of an adapter, by its name or as `package.module:Class`.

    Raises:
        ValueError: Where there is no such adapter.

    Example:
        >>> find_adapter("kalman").__name__, find_adapter("adaptive_memory_bank.adapters.ema:EMA").__name__
        ('AXBN', 'EMA')
    """
    if name in ADAPTERS:
        return ADAPTERS[name].load()
    declared = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    if name not in declared and ":" not in name:
        known = ", ".join(adapter_names())
        raise ValueError(f"`adapter` must be one of {known}, or `package.module:Class`, got '{name}'.")
    return _load_foreign(name, declared.get(name, name))


def _load_foreign(name: str, path: str) -> "type[Adapter]":
    try:
        found = load_object(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"`adapter` {name} cannot be imported: {error}.") from error
    from adaptive_memory_bank.adapters.base import Adapter

    if not (isinstance(found, type) and issubclass(found, Adapter)):
        raise ValueError(f"`adapter` {name} must be a subclass of `adaptive_memory_bank.Adapter`, got {found!r}.")
    return found


def make_adapter(adapter: "Adapter | str", /, **hyper_parameters: float) -> "Adapter":
    """Return an adapter from its name, or the adapter itself.

    Args:
        adapter: An `Adapter`, one of `adapter_names()`, or `package.module:Class`.
        **hyper_parameters: Passed to the adapter's class, when a name is given.

    Example:
        >>> make_adapter("ema", momentum=0.9)
        EMA(momentum=0.9)
    """
    from adaptive_memory_bank.adapters.base import Adapter

    if isinstance(adapter, Adapter):
        if hyper_parameters:
            raise TypeError("Hyper-parameters go with an adapter's name; this adapter has been made already.")
        return adapter
    if not isinstance(adapter, str):
        hint = f" Did you mean {adapter.__name__}()?" if isinstance(adapter, type) else ""
        raise TypeError(f"`adapter` must be an Adapter or a name, got {adapter!r}.{hint}")
    return find_adapter(adapter)(**hyper_parameters)
