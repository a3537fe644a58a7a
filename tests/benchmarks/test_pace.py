"""The hours that CUB-200-2011 will take are the images of its runs times the measured cost of an image."""

import cub200_pace as pace
import pytest

from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig

COST = {"crop": 1.0, "open": 2.0, "forward": 10.0, "train": 100.0}
SIZES = {"train": 640, "evaluated": 50}


def seconds(**options):
    return pace.run_seconds(make_config(RetrievalConfig, batch_size=64, **options), COST, **SIZES)


def test_a_warm_up_epoch_is_forward_alone_and_the_others_train():
    # 640 images x (3 crops + 1 forward + 2 trained) + 3 evaluations of 50 x (2 + 10)
    assert seconds(adapter="auto", epochs=3, warmup_epochs=1) == 640 * (3 + 10 + 200) + 3 * 50 * 12


def test_evaluations_are_as_rare_as_the_run_has_them():
    assert seconds(adapter="none", epochs=3, eval_every=2) == 640 * 303 + 2 * 50 * 12


def test_a_fresh_memory_is_embedded_again_every_few_steps_that_use_it():
    # 10 steps an epoch; the memory is used in the last 2 of 3 epochs: 20 steps, a refresh of 320 rows every 5
    extra = seconds(adapter="fresh", epochs=3, memory=0.5, memory_start=1.0, fresh_every=5)
    assert extra - seconds(adapter="auto", epochs=3) == 4 * 320 * 11


def test_the_plan_counts_every_run_of_the_grid_and_every_trial():
    images = {"train": 100, "test": 100, "trial_train": 75, "trial_held_out": 25}
    found = {"images": images, "seconds_per_image": {"96": COST}}
    *_, line = pace.show_plan(found).splitlines()
    assert line.startswith("| 96 | 1000.0 | 2000.0 | 10000.0 | 100000.0 | ")
    # 3 seeds x (none, batch 128, 4 adapters and fresh), and again with the other memory for all but the first two
    assert [f"({count} runs)" in line for count in (len(pace.TRIALS), 3 * 7, 3 * 12)] == [True] * 3
    assert sum(pace.grid_seconds(found, 96)) > sum(pace.grid_seconds(found, 96, "--memories", 0.5))


@pytest.mark.parametrize("side", [64, 96])
def test_an_image_size_that_was_not_measured_is_not_guessed(side):
    found = {"images": {"train": 1, "test": 1}, "seconds_per_image": {"80": COST}}
    with pytest.raises(KeyError):
        pace.grid_seconds(found, side)
