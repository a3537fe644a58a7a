import numpy as np
import pytest
import torch
from lightly.transforms.moco_transform import MoCoV2Transform
from scipy import stats
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional as F

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.data.colour_view import ColourView, crop_boxes
from adaptive_memory_bank.lab.data.photos import PerImage
from adaptive_memory_bank.lab.data.randomness import Stream
from adaptive_memory_bank.lab.data.transforms import IMAGENET_MEAN, IMAGENET_STD, Normalization, Views

RAW = {"normalization": Normalization((0.0,), (1.0,))}
OFF = {**RAW, "jitter_probability": 0.0, "gray_probability": 0.0, "flip_probability": 0.0, "min_scale": 1.0}


@pytest.fixture(scope="module")
def part():
    random = np.random.default_rng(0)
    coarse = torch.from_numpy(random.integers(0, 256, (400, 3, 5, 5)).astype(np.float32))
    smooth = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic").clamp(0, 255)
    pixels = smooth.byte().permute(0, 2, 3, 1).contiguous().numpy()
    return Part(pixels, torch.zeros(400, dtype=torch.int64), class_names=("a",))


def pixels(part, count=400):
    return part.pixels(range(count)).float() / 255


def test_boxes_have_torchvisions_distribution():
    draws = Stream(0).uniform(range(4000), 22)
    x, y, w, h = crop_boxes(32, 32, 0.2, draws).unbind(1)
    for centre, size in ((x, w), (y, h)):
        assert (centre - size / 2).min() >= -1e-6
        assert (centre + size / 2).max() <= 1 + 1e-6
    torch.manual_seed(0)
    # A large image: torchvision rounds its boxes to whole pixels.
    theirs = np.array(
        [RandomResizedCrop.get_params(torch.empty(3, 4096, 4096), [0.2, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)]
    )
    ours = {"width": w, "height": h, "area": w * h, "top": y - h / 2, "left": x - w / 2}
    top, left, height, width = theirs.T / 4096
    expected = {"width": width, "height": height, "area": height * width, "top": top, "left": left}
    for name, values in ours.items():
        assert stats.ks_2samp(values.numpy(), expected[name]).pvalue > 1e-3, name


def test_a_box_that_never_fits_becomes_the_whole_image():
    draws = torch.full((1, 22), 0.999)  # area 1, ratio 4/3, every time
    assert crop_boxes(32, 32, 0.2, draws)[0].tolist() == [0.5, 0.5, 1.0, 1.0]


def test_with_everything_off_it_is_the_image(part):
    images = ColourView(32, **{**OFF, "min_scale": 0.9999})(part, torch.arange(20), Stream(0))
    assert (images - pixels(part, 20)).abs().max() < 0.02


def test_flip_mirrors(part):
    flipped = ColourView(32, **{**OFF, "flip_probability": 1.0, "min_scale": 0.9999})(part, torch.arange(20), Stream(0))
    assert (flipped - pixels(part, 20).flip(3)).abs().max() < 0.02


def test_a_crop_equals_torchvisions_resized_crop(part):
    """Inside the crop's own half-pixel border, where torchvision cannot see the neighbours."""
    stream, indices = Stream(3), torch.arange(20)
    ours = ColourView(32, **{**OFF, "min_scale": 0.2})(part, indices, stream)
    boxes = crop_boxes(32, 32, 0.2, stream.uniform(indices, 33)[:, :22])
    for image, result, box in zip(pixels(part, 20), ours, boxes * 32, strict=True):
        x, y, w, h = box.tolist()
        top, left, height, width = round(y - h / 2), round(x - w / 2), round(h), round(w)
        expected = F.resized_crop(image, top, left, height, width, [32, 32])
        assert (result - expected)[:, 3:-3, 3:-3].abs().mean() < 0.06  # torchvision rounds the box to whole pixels


def test_gray_takes_all_colour(part):
    images = ColourView(32, **{**OFF, "gray_probability": 1.0})(part, torch.arange(9), Stream(0))
    torch.testing.assert_close(images[:, 0], images[:, 2])


def test_probabilities_are_met(part):
    views = ColourView(32, **{**OFF, "gray_probability": 0.2, "min_scale": 0.9999})(part, torch.arange(400), Stream(1))
    assert 0.13 < (views[:, 0] == views[:, 1]).flatten(1).all(1).float().mean() < 0.27
    views = ColourView(32, **{**OFF, "jitter_probability": 0.8, "min_scale": 0.9999})(
        part, torch.arange(400), Stream(1)
    )
    untouched = ((views - pixels(part)).abs().amax((1, 2, 3)) < 0.02).float().mean()
    assert 0.13 < untouched < 0.27


def test_a_view_depends_on_its_index_alone(part):
    view, stream = ColourView(32), Stream(5, 1)
    together = view(part, torch.tensor([7, 3, 11, 3]), stream)
    for image, index in zip(together, [7, 3, 11, 3], strict=True):
        torch.testing.assert_close(view(part, torch.tensor([index]), stream)[0], image, atol=1e-6, rtol=1e-5)


def test_looks_like_lightlys_own_views(part):
    """Mean and spread of channel statistics agree: the same augmentation, drawn otherwise."""

    def statistics(transform):
        views = transform(part, torch.arange(400), Stream(0))
        assert views.shape == (400, 2, 3, 32, 32)
        raw = views * torch.tensor(IMAGENET_STD).view(3, 1, 1) + torch.tensor(IMAGENET_MEAN).view(3, 1, 1)
        flat = raw.flatten(3)
        bright, spread = flat.mean((2, 3)).flatten(), flat.std(3).mean(2).flatten()
        colourful = (flat.amax(2) - flat.amin(2)).mean(2).flatten()
        return torch.stack([bright, spread, colourful])

    ours, theirs = (
        statistics(Views(ColourView(32))),
        statistics(PerImage(MoCoV2Transform(input_size=32, gaussian_blur=0.0))),
    )
    torch.testing.assert_close(ours.mean(1), theirs.mean(1), atol=0.015, rtol=0)
    torch.testing.assert_close(ours.std(1), theirs.std(1), atol=0.015, rtol=0)
