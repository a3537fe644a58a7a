import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets.folder import pil_loader

from adaptive_memory_bank.lab.data.parts import Part
from adaptive_memory_bank.lab.data.pixels import fit_square


def part_of(*paths, gray=False):
    return Part(tuple(paths), torch.zeros(len(paths), dtype=torch.int64), class_names=("a",), gray=gray)


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("L", "jpg"), ("CMYK", "jpg"), ("RGB", "jpg"), ("P", "png"), ("P", "gif"), ("RGBA", "png"), ("LA", "png"),
     ("1", "png"), ("I;16", "png"), ("CMYK", "tif")],
)  # fmt: skip
@pytest.mark.parametrize("gray", [False, True])
def test_every_mode_becomes_rgb_or_gray(tmp_path, mode, suffix, gray):
    path = tmp_path / f"image.{suffix}"
    deep = Image.fromarray(np.full((7, 9), 65535, np.uint16))
    picture = deep if mode == "I;16" else Image.new("L", (9, 7), 255).convert(mode)
    picture.save(path)
    image = part_of(path, gray=gray).image(0)
    assert image.mode == ("L" if gray else "RGB")
    assert image.size == (9, 7)
    assert np.asarray(image).min() >= 253  # white stays white (JPEG is lossy)


def test_transparency_is_laid_on_white(tmp_path):
    path = tmp_path / "cut-out.png"
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(path)
    assert (np.asarray(part_of(path).image(0)) == 255).all()


def test_transparent_palette_is_laid_on_white(tmp_path):
    path = tmp_path / "palette.png"
    picture = Image.new("P", (4, 4), 0)
    picture.putpalette([0, 0, 0, 10, 20, 30])
    picture.putpixel((1, 1), 1)
    picture.save(path, transparency=0)
    pixels = np.asarray(part_of(path).image(0))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[1, 1].tolist() == [10, 20, 30]


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpegs_equal_torchvisions_loader_even_where_exif_says_turn(tmp_path, mode):
    path = tmp_path / "phone.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    noise = np.random.default_rng(0).integers(0, 256, (10, 20, 3), dtype=np.uint8)
    Image.fromarray(noise).convert(mode).save(path, exif=exif)
    assert np.array_equal(np.asarray(part_of(path).image(0)), np.asarray(pil_loader(str(path))))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.jpg is listed but missing"):
        part_of(tmp_path / "gone.jpg").image(0)


@pytest.mark.parametrize("content", [b"", b"no image at all", b"\x89PNG\r\n\x1a\n rest"])
def test_a_file_that_is_no_image_is_named(tmp_path, content):
    path = tmp_path / "broken.jpg"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.jpg cannot be decoded"):
        part_of(path).image(0)


def test_a_truncated_image_is_named(tmp_path):
    path = tmp_path / "half.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"half\.png cannot be decoded"):
        part_of(path).image(0)


def test_fit_square_takes_the_middle():
    pixels = np.zeros((10, 30), np.uint8)
    pixels[:, 10:20] = 255
    assert (np.asarray(fit_square(Image.fromarray(pixels), 10, 1.0)) == 255).all()
    assert fit_square(Image.new("RGB", (300, 400)), 224, 0.875).size == (224, 224)
