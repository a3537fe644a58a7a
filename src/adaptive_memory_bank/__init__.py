"""A memory bank whose stored embeddings follow the encoder as it trains."""

from typing import TYPE_CHECKING

from adaptive_memory_bank.lazy import lazy_names
from adaptive_memory_bank.version import __version__

if TYPE_CHECKING:
    from adaptive_memory_bank.adapters import AXBN, EMA, XBN, Adapter, AutoAXBN, Identity
    from adaptive_memory_bank.bank import AdaptiveMemoryBank
    from adaptive_memory_bank.moments import Moments

__all__ = ["AXBN", "EMA", "XBN", "Adapter", "AdaptiveMemoryBank", "AutoAXBN", "Identity", "Moments", "__version__"]

# The command `amb` knows every name, and refuses a wrong one, before torch is imported.
__getattr__ = lazy_names(
    __name__,
    {"adapters": "AXBN EMA XBN Adapter AutoAXBN Identity", "bank": "AdaptiveMemoryBank", "moments": "Moments"},
)
