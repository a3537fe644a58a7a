"""Pixels: opening files with clear errors, scaling whole arrays at once."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps

EXTENSIONS = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_CHUNK = 4096  # images scaled at a time: bounds the memory of a large set


def open_image(path: Path) -> Image.Image:
    """Decode one file; whatever goes wrong, the error names it.

    Transparency is laid on white (a cut-out product on black would be another product); 16-bit gray is scaled,
    not clipped, to 8 bits. EXIF rotation is left alone, as PML's and torchvision's loaders leave it: published
    results were scored on images read that way.
    """
    with _opened(path) as image:
        image.load()
        return _flatten(image)


def image_size(path: Path) -> tuple[int, int]:
    """Width and height, from the header alone."""
    with _opened(path) as image:
        return image.size


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        with Image.open(path) as image:
            yield image
    except FileNotFoundError:
        raise FileNotFoundError(f"Image {path} is listed but missing.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"Image {path} cannot be decoded: {error}") from error


def _flatten(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode == "I":
        pixels = np.asarray(image, dtype=np.int64)
        return Image.fromarray((pixels >> 8).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(paper, layer).convert("RGB")
    return image.copy()


def crop_box(image: Image.Image, box: Sequence[int], source: object) -> Image.Image:
    """Cut out `x1, y1, x2, y2`, as far as it lies in the image."""
    x1, y1, x2, y2 = box
    inner = max(x1, 0), max(y1, 0), min(x2, image.width), min(y2, image.height)
    if inner[0] >= inner[2] or inner[1] >= inner[3]:
        name = source if isinstance(source, Path) else "of the array"
        raise ValueError(f"Image {name} is {image.width} x {image.height}: its box {list(box)} lies outside.")
    return image.crop(inner)


def resize_array(images: np.ndarray[Any, Any], side: int) -> np.ndarray[Any, Any]:
    """Scale a uint8 array (N, H, W) or (N, H, W, 3) to (N, side, side[, 3]), antialiased, in chunks."""
    if side < 1:
        raise ValueError(f"`side` must be a positive integer, got {side}.")
    if images.shape[1:3] == (side, side):
        return images
    scaled = np.empty((len(images), side, side, *images.shape[3:]), dtype=np.uint8)
    for start in range(0, len(images), _CHUNK):
        chunk = torch.from_numpy(images[start : start + _CHUNK])
        planes = chunk.unsqueeze(1) if chunk.ndim == 3 else chunk.permute(0, 3, 1, 2)
        small = F.interpolate(planes, size=(side, side), mode="bilinear", antialias=True, align_corners=False)
        scaled[start : start + _CHUNK] = (small[:, 0] if chunk.ndim == 3 else small.permute(0, 2, 3, 1)).numpy()
    return scaled


def stack_images(images: Iterable[Image.Image], side: int) -> np.ndarray[Any, Any]:
    """Squeeze images of any size to (N, side, side[, 3])."""
    if side < 1:
        raise ValueError(f"`side` must be a positive integer, got {side}.")
    return np.stack([np.asarray(image.resize((side, side), Image.Resampling.BILINEAR)) for image in images])


def fit_square(image: Image.Image, side: int, crop_pct: float) -> Image.Image:
    """Scale the shorter side to `side / crop_pct`, then crop the middle square."""
    scaled = round(side / crop_pct)
    square = ImageOps.fit(image, (scaled, scaled), Image.Resampling.BICUBIC)
    margin = (scaled - side) // 2
    return square if scaled == side else square.crop((margin, margin, margin + side, margin + side))
