import shlex
from functools import partial

import pytest
import yaml

from adaptive_memory_bank.lab.commands.compare import to_compare_config
from adaptive_memory_bank.lab.commands.main import main, make_parser
from adaptive_memory_bank.lab.commands.words import find_value, normalized
from adaptive_memory_bank.lab.compare.config import CompareConfig, Setting, Variant


def parse(text):
    words = normalized(["compare", *shlex.split(text)])
    return to_compare_config(make_parser(words).parse_args(words).compare)


def test_no_options_mean_the_defaults():
    assert parse("") == CompareConfig()


def test_lists_take_several_words():
    config = parse("--adapters none xbn --seeds 0 1 2 --batch-sizes 16 64 --memories 0.5 1 --jobs 3 --out x")
    assert (config.adapters, config.seeds, config.batch_sizes) == (["none", "xbn"], [0, 1, 2], [16, 64])
    assert (config.memories, config.jobs, config.out) == ([0.5, 1.0], 3, "x")
    assert parse("--none-batch-sizes 128 256").none_batch_sizes == [128, 256]


@pytest.mark.parametrize(
    "text",
    ["--adapters none xbn --seeds 0 1", "--adapters none,xbn --seeds 0,1", "--adapters=none,xbn --seeds [0, 1]",
     "--adapters none, xbn --seeds=0,1"],
)  # fmt: skip
def test_lists_take_commas_and_spaces(text):
    config = parse(f"{text} --memories 0.5,1 --jitter 0.1 0.2,0.3 0.4 --tags a,b --task moco")
    assert (config.adapters, config.seeds, config.memories) == (["none", "xbn"], [0, 1], [0.5, 1.0])
    assert config.options == {"jitter": (0.1, 0.2, 0.3, 0.4), "tags": ["a", "b"]}
    assert parse("--tags 2024 x --data folder:a,b").options == {"tags": ["2024", "x"]}


def test_every_other_option_goes_to_the_trainer():
    config = parse("--epochs 3 --lr 0.1 --batch-weight 1 --adapter-options.momentum 0.5 --quiet --wandb disabled")
    assert config.options == {
        "epochs": 3, "lr": 0.1, "batch_weight": 1.0, "adapter_options": {"momentum": 0.5}, "quiet": True,
        "wandb": "disabled",
    }  # fmt: skip
    assert parse("--task moco --knn-k 5 --preset lightly").options == {"knn_k": 5, "preset": "lightly"}


def test_a_file_says_everything_the_command_line_can_and_more(tmp_path):
    content = {
        "task": "retrieval", "title": "Main table", "preset": "paper", "seeds": [0, 1, 2], "reference": "XBM",
        "pretrained": False, "options": {"lr": 0.5},
        "variants": [{"name": n, "options": {"adapter": a}} for n, a in (("XBM", "identity"), ("none", "none"))],
        "settings": [{"name": "DF2", "options": {"data": "df2", "memory": 1.0}, "published": {"XBM": 41.22}}],
    }  # fmt: skip
    path = tmp_path / "main.yaml"
    path.write_text(yaml.safe_dump(content))
    config = parse(f"--config {path} --epochs 1")
    assert config.variants == [Variant("XBM", {"adapter": "identity"}), Variant("none", {"adapter": "none"})]
    assert config.settings == [Setting("DF2", {"data": "df2", "memory": 1.0}, {}, {"XBM": 41.22})]
    assert config.options == {"lr": 0.5, "preset": "paper", "pretrained": False, "epochs": 1}
    assert (config.title, config.seeds, config.reference) == ("Main table", [0, 1, 2], "XBM")


def test_the_task_is_found_wherever_it_stands(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("task: moco\n")
    find_task = partial(find_value, "task", default="retrieval")
    assert find_task(["compare", f"--config={path}"]) == "moco"
    assert find_task(["compare", "--config", str(path), "--task", "retrieval"]) == "retrieval"
    assert find_task(["compare", "--seeds", "1"]) == "retrieval"
    assert find_task(["compare", "--config", str(tmp_path / "nowhere.yaml")]) == "retrieval"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compare --task mocco", "`task` must be one of retrieval, moco, got 'mocco'"),
        ("compare --seeds x", "seeds"),
        ("compare --batch_sise 3", "batch_sise"),
    ],
)
def test_wrong_options_end_with_code_2_and_say_which(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(words))
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_options_that_do_not_fit_end_with_code_2_and_leave_nothing_behind(tmp_path, capsys):
    assert main(["compare", "--adapters", "xbn", "--epochs", "0", "--out", str(tmp_path / "x")]) == 2
    assert "error: glyphs, xbn: `epochs` must be a positive integer, got 0." in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_report_joins_folders_and_prints_the_table(tmp_path, write_run, capsys):
    write_run(tmp_path / "a", "identity", 0)
    write_run(tmp_path / "b", "identity", 1)
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert "identity" in out
    assert out.rstrip().endswith(f"Report: {tmp_path / 'a' / 'report.html'}")
    assert main(["report", str(tmp_path / "a"), "--out", str(tmp_path / "r.html")]) == 0
    assert (tmp_path / "r.html").stat().st_size > 1_000_000
    assert main(["report", str(tmp_path / "nowhere")]) == 2
