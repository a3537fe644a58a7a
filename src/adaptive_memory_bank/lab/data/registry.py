"""Every dataset by its name."""

import os
from pathlib import Path

from adaptive_memory_bank.lab.data.parts import RetrievalData
from adaptive_memory_bank.lab.data.source import Source
from adaptive_memory_bank.lab.data.sources import (
    cars196,
    cub200,
    deepfashion2,
    digits,
    folder,
    glyphs,
    inshop,
    npz,
    omniglot,
    sop,
)
from adaptive_memory_bank.lab.data.sources.cifar import SOURCES as CIFAR

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        glyphs.SOURCE,
        digits.SOURCE,
        *CIFAR,
        omniglot.SOURCE,
        sop.SOURCE,
        inshop.SOURCE,
        deepfashion2.SOURCE,
        cub200.SOURCE,
        cars196.SOURCE,
        npz.SOURCE,
        folder.SOURCE,
    )
}


def available_datasets() -> tuple[str, ...]:
    """Names that `load_dataset` knows; `npz:PATH` and `folder:PATH` take a path.

    Example:
        >>> available_datasets()[:2]
        ('glyphs', 'digits')
    """
    return tuple(f"{source.name}:PATH" if source.takes_path else source.name for source in SOURCES.values())


def default_root() -> Path:
    """Where datasets are looked for: `$AMB_DATA`, or `data` in the current folder."""
    return Path(os.environ.get("AMB_DATA") or "data")


def load_dataset(name: str, *, root: str | Path | None = None, seed: int = 0, download: bool = False) -> RetrievalData:
    """Index a dataset by name.

    Args:
        name: One of `available_datasets()`.
        root: Where to look; `default_root()` otherwise. With `name:PATH` the path counts from here if it is relative.
        seed: Of what is drawn (`glyphs`). Keep it while comparing runs: other seeds are other datasets.
        download: Fetch what torchvision can fetch (`cifar10`, `cifar100`, `omniglot`).

    Example:
        >>> data = load_dataset("digits")
        >>> len(data.train), len(data.query), data.image_size
        (1437, 360, 8)
    """
    key, _, path = name.partition(":")
    source = SOURCES.get(key)
    if source is None or bool(path) != source.takes_path:
        raise ValueError(f"`name` must be one of {', '.join(available_datasets())}, got {name!r}.")
    if download and key not in ("cifar10", "cifar100", "omniglot"):
        raise ValueError(f"`download` is only for cifar10, cifar100 and omniglot, got {name!r}.")
    base = Path(root) if root is not None else (Path() if path else default_root())
    return source.load(base / Path(path).expanduser() if path else base.expanduser(), seed=seed, download=download)
