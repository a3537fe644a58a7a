"""Tiny replicas of the benchmarks, in the layouts their authors ship."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import replicas

Write = Callable[..., Path]


@pytest.fixture
def write_image() -> Write:
    return replicas.write_image


@pytest.fixture
def write_text() -> Write:
    return replicas.write_text


@pytest.fixture
def small_images() -> np.ndarray:
    """(24, 16, 16) uint8: noise on white paper."""
    random = np.random.default_rng(0)
    images = np.full((24, 16, 16), 255, np.uint8)
    images[:, 3:13, 3:13] = random.integers(0, 256, (24, 10, 10))
    return images
