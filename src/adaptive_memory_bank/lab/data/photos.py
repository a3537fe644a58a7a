"""Augmentation of photographs: timm's and lightly's own transforms, and plain crops; draws by (seed, epoch, index)."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adaptive_memory_bank.lab.data.colour_view import CROP_TRIES, crop_boxes
from adaptive_memory_bank.lab.data.parts import Part
from adaptive_memory_bank.lab.data.randomness import Stream, seeded
from adaptive_memory_bank.lab.data.transforms import HALF, IMAGENET, Normalization, Transform, normalize, to_channels


@dataclass(frozen=True)
class PerImage(Transform):
    """Runs a transform of PIL images one by one, each with global generators seeded for it alone.

    Several results for one image (lightly's views) are stacked: (B, views, C, H, W). The caller's generators are put
    back after every image.
    """

    function: Callable[[Image.Image], Any]  # to a tensor, or to a list of tensors

    def __call__(self, part: Part, indices: Tensor, stream: Stream) -> Tensor:
        """See `Transform`."""
        results = []
        for index, seed in zip(indices.tolist(), stream.seeds(indices), strict=True):
            image = part.image(index)
            with seeded(seed):
                result = self.function(image)
            results.append(torch.stack(result) if isinstance(result, list) else result)
        return torch.stack(results)


@dataclass(frozen=True)
class RandomCrop(Transform):
    """A random resized crop and a flip, nothing else: gentle enough for a pretrained backbone and short training.

    The same boxes as torchvision's `RandomResizedCrop`, cut and scaled (bicubic, antialiased) by PIL in one go: images
    may differ in size, and a small photograph takes less than a millisecond, decoding included.

    Args:
        image_size: Side of the result.
        min_scale: Least share of the area that a crop keeps.
        flip_probability: Of a mirror image.
        normalization: Of the result.
    """

    image_size: int
    _: KW_ONLY
    min_scale: float = 0.3
    flip_probability: float = 0.5
    normalization: Normalization = HALF

    def __call__(self, part: Part, indices: Tensor, stream: Stream) -> Tensor:
        """See `Transform`."""
        images = [part.image(index) for index in indices.tolist()]
        draws = stream.uniform(indices, 2 * CROP_TRIES + 3)
        sizes = torch.tensor([image.size for image in images], dtype=torch.float32)  # (B, 2): width, height
        share = crop_boxes(sizes[:, 1:], sizes[:, :1], self.min_scale, draws[:, :-1])
        centre, half = share[:, :2] * sizes, share[:, 2:] * sizes / 2
        corners = torch.cat([(centre - half).clamp_min(0), torch.minimum(centre + half, sizes)], dim=1)
        side = (self.image_size, self.image_size)
        crops = [
            np.asarray(image.resize(side, Image.Resampling.BICUBIC, box=tuple(box)))
            for image, box in zip(images, corners.tolist(), strict=True)
        ]
        pixels = to_channels(torch.from_numpy(np.stack(crops))).float().div_(255)
        mirrored = (draws[:, -1] < self.flip_probability)[:, None, None, None]
        return normalize(torch.where(mirrored, pixels.flip(3), pixels), *self.normalization)


def photo_transform(image_size: int = 224, normalization: Normalization = IMAGENET) -> PerImage:
    """The paper's augmentation: timm's training transform with `rand-m9-mstd0.5` and random erasing at 0.2."""
    from timm.data.transforms_factory import create_transform

    return PerImage(
        create_transform(
            image_size,
            is_training=True,
            auto_augment="rand-m9-mstd0.5",
            re_prob=0.2,
            interpolation="bicubic",
            **normalization._asdict(),
        )
    )
