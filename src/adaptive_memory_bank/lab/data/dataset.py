"""Parts as a torch Dataset: single samples for anybody, whole batches for the fast path."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from adaptive_memory_bank.lab.data.parts import Part
from adaptive_memory_bank.lab.data.randomness import Stream
from adaptive_memory_bank.lab.data.transforms import Transform


class ImageDataset(Dataset[Any]):
    """Images of a part through a transform, as `(image, label, index)`.

    `dataset[i]` is one sample; `dataset[[i, j, ...]]` is a whole batch made at once, which is what `BatchLoader`
    asks for; `DataLoader(dataset, batch_sampler=...)` works as well.

    Args:
        part: The images.
        transform: What becomes of them; its draws depend on (seed, epoch, index).
        seed: Of the draws.

    Example:
        >>> import numpy as np
        >>> from adaptive_memory_bank.lab.data.transforms import Plain
        >>> part = Part(np.zeros((3, 8, 8), np.uint8), torch.tensor([0, 0, 1]), class_names=("a", "b"))
        >>> images, labels, indices = ImageDataset(part, Plain(image_size=8))[[2, 0]]
        >>> images.shape, labels.tolist(), indices.tolist()
        (torch.Size([2, 1, 8, 8]), [1, 0], [2, 0])
    """

    def __init__(self, part: Part, transform: Transform, seed: int = 0) -> None:
        self.part = part
        self.transform = transform
        self.seed = seed
        # Shared memory: workers that outlive an epoch (`persistent_workers`) see the new number.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def epoch(self) -> int:
        """The epoch that the random draws belong to."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Move to another epoch: other draws for the same images."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, index: int | Sequence[int]) -> tuple[Tensor, Any, Any]:
        if isinstance(index, int | np.integer):
            images, labels, indices = self.batch([int(index)])
            return images[0], int(labels[0]), int(indices[0])
        return self.batch(index)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Images (B, C, H, W) or views (B, V, C, H, W), labels (B,), indices (B,)."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        chosen = torch.where(chosen < 0, chosen + len(self), chosen)
        if chosen.numel() and not 0 <= int(chosen.min()) <= int(chosen.max()) < len(self):
            raise IndexError(f"`index` must lie in 0 ... {len(self) - 1}, got {list(indices)}.")
        images = self.transform(self.part, chosen, Stream(self.seed, self.epoch))
        return images, self.part.labels[chosen], chosen
