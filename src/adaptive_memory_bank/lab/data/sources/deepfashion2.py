"""DeepFashion2 (Ge et al., CVPR 2019), consumer-to-shop: what a user wears, searched among a shop's photographs.

Every item of an image is cropped to its ground-truth box. Its identity is (pair_id, category_id, style). Items of
style 0 match nothing: they neither train nor ask, but those of the shop stay in the gallery, as distractors.
The validation split is what the field evaluates on; the labels of the test split are not public.

`amb datasets` counts items (boxes, not images), as the XBN paper does: 217,778 with a consumer-to-shop pair in training
and evaluation, of which 12,377 ask among 36,961; 31,517 labels in training, 3,128 of queries, 7,059 in the gallery.
This loader should give the same queries (the consumers' items of a style above 0) and the same gallery (every item of a
shop). It differs in two numbers. In training it keeps every item of a style above 0, also of an identity that only
consumers or only shops show, since those still make positive pairs, so it may have more than the paper's. In the
gallery all items of style 0 share one name that no query has, so it counts fewer than 7,059 labels; scores stay.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from adaptive_memory_bank.lab.data.list_files import Classes, Rows, check_files
from adaptive_memory_bank.lab.data.parts import RetrievalData
from adaptive_memory_bank.lab.data.source import Source, recall

KS = (1, 5, 10, 15, 20)
DISTRACTOR = "no identity (style 0)"


def load(root: Path, *, seed: int, download: bool) -> RetrievalData:
    """Read `annos/*.json` of the training and validation splits."""
    tree = SOURCE.find(
        root,
        markers=("train/image", "train/annos", "validation/image", "validation/annos"),
        how="Ask for access and the password at https://github.com/switchablenorms/DeepFashion2, then unzip "
        "train.zip and validation.zip there.",
    )
    train, query, gallery = Rows(), Rows(), Rows()
    for _, image, identity, box in _items(tree / "train"):
        if identity != DISTRACTOR:
            train.add(image, identity, box)
    for source, image, identity, box in _items(tree / "validation"):
        if source == "shop":
            gallery.add(image, identity, box)
        elif identity != DISTRACTOR:
            query.add(image, identity, box)
    check_files([train], tree / "train" / "annos")
    check_files([query, gallery], tree / "validation" / "annos")
    classes = Classes(train.keys + query.keys + gallery.keys)
    parts = train.part(classes), query.part(classes), gallery.part(classes)
    return RetrievalData("deepfashion2", *parts, KS, gray=False, image_size=224)


def _items(split: Path) -> Iterator[tuple[str, Path, str, list[int]]]:
    """(source, image, identity, box) of every item of a split."""
    paths = sorted((split / "annos").glob("*.json"))
    if not paths:
        raise FileNotFoundError(f"{split / 'annos'} holds no *.json.")
    for path in tqdm(paths, desc=f"deepfashion2 {split.name}", disable=None, leave=False):
        image = split / "image" / f"{path.stem}.jpg"
        try:
            anno = json.loads(path.read_bytes())
            if anno["source"] not in ("shop", "user"):
                raise ValueError(f"source is {anno['source']!r}")
            for key in sorted(key for key in anno if key.startswith("item")):
                identity = _identity(split.name, int(anno["pair_id"]), anno[key])
                yield anno["source"], image, identity, _box(anno[key]["bounding_box"])
        except (KeyError, TypeError, ValueError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path} is not a DeepFashion2 annotation: {what}.") from error


def _identity(split: str, pair_id: int, item: dict[str, Any]) -> str:
    style = int(item["style"])
    # Pair numbers restart in every split, so the split is part of the name.
    return f"{split} {pair_id}/{int(item['category_id'])}/{style}" if style > 0 else DISTRACTOR


def _box(corners: list[float]) -> list[int]:
    x1, y1, x2, y2 = (round(corner) for corner in corners)
    if x2 < x1 or y2 < y1:
        raise ValueError(f"bounding_box {corners} is not x1, y1, x2, y2")
    return [x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)]


SOURCE = Source(
    "deepfashion2",
    load,
    "217,778 items, of them 12,377 / 36,961",
    "31,517 + 3,128 / 7,059",
    "unseen classes, user / shop",
    recall(KS),
    ("deepfashion2", "DeepFashion2"),
    note="counted in items (boxes), as the XBN paper does: all with a pair, of them queries / gallery (validation).\n"
    "The loader should give the same queries and gallery. To train on it keeps every item of a style above 0, also\n"
    "of an identity that only users or only shops show: perhaps more than the paper. Gallery items of style 0 share\n"
    "one label that no query has: fewer than 7,059 labels, the same scores.",
)
