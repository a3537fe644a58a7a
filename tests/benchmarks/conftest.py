"""The benchmarks' scripts, their files, and data sets in miniature."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

import replicas
from adaptive_memory_bank.lab.commands.compare import to_compare_config
from adaptive_memory_bank.lab.commands.main import make_parser
from adaptive_memory_bank.lab.commands.words import normalized
from adaptive_memory_bank.lab.compare.config import CompareConfig
from written_runs import write_run  # noqa: F401  a fixture


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def datasets(tmp_path_factory) -> Callable[[int], Path]:
    """A folder with SOP, In-shop and DeepFashion2 of so many training classes x 4 images, and CIFAR-10/100."""

    @cache
    def make(classes: int) -> Path:
        root = tmp_path_factory.mktemp("datasets")
        for write in (replicas.write_sop, replicas.write_inshop, replicas.write_deepfashion2):
            write(root, train_classes=classes, test_classes=4, images=4)
        return replicas.write_cifar(root, images=128)

    return make


@pytest.fixture(scope="session")
def parse() -> Callable[..., CompareConfig]:
    """What `amb compare` makes of words."""

    def read(*words: object) -> CompareConfig:
        arguments = normalized(["compare", *map(str, words)])
        return to_compare_config(make_parser(arguments).parse_args(arguments).compare)

    return read
