"""What every source of images hands over: parts (an index of images with labels) and the split they form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adaptive_memory_bank.lab.data.pixels import crop_box, image_size, open_image, resize_array, stack_images

_MEMORY = 2**31  # bytes of pixels that `prepared` may hold
_SAMPLE = 64  # images whose size is looked at


@dataclass(frozen=True)
class Part:
    """An index of images; opens nothing until asked.

    Args:
        images: Paths, or one uint8 array (N, H, W) or (N, H, W, 3).
        labels: (N,) int64, each an index into `class_names`.
        boxes: (N, 4) int64 `x1, y1, x2, y2` to crop to, or None.
        class_names: `class_names[label]`; may hold classes of the other parts, too.
        gray: Whether images stay one channel. None: exactly the (N, H, W) arrays do.

    Example:
        >>> part = Part(np.zeros((2, 8, 8), np.uint8), torch.tensor([0, 1]), class_names=("a", "b"))
        >>> len(part), part.image(0).mode, part.pixels([0, 1]).shape
        (2, 'L', torch.Size([2, 1, 8, 8]))
    """

    images: Sequence[Path] | np.ndarray[Any, Any]
    labels: Tensor
    boxes: Tensor | None = None
    class_names: tuple[str, ...] = ()
    gray: bool | None = None

    def __post_init__(self) -> None:
        _check_images(self.images)
        _check_labels(self.labels, len(self.images), len(self.class_names))
        if self.boxes is not None and self.boxes.shape != (len(self.images), 4):
            raise ValueError(f"`boxes` must have shape ({len(self.images)}, 4), got {tuple(self.boxes.shape)}.")
        if self.gray is None:
            object.__setattr__(self, "gray", isinstance(self.images, np.ndarray) and self.images.ndim == 3)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def in_memory(self) -> bool:
        """Whether the pixels are one array (the batched fast path) rather than files."""
        return isinstance(self.images, np.ndarray)

    @property
    def num_classes(self) -> int:
        """How many different labels occur in this part."""
        return int(torch.unique(self.labels).numel())

    def native_side(self) -> int:
        """The shorter side of the typical image in pixels: the median of a sample, read from the files' headers."""
        if isinstance(self.images, np.ndarray) and self.boxes is None:
            return int(min(self.images.shape[1:3]))
        sample = range(0, len(self), max(1, len(self) // _SAMPLE))
        return int(np.median([min(self._size(index)) for index in sample]))

    def _size(self, index: int) -> tuple[int, int]:
        if self.boxes is not None:
            x1, y1, x2, y2 = self.boxes[index].tolist()
            return x2 - x1, y2 - y1
        return image_size(Path(self.images[index]))

    def image(self, index: int) -> Image.Image:
        """One image, cropped to its box, as RGB (as "L" where the set is gray)."""
        source = self.images[index]
        image = open_image(source) if isinstance(source, Path) else Image.fromarray(source)
        if self.boxes is not None:
            image = crop_box(image, self.boxes[index].tolist(), source)
        mode = "L" if self.gray else "RGB"
        return image if image.mode == mode else image.convert(mode)

    def pixels(self, indices: Sequence[int] | Tensor) -> Tensor:
        """A batch of in-memory images, uint8 (B, C, H, W) with C = 1 (gray) or 3."""
        if not isinstance(self.images, np.ndarray) or self.boxes is not None:
            raise ValueError("`pixels` needs images in memory and no boxes; call `resized(side)` first.")
        batch = torch.from_numpy(self.images[np.asarray(indices, dtype=np.int64)])
        batch = batch.unsqueeze(1) if batch.ndim == 3 else batch.permute(0, 3, 1, 2)
        return batch if self.gray or batch.shape[1] == 3 else batch.expand(-1, 3, -1, -1)

    def subset(self, indices: Sequence[int] | Tensor) -> "Part":
        """The part made of these images, in this order."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        if isinstance(self.images, np.ndarray):
            images: Sequence[Path] | np.ndarray[Any, Any] = self.images[chosen.numpy()]
        else:
            images = tuple(self.images[i] for i in chosen.tolist())
        boxes = None if self.boxes is None else self.boxes[chosen]
        return replace(self, images=images, labels=self.labels[chosen], boxes=boxes)

    def resized(self, side: int) -> "Part":
        """The same images, square, in memory: done once, so that training neither opens nor scales files.

        Arrays are scaled as a whole (antialiased); files are opened, cropped and squeezed one by one.
        """
        if isinstance(self.images, np.ndarray) and self.boxes is None:
            images = resize_array(self.images, side)
        else:
            images = stack_images((self.image(i) for i in range(len(self))), side)
        return self if images is self.images else replace(self, images=images, boxes=None)


@dataclass(frozen=True)
class RetrievalData:
    """A dataset as the field evaluates it: what trains, what asks and what is searched."""

    name: str  # as `load_dataset` knows it
    train: Part  # its labels are 0 ... C-1
    query: Part
    gallery: Part | None  # None: the queries search each other
    ks: tuple[int, ...]  # the field's k for Recall@k on this set
    gray: bool  # whether images have one channel
    image_size: int  # native (small sets) or usual (photographs)

    def resized(self, side: int) -> "RetrievalData":
        """Every part `resized`, `image_size` set to match."""
        gallery = None if self.gallery is None else self.gallery.resized(side)
        train, query = self.train.resized(side), self.query.resized(side)
        return replace(self, train=train, query=query, gallery=gallery, image_size=side)

    def prepared(self, side: int) -> "RetrievalData":
        """Ready to train at this size: arrays and gray sets are scaled in memory, photographs stay files.

        What would take more than 2 GiB stays as it is, too; transforms then scale image by image.
        """
        images = len(self.train) + len(self.query) + len(self.gallery or ())
        fits = images * side * side * (1 if self.gray else 3) <= _MEMORY
        small = self.train.in_memory or self.gray
        return self.resized(side) if small and fits else replace(self, image_size=side)


def _check_images(images: object) -> None:
    if not isinstance(images, np.ndarray):
        return
    if images.dtype != np.uint8:
        raise TypeError(f"`images` must be uint8, got {images.dtype}.")
    if images.ndim != 3 and not (images.ndim == 4 and images.shape[3] == 3):
        raise ValueError(f"`images` must have shape (N, H, W) or (N, H, W, 3), got {images.shape}.")


def _check_labels(labels: Tensor, count: int, classes: int) -> None:
    if labels.dtype != torch.int64 or labels.shape != (count,):
        raise ValueError(
            f"`labels` must be int64 of shape ({count},), got {labels.dtype} of shape {tuple(labels.shape)}."
        )
    if count and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(
            f"`labels` must lie in 0 ... {classes - 1} (`class_names`), got {labels.min()} ... {labels.max()}."
        )
