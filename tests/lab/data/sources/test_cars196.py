import numpy as np
import pytest
from pytorch_metric_learning.datasets.cars196 import Cars196
from scipy.io import savemat
from torchvision.datasets import StanfordCars

from adaptive_memory_bank.lab.data import load_dataset

NAMES = [f"Car {number:03}" for number in range(1, 197)]
NAMES[172] = "Ram C/V Cargo Van Minivan 2012"  # the one name that cannot be a folder's
CARS = {"train": [("00001.jpg", 1), ("00002.jpg", 196), ("00003.jpg", 98)],
        "test": [("00001.jpg", 99), ("00002.jpg", 173), ("00003.jpg", 1)]}  # fmt: skip


def annotations(rows, image):
    dtype = [("bbox_x1", object), ("class", object), (image, object)]
    return np.array([(1, label, name) for name, label in rows], dtype=dtype)


def class_names():
    return np.array(NAMES, dtype=object)


@pytest.fixture
def devkit(tmp_path, write_image):
    base = tmp_path / "stanford_cars"
    (base / "devkit").mkdir(parents=True)
    savemat(base / "devkit" / "cars_meta.mat", {"class_names": class_names()})
    savemat(base / "devkit" / "cars_train_annos.mat", {"annotations": annotations(CARS["train"], "fname")})
    savemat(base / "cars_test_annos_withlabels.mat", {"annotations": annotations(CARS["test"], "fname")})
    for split, rows in CARS.items():
        for name, _ in rows:
            write_image(base / f"cars_{split}" / name, mode="L" if name == "00003.jpg" else "RGB")
    return base


@pytest.fixture
def archive(tmp_path, write_image):
    rows = [(f"car_ims/{i:06}.jpg", label) for i, (_, label) in enumerate(CARS["train"] + CARS["test"])]
    for name, _ in rows:
        write_image(tmp_path / "cars196" / name)
    content = {"annotations": annotations(rows, "relative_im_path"), "class_names": class_names()}
    savemat(tmp_path / "cars196" / "cars_annos.mat", content)
    return tmp_path / "cars196"


@pytest.fixture
def folders(tmp_path, write_image, write_text):
    base = tmp_path / "cars196"
    write_text(base / "names.csv", "\n".join(NAMES) + "\n")
    for split, rows in CARS.items():
        write_text(base / f"anno_{split}.csv", "".join(f"{name},1,2,3,4,{label}\n" for name, label in rows))
        for name, label in rows:
            write_image(base / "car_data" / "car_data" / split / NAMES[label - 1].replace("/", "-") / name)
    return base


def pairs(part):
    return sorted((str(path), part.class_names[label]) for path, label in zip(part.images, part.labels, strict=True))


def test_devkit_form_equals_torchvision(devkit):
    data = load_dataset("cars196", root=devkit.parent)
    theirs = [sample for split in CARS for sample in StanfordCars(devkit.parent, split=split)._samples]
    for part, chosen in ((data.train, range(98)), (data.query, range(98, 196))):
        assert pairs(part) == sorted((path, NAMES[label]) for path, label in theirs if label in chosen)


def test_folder_form_equals_pml(folders):
    data = load_dataset("cars196", root=folders.parent)
    for split, part in (("train", data.train), ("test", data.query)):
        theirs = Cars196(str(folders), split=split)
        assert pairs(part) == sorted((path, NAMES[n - 1]) for path, n in zip(theirs.paths, theirs.labels, strict=True))


@pytest.mark.parametrize("form", ["devkit", "archive", "folders"])
def test_the_first_98_models_train_whatever_the_authors_flag_says(form, request):
    data = load_dataset("cars196", root=request.getfixturevalue(form))
    assert [data.train.class_names[label] for label in data.train.labels] == ["Car 001", "Car 001", "Car 098"]
    assert sorted(data.query.class_names[label] for label in data.query.labels) == ["Car 099", "Car 196", NAMES[172]]
    assert data.train.labels.tolist() == [0, 0, 1]
    assert data.train.image(2).mode == "RGB"


def test_folders_without_names_go_by_their_own(folders):
    (folders / "names.csv").unlink()
    data = load_dataset("cars196", root=folders)
    assert data.train.num_classes == 2  # of five folders
    assert data.query.num_classes == 3


def test_an_unknown_folder_is_named(folders, write_image):
    write_image(folders / "car_data" / "car_data" / "test" / "Batmobile" / "1.jpg")
    with pytest.raises(ValueError, match=r"Batmobile is not in .*names\.csv"):
        load_dataset("cars196", root=folders)


def test_unlabelled_tests_are_named(devkit):
    (devkit / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(FileNotFoundError, match=r"cars_test_annos_withlabels\.mat is missing: .* no labels"):
        load_dataset("cars196", root=devkit)


def test_a_broken_mat_is_named(archive):
    (archive / "cars_annos.mat").write_bytes(b"not matlab")
    with pytest.raises(ValueError, match=r"cars_annos\.mat cannot be read as a \.mat file"):
        load_dataset("cars196", root=archive)


@pytest.mark.parametrize(
    ("content", "match"),
    [({"class_names": class_names()}, "has no `annotations`"),
     ({"annotations": annotations([("a.jpg", 1)], "name"), "class_names": class_names()}, "must have the fields"),
     ({"annotations": annotations([("../a.jpg", 1)], "relative_im_path"), "class_names": class_names()},
      "annotation 1: '../a.jpg' points outside"),],
)  # fmt: skip
def test_wrong_contents_are_named(archive, content, match):
    savemat(archive / "cars_annos.mat", content)
    with pytest.raises(ValueError, match=match):
        load_dataset("cars196", root=archive)


def test_a_missing_image_is_named(archive):
    (archive / "car_ims" / "000002.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"000002\.jpg is listed in .*cars_annos\.mat but missing"):
        load_dataset("cars196", root=archive)


def test_a_missing_tree_names_all_three_forms(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"(?s)missing  cars_annos\.mat.*devkit form.*one folder per class"):
        load_dataset("cars196", root=tmp_path)
