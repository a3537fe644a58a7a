"""DeepFashion In-shop Clothes Retrieval (Liu et al., CVPR 2016): queries against a gallery of the same shop."""

from pathlib import Path

from adaptive_memory_bank.lab.data.list_files import Classes, Rows, check_files, inside, integer, read_rows
from adaptive_memory_bank.lab.data.parts import RetrievalData
from adaptive_memory_bank.lab.data.source import Source, recall

KS = (1, 10, 20, 30, 40, 50)
FOLDERS = ("inshop", "In-shop Clothes Retrieval Benchmark")
LIST = "list_eval_partition.txt"


def load(root: Path, *, seed: int, download: bool) -> RetrievalData:
    """Read `Eval/list_eval_partition.txt`: a count, a heading, then image_name, item_id, evaluation_status."""
    nested = (root / "Eval" / LIST).exists() or (root / FOLDERS[0] / "Eval" / LIST).exists()
    listed = f"Eval/{LIST}" if nested or not (root / LIST).exists() else LIST
    tree = SOURCE.find(
        root,
        markers=(listed,),
        how="Get Eval/list_eval_partition.txt and Img/img.zip of the In-shop Clothes Retrieval Benchmark from "
        "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html and unzip the images next to `Eval`, as `img/`.",
    )
    images = tree / "Img" if (tree / "Img" / "img").is_dir() else tree
    parts = _read(images, tree / listed)
    classes = Classes(key for name in ("train", "query", "gallery") for key in parts[name].keys)
    train, query, gallery = (parts[name].part(classes) for name in ("train", "query", "gallery"))
    return RetrievalData("inshop", train, query, gallery, KS, gray=False, image_size=224)


def _read(images: Path, path: Path) -> dict[str, Rows]:
    parts = {"train": Rows(), "query": Rows(), "gallery": Rows()}
    for where, (image, item, status) in read_rows(path, 3, skip=2):
        if status not in parts:
            raise ValueError(f"{where}: expected train, query or gallery, got {status!r}.")
        parts[status].add(inside(images, image, where), item)
    with path.open(encoding="utf-8", errors="surrogateescape") as lines:
        promised = integer(lines.readline().strip(), f"{path}, line 1")
    found = sum(len(rows.paths) for rows in parts.values())
    if found != promised:
        raise ValueError(f"{path}, line 1: promises {promised} images, but {found} follow. Is the file complete?")
    check_files(parts.values(), path)
    return parts


SOURCE = Source(
    "inshop", load, "25,882 + 14,218 / 12,612", "3,997 + 3,985", "unseen classes, query / gallery", recall(KS), FOLDERS
)
