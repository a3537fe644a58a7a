import numpy as np
import pytest
import torch

from adaptive_memory_bank.lab.data import (
    ImageDataset,
    Part,
    RetrievalData,
    eval_transform,
    load_dataset,
    train_transform,
)
from adaptive_memory_bank.lab.data.colour_view import ColourView
from adaptive_memory_bank.lab.data.jitter import AffineJitter
from adaptive_memory_bank.lab.data.photos import PerImage, RandomCrop
from adaptive_memory_bank.lab.data.transforms import Normalization


def data_of(part, size):
    return RetrievalData("x", part, part, None, (1,), bool(part.gray), size)


@pytest.fixture
def photographs(tmp_path, write_image):
    paths = tuple(write_image(tmp_path / f"{i}.png", 50 * i, size=(300, 260)) for i in range(2))
    return data_of(Part(paths, torch.arange(2), class_names=("a", "b")), 224)


@pytest.fixture
def small_colour():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    return data_of(Part(pixels, torch.arange(4) // 2, class_names=("a", "b")), 32)


def shape(data, transform, count=2):
    return tuple(ImageDataset(data.train, transform).batch(range(count))[0].shape)


def test_gray_sets_are_jittered():
    digits = load_dataset("digits")
    assert isinstance(train_transform(digits), AffineJitter)
    assert shape(digits, train_transform(digits)) == (2, 1, 8, 8)
    assert shape(digits, eval_transform(digits)) == (2, 1, 8, 8)
    assert shape(digits, train_transform(digits, 16)) == (2, 1, 16, 16)


def test_small_colour_images_take_the_batched_views(small_colour):
    assert isinstance(train_transform(small_colour), ColourView)
    assert shape(small_colour, train_transform(small_colour)) == (2, 3, 32, 32)
    assert shape(small_colour, eval_transform(small_colour)) == (2, 3, 32, 32)


def test_photographs_take_timms(photographs):
    assert isinstance(train_transform(photographs), PerImage)
    assert shape(photographs, train_transform(photographs)) == (2, 3, 224, 224)
    assert shape(photographs, eval_transform(photographs, 64)) == (2, 3, 64, 64)


def test_any_image_can_be_cropped_and_flipped_alone(photographs, small_colour):
    for data in (photographs, small_colour, load_dataset("digits")):
        transform = train_transform(data, 32, augmentation="crop")
        assert isinstance(transform, RandomCrop)
        assert shape(data, transform) == (2, 1 if data.gray else 3, 32, 32)


@pytest.mark.parametrize("augmentation", ["paper", "crop"])
def test_colours_are_normalised_as_asked_in_training_and_evaluation(photographs, small_colour, augmentation):
    colours = Normalization((0.5, 0.25, 0.0), (0.5, 0.5, 2.0))
    for data in (photographs, small_colour):
        transforms = (
            train_transform(data, augmentation=augmentation, normalization=colours),
            eval_transform(data, normalization=colours),
        )
        for transform in transforms:
            images = ImageDataset(data.train, transform).batch([0])[0]
            lowest = torch.tensor([-1.0, -0.5, 0.0])  # what black becomes
            assert (images.amin((0, 2, 3)) >= lowest - 1e-5).all()
            assert (images.amax((0, 2, 3)) <= torch.tensor([1.0, 1.5, 0.5]) + 1e-5).all()


def test_evaluation_draws_nothing(small_colour):
    dataset = ImageDataset(small_colour.train, eval_transform(small_colour))
    first = dataset.batch([0, 1])[0]
    dataset.set_epoch(3)
    assert torch.equal(dataset.batch([0, 1])[0], first)


def test_evaluation_and_training_are_normalised_alike(photographs):
    """A flat image stays flat at the same value, whatever the crop."""
    value = eval_transform(photographs)(photographs.train, torch.tensor([0]), None)
    black = [(0 - mean) / std for mean, std in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))]
    torch.testing.assert_close(value[0].amax((1, 2)), torch.tensor(black))
