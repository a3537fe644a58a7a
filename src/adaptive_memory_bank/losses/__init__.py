"""Contrastive losses of a batch against a memory bank, fused: faster and smaller than bank, miner and loss apart."""

from adaptive_memory_bank.losses.infonce import MemoryInfoNCELoss
from adaptive_memory_bank.losses.pairs import Pairs
from adaptive_memory_bank.losses.supcon import MemorySupConLoss

__all__ = ["MemoryInfoNCELoss", "MemorySupConLoss", "Pairs"]
