import random

import numpy as np
import pytest
import torch
from lightly.transforms import MoCoV2Transform
from PIL import Image
from timm.data import create_transform
from torchvision.transforms.functional import pil_to_tensor

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.data.colour_view import crop_boxes
from adaptive_memory_bank.lab.data.photos import PerImage, RandomCrop, photo_transform
from adaptive_memory_bank.lab.data.randomness import Stream, seeded
from adaptive_memory_bank.lab.data.transforms import Normalization


def lightly_views(side):
    return PerImage(MoCoV2Transform(input_size=side, gaussian_blur=0.0))


@pytest.fixture
def part(tmp_path):
    generator = np.random.default_rng(0)
    for number in range(4):
        coarse = Image.fromarray(generator.integers(0, 256, (5, 7, 3), dtype=np.uint8))
        coarse.resize((90, 70)).save(tmp_path / f"{number}.png")
    paths = tuple(tmp_path / f"{number}.png" for number in range(4))
    return Part(paths, torch.zeros(4, dtype=torch.int64), class_names=("a",))


def test_photographs_go_through_timms_transform_with_the_papers_settings(part):
    stream, indices = Stream(1, 2), torch.tensor([2, 0])
    ours = photo_transform(64)(part, indices, stream)
    assert ours.shape == (2, 3, 64, 64)
    theirs = create_transform(
        64, is_training=True, auto_augment="rand-m9-mstd0.5", re_prob=0.2, interpolation="bicubic"
    )
    for image, index, seed in zip(ours, indices.tolist(), stream.seeds(indices), strict=True):
        with seeded(seed):
            torch.testing.assert_close(image, theirs(part.image(index)))


def test_photographs_are_normalised_as_asked(part):
    stream, indices = Stream(1, 2), torch.tensor([2])
    raw = photo_transform(64, Normalization((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)))(part, indices, stream)
    # Erasing fills with zeros after the normalisation; black pixels of the image itself are rare enough.
    kept = raw != 0
    other = photo_transform(64, Normalization((0.5, 0.25, 0.125), (0.5, 0.5, 2.0)))(part, indices, stream)
    expected = (raw - torch.tensor([0.5, 0.25, 0.125]).view(3, 1, 1)) / torch.tensor([0.5, 0.5, 2.0]).view(3, 1, 1)
    torch.testing.assert_close(other[kept], expected[kept])


def test_a_random_crop_is_pils_resize_of_torchvisions_box(part):
    stream, indices = Stream(1, 2), torch.tensor([2, 0, 1, 3])
    ours = RandomCrop(32, flip_probability=0.0, normalization=Normalization((0.0,), (1.0,)))(part, indices, stream)
    boxes = crop_boxes(70, 90, 0.3, stream.uniform(indices, 23)[:, :-1]) * torch.tensor([90, 70, 90, 70])
    for image, index, (x, y, w, h) in zip(ours, indices.tolist(), boxes.tolist(), strict=True):
        box = (max(0, x - w / 2), max(0, y - h / 2), min(90, x + w / 2), min(70, y + h / 2))
        theirs = part.image(index).resize((32, 32), Image.Resampling.BICUBIC, box=box)
        torch.testing.assert_close(image, pil_to_tensor(theirs) / 255, atol=1.1 / 255, rtol=0)


def test_random_crops_keep_30_to_100_percent_and_flip_half_of_the_time(part):
    """An image of its own coordinates shows what each crop kept."""
    ramp = np.zeros((1, 128, 128, 3), np.uint8)
    ramp[..., 0], ramp[..., 1] = np.arange(128)[None, :], np.arange(128)[:, None]
    ramps = Part(np.repeat(ramp, 400, 0), torch.zeros(400, dtype=torch.int64), class_names=("a",))
    crops = RandomCrop(64, normalization=Normalization((0.0,), (1.0,)))(ramps, torch.arange(400), Stream(0)) * 255 / 128
    width = (crops[:, 0, :, -1] - crops[:, 0, :, 0]).mean(1)
    height = (crops[:, 1, -1] - crops[:, 1, 0]).mean(1)
    assert 0.25 < (width.abs() * height).min() < 0.35
    assert (width.abs() * height).max() > 0.9
    assert 0.42 < (width < 0).float().mean() < 0.58


def test_random_crops_take_images_of_different_sizes(tmp_path):
    sizes = [(40, 90), (200, 30)]
    for number, size in enumerate(sizes):
        Image.new("RGB", size, (10, 20, 30)).save(tmp_path / f"{number}.png")
    paths = tuple(tmp_path / f"{number}.png" for number in range(2))
    part = Part(paths, torch.zeros(2, dtype=torch.int64), class_names=("a",))
    images = RandomCrop(16, normalization=Normalization((0.0,), (1.0,)))(part, torch.arange(2), Stream(0))
    torch.testing.assert_close(images.amax((2, 3)), torch.tensor([[10.0, 20.0, 30.0]] * 2) / 255)


@pytest.mark.parametrize("make", [photo_transform, lightly_views, RandomCrop])
def test_draws_depend_on_seed_epoch_and_index_alone(part, make):
    transform = make(32)
    together = transform(part, torch.tensor([3, 1, 3]), Stream(0, 1))
    random.seed(5)
    torch.manual_seed(5)
    assert torch.equal(together[0], together[2])
    assert torch.equal(together[1], transform(part, torch.tensor([1]), Stream(0, 1))[0])
    for other in (Stream(0, 2), Stream(1, 1)):
        assert not torch.equal(together[1], transform(part, torch.tensor([1]), other)[0])


@pytest.mark.parametrize("make", [photo_transform, lightly_views, RandomCrop])
def test_the_callers_generators_stay_where_they_were(part, make):
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    make(32)(part, torch.arange(4), Stream(0))
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
