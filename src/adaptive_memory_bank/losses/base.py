"""What every loss on a memory bank has."""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.checks import is_number
from adaptive_memory_bank.losses.steps import StepCounter
from adaptive_memory_bank.losses.walk import Workspace


class MemoryLoss(nn.Module):
    """What the losses share: a bank, a temperature, and a count of training steps with advice about empty ones."""

    def __init__(self, bank: AdaptiveMemoryBank, temperature: float, advice: str) -> None:
        super().__init__()
        if not isinstance(bank, AdaptiveMemoryBank):
            raise TypeError(f"`bank` must be an AdaptiveMemoryBank, got {type(bank).__name__}.")
        if not (is_number(temperature) and 0 < temperature < math.inf):
            raise ValueError(f"`temperature` must be a positive number, got {temperature!r}.")
        self.bank = bank
        self._workspace = Workspace()
        self.temperature = float(temperature)
        self.steps = StepCounter(advice)

    def stats(self) -> dict[str, float]:
        """Training steps so far: ``steps``, and of them ``empty_steps``, which had nothing to compare and loss 0.

        The device is asked only now (and every 100 steps, for a warning once more than half of those were empty).
        """
        return self.steps.stats()

    def _unit(self, rows: Tensor) -> Tensor:
        """Unit vectors, in the precision of the bank's arithmetic."""
        return F.normalize(rows.to(self.bank.compute_dtype), dim=1)
