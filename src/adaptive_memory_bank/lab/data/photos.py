"""Augmentation of photographs: timm's and lightly's own transforms, and plain crops; draws by (seed, epoch, index)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adaptive_memory_bank.lab.data.colour_view import CROP_TRIES, crop_boxes
from adaptive_memory_bank.lab.data.parts import Part
from adaptive_memory_bank.lab.data.randomness import Stream, seeded
from adaptive_memory_bank.lab.data.transforms import HALF, IMAGENET, Normalization, Transform, normalize, to_channels


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


class RandomCrop(Transform):
    """A random resized crop and a flip, nothing else: gentle enough for a pretrained backbone and short training.

    The same boxes as torchvision's `RandomResizedCrop`, cut and scaled (bicubic, antialiased) by PIL in one go: images
    may differ in size, and a small photograph takes less than a millisecond, decoding included.

    Args:
        image_size: Side of the result.
        min_scale: Least share of the area that a crop keeps.
        flip_probability: Of a mirror image.
        mean: Per channel, to subtract after scaling to [0, 1].
        std: Per channel, to divide by.
    """

    def __init__(
        self,
        image_size: int,
        *,
        min_scale: float = 0.3,
        flip_probability: float = 0.5,
        mean: Sequence[float] = HALF,
        std: Sequence[float] = HALF,
    ) -> None:
        self.image_size, self.min_scale, self.flip_probability = image_size, min_scale, flip_probability
        self.mean, self.std = tuple(mean), tuple(std)

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
        return normalize(torch.where(mirrored, pixels.flip(3), pixels), self.mean, self.std)


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
