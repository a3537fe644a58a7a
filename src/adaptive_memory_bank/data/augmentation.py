"""Which transform a dataset is trained, contrasted and scored with."""

from adaptive_memory_bank.data.base import RetrievalData
from adaptive_memory_bank.data.transforms import Plain, Transform, Views


def train_transform(data: RetrievalData, image_size: int | None = None) -> Transform:
    """Augmentation for metric learning: (B, C, H, W)."""
    return eval_transform(data, image_size)


def view_transform(data: RetrievalData, image_size: int | None = None) -> Transform:
    """Two augmented views for MoCo: (B, 2, C, H, W)."""
    return Views(train_transform(data, image_size))


def eval_transform(data: RetrievalData, image_size: int | None = None) -> Transform:
    """No augmentation: (B, C, H, W)."""
    return Plain(image_size or data.image_size)
