import json
import re

import pytest

from adaptive_memory_bank.lab.compare.config import CompareConfig, Setting, Variant
from adaptive_memory_bank.lab.compare.plan import plan_runs, write_plan
from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.training.tasks import TASKS


def test_the_default_is_four_adapters_on_glyphs_with_three_seeds():
    runs = plan_runs(CompareConfig())
    assert [run.variant for run in runs] == 3 * ["none", "identity", "xbn", "auto"]
    assert [run.config.seed for run in runs] == 4 * [0] + 4 * [1] + 4 * [2]
    assert {run.config.data for run in runs} == {"glyphs"}
    assert {run.config.epochs for run in runs} == {TASKS["retrieval"].quick["epochs"]}


def groups(out, **options):
    return {run.config.group for run in plan_runs(CompareConfig(out=str(out), **options))}


def test_a_group_on_wandb_is_data_task_and_the_plan_wherever_the_folder_is(tmp_path):
    (group,) = groups(tmp_path / "runs")
    assert re.fullmatch(r"glyphs-retrieval-[0-9a-f]{6}", group)
    assert groups(tmp_path / "moved") == {group}
    assert groups(tmp_path / "runs", options={"group": "mine"}) == {"mine"}
    others = [groups(tmp_path / "runs", **other) for other in ({"seeds": [0]}, {"options": {"lr": 0.5}})]
    assert group not in others[0] | others[1]
    assert others[0] != others[1]
    (archive,) = groups(tmp_path / "runs", data="npz:/data/birds.npz", task="moco")
    assert archive.startswith("birds-moco-")


def test_a_comparison_that_is_extended_or_moved_keeps_its_group_and_another_in_the_same_folder_does_not(tmp_path):
    config = CompareConfig(out=str(tmp_path / "a"), seeds=[0])
    write_plan(config, plan_runs(config), command="")
    (group,) = groups(tmp_path / "a", seeds=[0])
    assert groups(tmp_path / "a", seeds=[0, 1]) == {group} != groups(tmp_path / "b", seeds=[0, 1])
    (tmp_path / "a").rename(tmp_path / "c")
    assert groups(tmp_path / "c", seeds=[0, 1]) == {group}
    assert group not in groups(tmp_path / "c", seeds=[0], options={"lr": 0.5})
    (tmp_path / "c" / "compare.json").write_text("{")  # damaged: about to be written anew
    assert groups(tmp_path / "c", seeds=[0]) == {group}


def test_moco_is_on_digits_unless_told_otherwise():
    assert {(run.config.task, run.config.data) for run in plan_runs(CompareConfig(task="moco"))} == {("moco", "digits")}


def test_the_grid_is_every_combination_and_no_memory_is_one_run_for_all_memory_sizes():
    config = CompareConfig(adapters=["none", "xbn"], seeds=[0], batch_sizes=[16, 64], memories=[0.5, 1.0])
    found = [(run.variant, run.batch_size, run.memory) for run in plan_runs(config)]
    assert sorted(found, key=str) == [
        ("none", 16, None), ("none", 64, None),
        ("xbn", 16, 0.5), ("xbn", 16, 1.0), ("xbn", 64, 0.5), ("xbn", 64, 1.0),
    ]  # fmt: skip


def test_a_larger_batch_without_memory_is_trained_once_a_seed_however_large_the_grid():
    config = CompareConfig(
        adapters=["none", "xbn"], seeds=[0, 1], batch_sizes=[16, 64], memories=[0.5, 1.0], none_batch_sizes=[128]
    )
    (first, second) = (run for run in plan_runs(config) if run.variant == "none, batch 128")
    assert (first.config.adapter, first.config.batch_size, first.config.seed, second.config.seed) == ("none", 128, 0, 1)
    assert (first.batch_size, first.memory) == (None, None)
    assert first.name.startswith("glyphs-none-batch-128-s0-")


def test_a_variant_with_sizes_of_its_own_does_not_depend_on_the_grid():
    config = CompareConfig(
        variants=[
            Variant("large", {"adapter": "xbn", "batch_size": 128}),
            Variant("full", {"adapter": "xbn", "memory": 1}),
        ],
        seeds=[0],
        batch_sizes=[16, 64],
        memories=[0.25, 0.5],
    )
    found = [
        (run.variant, run.batch_size, run.memory, run.config.batch_size, run.config.memory) for run in plan_runs(config)
    ]
    assert sorted(found, key=str) == [
        ("full", 16, None, 16, 1), ("full", 64, None, 64, 1),
        ("large", None, 0.25, 128, 0.25), ("large", None, 0.5, 128, 0.5),
    ]  # fmt: skip


def test_the_nearer_option_wins():
    config = CompareConfig(
        seeds=[0],
        options={"epochs": 1, "lr": 0.1, "memory": 64},
        settings=[Setting("A", {"epochs": 2, "data": "digits"}, variants={"star": {"lr": 0.5}})],
        variants=[Variant("plain", {"adapter": "identity"}), Variant("star", {"adapter": "identity", "epochs": 3})],
        batch_sizes=[8],
    )
    plain, star = plan_runs(config)
    assert (plain.config.epochs, plain.config.lr, plain.config.batch_size, plain.config.memory) == (2, 0.1, 8, 64)
    assert (star.config.epochs, star.config.lr, star.config.data) == (3, 0.5, "digits")
    assert (star.setting, star.variant, star.config.name) == ("A", "star", "star")


def test_a_preset_is_taken_as_it_is():
    (run,) = plan_runs(CompareConfig(adapters=["xbn"], seeds=[0], options={"preset": "paper", "pretrained": False}))
    assert (run.config.epochs, run.config.batch_size, run.config.model) == (50, 64, "resnet50")


def test_a_folder_belongs_to_its_options():
    def names(**options):
        return {run.name for run in plan_runs(CompareConfig(adapters=["xbn"], seeds=[0], **options))}

    plain = names()
    assert plain == names(jobs=3, title="x", options={"quiet": True, "num_workers": 2, "wandb": "disabled"})
    assert not plain & names(options={"lr": 0.5})
    assert not plain & names(options={"adapter_options": {}, "epochs": 9})


def test_names_are_safe_in_paths_and_tell_files_apart():
    variant = Variant("../XBM* <b>", {"adapter": "identity"})
    (run,) = plan_runs(CompareConfig(variants=[variant], data="npz:/some/where/birds.npz", seeds=[3]))
    assert "/" not in run.name
    assert run.name.startswith("birds-")
    assert not run.name.startswith(".")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"options": {"epoch": 3}}, "glyphs, none: .*epoch.* is not accepted"),
        ({"options": {"epochs": "three"}}, "glyphs, none: (.|\n)*epochs(.|\n)*three"),
        ({"options": {"epochs": 0}}, "glyphs, none: `epochs` must be a positive integer, got 0"),
        ({"options": {"seed": 0}}, "a comparison sets `seed` itself"),
        ({"options": {"preset": "huge"}}, "`preset` must be one of small, photos, paper, got 'huge'"),
        ({"adapters": ["xbnn"]}, "glyphs, xbnn: (.|\n)*xbnn"),
        ({"batch_sizes": [30]}, "`batch_size` must be divisible by `images_per_class`"),
        ({"variants": [Variant("a", {"adapter": "ema", "adapter_options": {"q": 1}})]}, "glyphs, a: .*adapter_options"),
    ],
)
def test_bad_options_are_named_before_anything_runs(options, message):
    with pytest.raises(ValueError, match=message):
        plan_runs(CompareConfig(**options))


def test_the_plan_is_what_tables_are_sorted_by(tmp_path, write_run):
    config = CompareConfig(
        out=str(tmp_path), seeds=[0], title="Main table", reference="XBM",
        variants=[Variant("no, 512", {"adapter": "none", "batch_size": 512}), Variant("XBM", {"adapter": "xbm"})],
        settings=[Setting("SOP", {"data": "glyphs"}, published={"XBM": 76.8})],
    )  # fmt: skip
    planned = plan_runs(config)
    write_plan(config, planned, command="amb compare")
    for run in planned:
        write_run(tmp_path, run.config.adapter, run=run.name, batch_size=run.config.batch_size)
    comparison = read_comparison([tmp_path])
    (section,) = comparison.sections
    assert (comparison.title, section.title, section.reference) == ("Main table", "SOP", "XBM")
    assert section.names == ("no, 512", "XBM")
    assert len(section.conditions) == 1  # no grid: batch 512 stands beside batch 16
    assert json.loads((tmp_path / "compare.json").read_text())["published"] == {"SOP": {"XBM": 76.8}}
