"""Which transform a dataset is trained, contrasted and scored with."""

from adaptive_memory_bank.lab.data.colour_view import ColourView
from adaptive_memory_bank.lab.data.jitter import AffineJitter
from adaptive_memory_bank.lab.data.parts import RetrievalData
from adaptive_memory_bank.lab.data.photos import RandomCrop, photo_transform
from adaptive_memory_bank.lab.data.transforms import HALF, IMAGENET, Normalization, Plain, Transform


def train_transform(
    data: RetrievalData,
    image_size: int | None = None,
    *,
    augmentation: str = "paper",
    normalization: Normalization = IMAGENET,
) -> Transform:
    """Augmentation for metric learning, (B, C, H, W): affine jitter for gray sets, timm's for photographs.

    Small colour images in memory (CIFAR, npz) get one MoCo v2 view: timm's policies are made for photographs and,
    being PIL's, cost more than a small model's step.

    Args:
        data: What will be trained on.
        image_size: Side of the result; the dataset's own otherwise.
        augmentation: `paper`, the above, or `crop`: random crops and flips of any image, nothing else.
        normalization: Of colours; gray images go to [-1, 1].
    """
    side = image_size or data.image_size
    if augmentation == "crop":
        return RandomCrop(side, normalization=HALF if data.gray else normalization)
    if data.gray:
        return AffineJitter(side)
    small = data.train.in_memory and side <= 64
    return ColourView(side, normalization=normalization) if small else photo_transform(side, normalization)


def eval_transform(
    data: RetrievalData, image_size: int | None = None, *, normalization: Normalization = IMAGENET
) -> Transform:
    """No augmentation, (B, C, H, W), normalised as the augmented images are.

    Photographs are scaled to 8/7 of the side and cropped in the middle (256 -> 224), the field's habit.
    """
    side = image_size or data.image_size
    if data.gray:
        return Plain(side)
    return Plain(side, crop_pct=1.0 if data.train.in_memory else 0.875, normalization=normalization)
