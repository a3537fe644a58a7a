import numpy as np
import pytest
import torch

from adaptive_memory_bank.lab.data import load_dataset
from replicas import clothing as item
from replicas import write_photograph as write


@pytest.fixture
def tree(tmp_path):
    base = tmp_path / "deepfashion2"
    train, validation = base / "train", base / "validation"
    write(train, 1, "user", 1, item(1, 1, [0, 0, 16, 16]), item(8, 0, [0, 16, 16, 32]))
    write(train, 2, "shop", 1, item(1, 1, [2, 2, 20, 20]), item(1, 2, [0, 24, 8, 40]))
    write(validation, 1, "user", 1, item(1, 1, [0, 0, 16, 24]), item(2, 0, [0, 24, 8, 40]))
    write(validation, 2, "shop", 1, item(1, 1, [4, 4, 20, 20]), item(2, 1, [0, 24, 8, 40]))
    write(validation, 3, "shop", 7, item(1, 0, [0, 0, 8, 8]), item(1, 0, [8, 8, 16, 16]))
    write(validation, 4, "user", 2, item(1, 1, [0, 0, 16, 24]))
    return base


def test_identity_is_pair_category_and_style(tree):
    data = load_dataset("deepfashion2", root=tree.parent)
    names = [data.train.class_names[label] for label in data.train.labels]
    assert names == ["train 1/1/1", "train 1/1/1", "train 1/1/2"]
    assert [data.query.class_names[label] for label in data.query.labels] == ["validation 1/1/1", "validation 2/1/1"]


def test_equal_numbers_in_two_splits_are_different_identities(tree):
    data = load_dataset("deepfashion2", root=tree)
    assert not set(data.train.labels.tolist()) & set(data.query.labels.tolist())


def test_users_ask_and_the_shop_is_searched(tree):
    data = load_dataset("deepfashion2", root=tree)
    assert [path.name for path in data.query.images] == ["000001.jpg", "000004.jpg"]
    assert [path.name for path in data.gallery.images] == ["000002.jpg", "000002.jpg", "000003.jpg", "000003.jpg"]
    positives = data.query.labels[:, None] == data.gallery.labels
    assert positives.tolist() == [[True, False, False, False], [False] * 4]


def test_style_0_is_never_a_positive(tree):
    data = load_dataset("deepfashion2", root=tree)
    distractors = data.gallery.labels[2:]
    assert not torch.isin(distractors, data.query.labels).any()
    assert not torch.isin(distractors, data.train.labels).any()


def test_items_are_cropped_to_their_boxes(tree):
    data = load_dataset("deepfashion2", root=tree)
    assert data.train.boxes.tolist() == [[0, 0, 16, 16], [2, 2, 20, 20], [0, 24, 8, 40]]
    image = data.train.image(2)
    assert image.size == (8, 16)
    assert abs(float(np.asarray(image).mean()) - 120) < 3  # the second item's gray


def test_items_are_counted_and_not_images(tree):
    """Of 2 training images 4 items, 1 of style 0; of 2 consumers' images 3, 1 of style 0; of 2 shops' images all 4."""
    data = load_dataset("deepfashion2", root=tree)
    assert (len(data.train), len(data.query), len(data.gallery)) == (3, 2, 4)
    # Both items of style 0 in the gallery go by one name, beside two identities.
    assert (data.train.num_classes, data.query.num_classes, data.gallery.num_classes) == (2, 2, 3)


def test_an_identity_that_only_shops_show_trains(tree):
    """Its items are positives of each other, though no consumer wears them."""
    write(tree / "train", 3, "shop", 5, item(1, 1, [0, 0, 16, 16]), item(1, 1, [8, 8, 16, 16]))
    assert len(load_dataset("deepfashion2", root=tree).train) == 5


def test_an_empty_box_keeps_one_pixel(tree):
    write(tree / "train", 3, "user", 9, item(1, 1, [5, 5, 5, 5]))
    assert load_dataset("deepfashion2", root=tree).train.image(3).size == (1, 1)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", r"000009\.json is not a DeepFashion2 annotation"),
        ('{"pair_id": 1}', r"000009\.json .* no 'source'"),
        ('{"source": "web", "pair_id": 1}', "source is 'web'"),
        ('{"source": "user", "pair_id": 1, "item1": {"style": 1}}', "no 'category_id'"),
        ('{"source": "user", "pair_id": 1, "item1": {"style": 1, "category_id": 1, "bounding_box": [9, 9, 1, 1]}}',
         r"bounding_box \[9, 9, 1, 1\] is not x1, y1, x2, y2"),
        ('{"source": "user", "pair_id": 1, "item1": {"style": 1, "category_id": 1, "bounding_box": [9, 9]}}', "000009"),
    ],
)  # fmt: skip
def test_bad_annotations_are_named(tree, text, match):
    (tree / "train" / "annos" / "000009.json").write_text(text)
    with pytest.raises(ValueError, match=match):
        load_dataset("deepfashion2", root=tree)


def test_missing_images_are_named(tree):
    (tree / "validation" / "image" / "000003.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"000003\.jpg is listed in .*annos but missing"):
        load_dataset("deepfashion2", root=tree)


def test_empty_annotations_are_named(tree):
    for path in (tree / "train" / "annos").iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"annos holds no \*\.json"):
        load_dataset("deepfashion2", root=tree)


def test_a_missing_tree_says_what_is_expected(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing  validation/annos"):
        load_dataset("deepfashion2", root=tmp_path)
