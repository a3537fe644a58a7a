"""Tiny replicas of the benchmarks, in the layouts their authors ship."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Write = Callable[..., Path]


@pytest.fixture
def write_image() -> Write:
    """Write a small image whose every pixel is `value`, in a mode and a size."""

    def write(path: Path, value: int = 128, *, mode: str = "RGB", size: tuple[int, int] = (12, 10)) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        base = Image.new("L", size, value)
        base.convert(mode).save(path)
        return path

    return write


@pytest.fixture
def write_text() -> Write:
    def write(path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def small_images() -> np.ndarray:
    """(24, 16, 16) uint8: noise on white paper."""
    random = np.random.default_rng(0)
    images = np.full((24, 16, 16), 255, np.uint8)
    images[:, 3:13, 3:13] = random.integers(0, 256, (24, 10, 10))
    return images
