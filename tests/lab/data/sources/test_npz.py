import numpy as np
import pytest

from adaptive_memory_bank.lab.data import load_dataset

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 9, 9), dtype=np.uint8)


def content(**changes):
    labels = np.array([[3], [3], [7], [7], [5], [5]])  # MedMNIST keeps an axis
    return {"train_images": PIXELS, "train_labels": labels, "test_images": PIXELS[:2], "test_labels": np.array([5, 3]),
            **changes}  # fmt: skip


def load(tmp_path, **changes):
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, **content(**changes))
    return load_dataset(f"npz:{path}")


def test_shared_labels_make_a_classification_set(tmp_path):
    data = load(tmp_path)
    assert set(data.train.labels.tolist()) & set(data.query.labels.tolist())
    assert data.train.labels.tolist() == [0, 0, 2, 2, 1, 1]
    assert data.query.labels.tolist() == [1, 0]
    assert data.train.class_names == ("3", "5", "7")
    assert data.gray
    assert data.image_size == 9
    assert np.array_equal(data.train.images, PIXELS)


def test_other_labels_make_retrieval_of_unseen_classes(tmp_path):
    data = load(tmp_path, test_labels=np.array([100, 101], np.uint8))
    assert not set(data.train.labels.tolist()) & set(data.query.labels.tolist())
    assert data.query.labels.tolist() == [3, 4]


def test_colour_class_names_and_validation_images(tmp_path):
    colour = np.repeat(PIXELS[..., None], 3, axis=3)
    names = np.array([f"name {i}" for i in range(8)])
    data = load(tmp_path, train_images=colour, test_images=colour[:2], class_names=names, val_images=PIXELS)
    assert data.train.class_names == ("name 3", "name 5", "name 7")
    assert not data.gray
    assert data.train.image(0).mode == "RGB"


def test_one_channel_is_gray(tmp_path):
    assert load(tmp_path, train_images=PIXELS[..., None]).train.images.shape == (6, 9, 9)


def test_a_relative_path_counts_from_the_root(tmp_path):
    np.savez(tmp_path / "mine.npz", **content())
    assert len(load_dataset("npz:mine.npz", root=tmp_path).train) == 6


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"train_images": PIXELS.astype(np.float32)}, r"train_images of .*mine\.npz: `images` must be uint8"),
        ({"test_images": np.zeros((2, 4, 4, 4), np.uint8)}, r"test_images of .*\(N, H, W\)"),
        ({"test_images": PIXELS}, "must be as many as their labels and at least one, got 6 and 2"),
        ({"train_labels": np.zeros((6, 14), int)}, r"train_labels of .* integers of shape \(N,\) or \(N, 1\)"),
        ({"train_labels": np.zeros(6)}, "train_labels of .* must be integers"),
        ({"test_images": np.zeros((2, 9, 9, 3), np.uint8)}, "both be gray or both be colour"),
        ({"train_labels": np.array([None] * 6)}, "`train_labels` of .* holds pickled objects, which are not read"),
    ],
)
def test_wrong_contents_are_named(tmp_path, changes, match):
    with pytest.raises(ValueError, match=match):
        load(tmp_path, **changes)


def test_missing_arrays_are_named(tmp_path):
    np.savez(tmp_path / "half.npz", train_images=PIXELS)
    with pytest.raises(ValueError, match="missing: train_labels, test_images, test_labels"):
        load_dataset(f"npz:{tmp_path / 'half.npz'}")


@pytest.mark.parametrize("garbage", [b"garbage", b"", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_npz_is_named(tmp_path, garbage):
    (tmp_path / "bad.npz").write_bytes(garbage)
    with pytest.raises(ValueError, match=r"bad\.npz"):
        load_dataset(f"npz:{tmp_path / 'bad.npz'}")


def test_a_plain_array_is_refused(tmp_path):
    np.save(tmp_path / "array.npy", PIXELS)
    with pytest.raises(ValueError, match=r"array\.npy is not a readable \.npz"):
        load_dataset(f"npz:{tmp_path / 'array.npy'}")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.npz not found\. `npz:PATH` expects"):
        load_dataset(f"npz:{tmp_path / 'gone.npz'}")


def test_a_damaged_array_is_named(tmp_path):
    np.savez(tmp_path / "torn.npz", **content())
    raw = bytearray((tmp_path / "torn.npz").read_bytes())
    raw[raw.find(PIXELS.tobytes())] ^= 255  # the checksum notices
    (tmp_path / "torn.npz").write_bytes(raw)
    with pytest.raises(ValueError, match=r"`train_images` of .*torn\.npz is broken"):
        load_dataset(f"npz:{tmp_path / 'torn.npz'}")
