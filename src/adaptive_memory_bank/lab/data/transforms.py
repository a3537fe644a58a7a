"""From stored images to the tensors a model takes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from adaptive_memory_bank.lab.data.parts import Part
from adaptive_memory_bank.lab.data.pixels import fit_square
from adaptive_memory_bank.lab.data.randomness import Stream

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Normalization(NamedTuple):
    """What is subtracted from colours in [0, 1], and what they are divided by, per channel."""

    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD


IMAGENET = Normalization()
HALF = Normalization((0.5,), (0.5,))  # [0, 1] to [-1, 1], of any number of channels


class Transform(ABC):
    """Makes a batch of model inputs from images of a part; random draws come from the stream alone."""

    @abstractmethod
    def __call__(self, part: Part, indices: Tensor, stream: Stream) -> Tensor:
        """(B, C, H, W) float32, or (B, views, C, H, W), for the images at `indices` (B,) int64."""


@dataclass(frozen=True)
class Plain(Transform):
    """No augmentation: scale, crop the middle, normalise. For evaluation.

    Args:
        image_size: Side of the result.
        crop_pct: The shorter side is scaled to `image_size / crop_pct` before the crop; 1 keeps all of it.
        normalization: Of the result.
    """

    image_size: int
    _: KW_ONLY
    crop_pct: float = 1.0
    normalization: Normalization = HALF

    def __call__(self, part: Part, indices: Tensor, stream: Stream) -> Tensor:
        """See `Transform`."""
        pixels = square_pixels(part, indices, self.image_size, crop_pct=self.crop_pct)
        return normalize(pixels.float().div_(255), *self.normalization)


@dataclass(frozen=True)
class Views(Transform):
    """So many independent draws of one transform: (B, count, C, H, W)."""

    transform: Transform
    count: int = 2

    def __call__(self, part: Part, indices: Tensor, stream: Stream) -> Tensor:
        """See `Transform`."""
        lanes = [replace(stream, lane=stream.lane + view) for view in range(self.count)]
        return torch.stack([self.transform(part, indices, lane) for lane in lanes], dim=1)


def square_pixels(part: Part, indices: Tensor, side: int, *, crop_pct: float = 1.0) -> Tensor:
    """(B, C, side, side) uint8: the middle of photographs (`crop_pct` < 1), all of any other image."""
    if isinstance(part.images, np.ndarray) and part.boxes is None and part.images.shape[1:3] == (side, side):
        return part.pixels(indices)
    if crop_pct == 1:  # as `Part.resized` scales a whole set: which of them does it must make no difference
        return part.subset(indices).resized(side).pixels(range(len(indices)))
    squares = (fit_square(part.image(i), side, crop_pct) for i in indices.tolist())
    return to_channels(torch.from_numpy(np.stack([np.asarray(square) for square in squares])))


def to_channels(pixels: Tensor) -> Tensor:
    """(B, H, W) or (B, H, W, 3) -> (B, C, H, W)."""
    return pixels.unsqueeze(1) if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)


def normalize(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(images - mean) / std per channel, in place."""
    shape = (-1, 1, 1)
    return images.sub_(images.new_tensor(mean).view(shape)).div_(images.new_tensor(std).view(shape))
