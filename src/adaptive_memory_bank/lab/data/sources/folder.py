"""A user's own images, one folder per class."""

from pathlib import Path

from adaptive_memory_bank.lab.data.list_files import Classes, Rows
from adaptive_memory_bank.lab.data.parts import RetrievalData
from adaptive_memory_bank.lab.data.pixels import EXTENSIONS
from adaptive_memory_bank.lab.data.source import Source

KS = (1, 10, 100)
LAYOUT = "Expected `train/<class>/*` and `test/<class>/*`, or one tree `<class>/*` of at least two classes."


def load(root: Path, *, seed: int, download: bool) -> RetrievalData:
    """Index `train/` and `test/`, or split one tree: the first half of its classes (by name) trains."""
    if not root.is_dir():
        raise FileNotFoundError(f"Folder {root} not found. {LAYOUT}")
    if (root / "train").is_dir() or (root / "test").is_dir():
        train, test = _read(_classes(root / "train")), _read(_classes(root / "test"))
    else:
        folders = [folder for folder in _classes(root) if _images(folder)]
        half = (len(folders) + 1) // 2
        train, test = _read(folders[:half]), _read(folders[half:])
    for rows, part in ((train, "train"), (test, "test")):
        if not rows.paths:
            raise ValueError(f"Folder {root} has no images to {part}. {LAYOUT}")
    classes = Classes(train.keys + test.keys)
    parts = train.part(classes), test.part(classes)
    return RetrievalData(f"folder:{root}", *parts, None, KS, gray=False, image_size=224)


def _classes(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"Folder {folder} not found. {LAYOUT}")
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS and path.is_file())


def _read(folders: list[Path]) -> Rows:
    rows = Rows()
    for folder in folders:
        for path in _images(folder):
            rows.add(path, folder.name)
    return rows


SOURCE = Source("folder:PATH", load, "yours", "yours", "train/ and test/, or by class", "Recall@1,10,100")
