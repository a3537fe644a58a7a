"""What the banks of a LightningModule do, in its own loggers."""

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from torch import nn

from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.checks import check_positive_integer

__all__ = ["MemoryBankMonitor"]


class MemoryBankMonitor(Callback):
    """Logs ``stats()`` of every `AdaptiveMemoryBank` inside a LightningModule, those of swapped criteria included.

    The names are ``bank/age``, ``bank/gain_mean`` and so on; where there are several banks, each has the path of its
    module in between: ``bank/criterion.memory_bank.memory/age``. Between two logs no device is asked for anything.

    Args:
        every: Optimiser steps from one log to the next.
    """

    def __init__(self, every: int = 50) -> None:
        check_positive_integer("every", every)
        self.every = every
        self._logged_at = 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log, if it is time."""
        step = trainer.global_step
        if step - self._logged_at < self.every:
            return
        self._logged_at = step
        stats = bank_stats(pl_module)
        for logger in trainer.loggers:
            logger.log_metrics(stats, step=step)

    def state_dict(self) -> dict[str, Any]:
        """When it logged last, so that a resumed run logs at the same steps."""
        return {"logged_at": self._logged_at}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._logged_at = state_dict["logged_at"]


def bank_stats(module: nn.Module) -> dict[str, float]:
    """Stats of all banks inside a module, under the names that `MemoryBankMonitor` gives them.

    Example:
        >>> [*bank_stats(nn.Sequential(AdaptiveMemoryBank(8, 2)))][:3]
        ['bank/fill', 'bank/age', 'bank/gain_mean']
    """
    banks = {path: part for path, part in module.named_modules() if isinstance(part, AdaptiveMemoryBank)}
    prefixes = {path: "bank/" if len(banks) == 1 else f"bank/{path}/" for path in banks}
    return {prefixes[path] + name: value for path, bank in banks.items() for name, value in bank.stats().items()}
