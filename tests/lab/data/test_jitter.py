import numpy as np
import pytest
import torch
from scipy import ndimage

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.data.jitter import AffineJitter
from adaptive_memory_bank.lab.data.randomness import Stream


@pytest.fixture
def part(small_images):
    return Part(small_images, torch.zeros(24, dtype=torch.int64), class_names=("a",))


def still(**options):
    return AffineJitter(16, **{"degrees": 0, "scale": 0, "shear": 0, "shift": 0, **options})


def test_without_strength_nothing_moves(part):
    images = still()(part, torch.arange(24), Stream(0))
    torch.testing.assert_close(images[:, 0], torch.from_numpy(part.images).float() / 127.5 - 1, atol=1e-4, rtol=0)


def test_equals_scipys_affine_transform(part):
    """The naive reference: scipy moves one image at a time, pixel coordinates from the centre."""
    jitter, stream, indices = AffineJitter(16), Stream(2, 1), torch.tensor([3, 20, 8])
    ours = jitter(part, indices, stream)
    for image, index, theta in zip(ours, indices.tolist(), jitter.matrices(indices, stream).double(), strict=True):
        matrix = theta[:, :2].flip(0, 1).numpy()  # scipy counts rows first
        centre = np.array([7.5, 7.5])
        offset = centre - matrix @ centre + theta[:, 2].flip(0).numpy() * 8  # half a side is 8 pixels
        pixels = part.images[index].astype(float)
        moved = ndimage.affine_transform(pixels, matrix, offset, order=1, mode="grid-constant", cval=255.0)
        np.testing.assert_allclose(image[0].numpy() * 127.5 + 127.5, moved, atol=0.05)


@pytest.mark.parametrize("paper", [0, 90, 255])
def test_what_comes_in_at_the_edges_is_the_images_own_paper(paper):
    images = np.full((8, 16, 16), paper, np.uint8)
    images[:, 6:10, 6:10] = 128
    part = Part(images, torch.zeros(8, dtype=torch.int64), class_names=("a",))
    moved = AffineJitter(16, shift=0.3)(part, torch.arange(8), Stream(0))
    corners = moved[:, 0, [0, 0, -1, -1], [0, -1, 0, -1]]
    torch.testing.assert_close(corners, torch.full((8, 4), paper / 127.5 - 1))


def test_draws_fill_their_ranges_and_no_more():
    jitter, indices = still(shift=0.1), torch.arange(2000)
    shifts = jitter.matrices(indices, Stream(0))[:, :, 2]  # in halves of a side
    assert shifts.abs().max() <= 0.2
    assert shifts.abs().max() > 0.19
    assert shifts.mean().abs() < 0.01
    sizes = still(scale=0.2).matrices(indices, Stream(0))[:, [0, 1], [0, 1]]
    assert 0.8 <= sizes.min() < 0.81
    assert 1.19 < sizes.max() <= 1.2


def test_rotation_turns_by_the_drawn_angle():
    matrices = still(degrees=30).matrices(torch.arange(500), Stream(0))
    angle = torch.atan2(matrices[:, 1, 0], matrices[:, 0, 0]).rad2deg()
    assert 29 < angle.abs().max() <= 30
    torch.testing.assert_close(torch.linalg.det(matrices[:, :, :2]), torch.ones(500))
