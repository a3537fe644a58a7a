import pytest
from pytorch_metric_learning.datasets.cub import CUB

from adaptive_memory_bank.lab.data import load_dataset

IMAGES = {1: (1, "001.Albatross/a_1.jpg"), 2: (1, "001.Albatross/a_2.jpg"), 3: (100, "100.Pelican/p.jpg"),
          4: (101, "101.White/w.jpg"), 5: (200, "200.Yellow/y_1.jpg"), 6: (200, "200.Yellow/y_2.jpg")}  # fmt: skip


@pytest.fixture
def tree(tmp_path, write_image, write_text):
    base = tmp_path / "CUB_200_2011"
    write_text(base / "images.txt", "".join(f"{i} {path}\n" for i, (_, path) in IMAGES.items()))
    write_text(base / "image_class_labels.txt", "".join(f"{i} {label}\n" for i, (label, _) in IMAGES.items()))
    write_text(base / "classes.txt", "".join(f"{i} {i:03}.Bird\n" for i in range(1, 201)))
    for number, (_, path) in IMAGES.items():
        write_image(base / "images" / path, mode="L" if number == 3 else "RGB")
    return base


def test_equals_pml(tree):
    data = load_dataset("cub200", root=tree.parent)
    for split, part in (("train", data.train), ("test", data.query)):
        theirs = CUB(str(tree.parent), split=split)
        assert [str(path) for path in part.images] == theirs.paths
        assert [int(part.class_names[label][:3]) for label in part.labels] == theirs.labels


def test_the_first_half_of_the_classes_trains(tree):
    data = load_dataset("cub200", root=tree)
    assert data.train.labels.tolist() == [0, 0, 1]
    assert data.query.labels.tolist() == [2, 3, 3]
    assert data.ks == (1, 2, 4, 8)
    assert data.train.image(2).mode == "RGB"


def test_lists_are_joined_by_image_number_not_by_order(tree, write_text):
    lines = (tree / "image_class_labels.txt").read_text().splitlines(keepends=True)
    expected = load_dataset("cub200", root=tree).train.labels.tolist()
    write_text(tree / "image_class_labels.txt", "".join(reversed(lines)))
    assert load_dataset("cub200", root=tree).train.labels.tolist() == expected


def test_without_class_names_the_numbers_do(tree):
    (tree / "classes.txt").unlink()
    data = load_dataset("cub200", root=tree)
    assert data.train.class_names == ("1", "100", "101", "200")
    assert len(data.train) == 3


def test_an_image_without_label_is_named(tree, write_text):
    write_text(tree / "images.txt", (tree / "images.txt").read_text() + "7 200.Yellow/y_3.jpg\n")
    with pytest.raises(ValueError, match=r"images\.txt, line 7: image 7 has no line in image_class_labels\.txt"):
        load_dataset("cub200", root=tree)


def test_a_path_outside_is_refused(tree, write_text):
    write_text(tree / "images.txt", "1 ../images.txt\n")
    with pytest.raises(ValueError, match="points outside"):
        load_dataset("cub200", root=tree)


def test_a_missing_image_is_named(tree):
    (tree / "images" / "101.White" / "w.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"w\.jpg is listed in .*images\.txt but missing"):
        load_dataset("cub200", root=tree)


def test_a_missing_tree_says_what_is_expected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing  image_class_labels\.txt"):
        load_dataset("cub200", root=tmp_path)
