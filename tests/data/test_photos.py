import random

import numpy as np
import pytest
import torch
from lightly.transforms import MoCoV2Transform
from PIL import Image
from timm.data import create_transform

from adaptive_memory_bank.data import Part
from adaptive_memory_bank.data.photos import moco_transform, photo_transform
from adaptive_memory_bank.data.randomness import Stream, seeded


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


def test_moco_views_are_lightlys(part):
    stream, indices = Stream(1, 2), torch.tensor([3])
    ours = moco_transform(32)(part, indices, stream)
    assert ours.shape == (1, 2, 3, 32, 32)
    theirs = MoCoV2Transform(
        input_size=32, cj_prob=0.8, cj_bright=0.4, cj_contrast=0.4, cj_sat=0.4, cj_hue=0.1, random_gray_scale=0.2,
        hf_prob=0.5, gaussian_blur=0.0,
    )  # fmt: skip
    with seeded(stream.seeds(indices)[0]):
        torch.testing.assert_close(ours[0], torch.stack(theirs(part.image(3))))


@pytest.mark.parametrize("make", [photo_transform, moco_transform])
def test_draws_depend_on_seed_epoch_and_index_alone(part, make):
    transform = make(32)
    together = transform(part, torch.tensor([3, 1, 3]), Stream(0, 1))
    random.seed(5)
    torch.manual_seed(5)
    assert torch.equal(together[0], together[2])
    assert torch.equal(together[1], transform(part, torch.tensor([1]), Stream(0, 1))[0])
    for other in (Stream(0, 2), Stream(1, 1)):
        assert not torch.equal(together[1], transform(part, torch.tensor([1]), other)[0])


@pytest.mark.parametrize("make", [photo_transform, moco_transform])
def test_the_callers_generators_stay_where_they_were(part, make):
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    make(32)(part, torch.arange(4), Stream(0))
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
