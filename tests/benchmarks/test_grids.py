"""The grids on real data ask for what the benchmarks' page says."""

from itertools import product
from pathlib import Path

import pytest

from adaptive_memory_bank.lab.compare.plan import plan_runs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def runs(parse):
    return lambda name: plan_runs(parse("--config", BENCHMARKS / f"{name}.yaml", "--data_root", "somewhere"))


def test_omniglot_compares_all_adapters_at_two_batch_sizes(runs):
    found = runs("omniglot")
    assert len(found) == 6 * 2 * 3
    assert {run.variant for run in found} == {"none", "identity", "xbn", "ema", "axbn", "auto"}
    assert {(run.config.batch_size, run.config.model, run.config.image_size) for run in found} == {
        (16, "conv4", 28),
        (64, "conv4", 28),
    }
    assert {run.memory for run in found} == {0.5, None}


def test_omniglot_with_all_images_in_memory(runs):
    found = runs("omniglot_full_memory")
    assert {run.variant for run in found} == {"none", "identity", "xbn", "auto"}
    assert {(run.config.batch_size, run.memory) for run in found} == {(64, 1.0), (64, None)}
    assert len({run.config.seed for run in found}) >= 3


def test_birds_by_a_backbone_that_knows_imagenet(parse):
    words = ("--config", BENCHMARKS / "cub200.yaml", "--weights", "w.pth", "--data_root", "somewhere")
    found = plan_runs(parse(*words))
    adapters = {"identity", "xbn", "axbn", "auto", "fresh"}
    wanted = {("none", None), *product(adapters, (0.5, 1.0))}
    assert {(run.variant, run.memory) for run in found} == wanted
    assert len(found) == 3 * len(wanted)
    for config in (run.config for run in found):
        assert (config.preset, config.weights, config.data, config.batch_size) == ("photos", "w.pth", "cub200", 64)
        assert (config.augmentation, config.freeze_batch_norm, config.mine) == ("crop", True, False)
        assert config.warmup_epochs < config.epochs


@pytest.mark.parametrize("name", ["omniglot", "omniglot_full_memory", "cub200"])
def test_held_out_classes_choose_the_epoch(name, runs):
    assert {run.config.validation for run in runs(name)} == {0.1}


def test_both_omniglot_grids_differ_in_nothing_but_the_memory(runs):
    def config(name):
        return next(vars(r.config) for r in runs(name) if (r.variant, r.batch_size, r.config.seed) == ("xbn", 64, 0))

    half, full = config("omniglot"), config("omniglot_full_memory")
    assert {key for key in half if half[key] != full[key]} == {"memory", "run_name"}


def test_moco_runs_on_both_cifars_for_15_epochs_and_more(runs):
    found = runs("cifar_moco")
    assert {(run.setting, run.variant) for run in found} == {
        (setting, variant) for setting in ("CIFAR-10", "CIFAR-100") for variant in ("identity", "xbn", "auto")
    }
    assert all(run.config.epochs >= 15 and run.config.eval_every == 1 for run in found)
    assert len({run.config.seed for run in found}) == 2


@pytest.mark.parametrize("name", ["omniglot", "omniglot_full_memory", "cifar_moco"])
def test_no_path_of_a_machine_is_in_a_run(name, runs):
    assert all(run.config.data.startswith("npz:") and "/" not in run.config.data for run in runs(name))
