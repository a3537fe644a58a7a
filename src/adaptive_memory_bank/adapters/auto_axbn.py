"""AXBN with its noises measured instead of tuned."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptive_memory_bank.adapters.base import Adapter
from adaptive_memory_bank.masks import reading_is_free
from adaptive_memory_bank.moments import Moments

RECENT = 0.9  # share of the past in the energy that notices jumps: about ten batches
JUMP = 2.0  # times the usual energy
CALIBRATION = 0.99  # share of the past in what neighbouring innovations say about the noise: about a hundred batches
PRIOR = 5.0  # batches for which the noise that a batch claims is believed, to begin with
SMALLEST = 0.02  # of the noise that a batch claims
TINY = 1e-30
Number = Any  # a number of Python, or a tensor of those of several moments


class Innovation(NamedTuple):
    """What a batch says beyond the estimate, summed up over all dimensions."""

    noise: Number  # that the batch claims
    energy: Number  # sum of squares
    product: Number  # with the innovation before it
    energy_before: Number  # of that one


class Track(NamedTuple):
    """What the filter remembers of one moment beside the estimate."""

    last_noise: Number  # that the batch before this one claimed
    innovation: Number  # smoothed energy of the innovations
    recent: Number  # the same, quicker
    noise: Number  # smoothed noise that batches claim
    seen_noise: Number  # sum over the last hundred batches or so of the noise that innovations show
    claimed_noise: Number  # and of what the batches claimed
    gain: Number

    @property
    def calibration(self) -> Number:
        """Noise that the innovations show, as a share of what the batches claim, in (0, 1]."""
        return smaller(larger(self.seen_noise / larger(self.claimed_noise, TINY), SMALLEST), 1)

    def after(self, count: Number, now: Innovation, smoothing: float, floor: float) -> "Track":
        """The same after one more batch; ``count`` came before it."""
        later = smaller(count, 1)  # 0 for the first batch: before there is an estimate there is no innovation; else 1
        track = self._calibrated(now, PRIOR * now.noise * (count == 1))._smoothed(count, now, smoothing)
        energy = larger(track.innovation, track.recent / JUMP)
        usual = smaller(track.noise, JUMP * now.noise)  # batches that grew quiet are believed before averages are
        excess = larger(energy / larger(track.calibration * usual, TINY) - 1, floor)
        return track._replace(
            gain=1 - later / (1 + excess),  # K = p' / (p' + 1), also for p' = inf; at first 1
            last_noise=now.noise * later,
        )

    def _calibrated(self, now: Innovation, start: Number) -> "Track":
        """Learn from two neighbours how large the noise of the first one was."""
        shown = (1 - self.gain) * now.energy_before - now.product
        usual = JUMP * larger(self.innovation, self.last_noise)
        weight = smaller(usual / larger(now.energy_before, TINY), 1)
        return self._replace(
            seen_noise=CALIBRATION * self.seen_noise + start + weight * shown,
            claimed_noise=CALIBRATION * self.claimed_noise + start + weight * self.last_noise,
        )

    def _smoothed(self, count: Number, now: Innovation, smoothing: float) -> "Track":
        """Average over time; plain averages until a window has filled."""
        later = smaller(count, 1)
        share = later / larger(count, 1)
        slow, quick = (later * larger(share, 1 - past) for past in (smoothing, RECENT))
        usual = larger(JUMP * larger(self.innovation, now.noise), now.energy * (count <= 5))  # at first all is usual
        return self._replace(
            innovation=self.innovation + slow * (smaller(now.energy, usual) - self.innovation),
            noise=self.noise + slow * (now.noise - self.noise),
            recent=self.recent + quick * (now.energy - self.recent),
        )


NEW = Track(last_noise=0.0, innovation=0.0, recent=0.0, noise=0.0, seen_noise=0.0, claimed_noise=0.0, gain=1.0)


def smaller(first: Number, second: Number) -> Number:
    """The smaller of two; a tensor comes first."""
    return first.clamp(max=second) if isinstance(first, Tensor) else min(first, second)


def larger(first: Number, second: Number) -> Number:
    """The larger of two; a tensor comes first."""
    return first.clamp(min=second) if isinstance(first, Tensor) else max(first, second)


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
    track: Tensor  # (2, 7): what is one number for all dimensions, in the order of `Track`
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
        self.register_buffer("track", torch.tensor([NEW, NEW]))
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
    def gain(self) -> Tensor:
        """Share of the last innovation that was believed, (2,)."""
        return self.track[:, -1]

    @property
    def calibration(self) -> Tensor:
        """Noise that the innovations show, as a share of what the batches claim: (2,), in (0, 1]."""
        share: Tensor = Track(*self.track.unbind(1)).calibration
        return share

    def observe(self, batch: Moments) -> Moments:
        """Correct the estimate by as much as the innovations exceed the noise."""
        innovation = torch.stack([batch.mean, batch.population_std]) - self.estimate
        noise = torch.stack([batch.mean_variance, batch.std_variance]).sum(1)
        pairs = [innovation, innovation, self.last], [innovation, self.last, self.last]
        products = torch.mul(*(torch.stack(side, dim=1) for side in pairs)).sum(-1)  # (2, 3); autocast halves `@`
        later = self._follow(products, noise)
        self.estimate.addcmul_(self.track[:, -1:], innovation)
        torch.mul(innovation, later, out=self.last)
        self.observations.add_(1)
        mean, std = self.estimate.clone().unbind()
        return batch._replace(mean=mean, std=std, population_std=std)

    def _follow(self, products: Tensor, noise: Tensor) -> Number:
        """Update what is one number for all dimensions; returns 1, or 0 for the first batch.

        The same lines for numbers of Python, first those of the mean and then those of the std, and for tensors (2,) of
        both: on a CPU forty operations on tensors of two take longer than the rest of the filter, and elsewhere reading
        a number means waiting.

        Args:
            products: Shape (2, 3): energy of the innovation, its product with the one before, and the energy of that.
            noise: Shape (2,): what the batch claims.
        """
        if reading_is_free(noise.device):
            count: Number = self.observations.item()
            parts = zip(products.tolist(), noise.tolist(), self.track.tolist(), strict=True)
            found = [self._later(count, *each) for each in parts]
            self.track.copy_(noise.new_tensor(found))
        else:
            count = self.observations.to(noise.dtype)
            self.track.copy_(torch.stack(self._later(count, products.unbind(1), noise, self.track.unbind(1)), dim=1))
        return smaller(count, 1)

    def _later(self, count: Number, products: Sequence[Number], noise: Number, track: Sequence[Number]) -> Track:
        return Track(*track).after(count, Innovation(noise, *products), self.smoothing, self.floor)

    def extra_repr(self) -> str:
        """Show how it smooths."""
        return f"smoothing={self.smoothing}, floor={self.floor}"
