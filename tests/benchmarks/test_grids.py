"""The grids on real data ask for what the benchmarks' page says."""

from itertools import product
from pathlib import Path

import pytest

from adaptive_memory_bank.lab.compare.plan import plan_runs
from adaptive_memory_bank.lab.runs.variants import COMPARED

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RETRIEVAL = ("omniglot", "omniglot_batch_16", "omniglot_first_step", "omniglot_full_memory_first_step")


@pytest.fixture
def runs(parse):
    return lambda name: plan_runs(parse("--config", BENCHMARKS / f"{name}.yaml", "--data_root", "somewhere"))


MEMORIES = {"identity", "xbn", "ema", "axbn", "auto"}


@pytest.mark.parametrize(
    ("name", "batch_size", "others"),
    [("omniglot", 64, {"fresh"}), ("omniglot_batch_16", 16, set())],
)
def test_omniglot_compares_all_adapters_with_half_and_with_all_images_in_memory(name, batch_size, others, runs):
    found = [run for run in runs(name) if "," not in run.variant]
    wanted = {("none", None), *product(MEMORIES | others, (0.5, 1.0))}
    assert {(run.variant, run.memory) for run in found} == wanted
    assert len(found) == 3 * len(wanted)
    assert {(run.config.batch_size, run.config.model, run.config.image_size) for run in found} == {
        (batch_size, "conv4", 28)
    }


def test_omniglot_asks_whether_a_larger_batch_does_as_well(runs):
    larger = [run.config for run in runs("omniglot") if "," in run.variant]
    assert {(config.adapter, config.batch_size) for config in larger} == {("none", 128), ("none", 256)}


def test_the_first_grids_used_the_memory_from_the_first_step_and_the_new_ones_start_after_an_epoch(runs):
    start = {name: {run.config.memory_start for run in runs(name)} for name in RETRIEVAL}
    assert start == {name: {0.0 if name.endswith("first_step") else 1.0} for name in RETRIEVAL}


def test_birds_by_a_backbone_that_knows_imagenet(parse):
    words = ("--config", BENCHMARKS / "cub200.yaml", "--weights", "w.pth", "--data_root", "somewhere")
    found = plan_runs(parse(*words))
    adapters = {"identity", "xbn", "axbn", "auto", "fresh"}
    wanted = {("none", None), ("none, batch 128", None), *product(adapters, (0.5, 1.0))}
    assert {(run.variant, run.memory) for run in found} == wanted
    assert len(found) == 3 * len(wanted)
    assert {(run.variant, run.config.batch_size) for run in found if run.config.batch_size != 64} == {
        ("none, batch 128", 128)
    }
    for config in (run.config for run in found):
        assert (config.preset, config.weights, config.data) == ("photos", "w.pth", "cub200")
        assert (config.augmentation, config.freeze_batch_norm, config.mine) == ("crop", True, False)
        assert config.warmup_epochs < config.epochs


@pytest.mark.parametrize("name", [*RETRIEVAL, "cub200"])
def test_held_out_classes_choose_the_epoch(name, runs):
    assert {run.config.validation for run in runs(name)} == {0.1}


def test_the_omniglot_grids_differ_in_nothing_but_the_batch(runs):
    def config(name):
        return next(vars(r.config) for r in runs(name) if (r.variant, r.memory, r.config.seed) == ("xbn", 0.5, 0))

    large, small = config("omniglot"), config("omniglot_batch_16")
    assert {key for key in large if large[key] != small[key]} == {"batch_size", "run_name", "group"}


@pytest.mark.parametrize("name", ["omniglot", "omniglot_batch_16", "cub200", "cifar_moco"])
def test_more_seeds_differ_in_nothing_but_the_seed(name, runs):
    def trained(run):
        left_out = {"seed", "run_name", "group"}
        return run.variant, run.memory, {key: value for key, value in vars(run.config).items() if key not in left_out}

    once, more = runs(name), runs(f"{name}_more_seeds")
    assert {run.config.seed for run in more}.isdisjoint(run.config.seed for run in once)
    assert {run.variant for run in more} == {run.variant for run in once} & set(COMPARED)
    known = [trained(run) for run in once]
    assert all(trained(run) in known for run in more)


def test_moco_runs_on_both_cifars_for_15_epochs_and_more(runs):
    found = runs("cifar_moco")
    settings = [f"{data}{keys}" for data in ("CIFAR-10", "CIFAR-100") for keys in ("", ", momentum 0.9")]
    assert {(run.setting, run.variant) for run in found} == set(product(settings, ("identity", "xbn", "auto", "fresh")))
    assert {run.config.momentum for run in found} == {0.99, 0.9}
    assert not any(run.config.same_image_negatives for run in found)
    scored = {frozenset(range(r.config.eval_every, r.config.epochs + 1, r.config.eval_every)) for r in found}
    assert all({5, 10, 15} <= epochs for epochs in scored)
    assert len({run.config.seed for run in found}) == 3


@pytest.mark.parametrize("name", [*RETRIEVAL, "cifar_moco", "cifar_moco_same_image"])
def test_no_path_of_a_machine_is_in_a_run(name, runs):
    assert all(run.config.data.startswith("npz:") and "/" not in run.config.data for run in runs(name))
