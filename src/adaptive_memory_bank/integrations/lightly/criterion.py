"""lightly's `NTXentLoss` and its memory bank as one."""

import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss
from torch import Tensor, nn

from adaptive_memory_bank.checks import is_number
from adaptive_memory_bank.integrations.lightly.banks import MemoryBankModule
from adaptive_memory_bank.integrations.lightly.queue import Queue
from adaptive_memory_bank.losses.walk import Workspace


class FusedNTXentLoss(NTXentLoss):  # type: ignore[misc]  # lightly is not typed
    """lightly's `NTXentLoss` with the sum over an adaptive bank computed block by block, gradient included.

    `swap_memory_bank` turns a criterion into this class, in place. Values and gradients are those of lightly on the
    same rows, and as there the bank follows and stores the second argument wherever the first one requires a gradient,
    in ``train()`` and ``eval()`` mode alike. Products are computed in float32 or better, also under autocast; second
    derivatives are not available. Where a setting was changed to one that cannot be fused, it computes as lightly does.
    """

    memory_bank: MemoryBankModule
    _workspace: Workspace

    @property
    def not_fused(self) -> str:
        """What keeps it from being fused; empty where nothing does."""
        if type(self.memory_bank) is not MemoryBankModule or self.memory_bank.memory is None:
            return "the memory bank was replaced"
        if not (is_number(self.temperature) and self.temperature > 0):
            return "the temperature is not a positive number"
        return "" if _is_plain(self.cross_entropy) else "the cross entropy has settings of its own"

    @property
    def is_fused(self) -> bool:
        """Whether the next call is computed block by block."""
        return not self.not_fused

    def forward(self, out0: Tensor, out1: Tensor) -> Tensor:
        """Contrast queries (B, dim) and their keys (B, dim) with the rows of the bank; returns the mean loss."""
        if not self.is_fused:
            value: Tensor = super().forward(out0, out1)
            return value
        device, dtype = out0.device.type, out0.dtype
        if torch.is_autocast_enabled(device):  # under which cross entropy is one of float32
            dtype = torch.promote_types(dtype, torch.float32)
        with torch.autocast(device, enabled=False):
            return self._loss(out0, out1).to(dtype)

    def _loss(self, out0: Tensor, out1: Tensor) -> Tensor:
        assert self.memory_bank.memory is not None
        exact = self.memory_bank.memory.compute_dtype
        queries, keys = (F.normalize(out.to(exact), dim=1) for out in (out0, out1))

        def log_sum_exp(memory: Queue) -> Tensor:
            return memory.log_sum_exp(queries, temperature=self.temperature, workspace=self._workspace)

        negative = self.memory_bank.read(keys, log_sum_exp, update=queries.requires_grad)
        positive: Tensor = (queries * keys).sum(1) / self.temperature
        return (torch.logaddexp(negative, positive) - positive).mean()

    def extra_repr(self) -> str:
        """Show whether it is fused."""
        return f"not fused: {self.not_fused}" if self.not_fused else "fused"


def _is_plain(loss: nn.Module) -> bool:
    return (
        type(loss) is nn.CrossEntropyLoss
        and loss.weight is None
        and (loss.reduction, loss.label_smoothing, loss.ignore_index) == ("mean", 0.0, -100)
    )
