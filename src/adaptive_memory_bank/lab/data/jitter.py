"""Batched affine jitter for small gray images: one `grid_sample` per batch instead of one Python call per image."""

from dataclasses import KW_ONLY, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_memory_bank.lab.data.parts import Part
from adaptive_memory_bank.lab.data.randomness import Stream
from adaptive_memory_bank.lab.data.transforms import HALF, Normalization, Transform, normalize, square_pixels


@dataclass(frozen=True)
class AffineJitter(Transform):
    """Rotates, scales, shears and shifts every image by draws of its own.

    What comes in at the edges is the image's own background (the median of its border), so white paper stays white
    and black stays black.

    Args:
        image_size: Side of the result.
        degrees: Rotation is drawn from +- this.
        scale: Each axis is scaled by 1 +- this.
        shear: Shear is drawn from +- this.
        shift: Shift is drawn from +- this share of the side.
        normalization: Of the result.
    """

    image_size: int
    _: KW_ONLY
    degrees: float = 12.0
    scale: float = 0.15
    shear: float = 0.15
    shift: float = 0.08
    normalization: Normalization = HALF

    def __call__(self, part: Part, indices: Tensor, stream: Stream) -> Tensor:
        """See `Transform`."""
        images = square_pixels(part, indices, self.image_size).float().div_(255)
        paper = _border_median(images)
        theta = self.matrices(indices, stream)
        grid = F.affine_grid(theta, list(images.shape), align_corners=False)
        moved = F.grid_sample(images - paper, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        return normalize(moved.add_(paper), *self.normalization)

    def matrices(self, indices: Tensor, stream: Stream) -> Tensor:
        """(B, 2, 3): where each pixel of the result comes from, in units of half the side."""
        angle, shear, width, height, x, y = stream.between(indices, 6, low=-1.0, high=1.0).unbind(1)
        radians = angle * (self.degrees * torch.pi / 180)
        cos, sin = torch.cos(radians), torch.sin(radians)
        width, height, shear = 1 + width * self.scale, 1 + height * self.scale, shear * self.shear
        rows = [cos * width, (shear * cos - sin) * height, x * 2 * self.shift]
        rows += [sin * width, (shear * sin + cos) * height, y * 2 * self.shift]
        return torch.stack(rows, dim=1).view(-1, 2, 3)


def _border_median(images: Tensor) -> Tensor:
    """(B, C, 1, 1) median of each image's outermost pixels."""
    sides = [images[:, :, 0], images[:, :, -1], images[:, :, :, 0], images[:, :, :, -1]]
    return torch.cat(sides, dim=2).median(dim=2).values[:, :, None, None]
