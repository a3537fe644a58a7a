"""Options that nobody gave follow the data; those that were given are met or refused."""

import json

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given as drawn
from hypothesis import strategies as st
from PIL import Image

from adaptive_memory_bank.lab.commands.main import main
from adaptive_memory_bank.lab.compare.config import CompareConfig
from adaptive_memory_bank.lab.compare.plan import plan_runs
from adaptive_memory_bank.lab.compare.pool import make_job
from adaptive_memory_bank.lab.compare.worker import run_job
from adaptive_memory_bank.lab.data import Part, RetrievalData, load_dataset
from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.training.fitting import (
    describe_fit,
    fit_batch,
    fit_held_out,
    fit_image_size,
    fit_memory,
    fit_moco_batch,
)
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from adaptive_memory_bank.lab.training.tasks import TASKS


def part(classes, images, side=8):
    labels = torch.arange(classes).repeat_interleave(images)
    names = tuple(map(str, range(classes)))
    return Part(np.zeros((len(labels), side, side, 3), np.uint8), labels, class_names=names)


def dataset(classes, images, side=8, usual=224):
    train = part(classes, images, side)
    return RetrievalData("x", train, train, None, (1,), gray=False, image_size=usual)


@pytest.fixture
def folder(tmp_path):
    """15 classes x 30 images of 20 x 24 pixels to train on, 15 others to test on."""
    generator = np.random.default_rng(0)
    for number in range(30):
        place = tmp_path / "images" / ("train" if number < 15 else "test") / f"class {number:02}"
        place.mkdir(parents=True)
        for image in range(30 if number < 15 else 3):
            pixels = generator.integers(0, 60, (24, 20, 3)) + 6 * number
            Image.fromarray(pixels.astype(np.uint8)).save(place / f"{image}.png")
    return tmp_path / "images"


def test_a_folder_of_15_classes_trains_with_every_default_and_says_what_was_fitted(folder, tmp_path, capsys):
    out = tmp_path / "runs"
    words = ["--data", f"folder:{folder}", "--out", str(out), "--wandb", "disabled", "--threads=1"]
    assert main(["retrieval", *words, "--epochs=1", "--memory_start=0"]) == 0
    # Two classes are held out. 64 images of 13 classes: 8 classes x 8 images is the widest that divides it.
    line = "images: 390 images of 13 classes to train on, 20 px; batch 64 = 8 classes x 8 images, for 16 x 4 needs more"
    assert line in capsys.readouterr().err
    run = out / "retrieval-images-auto-s0"
    written = yaml.safe_load((run / "config.yaml").read_text())
    assert (written["image_size"], written["batch_size"], written["images_per_class"]) == (20, 64, 8)
    assert line in json.loads((run / "result.json").read_text())["told"]


@pytest.mark.parametrize("task", TASKS)
def test_digits_train_with_every_default(task, tmp_path, capsys):
    words = ["--data", "digits", "--out", str(tmp_path), "--wandb", "disabled", "--threads=1"]
    assert main([task, *words, "--epochs=1", *(["--memory_start=0"] if task == "retrieval" else [])]) == 0
    assert "8 px" in capsys.readouterr().err


def test_a_comparison_resumes_a_run_whose_batch_was_fitted(folder, tmp_path):
    """A comparison's own batch of 16 takes 4 classes; where there are 3 x 6 images it is 12, and the run keeps that."""
    for number, place in enumerate(sorted((folder / "train").iterdir())):
        for image in sorted(place.iterdir())[6 if number < 3 else 0 :]:
            image.unlink()
    options = {"data": f"folder:{folder}", "wandb": "disabled", "epochs": 1, "memory_start": 0.0, "quiet": True}
    (planned,) = plan_runs(CompareConfig(adapters=["xbn"], seeds=[0], options=options, out=str(tmp_path / "runs")))
    assert run_job(make_job(planned)) == {"status": "complete", "error": None}
    assert yaml.safe_load((planned.folder / "config.yaml").read_text())["batch_size"] == 12
    result = json.loads((planned.folder / "result.json").read_text())
    (planned.folder / "result.json").write_text(json.dumps({**result, "status": "interrupted"}))
    again = make_job(planned)
    assert again["config"]["resume"] == str(planned.folder)
    assert run_job(again) == {"status": "complete", "error": None}


def test_what_was_given_and_cannot_be_met_is_refused_with_numbers_that_work(folder, tmp_path, capsys):
    words = ["retrieval", "--data", f"folder:{folder}", "--out", str(tmp_path / "runs"), "--wandb=disabled"]
    assert main([*words, "--batch_size=64", "--images_per_class=4"]) == 2  # the defaults, but asked for
    assert capsys.readouterr().err == (
        "error: `batch_size` must ask for no more classes than the 13 there are to train on, got 64 (16 classes a "
        "step). `--batch_size 52` or `--images_per_class 8` would work.\n"
    )
    assert not (tmp_path / "runs").exists()
    train = part(13, 30)
    for works in ({"batch_size": 52}, {"images_per_class": 8}):
        config = make_config(RetrievalConfig, **works)
        assert fit_batch(config, train, ("batch_size", "images_per_class")) == config


@pytest.mark.parametrize(
    ("classes", "images", "given", "expected"),
    [
        (16, 30, (), (64, 4)),  # as usual
        (13, 30, (), (64, 8)),  # 8 classes x 8
        (5, 30, (), (20, 4)),  # 4 x 16 would be more than half of a class: 5 x 4
        (5, 30, ("batch_size",), (64, 16)),
        (13, 30, ("images_per_class",), (52, 4)),  # 13 x 4
        (3, 4, (), (12, 4)),
    ],
)
def test_fewer_classes_with_more_images_each_or_else_a_smaller_batch(classes, images, given, expected):
    config = fit_batch(make_config(RetrievalConfig), part(classes, images), given)
    assert (config.batch_size, config.images_per_class) == expected


@drawn(st.integers(2, 30), st.integers(2, 40), st.sampled_from([8, 16, 64, 256]), st.sampled_from([2, 4, 8]))
def test_a_fitted_batch_can_always_be_drawn(classes, images, batch, each):
    config = fit_batch(make_config(RetrievalConfig, batch_size=batch, images_per_class=each), part(classes, images), ())
    assert config.batch_size % config.images_per_class == 0
    assert 2 <= config.batch_size // config.images_per_class <= classes or config.batch_size == batch
    assert config.batch_size <= batch


def test_classes_too_few_for_the_processes_are_refused():
    config = make_config(RetrievalConfig, devices=4)
    with pytest.raises(ValueError, match="`devices` must leave every process 2 classes a step, but there are 7"):
        fit_batch(config, part(7, 30), ())


def test_images_are_never_enlarged_unless_that_is_asked_for():
    def side(data, given=(), **options):
        return fit_image_size(make_config(RetrievalConfig, **options), data, given).image_size

    assert side(dataset(2, 2, side=64)) == 64
    assert side(dataset(2, 2, side=300)) == 224
    assert side(dataset(2, 2, side=64), preset="photos") == 64  # that of the preset is 96
    assert side(dataset(2, 2, side=128), preset="photos") == 96
    assert side(dataset(2, 2, side=64), ("image_size",), image_size=96) == 96
    wide = dataset(16, 4, side=64)
    asked = make_config(RetrievalConfig, image_size=96)
    assert "96 px; enlarged from 64 px" in describe_fit(asked, asked, wide, wide.train)


def test_the_native_side_is_the_median_of_files_and_boxes(tmp_path):
    paths = []
    for number, size in enumerate([(30, 40), (50, 32), (90, 80)]):
        paths.append(tmp_path / f"{number}.png")
        Image.new("RGB", size).save(paths[-1])
    labels = torch.zeros(3, dtype=torch.int64)
    assert Part(tuple(paths), labels, class_names=("a",)).native_side() == 32  # of 30, 32 and 80
    boxes = torch.tensor([[0, 0, 10, 20], [5, 5, 25, 11], [0, 0, 7, 7]])  # 10, 6 and 7
    assert Part(tuple(paths), labels, boxes, class_names=("a",)).native_side() == 7
    paths[0].write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"0\.png cannot be decoded"):
        Part(tuple(paths), labels, class_names=("a",)).native_side()


def test_a_share_of_a_small_set_still_holds_a_batch():
    config = make_config(RetrievalConfig)
    assert fit_memory(config, 1000, ()) == config
    assert fit_memory(config, 100, ()).memory == 64
    assert fit_memory(config, 100, ("memory",)) == config


def test_nothing_is_held_out_of_three_classes():
    config, data = make_config(RetrievalConfig), dataset(3, 9)
    fitted = fit_held_out(config, data, ())
    assert fitted.validation == 0
    assert fit_held_out(config, data, ("validation",)) == config
    assert "too few classes to hold any out" in describe_fit(config, fitted, data, data.train)


def test_mocos_batch_has_no_more_images_than_there_are():
    config = make_config(MocoConfig)  # groups of 4
    assert fit_moco_batch(config, 50, ()).batch_size == 48
    assert fit_moco_batch(config, 50, ("batch_size",)) == config
    data = dataset(5, 10)
    assert "batch 48 instead of 64" in describe_fit(config, fit_moco_batch(config, 50, ()), data, data.train)


def test_moco_refuses_classes_that_no_training_image_has(tmp_path, capsys):
    assert main(["moco", "--data", "glyphs", "--out", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert "must have the same classes for training and for testing, which glyphs has not" in said
    assert "Use `amb retrieval`" in said
    digits = load_dataset("digits")
    assert set(digits.train.labels.tolist()) == set(digits.query.labels.tolist())
