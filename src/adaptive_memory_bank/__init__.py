"""A memory bank whose stored embeddings follow the encoder as it trains."""

from adaptive_memory_bank.adapters import AXBN, EMA, XBN, Adapter, AutoAXBN, Identity
from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.moments import Moments

__version__ = "0.1.0"
__all__ = ["AXBN", "EMA", "XBN", "Adapter", "AdaptiveMemoryBank", "AutoAXBN", "Identity", "Moments"]
