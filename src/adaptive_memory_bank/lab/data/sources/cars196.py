"""Cars196 (Krause et al., 2013): the first 98 models train, the other 98 test.

Three forms are about: the authors' one archive (`cars_annos.mat` with `car_ims/`), their two (`devkit/*.mat` with
`cars_train/` and `cars_test/`, the form torchvision reads) and one folder per class (`names.csv` with
`car_data/car_data/train/<class>/`, the form PML reads; `names.csv` may be missing).
"""

from pathlib import Path
from typing import Any

from adaptive_memory_bank.lab.data.list_files import Classes, Rows, check_files, inside
from adaptive_memory_bank.lab.data.parts import RetrievalData
from adaptive_memory_bank.lab.data.pixels import EXTENSIONS
from adaptive_memory_bank.lab.data.source import Source, recall

KS = (1, 2, 4, 8)
_TEST_LIST = "cars_test_annos_withlabels.mat"

Car = tuple[Path, int]  # image, class number from 1


def load(root: Path, *, seed: int, download: bool) -> RetrievalData:
    """Read whichever form is there; the authors' own train / test flag plays no part in retrieval."""
    for candidate in SOURCE.candidates(root):
        if (candidate / "car_data").is_dir():
            return _split(*_from_folders(candidate))
        if (candidate / "devkit" / "cars_train_annos.mat").exists():
            return _split(*_from_devkit(candidate))
    tree = SOURCE.find(
        root,
        markers=("cars_annos.mat", "car_ims"),
        how="Or the devkit form (devkit/, cars_train/, cars_test/, cars_test_annos_withlabels.mat), or one folder per "
        "class (car_data/car_data/train/<class>/...), as on https://www.kaggle.com/datasets/jutrera/"
        "stanford-car-dataset-by-classes-folder.",
    )
    return _split(*_from_archive(tree))


def _split(cars: list[Car], names: list[str]) -> RetrievalData:
    train, test = Rows(), Rows()
    for path, number in sorted(cars, key=lambda car: car[1]):  # stable: labels follow the class numbers
        (train if number <= len(names) // 2 else test).add(path, number)
    classes = Classes(train.keys + test.keys, dict(enumerate(names, start=1)))
    return RetrievalData("cars196", train.part(classes), test.part(classes), None, KS, gray=False, image_size=224)


def _from_archive(tree: Path) -> tuple[list[Car], list[str]]:
    path = tree / "cars_annos.mat"
    return _listed(path, tree, image="relative_im_path"), _class_names(path)


def _from_devkit(tree: Path) -> tuple[list[Car], list[str]]:
    train = _listed(tree / "devkit" / "cars_train_annos.mat", tree / "cars_train", image="fname")
    tests = [tree / _TEST_LIST, tree / "devkit" / _TEST_LIST]
    labelled = next((path for path in tests if path.exists()), None)
    if labelled is None:
        raise FileNotFoundError(f"{tests[0]} is missing: without it the cars of `cars_test` have no labels.")
    cars = train + _listed(labelled, tree / "cars_test", image="fname")
    return cars, _class_names(tree / "devkit" / "cars_meta.mat")


def _from_folders(tree: Path) -> tuple[list[Car], list[str]]:
    base = tree / "car_data" / "car_data" if (tree / "car_data" / "car_data").is_dir() else tree / "car_data"
    folders = sorted(folder for part in ("train", "test") for folder in (base / part).glob("*") if folder.is_dir())
    if (tree / "names.csv").exists():
        lines = (tree / "names.csv").read_text(encoding="utf-8").splitlines()
        names = [line.strip() for line in lines if line.strip()]
    else:
        names = sorted({folder.name for folder in folders})
    numbers = {name.replace("/", "-"): number for number, name in enumerate(names, start=1)}
    unknown = [folder for folder in folders if folder.name not in numbers]
    if unknown or not folders:
        what = f"{unknown[0]} is not in {tree / 'names.csv'}" if unknown else f"{base} holds no train/<class>/"
        raise ValueError(f"Cars in folders: {what}.")
    files = ((file, folder) for folder in folders for file in sorted(folder.iterdir()))
    return [(file, numbers[folder.name]) for file, folder in files if file.suffix.lower() in EXTENSIONS], names


def _listed(path: Path, images: Path, *, image: str) -> list[Car]:
    rows = Rows()
    annotations = _matlab(path, "annotations")
    fields = annotations.dtype.names or ()
    if image not in fields or "class" not in fields:
        raise ValueError(f"{path}: `annotations` must have the fields `{image}` and `class`, got {list(fields)}.")
    for number, row in enumerate(annotations, start=1):
        rows.add(inside(images, str(row[image]), f"{path}, annotation {number}"), int(row["class"]))
    check_files([rows], path)
    return [(file, int(str(key))) for file, key in zip(rows.paths, rows.keys, strict=True)]


def _class_names(path: Path) -> list[str]:
    return [str(text) for text in _matlab(path, "class_names")]


def _matlab(path: Path, name: str) -> Any:
    """One array of a .mat file, always with an axis (a single row loses it on reading)."""
    import numpy as np
    from scipy.io import loadmat

    try:
        content = loadmat(path, squeeze_me=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing.") from None
    except Exception as error:  # scipy raises half a dozen kinds for a broken file
        raise ValueError(f"{path} cannot be read as a .mat file: {error}") from error
    if name not in content:
        raise ValueError(f"{path} has no `{name}`.")
    return np.atleast_1d(content[name])


SOURCE = Source(
    "cars196", load, "8,054 + 8,131", "98 + 98", "unseen classes", recall(KS), ("cars196", "stanford_cars", "CARS196")
)
