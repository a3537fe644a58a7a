"""A resumed run keeps everything of the run it continues, but for what cannot change its numbers."""

import dataclasses

import pytest

from adaptive_memory_bank.lab.runs.config import make_config, save_config
from adaptive_memory_bank.lab.runs.files import DamagedFileError
from adaptive_memory_bank.lab.runs.resuming import load_config, load_whole_config, resumed_config
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig

SAVED = make_config(
    RetrievalConfig, "paper", lr=0.5, devices=2, data_root="/there", wandb="disabled", project="mine", entity="me",
    group="compare-cmp1", num_workers=3,
)  # fmt: skip


def test_all_options_of_the_run_apply():
    call = make_config(RetrievalConfig, resume="x", out="elsewhere", run_name="y")
    assert resumed_config(call, SAVED) == dataclasses.replace(SAVED, resume="x")
    assert resumed_config(call, SAVED, given=["resume", "out", "run_name"]) == dataclasses.replace(SAVED, resume="x")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data_root", "/here"), ("wandb", "auto"), ("project", "adaptive-memory-bank"), ("entity", None),
        ("num_workers", 0), ("quiet", True), ("group", "other"), ("accelerator", "cpu"),
    ],
)  # fmt: skip
def test_what_cannot_change_the_numbers_can_be_told_otherwise_also_to_be_the_default(name, value):
    call = make_config(RetrievalConfig, resume="x", **{name: value})
    assert getattr(resumed_config(call, SAVED, given=["resume", name]), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("devices", 1), ("num_nodes", 2), ("precision", "32-true"), ("lr", 1e-3), ("batch_size", 32),
        ("preset", "small"), ("seed", 1), ("eval_every", 2),
    ],
)  # fmt: skip
def test_what_changes_the_numbers_is_refused_naming_both_also_where_it_is_the_default(name, value):
    call = make_config(RetrievalConfig, resume="x", **{name: value})
    expected = f"`{name}` is {getattr(SAVED, name)!r} in the run to resume, got {value!r}"
    with pytest.raises(ValueError, match=expected):
        resumed_config(call, SAVED, given=["resume", name])


def test_from_python_options_that_differ_from_their_preset_count_as_asked_for():
    with pytest.raises(ValueError, match="`devices` is 2 in the run to resume, got 4"):
        resumed_config(make_config(RetrievalConfig, resume="x", devices=4), SAVED)


@pytest.fixture
def config_file(tmp_path):
    save_config(SAVED, tmp_path / "config.yaml")
    return tmp_path / "config.yaml"


def test_a_whole_file_is_the_run(config_file):
    assert load_whole_config(RetrievalConfig, config_file) == SAVED


def test_a_file_cut_anywhere_is_refused(config_file):
    text = config_file.read_bytes()
    for length in (0, 1, 7, 16, 400, 700, 900, *range(len(text) - 40, len(text))):
        config_file.write_bytes(text[:length])
        with pytest.raises(ValueError, match=r"config\.yaml (is damaged|does not fit)"):
            load_whole_config(RetrievalConfig, config_file)


def test_half_a_file_names_what_is_missing_and_what_to_do(config_file):
    lines = config_file.read_text().splitlines(keepends=True)
    config_file.write_text("".join(lines[:-2]))
    with pytest.raises(DamagedFileError, match=r"cut short, it lacks augmentation, validation\. Add .* or delete"):
        load_whole_config(RetrievalConfig, config_file)
    assert load_config(RetrievalConfig, config_file).lr == 0.5  # a finished run of an older version can be scored


@pytest.mark.parametrize("line", ["epochs: many", "epochs: [1]", "adapter: 3", "lr: .nan", "tags: {a: 1}"])
def test_a_value_that_its_option_does_not_take_is_named(line, config_file):
    name = line.partition(":")[0]
    config_file.write_text(config_file.read_text() + line + "\n")
    with pytest.raises(DamagedFileError, match=rf"config\.yaml is damaged: .*{name}.*Delete .* and start the run anew"):
        load_config(RetrievalConfig, config_file)
