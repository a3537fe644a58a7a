import numpy as np
import pytest
import torch
from lightly.transforms.moco_transform import MoCoV2Transform

from adaptive_memory_bank.lab.data import Part, RetrievalData, load_dataset
from adaptive_memory_bank.lab.data.photos import PerImage
from adaptive_memory_bank.lab.data.randomness import Stream, seeded
from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.training_data import (
    hold_out_classes,
    load_images,
    moco_data,
    moco_views,
    retrieval_data,
)


def with_images(config):
    return config, load_images(config)


@pytest.fixture
def colours():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    part = Part(pixels, torch.arange(4) // 2, class_names=("a", "b"))
    return RetrievalData("x", part, part, None, (1,), gray=False, image_size=32)


def test_views_of_gray_and_of_small_colour_images_are_batched(colours):
    stream, config = Stream(0), make_config(MocoConfig)
    digits = load_dataset("digits")
    assert moco_views(config, digits, 8)(digits.train, torch.arange(3), stream).shape == (3, 2, 1, 8, 8)
    assert moco_views(config, colours, 32)(colours.train, torch.arange(3), stream).shape == (3, 2, 3, 32, 32)


def test_lightlys_own_views_on_request(colours):
    """With MoCo v2's numbers, the very images that lightly makes."""
    config = make_config(MocoConfig, "paper", min_scale=0.2)
    ours, stream, indices = moco_views(config, colours, 32), Stream(1, 2), torch.tensor([3])
    assert isinstance(ours, PerImage)
    theirs = MoCoV2Transform(
        input_size=32, cj_prob=0.8, cj_bright=0.4, cj_contrast=0.4, cj_sat=0.4, cj_hue=0.1, random_gray_scale=0.2,
        hf_prob=0.5, gaussian_blur=0.0,
    )  # fmt: skip
    with seeded(stream.seeds(indices)[0]):
        expected = torch.stack(theirs(colours.train.image(3)))
    torch.testing.assert_close(ours(colours.train, indices, stream)[0], expected)


def test_held_out_classes_never_train(retrieval_config):
    data = retrieval_data(*with_images(retrieval_config(validation=0.2)))
    train, held_out = set(data.train.labels.tolist()), set(data.held_out.labels.tolist())
    assert (len(train), len(held_out)) == (19, 5)
    assert not train & held_out
    assert data.source.train.num_classes == 24
    assert retrieval_data(*with_images(retrieval_config(validation=0.0))).held_out is None


def test_the_seed_chooses_the_classes(retrieval_config):
    part = retrieval_data(*with_images(retrieval_config(validation=0.0))).train
    held = [set(hold_out_classes(part, 0.2, seed=seed)[1].labels.tolist()) for seed in (0, 0, 1)]
    assert held[0] == held[1] != held[2]


def test_images_have_the_size_asked_for(moco_config):
    data = moco_data(*with_images(moco_config(image_size=8)))
    assert data.source.query.images.shape[1:] == (8, 8)
    assert data.eval_transform(data.train, torch.arange(2), Stream(0)).shape == (2, 1, 8, 8)
