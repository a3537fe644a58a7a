"""CUB-200-2011 (Wah et al., 2011): birds; the first 100 species train, the other 100 test."""

from collections.abc import Hashable
from pathlib import Path

from adaptive_memory_bank.lab.data.list_files import Classes, Rows, check_files, inside, integer, read_rows
from adaptive_memory_bank.lab.data.parts import RetrievalData
from adaptive_memory_bank.lab.data.source import Source, recall

KS = (1, 2, 4, 8)


def load(root: Path, *, seed: int, download: bool) -> RetrievalData:
    """Read `images.txt` and `image_class_labels.txt`, which number the images alike."""
    tree = SOURCE.find(
        root,
        markers=("images.txt", "image_class_labels.txt", "images"),
        how="Get CUB_200_2011.tgz from https://data.caltech.edu/records/65de6-vp158 and unpack it there.",
    )
    species = _species(tree)
    half, names = _classes(tree, max(species.values(), default=0))
    train, test = Rows(), Rows()
    for where, (image_id, image) in read_rows(tree / "images.txt", 2):
        number = integer(image_id, where)
        if number not in species:
            raise ValueError(f"{where}: image {number} has no line in image_class_labels.txt.")
        rows = train if species[number] <= half else test
        rows.add(inside(tree / "images", image, where), species[number])
    check_files([train, test], tree / "images.txt")
    classes = Classes(train.keys + test.keys, names)
    return RetrievalData("cub200", train.part(classes), test.part(classes), None, KS, gray=False, image_size=224)


def _species(tree: Path) -> dict[int, int]:
    rows = read_rows(tree / "image_class_labels.txt", 2)
    return {integer(image, where): integer(label, where) for where, (image, label) in rows}


def _classes(tree: Path, largest: int) -> tuple[int, dict[Hashable, str]]:
    """The last class of the first half, and the names; without `classes.txt` the numbers have to do."""
    path = tree / "classes.txt"
    rows = read_rows(path, 2) if path.exists() else ()
    names: dict[Hashable, str] = {integer(number, where): name for where, (number, name) in rows}
    return (len(names) or largest) // 2, names


SOURCE = Source("cub200", load, "5,864 + 5,924", "100 + 100", "unseen classes", recall(KS), ("CUB_200_2011", "cub200"))
