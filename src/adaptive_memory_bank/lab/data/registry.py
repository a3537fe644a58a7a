"""Every dataset by its name; what loads it is imported when it is asked for."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from adaptive_memory_bank.lab.data.source import Source
from adaptive_memory_bank.lazy import load_object

if TYPE_CHECKING:
    from adaptive_memory_bank.lab.data.parts import RetrievalData

# Names as users write them, in the order of `amb datasets`, and where below `sources` each is declared.
SOURCES = {
    "glyphs": "glyphs:SOURCE",
    "digits": "digits:SOURCE",
    "cifar10": "cifar:CIFAR_10",
    "cifar100": "cifar:CIFAR_100",
    "omniglot": "omniglot:SOURCE",
    "sop": "sop:SOURCE",
    "inshop": "inshop:SOURCE",
    "deepfashion2": "deepfashion2:SOURCE",
    "cub200": "cub200:SOURCE",
    "cars196": "cars196:SOURCE",
    "npz:PATH": "npz:SOURCE",
    "folder:PATH": "folder:SOURCE",
}
DOWNLOADED = ("cifar10", "cifar100", "omniglot")


def available_datasets() -> tuple[str, ...]:
    """Names that `load_dataset` knows; `npz:PATH` and `folder:PATH` take a path.

    Example:
        >>> available_datasets()[:2]
        ('glyphs', 'digits')
    """
    return tuple(SOURCES)


def find_source(name: str) -> Source:
    """What is known of a dataset before it is loaded, by one of `available_datasets()`."""
    source: Source = load_object(f"adaptive_memory_bank.lab.data.sources.{SOURCES[name]}")
    return source


def check_dataset(name: str, *, download: bool = False) -> None:
    """Complain about a name that no dataset has, or a download that there is none of; imports nothing.

    Raises:
        ValueError: Naming those that there are.
    """
    if _key(name) not in SOURCES:
        raise ValueError(f"`data` must be one of {', '.join(SOURCES)}, got {name!r}.")
    if download and name not in DOWNLOADED:
        raise ValueError(f"`download` is only for {', '.join(DOWNLOADED[:-1])} and {DOWNLOADED[-1]}, got {name!r}.")


def _key(name: str) -> str:
    """The name as the registry has it: `npz:PATH` for any path."""
    kind, _, path = name.partition(":")
    return f"{kind}:PATH" if path else name


def default_root() -> Path:
    """Where datasets are looked for: `$AMB_DATA`, or `data` in the current folder."""
    return Path(os.environ.get("AMB_DATA") or "data")


def load_dataset(
    name: str, *, root: str | Path | None = None, seed: int = 0, download: bool = False
) -> "RetrievalData":
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
    check_dataset(name, download=download)
    where = _place(name, root)
    return find_source(_key(name)).load(where, seed=seed, download=download)


def _place(name: str, root: str | Path | None) -> Path:
    """Where a dataset is looked for."""
    _, _, path = name.partition(":")
    base = Path(root) if root is not None else (Path() if path else default_root())
    return base / Path(path).expanduser() if path else base.expanduser()


def check_path(name: str, root: str | Path | None = None) -> None:
    """Complain about the path of `name:PATH` if there is nothing; imports nothing.

    Raises:
        FileNotFoundError: Naming it.
    """
    kind, _, path = name.partition(":")
    if path and not _place(name, root).exists():
        raise FileNotFoundError(f"`data` {kind}: {_place(name, root)} not found.")
