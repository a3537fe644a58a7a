"""scikit-learn's 1,797 handwritten digits, 8 x 8: real images without a download, for MoCo and kNN accuracy."""

from pathlib import Path

import numpy as np
import torch

from adaptive_memory_bank.lab.data.parts import Part, RetrievalData
from adaptive_memory_bank.lab.data.source import Source

TEST = 360  # the last fifth: other writers, as the file is in the order of collection


def load(root: Path, *, seed: int, download: bool) -> RetrievalData:
    """The first 1,437 images train, the last 360 test."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    # 16 levels, 0 = paper: 255 / 16 fills the byte exactly.
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    part = Part(images, torch.from_numpy(bunch.target).long(), class_names=tuple(map(str, bunch.target_names)))
    train, test = part.subset(range(len(part) - TEST)), part.subset(range(len(part) - TEST, len(part)))
    return RetrievalData("digits", train, test, None, ks=(1, 10, 100), gray=True, image_size=8)


SOURCE = Source("digits", load, "1,437 + 360", "10", "same classes", "kNN accuracy")
