import json
from pathlib import Path

import pytest

from adaptive_memory_bank.lab.compare.comparison import Condition, headline_of, show_memory
from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.runs.metrics import BY_NAME, RECALL_1


def only_section(*folders: Path):
    (section,) = read_comparison(folders).sections
    return section


def test_a_run_without_memory_belongs_to_every_memory_size_of_its_batch_size(tmp_path, write_run):
    write_run(tmp_path, "none", batch_size=16)
    for memory in (256, 512):
        write_run(tmp_path, "xbn", batch_size=16, memory_size=memory)
    section = only_section(tmp_path)
    assert section.conditions == [Condition(16, 256), Condition(16, 512)]
    assert [len(section.of("none", at)) for at in section.conditions] == [1, 1]
    assert section.baseline == "none"


def test_batch_sizes_without_any_memory_are_conditions_of_their_own(tmp_path, write_run):
    write_run(tmp_path, "none", batch_size=64)
    write_run(tmp_path, "xbn", batch_size=16)
    assert only_section(tmp_path).conditions == [Condition(16, 512), Condition(64, None)]


def write_plan(folder, places):
    plan = {"runs": {name: {"setting": "glyphs", "seed": 0, **place} for name, place in places.items()}}
    (folder / "compare.json").write_text(json.dumps(plan))


@pytest.fixture
def larger_batch(tmp_path, write_run):
    """A grid of two batch sizes and two memory sizes, and one run without memory with a batch size of its own."""
    places = {}
    for batch in (16, 64):
        none = write_run(tmp_path, "none", batch_size=batch)
        places[none.name] = {"variant": "none", "batch_size": batch, "memory": None}
        for memory in (0.5, 1.0):
            run = write_run(tmp_path, "identity", batch_size=batch, memory_size=int(2700 * memory))
            places[run.name] = {"variant": "identity", "batch_size": batch, "memory": memory}
    large = write_run(tmp_path, "none", batch_size=128)
    places[large.name] = {"variant": "none, batch 128", "batch_size": None, "memory": None}
    write_plan(tmp_path, places)
    return tmp_path


def test_a_run_with_a_batch_size_of_its_own_belongs_to_every_condition_of_the_grid(larger_batch):
    section = only_section(larger_batch)
    assert section.conditions == [Condition(16, 0.5), Condition(16, 1.0), Condition(64, 0.5), Condition(64, 1.0)]
    assert [len(section.of("none, batch 128", at)) for at in section.conditions] == [1, 1, 1, 1]
    assert [len(section.of("none", at)) for at in section.conditions] == [1, 1, 1, 1]


def test_a_larger_batch_is_neither_the_baseline_nor_an_adapter(larger_batch):
    section = only_section(larger_batch)
    assert (section.baseline, section.reference, section.adapters) == ("none", "identity", ())
    assert set(section.without_memory) == {"none", "none, batch 128"}


def test_without_a_grid_a_larger_batch_does_not_hide_the_batch_size_of_the_others(tmp_path, write_run):
    places = {}
    for name, adapter, batch in (("none, batch 128", "none", 128), ("none", "none", 16), ("xbn", "xbn", 16)):
        run = write_run(tmp_path, adapter, batch_size=batch)
        places[run.name] = {"variant": name, "batch_size": None, "memory": None}
    write_plan(tmp_path, places)
    section = only_section(tmp_path)
    (at,) = section.conditions
    assert section.describe(at) == "batch 16, memory 512 rows, 5 epochs"
    assert section.baseline == "none"


def test_next_to_a_grid_the_runs_of_a_folder_without_one_stand_at_their_own_sizes(larger_batch, tmp_path, write_run):
    run = write_run(tmp_path / "alone", "xbn", batch_size=16, memory_size=512)
    write_plan(tmp_path / "alone", {run.name: {"variant": "xbn", "batch_size": None, "memory": None}})
    section = only_section(larger_batch, tmp_path / "alone")
    assert [at for at in section.conditions if section.of("xbn", at)] == [Condition(16, 512)]


def test_a_fresh_memory_stands_last_and_is_no_adapter(tmp_path, write_run):
    for adapter in ("fresh", "xbn", "identity", "none"):
        write_run(tmp_path, adapter, name="a ceiling" if adapter == "fresh" else None)
    section = only_section(tmp_path)
    assert section.names == ("none", "identity", "xbn", "a ceiling")
    assert (section.ceilings, section.adapters, section.plain) == (("a ceiling",), ("xbn",), "identity")


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ([{"memory_start": 1.5, "warmup_epochs": 2}, {"memory_start": 1.5, "warmup_epochs": 2}], 3.5),
        ([{"memory_start": 1}, {"memory_start": 2}], None),
        ([{"memory_start": 0.0, "warmup_epochs": 0}, {}], None),
        ([{"warmup_epochs": 2}, {"memory_start": 2.0}], 2),
    ],
)
def test_the_memory_starts_where_all_runs_with_memory_say_so(tmp_path, write_run, options, start):
    write_run(tmp_path, "none", options={"memory_start": 9})
    for adapter, option in zip(("xbn", "ema"), options, strict=True):
        write_run(tmp_path, adapter, options=option)
    section = only_section(tmp_path)
    assert section.memory_start(section.conditions[0]) == start


def test_the_chosen_epoch_counts_and_the_last_one_is_there_too(tmp_path, write_run):
    write_run(tmp_path, "xbn", metrics={"val/recall@1": 0.5}, best={"best/recall@1": 0.6})
    section = only_section(tmp_path)
    (at,) = section.conditions
    assert section.values("xbn", RECALL_1, at=at) == {0: 0.6}
    assert section.values("xbn", RECALL_1, at=at, pick="last") == {0: 0.5}


def test_runs_that_are_not_complete_have_no_values(tmp_path, write_run):
    write_run(tmp_path, "xbn", seed=0)
    write_run(tmp_path, "xbn", seed=1, status="failed")
    section = only_section(tmp_path)
    assert list(section.values("xbn", RECALL_1, at=section.conditions[0])) == [0]


def test_names_come_in_the_usual_order_and_plain_memory_is_the_reference(tmp_path, write_run):
    for adapter in ("auto", "xbm", "none", "xbn"):
        write_run(tmp_path, adapter)
    section = only_section(tmp_path)
    assert section.names == ("none", "xbm", "xbn", "auto")
    assert section.reference == "xbm"


def test_a_plan_names_orders_and_selects(tmp_path, write_run):
    star = write_run(tmp_path, "identity", run="star")
    plain = write_run(tmp_path, "identity", run="plain", batch_size=32)
    write_run(tmp_path, "xbn", run="from an earlier comparison")
    place = {"setting": "SOP", "batch_size": 16, "memory": None, "seed": 0}
    plan = {
        "title": "Main table", "command": "amb compare", "variants": ["XBM", "XBM*"], "reference": "XBM",
        "published": {"SOP": {"XBM": 76.8}},
        "runs": {star.name: {**place, "variant": "XBM*"}, plain.name: {**place, "variant": "XBM"}},
    }  # fmt: skip
    (tmp_path / "compare.json").write_text(json.dumps(plan))
    comparison = read_comparison([tmp_path])
    (section,) = comparison.sections
    assert (comparison.title, comparison.command) == ("Main table", "amb compare")
    assert (section.title, section.names, section.reference) == ("SOP", ("XBM", "XBM*"), "XBM")
    assert section.conditions == [Condition(16, None)]  # the grid's batch size, not the one the variant sets
    assert section.published == {"XBM": 76.8}


def test_folders_add_up_when_their_runs_differ(tmp_path, write_run):
    write_run(tmp_path / "a", "xbn", seed=0)
    write_run(tmp_path / "b", "xbn", seed=1)
    section = only_section(tmp_path / "a", tmp_path / "b")
    assert [run.seed for run in section.runs] == [0, 1]


def test_folders_with_the_same_runs_are_kept_apart(tmp_path, write_run):
    for name in ("a", "b"):
        write_run(tmp_path / name, "xbn", seed=0)
    sections = read_comparison([tmp_path / "a", tmp_path / "b"]).sections
    assert [section.title for section in sections] == ["glyphs (a)", "glyphs (b)"]


def test_runs_of_one_folder_that_claim_the_same_place_get_their_folders_name(tmp_path, write_run):
    write_run(tmp_path, "xbn", run="slow")
    write_run(tmp_path, "xbn", run="fast")
    assert set(only_section(tmp_path).names) == {"xbn (slow)", "xbn (fast)"}


def test_the_folder_of_a_single_run_is_enough(tmp_path, write_run):
    assert only_section(write_run(tmp_path, "xbn")).names == ("xbn",)


def test_tasks_are_sections_of_their_own(tmp_path, write_run):
    write_run(tmp_path, "xbn")
    write_run(tmp_path, "ema", task="moco", data="digits", score=0.9)
    sections = read_comparison([tmp_path]).sections
    assert {(section.task, section.headline.label) for section in sections} == {
        ("retrieval", "Recall@1"),
        ("moco", "kNN"),
    }


def test_bad_folders_are_named(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        read_comparison([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="holds no results"):
        read_comparison([tmp_path])
    with pytest.raises(ValueError, match="at least one folder"):
        read_comparison([])


def test_memory_sizes_read_as_share_or_rows():
    assert [show_memory(m) for m in (0.5, 1.0, 1, 4096, 4096.0)] == [
        "50 %",
        "100 %",
        "1 rows",
        "4,096 rows",
        "4,096 rows",
    ]
    assert str(Condition(64, 0.125)) == "batch 64, memory 12.5 %"


def test_step_time_is_read_from_either_name(tmp_path, write_run):
    write_run(tmp_path, "xbn", seconds_per_step=None, metrics={"time/step_ms": 7.0})
    write_run(tmp_path, "ema", seconds_per_step=0.02)
    section = only_section(tmp_path)
    assert [section.values(name, BY_NAME["time/step_ms"], at=section.conditions[0])[0] for name in section.names] == [
        7.0,
        20.0,
    ]


def test_training_time_is_that_of_all_steps_and_absent_where_nobody_counted(tmp_path, write_run):
    write_run(tmp_path, "xbn", train_seconds=41.7, seconds=60.0)
    write_run(tmp_path, "ema", train_seconds=None, seconds=60.0)
    section = only_section(tmp_path)
    assert section.values("xbn", BY_NAME["train_seconds"], at=section.conditions[0]) == {0: 41.7}
    assert section.values("ema", BY_NAME["train_seconds"], at=section.conditions[0]) == {}
    assert BY_NAME["train_seconds"].show(41.7) == "42"


def test_an_unknown_task_is_named():
    with pytest.raises(ValueError, match="`task` must be one of retrieval, moco, got 'x'"):
        headline_of("x")


def test_a_single_epoch_can_be_asked_for(tmp_path, write_run):
    run = write_run(tmp_path, "xbn", seed=3)
    lines = [{"epoch": epoch, "step": 10, "val/recall@1": score} for epoch, score in enumerate((0.1, 0.2))]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    section = only_section(tmp_path)
    (at,) = section.conditions
    assert section.values("xbn", RECALL_1, at=at, pick="epoch 2") == {3: 0.2}
    assert section.values("xbn", RECALL_1, at=at, pick="epoch 3") == {}
