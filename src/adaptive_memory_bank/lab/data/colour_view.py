"""MoCo v2's views of small colour images as batched tensor operations.

The same augmentation as lightly's `MoCoV2Transform(gaussian_blur=0)` (random resized crop, flip, colour jitter in
random order, gray), with the same distributions, for images in memory: on a CPU the PIL version takes longer than
a small model's whole step. Differences: crops keep fractions of a pixel and are not rounded to bytes in between.
"""

import math
from dataclasses import KW_ONLY, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_memory_bank.lab.data import colour
from adaptive_memory_bank.lab.data.parts import Part
from adaptive_memory_bank.lab.data.randomness import Stream
from adaptive_memory_bank.lab.data.transforms import IMAGENET, Normalization, Transform, normalize

CROP_TRIES = 10  # as torchvision's RandomResizedCrop


@dataclass(frozen=True)
class ColourView(Transform):
    """One MoCo v2 view of every image of a batch; `Views(ColourView(...))` makes two.

    Args:
        image_size: Side of the result.
        min_scale: Least share of the area that a crop keeps.
        jitter: Strengths of brightness, contrast, saturation and hue.
        jitter_probability: Of the jitter as a whole.
        gray_probability: Of losing all colour.
        flip_probability: Of a mirror image; 0 where left and right differ (digits).
        normalization: Of the result.
    """

    image_size: int = 32
    _: KW_ONLY
    min_scale: float = 0.2
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    jitter_probability: float = 0.8
    gray_probability: float = 0.2
    flip_probability: float = 0.5
    normalization: Normalization = IMAGENET

    def __call__(self, part: Part, indices: Tensor, stream: Stream) -> Tensor:
        """See `Transform`."""
        draws = stream.uniform(indices, 2 * CROP_TRIES + 13)
        crops, colours = draws[:, : 2 * CROP_TRIES + 3], draws[:, 2 * CROP_TRIES + 3 :]
        images = self._crop(part.pixels(indices).float().div_(255), crops)
        if images.shape[1] == 3:
            images = self._recolour(images, colours)
        return normalize(images, *self.normalization)

    def _crop(self, images: Tensor, draws: Tensor) -> Tensor:
        """Random resized crop, mirrored or not, as one bilinear sampling."""
        share = crop_boxes(images.shape[2], images.shape[3], self.min_scale, draws[:, :-1])  # centre and size
        mirror = torch.where(draws[:, -1] < self.flip_probability, -1.0, 1.0)
        zero = torch.zeros_like(mirror)
        x, y, width, height = share.unbind(1)
        rows = [width * mirror, zero, 2 * x - 1, zero, height, 2 * y - 1]
        theta = torch.stack(rows, dim=1).view(-1, 2, 3)
        size = [len(images), images.shape[1], self.image_size, self.image_size]
        grid = F.affine_grid(theta, size, align_corners=False)
        return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)

    def _recolour(self, images: Tensor, draws: Tensor) -> Tensor:
        """Colour jitter in an order of each image's own, then gray."""
        factors, keys = draws[:, :4] * 2 - 1, draws[:, 4:8]
        order = torch.argsort(keys, dim=1)  # (B, 4): which operation comes first, second, ...
        order[draws[:, 8] >= self.jitter_probability] = -1
        for turn in range(4):
            for number, (operation, strength) in enumerate(zip(colour.OPERATIONS, self.jitter, strict=True)):
                chosen = (order[:, turn] == number).nonzero()[:, 0]
                amount = factors[chosen, number] * strength
                images[chosen] = operation(images[chosen], amount)
        gray = (draws[:, 9] < self.gray_probability).nonzero()[:, 0]
        images[gray] = colour.gray(images[gray]).expand(-1, 3, -1, -1)
        return images


def crop_boxes(height: int | Tensor, width: int | Tensor, min_scale: float, draws: Tensor) -> Tensor:
    """(B, 4) centre x, centre y, width, height, as shares of the image, as torchvision's `RandomResizedCrop` draws.

    Height and width are (B, 1) where images differ; the draws (B, 2 * tries + 2) are uniform.
    """
    tries = (draws.shape[1] - 2) // 2
    area = draws[:, :tries] * (1 - min_scale) + min_scale
    log_ratio = (draws[:, tries : 2 * tries] * 2 - 1) * math.log(4 / 3)
    w = torch.sqrt(area * torch.exp(log_ratio) * height / width)
    h = torch.sqrt(area / torch.exp(log_ratio) * width / height)
    fits = (w <= 1) & (h <= 1)
    # The first try that fits; if none does, the whole image.
    first = torch.where(fits.any(1), fits.int().argmax(1), 0)[:, None]
    w, h = (torch.where(fits.any(1), side.gather(1, first)[:, 0], 1.0) for side in (w, h))
    return torch.stack([w / 2 + draws[:, -2] * (1 - w), h / 2 + draws[:, -1] * (1 - h), w, h], dim=1)
