"""The command `amb`, as people type it."""

import dataclasses
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import adaptive_memory_bank
from adaptive_memory_bank.lab.commands.main import COMMANDS, main
from adaptive_memory_bank.lab.commands.words import normalized
from adaptive_memory_bank.lab.data.sources.glyphs import glyphs
from adaptive_memory_bank.lab.training.tasks import TASKS


@pytest.fixture
def tiny(tmp_path):
    data = glyphs(train_classes=12, test_classes=6, images_per_class=8).resized(16)
    arrays = {"train_images": data.train.images, "train_labels": data.train.labels.numpy()}
    np.savez(tmp_path / "t.npz", **arrays, test_images=data.query.images, test_labels=data.query.labels.numpy())
    return ["--data", f"npz:{tmp_path / 't.npz'}", "--out", str(tmp_path / "runs"), "--wandb", "disabled"]


SHORT = ["--batch-size=16", "--epochs=1", "--memory-start=0", "--validation=0.2", "--quiet", "--threads=1"]


def test_train_evaluate_embed(tiny, tmp_path, capsys):
    assert main(["retrieval", *tiny, *SHORT, "--adapter", "ema", "--adapter_options.momentum", "0.5"]) == 0
    printed = capsys.readouterr().out
    run = str(tmp_path / "runs" / "retrieval-t-ema-s0")
    assert "chosen epoch 1 (on held-out classes): recall@1" in printed
    assert "last epoch: recall@1" in printed
    assert f"complete: {run}" in printed
    assert yaml.safe_load((tmp_path / "runs/retrieval-t-ema-s0/config.yaml").read_text())["adapter_options"] == {
        "momentum": 0.5
    }
    assert main(["evaluate", run, "--out", str(tmp_path / "scores.json")]) == 0
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert f"val/recall@1 {scores['val/recall@1']:.4f}" in capsys.readouterr().out
    assert main(["embed", run, "--out", str(tmp_path / "x.npz"), "--checkpoint", "last"]) == 0
    assert "query_embeddings 48 x 64" in capsys.readouterr().out


def test_a_runs_config_makes_the_same_run_again(tiny, tmp_path):
    assert main(["retrieval", *tiny, *SHORT, "--adapter", "xbn", "--lr", "0.01"]) == 0
    first = tmp_path / "runs" / "retrieval-t-xbn-s0"
    assert main(["retrieval", "--config", str(first / "config.yaml")]) == 0
    second = first.with_name("retrieval-t-xbn-s0-2")
    results = [json.loads((run / "result.json").read_text()) for run in (first, second)]
    assert results[0]["best"] == results[1]["best"]


def test_moco(tmp_path, capsys):
    words = ["--epochs", "1", "--out", str(tmp_path), "--wandb", "disabled", "--quiet", "--threads", "1"]
    assert main(["moco", *words]) == 0
    assert "on the evaluation set): knn" in capsys.readouterr().out


def test_datasets(capsys):
    assert main(["datasets"]) == 0
    assert {"glyphs", "digits", "npz:PATH"} <= set(capsys.readouterr().out.split())


def test_print_config_shows_the_presets_values(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["retrieval", "--preset", "paper", "--epochs", "7", "--print_config"])
    assert stop.value.code == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["model"], shown["epochs"], shown["preset"]) == ("resnet50", 7, "paper")


@pytest.mark.parametrize("command", TASKS)
def test_every_option_is_documented(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    names = [field.name for field in dataclasses.fields(TASKS[command].config)]
    assert [name for name in names if f"--{name} " not in text] == []
    # jsonargparse writes "(type: ...)" right after the option's name when there is no text for it
    undocumented = [name for name in names if f"--{name} {name.upper()} (type" in text]
    assert undocumented == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["retrieval", "--preset", "papier"], 2, "`preset` must be one of small, photos, paper, got 'papier'"),
        (["moco", "--epochs", "many"], 2, "epochs"),
        (["nonsense"], 2, "nonsense"),
        ([], 2, "was not provided"),
    ],
)
def test_wrong_words_end_with_a_hint(words, code, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == code
    assert message in capsys.readouterr().err


def test_wrong_values_end_with_one_line(capsys):
    assert main(["retrieval", "--batch-size", "63"]) == 2
    assert capsys.readouterr().err == "error: `batch_size` must be divisible by `images_per_class` (4), got 63.\n"


def test_dashes_underscores_and_bare_flags_are_all_understood():
    words = ["retrieval", "--batch-size=3", "--quiet", "--pretrained", "false", "--mine", "--out", "my-runs"]
    expected = [
        "retrieval",
        "--batch_size=3",
        "--quiet=true",
        "--pretrained",
        "false",
        "--mine=true",
        "--out",
        "my-runs",
    ]
    assert normalized(words) == expected


HEAVY = ("torch", "pytorch_lightning", "timm", "pytorch_metric_learning", "lightly", "wandb", "sklearn", "plotly")


def imported_by(*words):
    """What a command printed, and which of the libraries that take seconds to import it imported."""
    code = "import sys; from adaptive_memory_bank.lab.commands.main import main\ntry: code = main(sys.argv[1:])\n"
    code += f"except SystemExit as stop: code = stop.code\nprint(code, [m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    *printed, last = done.stdout.splitlines()
    return "\n".join([*printed, done.stderr]), last


def test_version_is_that_of_the_installed_package_and_of_the_citation(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == f"amb {importlib.metadata.version('adaptive-memory-bank')}"
    citation = yaml.safe_load((Path(__file__).parents[3] / "CITATION.cff").read_text())
    assert citation["version"] == adaptive_memory_bank.__version__


@pytest.mark.parametrize("words", [["--help"], ["retrieval", "--help"], ["moco", "--help"], ["compare", "--help"]])
def test_help_imports_nothing_that_takes_long(words):
    printed, ended = imported_by(*words)
    assert ended == "0 []"
    assert words != ["--help"] or [name for name in COMMANDS if name not in printed] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "retrieval --adapter foo",
            "error: `adapter` must be one of none, identity, xbm, xbn, ema, axbn, kalman, auto",
        ),
        ("retrieval --data foo", "error: `data` must be one of glyphs, digits, "),
        ("retrieval --model resnt50", "Did you mean resnet50"),
        ("retrieval --loss foo", "error: `loss` must be one of supcon, AngularLoss, "),
        ("moco --model resnet18", "error: `model` must be one of resnet-9, "),
        ("moco --adapter no_such_module:Mine", "`adapter` no_such_module:Mine cannot be imported: No module named"),
        ("retrieval --data folder:nowhere", "error: `data` folder: nowhere not found."),
        ("compare --data npz:nowhere.npz", "error: `data` npz: nowhere.npz not found."),
        ("compare --adapters xbn foo", "error: glyphs, foo: `adapter` must be one of none, "),
        ("compare --data foo", "error: foo, none: `data` must be one of glyphs, "),
        ("compare --model foo", "error: glyphs, none: `model` must be `conv4` or a timm model"),
        ("compare --loss foo", "error: glyphs, none: `loss` must be one of supcon, "),
        ("compare --task moco --model resnet18", "error: digits, none: `model` must be one of resnet-9, "),
    ],
)
def test_a_wrong_name_is_refused_before_anything_that_takes_long_is_imported(words, message):
    printed, ended = imported_by(*words.split())
    assert message in printed
    assert ended == ("1 []" if "not found" in message else "2 []")


def test_help_names_the_adapters_and_folders(capsys):
    with pytest.raises(SystemExit):
        main(["retrieval", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "none,identity,xbm,xbn,ema,axbn,kalman,auto,fresh" in text.replace("'", "").replace(", ", ",")
    assert "`package.module:Class`" in text
    assert "`folder:PATH`" in text
