"""pytorch-metric-learning's cross-batch memory, adaptive."""

from adaptive_memory_bank.integrations.pml.memory import CrossBatchMemory

__all__ = ["CrossBatchMemory"]
