import pytest
from pytorch_metric_learning.datasets.sop import StanfordOnlineProducts

from adaptive_memory_bank.lab.data import load_dataset

HEAD = "image_id class_id super_class_id path\n"
TRAIN = "1 1 1 bicycle_final/111085122871_0.JPG\n2 1 1 bicycle_final/111085122871_1.JPG\n3 2 1 bicycle_final/a_0.JPG\n"
TEST = "4 11319 3 chair_final/b_0.JPG\n5 11319 3 chair_final/b_1.JPG\n"


@pytest.fixture
def tree(tmp_path, write_image, write_text):
    base = tmp_path / "Stanford_Online_Products"
    write_text(base / "Ebay_train.txt", HEAD + TRAIN)
    write_text(base / "Ebay_test.txt", HEAD + TEST)
    for number, line in enumerate((TRAIN + TEST).splitlines()):
        write_image(base / line.split()[3], 40 * number, mode="L" if number == 1 else "RGB")
    return base


def test_equals_pml(tree):
    data = load_dataset("sop", root=tree.parent)
    for split, part in (("train", data.train), ("test", data.query)):
        theirs = StanfordOnlineProducts(str(tree.parent), split=split)
        assert [str(path) for path in part.images] == theirs.paths
        assert [int(part.class_names[label]) for label in part.labels] == theirs.labels


def test_is_retrieval_of_unseen_classes(tree):
    data = load_dataset("sop", root=tree.parent)
    assert data.gallery is None
    assert not set(data.train.labels.tolist()) & set(data.query.labels.tolist())
    assert data.ks == (1, 10, 100, 1000)
    assert data.train.labels.tolist() == [0, 0, 1]
    assert data.query.labels.tolist() == [2, 2]


def test_the_folder_itself_is_a_root_too(tree):
    assert len(load_dataset("sop", root=tree).train) == 3


def test_gray_jpegs_become_rgb(tree):
    assert load_dataset("sop", root=tree).train.image(1).mode == "RGB"


def test_a_missing_tree_says_what_where_and_how(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load_dataset("sop", root=tmp_path)
    message = str(caught.value)
    assert f"Expected this tree in {tmp_path / 'Stanford_Online_Products'}" in message
    assert "missing  Ebay_train.txt" in message
    assert "https://cvgl.stanford.edu" in message


def test_half_a_tree_says_which_half(tree):
    (tree / "Ebay_test.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"ok\s+Ebay_train.txt\n\s+missing\s+Ebay_test.txt"):
        load_dataset("sop", root=tree.parent)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("6 3 1\n", r"Ebay_train\.txt, line 5: expected 4 columns, got 3"),
        ("6 three 1 bicycle_final/a_0.JPG\n", r"Ebay_train\.txt, line 5: expected an integer, got 'three'"),
        ("6 3 1 ../../etc/passwd\n", r"line 5: '\.\./\.\./etc/passwd' points outside of"),
        ("6 3 1 /etc/passwd\n", r"line 5: '/etc/passwd' points outside of"),
        ("6 3 1 a\\..\\..\\b.jpg\n", "line 5: .* points outside of"),
    ],
)
def test_bad_lines_are_named(tree, write_text, line, match):
    write_text(tree / "Ebay_train.txt", HEAD + TRAIN + line)
    with pytest.raises(ValueError, match=match):
        load_dataset("sop", root=tree)


def test_missing_images_are_named_when_indexing(tree):
    (tree / "bicycle_final" / "a_0.JPG").unlink()
    with pytest.raises(FileNotFoundError, match=r"a_0\.JPG is listed in .*Ebay_train\.txt but missing"):
        load_dataset("sop", root=tree)


def test_many_missing_images_are_counted(tree):
    for path in (tree / "chair_final").iterdir():
        path.unlink()
    (tree / "chair_final").rmdir()
    with pytest.raises(FileNotFoundError, match=r"b_0\.JPG \(and 1 more\) is listed"):
        load_dataset("sop", root=tree)
