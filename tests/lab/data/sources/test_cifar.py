import numpy as np
import pytest
from torchvision.datasets import CIFAR10, CIFAR100

import replicas
from adaptive_memory_bank.lab.data import load_dataset


@pytest.fixture
def root(tmp_path, monkeypatch):
    replicas.forget_checksums(monkeypatch)
    return replicas.write_cifar(tmp_path, images=4)


@pytest.mark.parametrize(("name", "dataset"), [("cifar10", CIFAR10), ("cifar100", CIFAR100)])
def test_equals_torchvision(root, name, dataset):
    data = load_dataset(name, root=root)
    for train, part in ((True, data.train), (False, data.query)):
        theirs = dataset(root, train=train)
        assert len(part) == len(theirs)
        for index in (0, len(part) - 1):
            image, label = theirs[index]
            assert np.array_equal(np.asarray(part.image(index)), np.asarray(image))
            assert part.labels[index] == label
    assert data.image_size == 32
    assert not data.gray
    assert data.gallery is None


def test_a_missing_tree_says_how_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"(?s)cifar-10-batches-py.*torchvision.*download=True"):
        load_dataset("cifar10", root=tmp_path)
