"""Random numbers that depend on (seed, epoch, index) and on nothing else, and the global generators kept apart."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Stream:
    """A counter-based generator: every number is a hash of its address (seed, epoch, lane, index, column).

    Args:
        seed: Of the run.
        epoch: Of the pass over the data.
        lane: Tells independent uses apart, such as the two views of one image.

    Example:
        >>> stream = Stream(seed=0, epoch=3)
        >>> both, alone = stream.uniform([4, 7], 2), stream.uniform([7], 2)
        >>> both.shape, torch.equal(both[1], alone[0])
        (torch.Size([2, 2]), True)
    """

    seed: int
    epoch: int = 0
    lane: int = 0

    def uniform(self, indices: Sequence[int] | Tensor, columns: int) -> Tensor:
        """(B, columns) float32 in [0, 1), row i belonging to `indices[i]`."""
        bits = _mix(self._keys(indices)[:, None] ^ _mix(np.arange(1, columns + 1, dtype=np.uint64)))
        # 24 bits: what float32 holds exactly, so 1.0 cannot appear.
        return torch.from_numpy((bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24))

    def between(self, indices: Sequence[int] | Tensor, columns: int, *, low: float, high: float) -> Tensor:
        """(B, columns) float32 in [low, high)."""
        return self.uniform(indices, columns) * (high - low) + low

    def seeds(self, indices: Sequence[int] | Tensor) -> list[int]:
        """One 32-bit seed per index, for code that insists on a global generator."""
        return [int(key >> np.uint64(32)) for key in _mix(self._keys(indices))]

    def _keys(self, indices: Sequence[int] | Tensor) -> np.ndarray[Any, Any]:
        key = np.zeros(1, dtype=np.uint64)
        for word in (self.seed, self.epoch, self.lane):
            key = _mix(key ^ np.array([word % 2**64], dtype=np.uint64))
        return _mix(key ^ np.asarray(indices, dtype=np.int64).astype(np.uint64))


def _mix(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One step of SplitMix64 (Steele et al., OOPSLA 2014): a bijection of 64 bits with good avalanche."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray[Any, Any] = words ^ (words >> np.uint64(31))
    return mixed


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python's, numpy's and torch's (CPU) global generators inside, put them back after."""
    with kept_generators():
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def kept_generators() -> Iterator[None]:
    """Put the global generators back after, whatever is drawn inside."""
    state = random_state()
    try:
        yield
    finally:
        set_random_state(state)


def random_state() -> dict[str, Any]:
    """Python's, numpy's and torch's generators as plain data."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [
            str(kind),
            torch.from_numpy(np.asarray(keys, dtype=np.int64)),
            int(position),
            int(has_gauss),
            float(cached),
        ],
        "python": [version, list(internal), gauss],
    }
    if cast("Any", torch.cuda).is_initialized():  # never in a forked loader process, where CUDA must not be touched
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Put back what `random_state` took."""
    torch.set_rng_state(state["torch"])
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
