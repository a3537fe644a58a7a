import pytest

from adaptive_memory_bank.lab.data import load_dataset

# The authors align columns with runs of spaces, and leave some at the ends of lines.
ROWS = (
    "img/WOMEN/Dresses/id_00000002/02_1_front.jpg                            id_00000002    train               \n"
    "img/WOMEN/Dresses/id_00000002/02_2_side.jpg\tid_00000002 train\n"
    "img/MEN/Denim/id_00000080/01_1_front.jpg                                id_00000080    query               \n"
    "img/MEN/Denim/id_00000080/01_2_side.jpg                                 id_00000080    gallery\n"
    "img/MEN/Denim/id_00000081/01_1_front.jpg                                id_00000081    gallery  \n"
    "\n"
)
HEAD = "5\nimage_name   item_id  evaluation_status   \n"


def build(base, write_image, write_text, listed="Eval/list_eval_partition.txt", images=""):
    write_text(base / listed, HEAD + ROWS)
    for line in ROWS.strip().splitlines():
        write_image(base / images / line.split()[0], mode="CMYK" if "side" in line else "RGB")
    return base


@pytest.fixture
def tree(tmp_path, write_image, write_text):
    return build(tmp_path / "inshop", write_image, write_text)


def test_splits_into_train_query_gallery(tree):
    data = load_dataset("inshop", root=tree.parent)
    assert [len(part) for part in (data.train, data.query, data.gallery)] == [2, 1, 2]
    assert data.train.labels.tolist() == [0, 0]
    assert data.query.labels.tolist() == [1]
    assert data.gallery.labels.tolist() == [1, 2]
    assert data.gallery.class_names == ("id_00000002", "id_00000080", "id_00000081")
    assert data.query.images[0] == tree / "img/MEN/Denim/id_00000080/01_1_front.jpg"
    assert data.ks[0] == 1


def test_cmyk_jpegs_become_rgb(tree):
    assert load_dataset("inshop", root=tree).train.image(1).mode == "RGB"


@pytest.mark.parametrize(
    ("listed", "images"), [("list_eval_partition.txt", ""), ("Eval/list_eval_partition.txt", "Img")]
)
def test_other_places_of_list_and_images(tmp_path, write_image, write_text, listed, images):
    build(tmp_path, write_image, write_text, listed, images)
    assert len(load_dataset("inshop", root=tmp_path).gallery) == 2


def test_a_cut_off_list_is_noticed(tree, write_text):
    path = tree / "Eval/list_eval_partition.txt"
    write_text(path, HEAD.replace("5", "52712") + ROWS)
    with pytest.raises(ValueError, match="line 1: promises 52712 images, but 5 follow"):
        load_dataset("inshop", root=tree)


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ("img/a.jpg id_1 test\n", r"list_eval_partition\.txt, line 3: expected train, query or gallery, got 'test'"),
        ("img/a.jpg id_1\n", "line 3: expected 3 columns, got 2"),
        ("img/../../a.jpg id_1 train\n", "line 3: .* points outside"),
    ],
)
def test_bad_lines_are_named(tree, write_text, row, match):
    write_text(tree / "Eval/list_eval_partition.txt", HEAD + row + ROWS)
    with pytest.raises(ValueError, match=match):
        load_dataset("inshop", root=tree)


def test_a_missing_count_is_named(tree, write_text):
    write_text(tree / "Eval/list_eval_partition.txt", "image_name item_id evaluation_status\n\n" + ROWS)
    with pytest.raises(ValueError, match="line 1: expected an integer"):
        load_dataset("inshop", root=tree)


def test_a_missing_tree_says_what_is_expected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing  Eval/list_eval_partition\.txt"):
        load_dataset("inshop", root=tmp_path)
