import numpy as np
import pytest
import torch
from torch import nn

from adaptive_memory_bank.lab.data import PKSampler, load_dataset
from adaptive_memory_bank.lab.data.sources.glyphs import glyphs
from adaptive_memory_bank.metrics import retrieval_metrics


@pytest.fixture(scope="module")
def data():
    return load_dataset("glyphs")


@pytest.fixture(scope="module")
def pixel_recall(data):
    """Recall@1 of the nearest other image by Euclidean distance of raw pixels."""
    rows = torch.from_numpy(data.query.images).flatten(1).float()
    distances = torch.cdist(rows, rows).fill_diagonal_(torch.inf)
    return float((data.query.labels[distances.argmin(1)] == data.query.labels).float().mean())


def test_is_many_classes_of_few_images_with_disjoint_test_classes(data):
    assert data.train.images.shape == (6000, 28, 28)
    assert data.query.images.shape == (3000, 28, 28)
    assert data.train.labels.bincount().tolist() == [20] * 300
    assert not set(data.train.labels.tolist()) & set(data.query.labels.tolist())
    assert data.train.num_classes == 300
    assert data.query.num_classes == 150
    assert data.gray


def test_raw_pixels_do_not_solve_it(pixel_recall):
    """Nor are they blind: chance is below 1 %."""
    assert 0.35 < pixel_recall < 0.6


@pytest.mark.parametrize("seed", [1, 2])
def test_other_seeds_are_as_hard(seed):
    query = glyphs(train_classes=1, seed=seed).query
    rows = torch.from_numpy(query.images).flatten(1).float()
    nearest = torch.cdist(rows, rows).fill_diagonal_(torch.inf).argmin(1)
    assert 0.35 < (query.labels[nearest] == query.labels).float().mean() < 0.6


def test_every_image_has_ink_and_paper(data):
    for part in (data.train, data.query):
        ink = (part.images < 128).mean(axis=(1, 2))
        assert ink.min() > 0.005
        assert ink.max() < 0.6
        assert np.median(part.images) == 255


def test_no_two_images_are_equal(data):
    everything = np.concatenate([data.train.images, data.query.images])
    assert len({image.tobytes() for image in everything}) == len(everything)


def test_equal_seeds_draw_equal_images():
    def draw(seed):
        return glyphs(train_classes=20, test_classes=5, images_per_class=3, seed=seed)

    first, again, other = draw(1), draw(1), draw(2)
    assert np.array_equal(first.train.images, again.train.images)
    assert np.array_equal(first.query.images, again.query.images)
    assert not np.array_equal(first.train.images, other.train.images)


@pytest.mark.parametrize("name", ["train_classes", "test_classes", "images_per_class"])
def test_refuses_nothing_to_draw(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer, got 0"):
        glyphs(**{name: 0})


def conv_net(width=16):
    blocks = []
    for inputs in (1, width, width):
        blocks += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(width * 9, 32))


def test_a_small_network_learns_what_pixels_do_not_tell(data, pixel_recall):
    """One epoch of a contrastive loss beats raw pixels on characters it never saw, and leaves room above."""
    torch.manual_seed(0)
    network = conv_net()
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for batch in PKSampler(data.train.labels, classes_per_batch=16, images_per_class=4):
        rows = nn.functional.normalize(network(1 - data.train.pixels(batch).float() / 255))
        same = torch.eye(16).repeat_interleave(4, 0).repeat_interleave(4, 1).fill_diagonal_(0)
        scores = (rows @ rows.T / 0.1).masked_fill(torch.eye(64, dtype=torch.bool), -1e4)
        loss = -(scores.log_softmax(1) * same).sum(1).mean() / 3
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        rows = network(1 - data.query.pixels(range(len(data.query))).float() / 255)
    recall = retrieval_metrics(rows, data.query.labels, ks=(1,))["recall@1"]
    assert pixel_recall + 0.03 < recall < 0.95
