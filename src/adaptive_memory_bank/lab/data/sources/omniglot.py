"""Omniglot (Lake et al., Science 2015): characters of 50 alphabets, each by 20 writers."""

from pathlib import Path

from adaptive_memory_bank.lab.data.list_files import Classes, Rows
from adaptive_memory_bank.lab.data.parts import RetrievalData
from adaptive_memory_bank.lab.data.source import Source, recall

KS = (1, 10, 100)


def load(root: Path, *, seed: int, download: bool) -> RetrievalData:
    """Index the folders that torchvision's `Omniglot` unpacks: `<set>/<alphabet>/<character>/*.png`."""
    if download:
        from torchvision.datasets import Omniglot

        for background in (True, False):
            Omniglot(root, background=background, download=True)
    tree = SOURCE.find(
        root,
        markers=("images_background", "images_evaluation"),
        how="Load it once with download=True, or unpack images_background.zip and images_evaluation.zip from "
        "https://github.com/brendenlake/omniglot there.",
    )
    train, test = _read(tree / "images_background"), _read(tree / "images_evaluation")
    classes = Classes(train.keys + test.keys)
    parts = train.part(classes, gray=True), test.part(classes, gray=True)
    return RetrievalData("omniglot", *parts, None, KS, gray=True, image_size=28)


def _read(folder: Path) -> Rows:
    rows = Rows()
    for path in sorted(folder.glob("*/*/*.png")):
        rows.add(path, f"{path.parent.parent.name}/{path.parent.name}")
    if not rows.paths:
        raise FileNotFoundError(f"{folder} holds no <alphabet>/<character>/*.png.")
    return rows


SOURCE = Source("omniglot", load, "19,280 + 13,180", "964 + 659", "unseen classes", recall(KS), ("omniglot-py",))
