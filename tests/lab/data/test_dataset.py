import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from adaptive_memory_bank.lab.data import ImageDataset, Part
from adaptive_memory_bank.lab.data.jitter import AffineJitter


@pytest.fixture
def dataset(small_images):
    part = Part(small_images, torch.arange(24) // 4, class_names=tuple("abcdef"))
    return ImageDataset(part, AffineJitter(16), seed=3)


def test_a_sample_is_image_label_index(dataset):
    image, label, index = dataset[5]
    assert image.shape == (1, 16, 16)
    assert image.dtype == torch.float32
    assert (label, index) == (1, 5)
    assert len(dataset) == 24


def test_a_batch_equals_its_samples_in_any_company_and_order(dataset):
    images, labels, indices = dataset[[7, 0, 23]]
    assert labels.tolist() == [1, 0, 5]
    assert indices.tolist() == [7, 0, 23]
    for image, index in zip(images, indices.tolist(), strict=True):
        assert torch.equal(image, dataset[index][0])


def test_epochs_draw_anew_and_repeat_exactly(dataset):
    first = dataset[3][0]
    dataset.set_epoch(1)
    second = dataset[3][0]
    dataset.set_epoch(0)
    assert not torch.equal(first, second)
    assert torch.equal(dataset[3][0], first)


def test_seeds_draw_differently(dataset):
    assert not torch.equal(dataset[3][0], ImageDataset(dataset.part, dataset.transform, seed=4)[3][0])


def test_global_generators_are_neither_used_nor_moved(dataset):
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first = dataset[[1, 2]][0]
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(dataset[[1, 2]][0], first)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_dataloader_collates_it_whatever_the_workers(dataset, workers):
    dataset.set_epoch(2)
    loader = DataLoader(dataset, batch_sampler=[[4, 9, 1], [0, 2]], num_workers=workers)
    for (images, labels, indices), expected in zip(loader, [[4, 9, 1], [0, 2]], strict=True):
        assert indices.tolist() == expected
        assert torch.equal(images, dataset[expected][0])
        assert torch.equal(labels, dataset.part.labels[expected])


def test_negative_indices_count_from_the_end(dataset):
    assert dataset[-1][2] == 23
    assert torch.equal(dataset[-1][0], dataset[23][0])


def test_an_index_outside_is_refused(dataset):
    with pytest.raises(IndexError, match=r"`index` must lie in 0 \.\.\. 23, got \[24\]"):
        dataset[24]


def test_integers_of_numpy_are_integers(dataset):
    assert dataset[np.int64(5)][2] == 5
