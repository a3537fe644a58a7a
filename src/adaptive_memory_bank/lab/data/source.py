"""What the registry knows of a dataset before loading it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adaptive_memory_bank.lab.data.parts import RetrievalData


class Load(Protocol):
    """Indexes a dataset below a root."""

    def __call__(self, root: Path, *, seed: int, download: bool) -> RetrievalData:
        """Seed matters where images are drawn, download where torchvision has them."""


@dataclass(frozen=True)
class Source:
    """One dataset of the registry: how it loads, and its line in `amb datasets`.

    Args:
        name: As users write it.
        load: What indexes it.
        images: Train and test images, as published.
        classes: Train and test classes, as published.
        split: In a few words.
        metrics: What it is scored with.
        folders: Where below the root it is looked for; none if it needs no files.
        takes_path: Whether users write `name:PATH`.
    """

    name: str
    load: Load
    images: str
    classes: str
    split: str
    metrics: str
    folders: tuple[str, ...] = ()
    takes_path: bool = False


def recall(ks: tuple[int, ...]) -> str:
    """How a table names these metrics.

    Example:
        >>> recall((1, 10))
        'Recall@1,10'
    """
    return "Recall@" + ",".join(map(str, ks))
