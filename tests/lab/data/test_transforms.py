import numpy as np
import pytest
import torch
from PIL import Image

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.data.jitter import AffineJitter
from adaptive_memory_bank.lab.data.randomness import Stream
from adaptive_memory_bank.lab.data.transforms import IMAGENET, Plain, Views, normalize, square_pixels


@pytest.fixture
def part(small_images):
    return Part(small_images, torch.zeros(24, dtype=torch.int64), class_names=("a",))


def test_plain_scales_and_normalises(part):
    images = Plain(16)(part, torch.tensor([4, 2]), Stream(0))
    assert images.shape == (2, 1, 16, 16)
    torch.testing.assert_close(images[1, 0], torch.from_numpy(part.images[2]).float() / 127.5 - 1)


def test_plain_leaves_the_stored_pixels_alone(part):
    before = part.images.copy()
    Plain(16)(part, torch.arange(24), Stream(0))
    AffineJitter(16)(part, torch.arange(24), Stream(0))
    assert np.array_equal(part.images, before)


def test_plain_scales_and_crops_files_as_torchvision(tmp_path):
    from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Normalize, Resize, ToTensor

    random = np.random.default_rng(0)
    smooth = Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((400, 300))
    smooth.save(tmp_path / "a.png")
    part = Part((tmp_path / "a.png",), torch.tensor([0]), class_names=("a",))
    ours = Plain(224, crop_pct=0.875, normalization=IMAGENET)(part, torch.tensor([0]), Stream(0))[0]
    theirs = Compose([Resize(256, InterpolationMode.BICUBIC), CenterCrop(224), ToTensor(), Normalize(*IMAGENET)])(
        smooth
    )
    assert (ours - theirs).abs().mean() < 0.02  # the same crop, but for fractions of a pixel


def test_sizes_that_differ_are_scaled_image_by_image(part):
    small = square_pixels(part, torch.tensor([3]), 8)
    assert small.shape == (1, 1, 8, 8)
    assert small[0, 0, 0, 0] == 255


def test_normalize_is_per_channel():
    images = normalize(torch.ones(2, 3, 1, 1), mean=(0.0, 0.5, 1.0), std=(1.0, 0.5, 2.0))
    assert images[0].flatten().tolist() == [1.0, 1.0, 0.0]


def test_views_are_different_draws_of_one_image(part):
    transform, indices = Views(AffineJitter(16), count=3), torch.tensor([5, 1])
    views = transform(part, indices, Stream(7, 2))
    assert views.shape == (2, 3, 1, 16, 16)
    assert not torch.equal(views[:, 0], views[:, 1])
    torch.testing.assert_close(views[:, 2], AffineJitter(16)(part, indices, Stream(7, 2, lane=2)))
