"""Tiny replicas of the benchmarks, in the layouts their authors ship."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torchvision.datasets import CIFAR10, CIFAR100

CIFAR = ((CIFAR10, "labels", 10), (CIFAR100, "fine_labels", 100))


def write_image(path: Path, value: int = 128, *, mode: str = "RGB", size: tuple[int, int] = (12, 10)) -> Path:
    """Write a small image whose every pixel is `value`, in a mode and a size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, value).convert(mode).save(path)
    return path


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_sop(root: Path, *, train_classes: int, test_classes: int, images: int) -> Path:
    """Stanford Online Products: products from 1 on train, the following ones test."""
    base, number, end = root / "Stanford_Online_Products", 0, train_classes + test_classes
    for split, first, last in (("train", 1, train_classes), ("test", train_classes + 1, end)):
        lines = ["image_id class_id super_class_id path"]
        for product in range(first, last + 1):
            for view in range(images):
                number += 1
                name = f"chair_final/{product}_{view}.JPG"
                write_image(base / name, (37 * product + view) % 256)
                lines.append(f"{number} {product} 1 {name}")
        write_text(base / f"Ebay_{split}.txt", "\n".join(lines) + "\n")
    return base


def write_inshop(root: Path, *, train_classes: int, test_classes: int, images: int) -> Path:
    """In-shop: of every test item the first image asks, the others are searched."""
    base, rows = root / "inshop", []
    for item in range(train_classes + test_classes):
        for view in range(images):
            name = f"img/WOMEN/Dresses/id_{item:08}/01_{view}_front.jpg"
            status = "train" if item < train_classes else "gallery" if view else "query"
            write_image(base / name, (37 * item + view) % 256)
            rows.append(f"{name}    id_{item:08}    {status}")
    head = [str(len(rows)), "image_name  item_id  evaluation_status"]
    write_text(base / "Eval/list_eval_partition.txt", "\n".join([*head, *rows]) + "\n")
    return base


def write_deepfashion2(root: Path, *, train_classes: int, test_classes: int, images: int) -> Path:
    """DeepFashion2: in every split, half of each pair's photographs are a user's and half a shop's."""
    base = root / "deepfashion2"
    for split, pairs in (("train", train_classes), ("validation", test_classes)):
        for number in range(pairs * images):
            source = "user" if number % 2 else "shop"
            worn = clothing(1, 1, [0, 0, 16 + number % 8, 20])
            write_photograph(base / split, number + 1, source, number // images + 1, worn, size=(24, 24))
    return base


def clothing(category: int, style: int, box: list[float]) -> dict[str, Any]:
    """One item of a DeepFashion2 annotation."""
    return {"category_id": category, "style": style, "bounding_box": box, "landmarks": [1, 2, 2], "scale": 1}


def write_photograph(
    split: Path, number: int, source: str, pair: int, *items: dict[str, Any], size: tuple[int, int] = (40, 30)
) -> None:
    """One image (each item's box filled with its own gray) and its annotation."""
    for folder in ("image", "annos"):
        (split / folder).mkdir(parents=True, exist_ok=True)
    pixels = np.zeros((*size, 3), np.uint8)
    for level, entry in enumerate(items, start=1):
        x1, y1, x2, y2 = (round(c) for c in entry["bounding_box"])
        pixels[y1:y2, x1:x2] = 60 * level
    Image.fromarray(pixels).save(split / "image" / f"{number:06}.jpg", quality=95)
    anno = {"source": source, "pair_id": pair, **{f"item{i}": entry for i, entry in enumerate(items, start=1)}}
    (split / "annos" / f"{number:06}.json").write_text(json.dumps(anno))


def write_cifar(root: Path, *, images: int) -> Path:
    """Both archives unpacked, `images` in every file; `forget_checksums` makes torchvision read them."""
    for dataset, key, classes in CIFAR:
        base = root / dataset.base_folder
        base.mkdir(parents=True)
        for seed, (name, _) in enumerate(dataset.train_list + dataset.test_list):
            random = np.random.default_rng(seed)
            pixels = random.integers(0, 256, (images, 3072), dtype=np.uint8)
            batch = {"data": pixels, key: random.integers(0, classes, images).tolist()}
            (base / name).write_bytes(pickle.dumps(batch))
        meta = {dataset.meta["key"]: [f"class {i}" for i in range(classes)]}
        (base / dataset.meta["filename"]).write_bytes(pickle.dumps(meta))
    return root


def forget_checksums(monkeypatch: Any) -> None:
    """Let torchvision take replicas of CIFAR for the originals."""
    for dataset, _, _ in CIFAR:
        for attribute in ("train_list", "test_list"):
            monkeypatch.setattr(dataset, attribute, [[name, None] for name, _ in getattr(dataset, attribute)])
        monkeypatch.setattr(dataset, "meta", {**dataset.meta, "md5": None})
