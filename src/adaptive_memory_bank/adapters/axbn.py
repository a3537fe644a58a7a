"""Adaptive cross batch normalisation: a Kalman filter with given noises."""

import torch
from torch import Tensor

from adaptive_memory_bank.adapters.base import Adapter
from adaptive_memory_bank.moments import Moments


class AXBN(Adapter):
    """Believes in a random walk of known speed, seen through noise that shrinks with the batch.

    One scalar Kalman filter serves all dimensions and both moments::

        p' = p + q;   K = p' / (p' + r / b);   p = (1 - K) p'
        mu += K (E[B] - mu);   sigma += K (s[B] - sigma)

    The first batch initialises ``mu`` and ``sigma``. The gain ``K`` is recomputed at the next observation and then at
    every ``gain_interval``-th; in between it keeps its value. ``r=0`` equals `XBN`. With the defaults of the paper the
    gain is above 0.999; `AutoAXBN` measures the noises instead.

    Reference: Ajanthan et al., "Adaptive Cross Batch Normalization for Metric Learning", ICCV 2023, section 4.2.

    Args:
        q: Process noise: variance of the drift per gain update.
        r: Measurement noise of a single row; a batch of ``b`` rows has ``r / b``.
        p0: Initial variance of the estimate.
        gain_interval: Observations from one gain update to the next.

    Example:
        >>> axbn = AXBN(q=1.0, r=2.0, p0=1.0)
        >>> axbn.reset(dim=1)
        >>> for x in (0.0, 3.0):
        ...     target = axbn.observe(Moments.of(torch.tensor([[x], [x]])))
        >>> target.mean.item()  # p' = 2, K = 2 / (2 + 2/2) = 2/3
        2.0
    """

    uses_labels = False

    mean: Tensor  # (dim,)
    std: Tensor  # (dim,)
    variance: Tensor  # (): p
    gain: Tensor  # (): K
    observations: Tensor  # ()

    def __init__(self, q: float = 1.0, r: float = 0.01, p0: float = 1.0, *, gain_interval: int = 100) -> None:
        super().__init__()
        for name, value in (("q", q), ("r", r), ("p0", p0)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"`{name}` must be a finite number of at least 0, got {value}.")
        if not isinstance(gain_interval, int) or gain_interval < 1:
            raise ValueError(f"`gain_interval` must be a positive integer, got {gain_interval}.")
        self.q, self.r, self.p0 = float(q), float(r), float(p0)
        self.gain_interval = gain_interval

    def reset(self, dim: int) -> None:
        """Forget all batches."""
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.zeros(dim))
        self.register_buffer("variance", torch.tensor(self.p0))
        self.register_buffer("gain", torch.ones(()))  # the first batch is taken whole
        self.register_buffer("observations", torch.zeros((), dtype=torch.int64))

    def observe(self, batch: Moments) -> Moments:
        """Move the estimate by the share ``K`` of the way to the batch."""
        self._renew_gain(batch.count)
        self.mean.lerp_(batch.mean, self.gain)
        self.std.lerp_(batch.std, self.gain)
        self.observations += 1
        return Moments.plain(self.mean.clone(), self.std.clone(), batch.count)

    def _renew_gain(self, count: int | Tensor) -> None:
        # torch.where instead of `if`: reading a counter would make a GPU wait at every step.
        due = (self.observations > 0) & ((self.observations - 1) % self.gain_interval == 0)
        predicted = self.variance + self.q
        # Without noise the batch is the truth, also where nothing is believed to drift (0 / 0).
        gain = predicted / (predicted + self.r / count) if self.r > 0 else torch.ones_like(predicted)
        self.gain.copy_(torch.where(due, gain, self.gain))
        self.variance.copy_(torch.where(due, (1 - gain) * predicted, self.variance))

    def extra_repr(self) -> str:
        """Show the noises."""
        return f"q={self.q}, r={self.r}, p0={self.p0}, gain_interval={self.gain_interval}"
