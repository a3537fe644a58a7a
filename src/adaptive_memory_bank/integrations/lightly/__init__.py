"""lightly's memory bank, adaptive: the queue of MoCo, CO2 and NNCLR, and `NTXentLoss` fused with it."""

from adaptive_memory_bank.integrations.lightly.banks import MemoryBankModule, NNMemoryBankModule
from adaptive_memory_bank.integrations.lightly.swap import export_memory_bank, swap_memory_bank

__all__ = ["MemoryBankModule", "NNMemoryBankModule", "export_memory_bank", "swap_memory_bank"]
