"""What the datasets from list files share: reading lists, turning rows into parts."""

import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import torch

from adaptive_memory_bank.lab.data.parts import Part


class DamagedListError(ValueError):
    """A line of a list does not say what it should; the message says which."""

    exit_code = 1

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what} Mend that line, or get the dataset again.")


def read_rows(path: Path, columns: int, *, skip: int = 0) -> Iterator[tuple[str, list[str]]]:
    """Rows of a text list, split at any white space, each with where it is ("file, line 7") for errors."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if number <= skip or not fields:
            continue
        where = f"{path}, line {number}"
        if len(fields) != columns:
            raise DamagedListError(where, f"expected {columns} columns, got {len(fields)}: {line.strip()!r}.")
        yield where, fields


def integer(text: str, where: str) -> int:
    """A number from a list; the error names the line."""
    try:
        return int(text)
    except ValueError:
        raise DamagedListError(where, f"expected an integer, got {text!r}.") from None


def inside(root: Path, relative: str, where: str) -> Path:
    """The path below the root that a list names; one that leads outside is refused."""
    pure = PurePosixPath(relative.replace("\\", "/"))
    if not pure.parts:
        raise DamagedListError(where, f"{relative!r} names no file below {root}.")
    if pure.is_absolute() or ".." in pure.parts or ":" in pure.parts[0]:
        raise DamagedListError(where, f"{relative!r} points outside of {root}.")
    return root / pure


@dataclass
class Rows:
    """Grows row by row into a `Part`."""

    paths: list[Path] = field(default_factory=list)
    keys: list[Hashable] = field(default_factory=list)
    boxes: list[Sequence[int]] = field(default_factory=list)

    def add(self, path: Path, key: Hashable, box: Sequence[int] | None = None) -> None:
        """One image of the class `key`."""
        self.paths.append(path)
        self.keys.append(key)
        if box is not None:
            self.boxes.append(box)

    def part(self, classes: "Classes", *, gray: bool = False) -> Part:
        """The index, labelled by a table of classes that all parts share."""
        labels = torch.tensor([classes.labels[key] for key in self.keys], dtype=torch.int64)
        boxes = torch.tensor(self.boxes, dtype=torch.int64).view(-1, 4) if self.boxes else None
        return Part(tuple(self.paths), labels, boxes, classes.names, gray=gray)


class Classes:
    """Numbers classes 0, 1, ... in the order given: training classes first, so that their labels have no holes.

    Args:
        keys: Classes of the training rows, then of the others; repeated ones count once.
        names: What to call them; str(key) otherwise.

    Example:
        >>> Classes(["b", "a", "b"]).labels
        {'b': 0, 'a': 1}
    """

    def __init__(self, keys: Iterable[Hashable], names: dict[Hashable, str] | None = None) -> None:
        self.labels = {key: label for label, key in enumerate(dict.fromkeys(keys))}
        self.names = tuple((names or {}).get(key, str(key)) for key in self.labels)


def check_files(rows: Iterable[Rows], listed_in: Path) -> None:
    """Refuse an index with files that are not there (one directory listing per folder, no image is opened)."""
    folders: dict[Path, set[str]] = defaultdict(set)
    for row in rows:
        for path in row.paths:
            folders[path.parent].add(path.name)
    missing = [folder / name for folder, names in folders.items() for name in sorted(names - _names(folder))]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise FileNotFoundError(f"Image {missing[0]}{more} is listed in {listed_in} but missing.")


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()
