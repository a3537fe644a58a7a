import random

import numpy as np
import pytest
import torch
from scipy import stats

from adaptive_memory_bank.lab.data.randomness import Stream, seeded


def splitmix64(word):
    """The published algorithm on Python's integers."""
    mask = 2**64 - 1
    word = (word + 0x9E3779B97F4A7C15) & mask
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
    return word ^ (word >> 31)


def test_numbers_equal_the_hash_by_hand():
    key = 0
    for word in (5, 2, 1):
        key = splitmix64(key ^ word)
    key = splitmix64(key ^ 77)
    expected = [(splitmix64(key ^ splitmix64(column)) >> 40) / 2**24 for column in (1, 2, 3)]
    assert Stream(5, 2, lane=1).uniform([77], 3)[0].tolist() == expected


def test_a_row_depends_on_its_index_alone():
    stream = Stream(3, 1)
    together = stream.uniform([9, 4, 9, 100_000], 5)
    for row, index in zip(together, [9, 4, 9, 100_000], strict=True):
        assert torch.equal(row, stream.uniform(torch.tensor([index]), 5)[0])


@pytest.mark.parametrize("other", [Stream(1, 0, 0), Stream(0, 1, 0), Stream(0, 0, 1), Stream(-1, 0, 0)])
def test_seed_epoch_and_lane_all_matter(other):
    indices = range(4000)
    here, there = Stream(0, 0, 0).uniform(indices, 2), other.uniform(indices, 2)
    assert abs(np.corrcoef(here.flatten(), there.flatten())[0, 1]) < 0.05
    assert not torch.equal(here, there)


def test_numbers_are_uniform_and_columns_independent():
    draws = Stream(0).uniform(range(20_000), 3)
    assert draws.min() >= 0
    assert draws.max() < 1
    for column in draws.T:
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-3
    correlation = np.corrcoef(draws.T.numpy()) - np.eye(3)
    assert np.abs(correlation).max() < 0.03
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.03  # neighbours


def test_seeds_differ():
    assert len(set(Stream(0).seeds(range(10_000)))) > 9_990


def global_numbers():
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_seeded_puts_the_generators_back():
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = global_numbers()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    with seeded(7):
        inside = global_numbers()
    assert global_numbers() == expected
    with seeded(7):
        assert global_numbers() == inside


def test_seeded_puts_the_generators_back_after_an_error():
    state = random.getstate()
    with pytest.raises(ZeroDivisionError), seeded(7):
        1 / (random.random() * 0)
    assert random.getstate() == state
