import pickle

import numpy as np
import pytest
from torchvision.datasets import CIFAR10, CIFAR100

from adaptive_memory_bank.data import load_dataset


def batch(seed, key, classes):
    random = np.random.default_rng(seed)
    return {"data": random.integers(0, 256, (4, 3072), dtype=np.uint8), key: random.integers(0, classes, 4).tolist()}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Both archives unpacked, four images a file, with checksums that match nothing but themselves."""
    for dataset, key, classes in ((CIFAR10, "labels", 10), (CIFAR100, "fine_labels", 100)):
        base = tmp_path / dataset.base_folder
        base.mkdir()
        for seed, (name, _) in enumerate(dataset.train_list + dataset.test_list):
            (base / name).write_bytes(pickle.dumps(batch(seed, key, classes)))
        meta = {dataset.meta["key"]: [f"class {i}" for i in range(classes)]}
        (base / dataset.meta["filename"]).write_bytes(pickle.dumps(meta))
        for attribute in ("train_list", "test_list"):
            monkeypatch.setattr(dataset, attribute, [[name, None] for name, _ in getattr(dataset, attribute)])
        monkeypatch.setattr(dataset, "meta", {**dataset.meta, "md5": None})
    return tmp_path


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
