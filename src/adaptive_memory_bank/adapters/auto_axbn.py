"""AXBN with its noises measured instead of tuned."""

from __future__ import annotations

import torch
from torch import Tensor

from adaptive_memory_bank.adapters.base import Adapter
from adaptive_memory_bank.moments import Moments


class AutoAXBN(Adapter):
    """Believes what it measures: how noisy batches are, and how much more than noise they move.

    The filter of `AXBN`, one gain for the means and one for the spreads. The measurement noise of a batch follows from
    the batch itself (`Moments.mean_variance`, `Moments.std_variance`; cluster-robust where labels are given). The
    innovation of a step, what the batch says beyond the estimate, has variance ``p' + noise``; so with both smoothed
    over time and pooled over all dimensions (one number is far less noisy than one per dimension)::

        c = sum(innovation^2) / sum(noise);   p' = max(c - 1, floor);   K = p' / (p' + 1)

    It matches `Moments.population_std`: a batch of few classes shows too little of the variance between them.

    Args:
        smoothing: Share of the past in the smoothed energies, in [0, 1). The default remembers about ten batches.
        floor: Smallest ``p'``: keeps the filter listening while nothing seems to drift.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> auto = AutoAXBN()
        >>> auto.reset(dim=64)
        >>> for step in range(100):
        ...     target = auto.observe(Moments.of(torch.randn(16, 64)))
        >>> bool(auto.gain.max() < 0.2)  # nothing drifts: it averages
        True
    """

    mean: Tensor  # (dim,)
    std: Tensor  # (dim,)
    innovation: Tensor  # (2,): smoothed energy of the innovations, of the mean and of the std
    noise: Tensor  # (2,): smoothed energy of the measurement noise
    gain: Tensor  # (2,)
    observations: Tensor  # ()

    def __init__(self, *, smoothing: float = 0.9, floor: float = 0.01) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise ValueError(f"`smoothing` must be in [0, 1), got {smoothing}.")
        if not 0 < floor < float("inf"):
            raise ValueError(f"`floor` must be a positive number, got {floor}.")
        self.smoothing, self.floor = float(smoothing), float(floor)

    def reset(self, dim: int) -> None:
        """Forget all batches."""
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.zeros(dim))
        self.register_buffer("innovation", torch.zeros(2))
        self.register_buffer("noise", torch.zeros(2))
        self.register_buffer("gain", torch.ones(2))  # the first batch is taken whole
        self.register_buffer("observations", torch.zeros((), dtype=torch.int64))

    def observe(self, batch: Moments) -> Moments:
        """Correct the estimate by as much as the innovations exceed the noise."""
        self._renew_gain(batch)
        self.mean.lerp_(batch.mean, self.gain[0])
        self.std.lerp_(batch.population_std, self.gain[1])
        self.observations += 1
        return Moments.plain(self.mean.clone(), self.std.clone(), batch.count)

    def _renew_gain(self, batch: Moments) -> None:
        surprise = torch.stack(
            [(batch.mean - self.mean).square().sum(), (batch.population_std - self.std).square().sum()]
        )
        noise = torch.stack([batch.mean_variance.sum(), batch.std_variance.sum()])
        # Before there is an estimate there is no innovation; then plain averages until the window has filled.
        seen = self.observations.to(self.mean.dtype)
        weight = torch.where(seen == 0, 0.0, (1 / seen.clamp(min=1)).clamp(min=1 - self.smoothing))
        self.innovation.lerp_(surprise, weight)
        self.noise.lerp_(noise, weight)
        excess = (self.innovation / self.noise.clamp(min=torch.finfo(noise.dtype).tiny) - 1).clamp(min=self.floor)
        self.gain.copy_(torch.where(seen == 0, 1.0, 1 - 1 / (1 + excess)))  # K = p' / (p' + 1), also for p' = inf

    def extra_repr(self) -> str:
        """Show how it smooths."""
        return f"smoothing={self.smoothing}, floor={self.floor}"
