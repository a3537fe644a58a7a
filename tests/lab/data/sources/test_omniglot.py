import hashlib
import zipfile

import pytest
from torchvision.datasets import Omniglot

from adaptive_memory_bank.lab.data import load_dataset

CHARACTERS = {"images_background": ["Greek/character01", "Greek/character02", "Korean/character01"],
              "images_evaluation": ["Tengwar/character01", "Ge_ez/character05"]}  # fmt: skip


@pytest.fixture
def tree(tmp_path, write_image, monkeypatch):
    """torchvision's folder: the archives it checks and what it unpacks from them."""
    base, sums = tmp_path / "omniglot-py", {}
    for part, characters in CHARACTERS.items():
        for number, character in enumerate(characters):
            for writer in (1, 2):
                write_image(base / part / character / f"{number:04}_{writer:02}.png", 255, mode="1", size=(105, 105))
        with zipfile.ZipFile(base / f"{part}.zip", "w") as archive:
            archive.writestr("empty", "")
        sums[part] = hashlib.md5((base / f"{part}.zip").read_bytes()).hexdigest()
    monkeypatch.setattr(Omniglot, "zips_md5", sums)
    return base


def test_equals_torchvision(tree):
    data = load_dataset("omniglot", root=tree.parent)
    for background, part in ((True, data.train), (False, data.query)):
        theirs = Omniglot(tree.parent, background=background)
        names = {(image, theirs._characters[label]) for image, label in theirs._flat_character_images}
        ours = zip(part.images, part.labels, strict=True)
        assert {(path.name, part.class_names[label]) for path, label in ours} == names
        assert len(part) == len(theirs)


def test_characters_are_gray_and_unseen(tree):
    data = load_dataset("omniglot", root=tree.parent)
    assert data.gray
    assert data.train.image(0).mode == "L"
    assert not set(data.train.labels.tolist()) & set(data.query.labels.tolist())
    assert data.train.labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_resized_once_it_trains_from_memory(tree):
    data = load_dataset("omniglot", root=tree.parent).resized(28)
    assert data.train.pixels([0, 5]).shape == (2, 1, 28, 28)
    assert (data.train.images == 255).all()


def test_download_goes_through_torchvision(tree):
    """Everything is there already, so torchvision checks and downloads nothing."""
    for part in CHARACTERS:
        (tree / part / "kept").mkdir()
    assert len(load_dataset("omniglot", root=tree.parent, download=True).train) == 6


def test_a_missing_tree_says_how_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"(?s)missing  images_background.*download=True"):
        load_dataset("omniglot", root=tmp_path)


def test_an_empty_tree_is_named(tmp_path):
    for part in CHARACTERS:
        (tmp_path / "omniglot-py" / part).mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"images_background holds no <alphabet>/<character>/\*\.png"):
        load_dataset("omniglot", root=tmp_path)
