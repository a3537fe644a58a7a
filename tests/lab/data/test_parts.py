import numpy as np
import pytest
import torch
from PIL import Image

from adaptive_memory_bank.lab.data.parts import Part, RetrievalData


def gray_part(count=6, side=8, **options):
    images = np.random.default_rng(0).integers(0, 256, (count, side, side), dtype=np.uint8)
    return Part(images, torch.arange(count) % 2, class_names=("a", "b"), **options)


def test_array_images_come_back_pixel_by_pixel():
    part = gray_part()
    assert np.array_equal(np.asarray(part.image(3)), part.images[3])
    assert torch.equal(part.pixels([3])[0, 0], torch.from_numpy(part.images[3]))


def test_gray_arrays_become_rgb_on_request():
    part = gray_part(gray=False)
    assert part.image(0).mode == "RGB"
    assert part.pixels([0, 1]).shape == (2, 3, 8, 8)
    assert np.array_equal(np.asarray(part.image(1))[..., 2], part.images[1])


def test_colour_pixels_are_channels_first():
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    part = Part(images, torch.zeros(2, dtype=torch.int64), class_names=("a",))
    assert not part.gray
    assert torch.equal(part.pixels([1])[0, 2], torch.from_numpy(images[1, :, :, 2]))


def test_subset_keeps_labels_boxes_and_names():
    boxes = torch.arange(24).view(6, 4)
    part = gray_part(boxes=boxes).subset([4, 1])
    assert part.labels.tolist() == [0, 1]
    assert torch.equal(part.boxes, boxes[[4, 1]])
    assert part.class_names == ("a", "b")
    assert part.num_classes == 2


def test_subset_of_files(tmp_path, write_image):
    paths = tuple(write_image(tmp_path / f"{i}.png", 10 * i) for i in range(3))
    part = Part(paths, torch.zeros(3, dtype=torch.int64), class_names=("a",)).subset(torch.tensor([2, 0]))
    assert part.images == (paths[2], paths[0])
    assert not part.in_memory


def test_box_crops_x1_y1_x2_y2():
    image = np.zeros((1, 10, 12), np.uint8)
    image[0, 2:5, 3:9] = 7
    part = Part(image, torch.tensor([0]), torch.tensor([[3, 2, 9, 5]]), ("a",))
    cropped = np.asarray(part.image(0))
    assert cropped.shape == (3, 6)
    assert (cropped == 7).all()


def test_box_is_clipped_to_the_image_and_refused_outside():
    image = np.zeros((1, 10, 12), np.uint8)
    assert Part(image, torch.tensor([0]), torch.tensor([[-4, 5, 30, 40]]), ("a",)).image(0).size == (12, 5)
    with pytest.raises(ValueError, match=r"12 x 10: its box \[20, 0, 30, 5\] lies outside"):
        Part(image, torch.tensor([0]), torch.tensor([[20, 0, 30, 5]]), ("a",)).image(0)


def test_resized_array_equals_pillow_image_by_image():
    part = gray_part(count=3, side=40)
    small = part.resized(10)
    for index in range(3):
        pillow = np.asarray(part.image(index).resize((10, 10), Image.Resampling.BILINEAR), dtype=int)
        assert np.abs(pillow - small.images[index]).max() <= 1  # both round, not always alike


def test_resized_colour_array_keeps_channels():
    images = np.zeros((2, 8, 8, 3), np.uint8)
    images[..., 1] = 200
    small = Part(images, torch.zeros(2, dtype=torch.int64), class_names=("a",)).resized(4)
    assert small.images.shape == (2, 4, 4, 3)
    assert (small.images == [0, 200, 0]).all()


def test_resized_to_its_own_size_is_itself():
    part = gray_part()
    assert part.resized(8) is part


def test_resized_files_are_cropped_and_squeezed(tmp_path, write_image):
    path = write_image(tmp_path / "a.png", 90, size=(30, 20))
    part = Part((path,), torch.tensor([0]), torch.tensor([[0, 0, 15, 20]]), ("a",)).resized(6)
    assert part.in_memory
    assert part.boxes is None
    assert (part.images == 90).all()
    assert part.images.shape == (1, 6, 6, 3)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"images": np.zeros((2, 4, 4))}, TypeError, "`images` must be uint8, got float64"),
        ({"images": np.zeros((2, 4, 4, 4), np.uint8)}, ValueError, r"\(N, H, W\) or \(N, H, W, 3\)"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, ValueError, r"int64 of shape \(2,\), got"),
        ({"labels": torch.zeros(2)}, ValueError, "must be int64"),
        ({"labels": torch.tensor([0, 1])}, ValueError, r"must lie in 0 \.\.\. 0"),
        ({"boxes": torch.zeros(2, 3)}, ValueError, r"`boxes` must have shape \(2, 4\)"),
    ],
)
def test_refuses(change, error, match):
    good = {"images": np.zeros((2, 4, 4), np.uint8), "labels": torch.zeros(2, dtype=torch.int64), "class_names": ("a",)}
    Part(**good)
    with pytest.raises(error, match=match):
        Part(**{**good, **change})


def test_pixels_of_files_point_to_resized(tmp_path, write_image):
    part = Part((write_image(tmp_path / "a.png"),), torch.tensor([0]), class_names=("a",))
    with pytest.raises(ValueError, match=r"call `resized\(side\)` first"):
        part.pixels([0])


def test_resized_refuses_a_side_below_one():
    with pytest.raises(ValueError, match="`side` must be a positive integer, got 0"):
        gray_part().resized(0)


def test_data_knows_whether_classes_are_shared_and_resizes_all_parts():
    part = gray_part()
    even, odd = part.subset([0, 2, 4]), part.subset([1, 3, 5])
    data = RetrievalData("x", even, odd, odd, (1,), True, 8)
    small = data.resized(4)
    assert {p.images.shape for p in (small.train, small.query, small.gallery)} == {(3, 4, 4)}
    assert small.image_size == 4


def test_prepared_loads_gray_files_but_leaves_photographs_as_files(tmp_path, write_image):
    path = write_image(tmp_path / "a.png", size=(30, 20))
    for gray in (True, False):
        part = Part((path,), torch.tensor([0]), class_names=("a",), gray=gray)
        data = RetrievalData("x", part, part, None, (1,), gray, 64).prepared(8)
        assert data.train.in_memory == gray
        assert data.image_size == 8


def test_prepared_makes_oblong_arrays_square():
    part = Part(np.zeros((2, 8, 6), np.uint8), torch.tensor([0, 0]), class_names=("a",))
    assert RetrievalData("x", part, part, None, (1,), True, 8).prepared(8).query.images.shape == (2, 8, 8)


def test_prepared_does_not_blow_up_small_images_beyond_memory():
    pixels = np.broadcast_to(np.uint8(0), (20_000, 4, 4, 3))
    part = Part(pixels, torch.zeros(20_000, dtype=torch.int64), class_names=("a",))
    data = RetrievalData("x", part, part.subset([0]), None, (1,), False, 4).prepared(224)
    assert data.train.images.shape == (20_000, 4, 4, 3)
    assert data.image_size == 224
