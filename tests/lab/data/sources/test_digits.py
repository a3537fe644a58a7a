import numpy as np
from sklearn.datasets import load_digits

from adaptive_memory_bank.lab.data import load_dataset


def test_every_digit_is_there_once_and_nothing_is_lost():
    data, bunch = load_dataset("digits"), load_digits()
    images = np.concatenate([data.train.images, data.query.images])
    assert np.array_equal(np.rint(images * (16 / 255)), bunch.images)
    assert data.train.labels.tolist() + data.query.labels.tolist() == bunch.target.tolist()


def test_is_a_classification_set_of_gray_8_x_8():
    data = load_dataset("digits")
    assert (len(data.train), len(data.query), data.image_size, data.gray) == (1437, 360, 8, True)
    assert set(data.train.labels.tolist()) & set(data.query.labels.tolist())
    assert data.train.num_classes == data.query.num_classes == 10
    assert data.train.images.max() == 255
