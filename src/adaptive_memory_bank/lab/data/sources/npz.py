"""A user's own images in one .npz file, in the layout of MedMNIST (Yang et al., 2023)."""

import zipfile
import zlib
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adaptive_memory_bank.lab.data.list_files import Classes
from adaptive_memory_bank.lab.data.parts import Part, RetrievalData
from adaptive_memory_bank.lab.data.source import Source

KS = (1, 10, 100)
NEEDED = ("train_images", "train_labels", "test_images", "test_labels")

_Array = np.ndarray[Any, Any]


def load(root: Path, *, seed: int, download: bool) -> RetrievalData:
    """Read `train_images, train_labels, test_images, test_labels` and, if there, `class_names`.

    Labels that train and test share make it a classification set, others retrieval of unseen classes. `val_*` may
    be there and stays unused: nothing here tunes on it. Pickled content is never read.
    """
    content = _read(root)
    train_labels, test_labels = (_labels(content[f"{part}_labels"], part, root) for part in ("train", "test"))
    numbers = [*np.unique(train_labels).tolist(), *np.unique(test_labels).tolist()]
    given = content.get("class_names")
    known: dict[Hashable, str] = {} if given is None else {number: str(name) for number, name in enumerate(given)}
    classes = Classes(numbers, known)
    train = _part(content["train_images"], train_labels, classes, f"train_images of {root}")
    test = _part(content["test_images"], test_labels, classes, f"test_images of {root}")
    if train.gray != test.gray:
        raise ValueError(f"{root}: train and test images must both be gray or both be colour.")
    side = min(train.images[0].shape[0], 224)  # type: ignore[union-attr]
    return RetrievalData(f"npz:{root}", train, test, None, KS, gray=bool(train.gray), image_size=side)


def _read(path: Path) -> dict[str, _Array]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} not found. `npz:PATH` expects a file with {', '.join(NEEDED)}.")
    if not zipfile.is_zipfile(path):  # a bare array or a pickle would be another thing to read
        raise ValueError(f"{path} is not a readable .npz file.")
    with np.load(path, allow_pickle=False) as archive:
        missing = [name for name in NEEDED if name not in archive]
        if missing:
            raise ValueError(f"{path} must hold {', '.join(NEEDED)}; missing: {', '.join(missing)}.")
        return {name: _array(archive, name, path) for name in (*NEEDED, "class_names") if name in archive}


def _array(archive: Any, name: str, path: Path) -> _Array:
    try:
        array: _Array = archive[name]
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        pickled = "pickle" in str(error).lower()
        why = "holds pickled objects, which are not read (they could run code)" if pickled else f"is broken: {error}"
        raise ValueError(f"`{name}` of {path} {why}.") from error
    return array


def _labels(labels: _Array, part: str, path: Path) -> _Array:
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.ndim != 1 or not np.issubdtype(flat.dtype, np.integer):
        raise ValueError(
            f"{part}_labels of {path} must be integers of shape (N,) or (N, 1), got {labels.dtype} of {labels.shape}."
        )
    return flat


def _part(images: _Array, labels: _Array, classes: Classes, what: str) -> Part:
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    if len(images) != len(labels) or len(images) == 0:
        raise ValueError(
            f"{what} must be as many as their labels and at least one, got {len(images)} and {len(labels)}."
        )
    numbers = torch.tensor([classes.labels[label] for label in labels.tolist()])
    try:
        return Part(np.ascontiguousarray(images), numbers, class_names=classes.names)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: {error}") from error


SOURCE = Source("npz:PATH", load, "yours", "yours", "by its labels", "Recall@1,10,100 or kNN")
