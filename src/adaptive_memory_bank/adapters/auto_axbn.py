"""AXBN with its noises measured instead of tuned."""

import torch
from torch import Tensor

from adaptive_memory_bank.adapters.base import Adapter
from adaptive_memory_bank.moments import Moments

RECENT = 0.9  # share of the past in the energy that notices jumps: about ten batches
JUMP = 2.0  # times the usual energy
CALIBRATION = 0.99  # share of the past in what neighbouring innovations say about the noise: about a hundred batches
PRIOR = 5.0  # batches for which the noise that a batch claims is believed, to begin with
SMALLEST = 0.02  # of the noise that a batch claims
TINY = 1e-30


class AutoAXBN(Adapter):
    """Believes what it measures: how noisy batches are, and how much more than noise they move.

    The filter of `AXBN`, one gain for the means and one for the spreads. The innovation of a step, what the batch says
    beyond the estimate, has variance ``p' + noise``; so with both smoothed over time and pooled over all dimensions
    (one number is far less noisy than one per dimension)::

        c = sum(innovation^2) / (calibration * sum(noise));   p' = max(c - 1, floor);   K = p' / (p' + 1)

    The noise of a batch follows from the batch itself (`Moments.mean_variance`, `Moments.std_variance`; cluster-robust
    where labels are given), as if its rows were drawn independently. They are not: batch norm in an encoder makes
    batches alike, early in training several times more alike than draws are, and what moves would pass for noise.
    Neighbouring innovations tell. Noise is forgotten from one step to the next, so what it is follows from ``e`` at a
    step with gain ``K`` and ``e_next`` after it, whatever the drift and whether or not ``K`` was right::

        noise = E[(1 - K) e^2 - e e_next];   calibration = min(that / what the batches claim, 1)

    It is kept from rising above 1, because an encoder that jumps back and forth looks like noise, too. A jump, energy
    far beyond the usual, counts at once for the gain and little for the averages.

    It matches `Moments.population_std`: a batch of few classes shows too little of the variance between them.

    Args:
        smoothing: Share of the past in the smoothed energies, in [0, 1). The default remembers about forty batches.
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

    # All of it for the mean and for the std.
    estimate: Tensor  # (2, dim)
    last: Tensor  # (2, dim): the innovation before this one
    last_noise: Tensor  # (2,)
    innovation: Tensor  # (2,): smoothed energy of the innovations
    recent: Tensor  # (2,): the same, quicker
    noise: Tensor  # (2,): smoothed noise that batches claim
    seen_noise: Tensor  # (2,): sum over the last hundred batches or so of the noise that innovations show
    claimed_noise: Tensor  # (2,): and of what the batches claimed
    gain: Tensor  # (2,)
    observations: Tensor  # ()

    def __init__(self, *, smoothing: float = 0.975, floor: float = 0.01) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise ValueError(f"`smoothing` must be in [0, 1), got {smoothing}.")
        if not 0 < floor < float("inf"):
            raise ValueError(f"`floor` must be a positive number, got {floor}.")
        self.smoothing, self.floor = float(smoothing), float(floor)

    def reset(self, dim: int) -> None:
        """Forget all batches."""
        for name in ("estimate", "last"):
            self.register_buffer(name, torch.zeros(2, dim))
        for name in ("last_noise", "innovation", "recent", "noise", "seen_noise", "claimed_noise"):
            self.register_buffer(name, torch.zeros(2))
        self.register_buffer("gain", torch.ones(2))  # the first batch is taken whole
        self.register_buffer("observations", torch.zeros((), dtype=torch.int64))

    @property
    def mean(self) -> Tensor:
        """The estimate of the mean, (dim,)."""
        return self.estimate[0]

    @property
    def std(self) -> Tensor:
        """The estimate of the standard deviation, (dim,)."""
        return self.estimate[1]

    @property
    def calibration(self) -> Tensor:
        """Noise that the innovations show, as a share of what the batches claim: (2,), in (0, 1]."""
        return (self.seen_noise / self.claimed_noise.clamp(min=TINY)).clamp(SMALLEST, 1)

    def observe(self, batch: Moments) -> Moments:
        """Correct the estimate by as much as the innovations exceed the noise."""
        innovation = torch.stack([batch.mean, batch.population_std]) - self.estimate
        noise = torch.stack([batch.mean_variance, batch.std_variance]).sum(1)
        before = self.observations.to(noise.dtype)
        later = before.clamp(max=1)  # 0 for the first batch: before there is an estimate there is no innovation; else 1
        self._calibrate(innovation, noise)
        self._smooth(innovation.square().sum(1), noise, later / before.clamp(min=1), later)
        energy = torch.maximum(self.innovation, self.recent / JUMP)
        usual = torch.minimum(self.noise, JUMP * noise)  # batches that grew quiet are believed before averages are
        excess = (energy / (self.calibration * usual).clamp_(min=TINY) - 1).clamp_(min=self.floor)
        torch.sub(1, later / (1 + excess), out=self.gain)  # K = p' / (p' + 1), also for p' = inf; at first 1
        self.estimate.addcmul_(self.gain[:, None], innovation)
        torch.mul(innovation, later, out=self.last)
        torch.mul(noise, later, out=self.last_noise)
        self.observations.add_(1)
        mean, std = self.estimate.clone().unbind()
        return batch._replace(mean=mean, std=std, population_std=std)

    def _calibrate(self, innovation: Tensor, noise: Tensor) -> None:
        """Learn from two neighbours how large the noise of the first one was."""
        energy = self.last.square().sum(1)
        shown = (1 - self.gain) * energy - (innovation * self.last).sum(1)
        usual = JUMP * torch.maximum(self.innovation, self.last_noise)
        weight = (usual / energy.clamp(min=TINY)).clamp_(max=1)
        start = (self.observations == 1) * (PRIOR * noise)
        self.seen_noise.mul_(CALIBRATION).add_(start).addcmul_(weight, shown)
        self.claimed_noise.mul_(CALIBRATION).add_(start).addcmul_(weight, self.last_noise)

    def _smooth(self, energy: Tensor, noise: Tensor, share: Tensor, later: Tensor) -> None:
        """Average over time; plain averages, by ``share``, until a window has filled."""
        usual = torch.where(self.observations > 5, JUMP * torch.maximum(self.innovation, noise), energy)
        slow, quick = (share.clamp(min=1 - past).mul_(later) for past in (self.smoothing, RECENT))
        self.innovation.lerp_(torch.minimum(energy, usual), slow)
        self.noise.lerp_(noise, slow)
        self.recent.lerp_(energy, quick)

    def extra_repr(self) -> str:
        """Show how it smooths."""
        return f"smoothing={self.smoothing}, floor={self.floor}"
