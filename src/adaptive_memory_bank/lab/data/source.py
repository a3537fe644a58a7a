"""What the registry knows of a dataset before loading it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adaptive_memory_bank.lab.data.parts import RetrievalData


@dataclass(frozen=True)
class Source:
    """One dataset of the registry: how it loads, and its line in `amb datasets`."""

    name: str  # as users write it; `name:PATH` where it takes a path
    load: "Callable[..., RetrievalData]"  # of (root, *, seed, download); most need neither seed nor download
    images: str  # train and test images, as published
    classes: str  # train and test classes, as published
    split: str  # in a few words
    metrics: str  # what it is scored with
    folders: tuple[str, ...] = ()  # where below the root it is looked for; none if it needs no files
    note: str = ""  # where what is loaded differs from what was published

    @property
    def takes_path(self) -> bool:
        """Whether users say where it is."""
        return self.name.endswith(":PATH")

    def candidates(self, root: Path) -> list[Path]:
        """Where it may be: the root itself, or one of its folders in it."""
        return [root, *(root / folder for folder in self.folders)]

    def find(self, root: Path, *, markers: Sequence[str], how: str) -> Path:
        """The candidate that holds all `markers` (files or folders); the error says in one sentence how to get it."""
        candidates = self.candidates(root)
        for candidate in candidates:
            if all((candidate / marker).exists() for marker in markers):
                return candidate
        best = max(candidates, key=lambda candidate: sum((candidate / marker).exists() for marker in markers))
        expected = candidates[1] if best == root and not any((root / m).exists() for m in markers) else best
        lines = "\n".join(f"  {'ok     ' if (expected / m).exists() else 'missing'}  {m}" for m in markers)
        raise FileNotFoundError(f"Dataset `{self.name}` not found. Expected this tree in {expected}:\n{lines}\n{how}")


def recall(ks: tuple[int, ...]) -> str:
    """How a table names these metrics.

    Example:
        >>> recall((1, 10))
        'Recall@1,10'
    """
    return "Recall@" + ",".join(map(str, ks))
