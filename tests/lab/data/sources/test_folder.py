import pytest
from torchvision.datasets import ImageFolder

from adaptive_memory_bank.lab.data import load_dataset


@pytest.fixture
def tree(tmp_path, write_image):
    for name, mode in (("ant/1.jpg", "L"), ("ant/2.PNG", "RGBA"), ("bee/deep/3.gif", "P"), ("cat/4.jpg", "CMYK")):
        write_image(tmp_path / name, mode=mode)
    (tmp_path / "ant" / "notes.txt").write_text("no image")
    (tmp_path / ".cache").mkdir()
    return tmp_path


def test_one_tree_is_split_by_class(tree):
    data = load_dataset(f"folder:{tree}")
    assert [path.name for path in data.train.images] == ["1.jpg", "2.PNG", "3.gif"]
    assert [path.name for path in data.query.images] == ["4.jpg"]
    assert data.train.class_names == ("ant", "bee", "cat")
    assert not set(data.train.labels.tolist()) & set(data.query.labels.tolist())


def test_every_mode_becomes_rgb(tree):
    data = load_dataset(f"folder:{tree}")
    assert {data.train.image(i).mode for i in range(3)} | {data.query.image(0).mode} == {"RGB"}


def test_train_and_test_equal_torchvisions_image_folder(tmp_path, write_image):
    for name in ("train/a/1.jpg", "train/b/2.jpg", "train/b/3.jpg", "test/a/4.jpg", "test/b/5.jpg"):
        write_image(tmp_path / name)
    data = load_dataset(f"folder:{tmp_path}")
    for name, part in (("train", data.train), ("test", data.query)):
        theirs = ImageFolder(tmp_path / name)
        assert [(str(p), int(label)) for p, label in zip(part.images, part.labels, strict=True)] == theirs.samples
    assert set(data.train.labels.tolist()) & set(data.query.labels.tolist())


def test_test_may_hold_other_classes(tmp_path, write_image):
    for name in ("train/z/1.jpg", "test/a/4.jpg"):
        write_image(tmp_path / name)
    data = load_dataset(f"folder:{tmp_path}")
    assert data.train.labels.tolist() == [0]  # training classes come first
    assert not set(data.train.labels.tolist()) & set(data.query.labels.tolist())


def test_a_missing_folder_says_what_is_expected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone not found\. Expected `train/<class>/\*`"):
        load_dataset(f"folder:{tmp_path / 'gone'}")


def test_train_without_test_is_refused(tmp_path, write_image):
    write_image(tmp_path / "train" / "a" / "1.jpg")
    with pytest.raises(FileNotFoundError, match="test not found"):
        load_dataset(f"folder:{tmp_path}")


def test_one_class_cannot_be_split(tmp_path, write_image):
    write_image(tmp_path / "a" / "1.jpg")
    with pytest.raises(ValueError, match="has no images to test"):
        load_dataset(f"folder:{tmp_path}")


def test_an_empty_tree_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no images to train"):
        load_dataset(f"folder:{tmp_path}")
