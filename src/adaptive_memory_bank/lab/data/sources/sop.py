"""Stanford Online Products (Song et al., CVPR 2016): products of an auction site, a few photographs each."""

from pathlib import Path

from adaptive_memory_bank.lab.data.list_files import Classes, Rows, check_files, inside, integer, read_rows
from adaptive_memory_bank.lab.data.parts import RetrievalData
from adaptive_memory_bank.lab.data.source import Source, recall

KS = (1, 10, 100, 1000)


def load(root: Path, *, seed: int, download: bool) -> RetrievalData:
    """Read `Ebay_train.txt` and `Ebay_test.txt` (image_id, class_id, super_class_id, path)."""
    tree = SOURCE.find(
        root,
        markers=("Ebay_train.txt", "Ebay_test.txt"),
        how="Get Stanford_Online_Products.zip from https://cvgl.stanford.edu/projects/lifted_struct/ and unzip it.",
    )
    train, test = (_read(tree, tree / f"Ebay_{part}.txt") for part in ("train", "test"))
    classes = Classes(train.keys + test.keys)
    return RetrievalData("sop", train.part(classes), test.part(classes), None, KS, gray=False, image_size=224)


def _read(tree: Path, path: Path) -> Rows:
    rows = Rows()
    for where, (_, class_id, _, image) in read_rows(path, 4, skip=1):
        rows.add(inside(tree, image, where), integer(class_id, where))
    check_files([rows], path)
    return rows


SOURCE = Source(
    "sop", load, "59,551 + 60,502", "11,318 + 11,316", "unseen classes", recall(KS), ("Stanford_Online_Products", "sop")
)
