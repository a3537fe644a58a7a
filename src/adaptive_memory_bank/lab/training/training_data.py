"""From a dataset's name to what a run trains on and is scored on."""

import torch

from adaptive_memory_bank.lab.data import Part, RetrievalData, eval_transform, load_dataset, train_transform
from adaptive_memory_bank.lab.data.colour_view import ColourView
from adaptive_memory_bank.lab.data.jitter import AffineJitter
from adaptive_memory_bank.lab.data.photos import PerImage
from adaptive_memory_bank.lab.data.transforms import Normalization, Transform, Views
from adaptive_memory_bank.lab.models.encoder import backbone_normalization
from adaptive_memory_bank.lab.runs.config import RunConfig
from adaptive_memory_bank.lab.training.fitting import held_out_count
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from adaptive_memory_bank.lab.training.step import TrainingData


def load_images(config: RunConfig) -> RetrievalData:
    """The dataset, at its own size."""
    return load_dataset(config.data, root=config.data_root, download=config.download)


def retrieval_data(config: RetrievalConfig, data: RetrievalData) -> TrainingData:
    """Training classes, held-out classes, and the transforms of both; small sets are scaled once, in memory."""
    data = data.prepared(config.image_size or data.image_size)
    train, held_out = hold_out_classes(data.train, config.validation, seed=config.seed)
    side, colours = config.image_size, Normalization(*backbone_normalization(config))
    augment = train_transform(data, side, augmentation=config.augmentation, normalization=colours)
    return TrainingData(data, train, held_out, augment, eval_transform(data, side, normalization=colours), colours)


def moco_data(config: MocoConfig, data: RetrievalData) -> TrainingData:
    """All training images, seen as two views each; small sets are scaled once, in memory."""
    side = config.image_size or data.image_size
    data = data.prepared(side)
    return TrainingData(data, data.train, None, moco_views(config, data, side), eval_transform(data, side))


def moco_views(config: MocoConfig, data: RetrievalData, side: int) -> Transform:
    """Two views of every image: affine jitter for gray sets; crops, flips and colours for the others."""
    if data.gray:
        return Views(AffineJitter(side))
    if config.views == "batched" and data.train.in_memory:
        view = ColourView(
            side,
            min_scale=config.min_scale,
            jitter=config.jitter,
            jitter_probability=config.jitter_probability,
            gray_probability=config.gray_probability,
            flip_probability=config.flip,
        )
        return Views(view)
    from lightly.transforms.simclr_transform import SimCLRTransform

    brightness, contrast, saturation, hue = config.jitter
    return PerImage(
        SimCLRTransform(
            input_size=side,
            cj_prob=config.jitter_probability,
            cj_strength=1.0,
            cj_bright=brightness,
            cj_contrast=contrast,
            cj_sat=saturation,
            cj_hue=hue,
            min_scale=config.min_scale,
            random_gray_scale=config.gray_probability,
            gaussian_blur=config.blur,
            hf_prob=config.flip,
        )
    )


def hold_out_classes(part: Part, share: float, *, seed: int) -> tuple[Part, Part | None]:
    """Split a part by class: what trains, and a share of the classes to choose the epoch on.

    Example:
        >>> import numpy as np
        >>> labels = torch.arange(10).repeat_interleave(2)
        >>> part = Part(np.zeros((20, 8, 8), np.uint8), labels, class_names=tuple("abcdefghij"))
        >>> train, held_out = hold_out_classes(part, 0.2, seed=0)
        >>> len(train), len(held_out), set(train.labels.tolist()) & set(held_out.labels.tolist())
        (16, 4, set())
    """
    if share == 0:
        return part, None
    classes = torch.unique(part.labels)
    count = held_out_count(len(classes), share)
    if len(classes) - count < 2:
        raise ValueError(f"`validation` must leave at least 2 of {len(classes)} classes to train on, got {share}.")
    shuffled = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))]
    held = torch.isin(part.labels, shuffled[:count])
    return part.subset((~held).nonzero()[:, 0]), part.subset(held.nonzero()[:, 0])
