"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) through torchvision: self-supervised training, kNN accuracy."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from adaptive_memory_bank.lab.data.parts import Part, RetrievalData
from adaptive_memory_bank.lab.data.source import Source

KS = (1, 10, 100)


def _load(name: str, root: Path, *, seed: int, download: bool) -> RetrievalData:
    from torchvision.datasets import CIFAR10, CIFAR100

    dataset = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    try:
        train, test = (_part(dataset(root, train=train, download=download)) for train in (True, False))
    except RuntimeError as error:
        raise FileNotFoundError(
            f"Dataset `{name}` not found (or its checksums differ). Expected the tree {root / dataset.base_folder}/ "
            f"that torchvision unpacks from {dataset.url}; load it once with download=True."
        ) from error
    return RetrievalData(name, train, test, None, KS, gray=False, image_size=32)


def _part(dataset: Any) -> Part:
    return Part(dataset.data, torch.tensor(dataset.targets), class_names=tuple(dataset.classes))


def _source(name: str, classes: int, folder: str) -> Source:
    return Source(
        name, partial(_load, name), "50,000 + 10,000", str(classes), "same classes", "kNN accuracy", (folder,)
    )


CIFAR_10, CIFAR_100 = _source("cifar10", 10, "cifar-10-batches-py"), _source("cifar100", 100, "cifar-100-python")
