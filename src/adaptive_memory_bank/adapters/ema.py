"""Exponential moving average of the batch moments."""

import torch
from torch import Tensor

from adaptive_memory_bank.adapters.base import Adapter
from adaptive_memory_bank.moments import Moments


class EMA(Adapter):
    """Believes in a fixed trade of noise against lag: ``mu_k = m mu_(k-1) + (1 - m) E[B]``, the same for ``sigma``.

    The first batch initialises both. ``momentum=0`` equals `XBN`.

    Args:
        momentum: ``m``, in [0, 1): the weight of the past.

    Example:
        >>> ema = EMA(momentum=0.5)
        >>> ema.reset(dim=1)
        >>> [ema.observe(Moments.of(torch.tensor([[x], [x]]))).mean.item() for x in (0.0, 4.0, 4.0)]
        [0.0, 2.0, 3.0]
    """

    uses_labels = False

    mean: Tensor  # (dim,)
    std: Tensor  # (dim,)
    observations: Tensor  # ()

    def __init__(self, momentum: float = 0.1) -> None:
        super().__init__()
        if not 0 <= momentum < 1:
            raise ValueError(f"`momentum` must be in [0, 1), got {momentum}.")
        self.momentum = float(momentum)

    def reset(self, dim: int) -> None:
        """Forget all batches."""
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.zeros(dim))
        self.register_buffer("observations", torch.zeros((), dtype=torch.int64))

    def observe(self, batch: Moments) -> Moments:
        """Move a share ``1 - m`` of the way towards the batch (all of it the first time)."""
        weight = self.mean.new_full((), 1.0 - self.momentum).masked_fill_(self.observations == 0, 1.0)
        self.mean.lerp_(batch.mean, weight)
        self.std.lerp_(batch.std, weight)
        self.observations += 1
        return Moments.plain(self.mean.clone(), self.std.clone(), batch.count)

    def extra_repr(self) -> str:
        """Show the momentum."""
        return f"momentum={self.momentum}"
