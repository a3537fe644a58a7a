import json
from pathlib import Path

import pytest

from adaptive_memory_bank.compare.columns import RECALL_1, STEP_TIME, columns_of
from adaptive_memory_bank.compare.comparison import Condition, read_comparison, show_memory


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
    assert {(section.task, section.column.title) for section in sections} == {
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
    assert [section.values(name, STEP_TIME, at=section.conditions[0])[0] for name in section.names] == [7.0, 20.0]


def test_an_unknown_task_is_named():
    with pytest.raises(ValueError, match="`task` must be one of retrieval, moco, got 'x'"):
        columns_of("x")
