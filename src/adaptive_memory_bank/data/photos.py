"""Augmentation of photographs: timm's and lightly's own transforms, made to draw by (seed, epoch, index)."""

from collections.abc import Callable
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from adaptive_memory_bank.data.base import Part
from adaptive_memory_bank.data.randomness import Stream, seeded
from adaptive_memory_bank.data.transforms import Transform


class PerImage(Transform):
    """Runs a transform of PIL images one by one, each with global generators seeded for it alone.

    Several results for one image (lightly's views) are stacked: (B, views, C, H, W). The caller's generators are put
    back after every image.

    Args:
        function: PIL image -> tensor, or a list of tensors.
    """

    def __init__(self, function: Callable[[Image.Image], Any]) -> None:
        self.function = function

    def __call__(self, part: Part, indices: Tensor, stream: Stream) -> Tensor:
        """See `Transform`."""
        results = []
        for index, seed in zip(indices.tolist(), stream.seeds(indices), strict=True):
            image = part.image(index)
            with seeded(seed):
                result = self.function(image)
            results.append(torch.stack(result) if isinstance(result, list) else result)
        return torch.stack(results)


def photo_transform(image_size: int = 224) -> PerImage:
    """The paper's augmentation: timm's training transform with `rand-m9-mstd0.5` and random erasing at 0.2."""
    from timm.data.transforms_factory import create_transform

    return PerImage(
        create_transform(
            image_size, is_training=True, auto_augment="rand-m9-mstd0.5", re_prob=0.2, interpolation="bicubic"
        )
    )


def moco_transform(image_size: int = 32) -> PerImage:
    """MoCo v2's two views for CIFAR, by lightly: crop, flip, colour jitter, gray; no blur at this size."""
    from lightly.transforms.moco_transform import MoCoV2Transform

    return PerImage(MoCoV2Transform(input_size=image_size, gaussian_blur=0.0))
