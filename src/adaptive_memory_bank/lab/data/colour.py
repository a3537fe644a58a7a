"""Colour operations on batches, each image by an amount of its own; equal to torchvision's `adjust_*` one by one."""

import torch
from torch import Tensor

_WEIGHTS = (0.2989, 0.587, 0.114)  # ITU-R 601, as torchvision


def gray(images: Tensor) -> Tensor:
    """(B, 3, H, W) -> (B, 1, H, W) luma."""
    weights = images.new_tensor(_WEIGHTS).view(3, 1, 1)
    return (images * weights).sum(dim=1, keepdim=True)


def brightness(images: Tensor, amount: Tensor) -> Tensor:
    """Towards black (-1) or twice as bright (+1)."""
    return _blend(images, torch.zeros_like(images[:, :1]), amount)


def contrast(images: Tensor, amount: Tensor) -> Tensor:
    """Towards (-1) or away from (+1) the mean luma of the image."""
    return _blend(images, gray(images).mean(dim=(2, 3), keepdim=True), amount)


def saturation(images: Tensor, amount: Tensor) -> Tensor:
    """Towards (-1) or away from (+1) gray."""
    return _blend(images, gray(images), amount)


def hue(images: Tensor, amount: Tensor) -> Tensor:
    """Turn the colour circle by `amount` of a full turn; value and saturation (of HSV) stay."""
    value, least = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    chroma = value - least
    angle = _hue(images, value, chroma) + amount.view(-1, 1, 1, 1)
    # Each channel is value - chroma * clamp(min(k, 4 - k), 0, 1), k = (n + 6 h) mod 6, n = 5, 3, 1.
    turns = angle + images.new_tensor([5 / 6, 3 / 6, 1 / 6]).view(1, 3, 1, 1)
    k = (turns - turns.floor()).mul_(6)  # `%` of floats is many times slower
    return value - chroma * torch.minimum(k, 4 - k).clamp_(0, 1)


def _hue(images: Tensor, value: Tensor, chroma: Tensor) -> Tensor:
    """(B, 1, H, W) position on the colour circle, in turns; 0 where there is no colour."""
    red, green, blue = images.chunk(3, dim=1)
    safe = torch.where(chroma > 0, chroma, 1.0)
    sector = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    return torch.where(chroma > 0, sector / 6, 0.0)


def _blend(images: Tensor, other: Tensor, amount: Tensor) -> Tensor:
    return torch.lerp(other.expand_as(images), images, 1 + amount.view(-1, 1, 1, 1)).clamp_(0, 1)


OPERATIONS = (brightness, contrast, saturation, hue)
