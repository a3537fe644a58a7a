"""Damaged and hostile files: one line that a person can read, with the file's name and what to do, and exit code 1."""

import json
import os
import shutil

import pytest
import torch
import yaml

from adaptive_memory_bank.lab.commands.main import main
from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.training import train
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """A finished run of an epoch."""
    out = tmp_path_factory.mktemp("trained")
    options = {"batch_size": 16, "epochs": 1, "embedding_dim": 16, "threads": 1, "wandb": "disabled", "quiet": True}
    train.run(make_config(RetrievalConfig, data=tiny, out=str(out), run_name="run", memory_start=0.0, **options))
    return out


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it that stopped before its end."""
    run = shutil.copytree(trained, tmp_path / "runs") / "run"
    (run / "checkpoints" / "previous.ckpt").unlink(missing_ok=True)
    for file in (run / "result.json", run.parent / "results.json"):
        file.write_text(file.read_text().replace('"complete"', '"interrupted"'))
    return run


class Code:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change_yaml(path, **changes):
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}, sort_keys=False))


DAMAGES = {
    "half": cut,
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("not what it was"),
    "code": lambda path: torch.save({"state_dict": Code()}, path),
    "foreign": lambda path: torch.save({"state_dict": {}, "epoch": 3}, path),
    "tensor": lambda path: torch.save(torch.zeros(3), path),
}


def refused(words, capsys):
    """What is said, in one line, where a command fails."""
    code = main([str(word) for word in words])
    said = capsys.readouterr().err
    assert code == 1, said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert "weights_only" not in said
    return said


@pytest.mark.parametrize("damage", DAMAGES)
def test_checkpoints(damage, run, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    best, last = run / "checkpoints" / "best.ckpt", run / "checkpoints" / "last.ckpt"
    DAMAGES[damage](best)
    assert f"{best} is damaged: " in refused(["evaluate", run], capsys)
    DAMAGES[damage](last)
    said = refused(["retrieval", "--resume", run], capsys)
    assert f"{last} is damaged: " in said
    assert f"Delete {run / 'checkpoints'} and resume the run: it starts anew." in said
    shutil.rmtree(run / "checkpoints")
    assert main(["retrieval", "--resume", str(run)]) == 0  # what it said to do
    assert not (tmp_path / "executed").exists()


def test_a_checkpoint_of_another_network(run, capsys):
    change_yaml(run / "config.yaml", embedding_dim=8)
    assert "best.ckpt is damaged: it does not fit config.yaml" in refused(["evaluate", run], capsys)


@pytest.mark.parametrize(
    "text",
    ["a: [1", "", "- a", "task: !!python/object/apply:os.mkdir [executed]", "task: retrieval\nepochs: many\n", "\x00"],
)
def test_a_runs_configuration(text, run, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (run / "config.yaml").write_text(text)
    for words in (["evaluate", run], ["retrieval", "--resume", run], ["report", run.parent]):
        if words[0] != "report" or "many" not in text:  # a report shows what is there
            assert f"{run / 'config.yaml'} is damaged: " in refused(words, capsys)
    assert not (tmp_path / "executed").exists()


def test_half_a_configuration_is_not_resumed_with_defaults(run, capsys):
    lines = (run / "config.yaml").read_text().splitlines(keepends=True)
    (run / "config.yaml").write_text("".join(lines[: len(lines) // 2]))
    assert "config.yaml is damaged: cut short, it lacks " in refused(["retrieval", "--resume", run], capsys)


def test_a_file_of_options(tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text("epochs: [1")
    for command in ("retrieval", "compare"):
        assert "mine.yaml is damaged: it is not" in refused([command, "--config", tmp_path / "mine.yaml"], capsys)


@pytest.mark.parametrize("name", ["compare.json", "run/gallery.json"])
def test_files_of_a_report(name, run, capsys):
    (run / "result.json").write_text((run / "result.json").read_text().replace('"interrupted"', '"complete"'))
    (run.parent / name).write_text('{"queries": [')
    said = refused(["report", run.parent], capsys)
    assert f"{run.parent / name} is damaged: it is not valid JSON" in said
    assert "Delete it" in said


def test_half_a_result_is_taken_from_the_list(run, capsys):
    cut(run / "result.json")
    with pytest.warns(UserWarning, match=r"result\.json is damaged"):
        assert main(["retrieval", "--resume", str(run)]) == 0
    assert json.loads((run / "result.json").read_text())["status"] == "complete"


@pytest.mark.parametrize(("entry", "what"), [(".", "'.' names no file below"), ("../x", "points outside of")])
def test_a_list_of_images(entry, what, tmp_path, capsys):
    base = tmp_path / "Stanford_Online_Products"
    base.mkdir()
    for name in ("train", "test"):
        (base / f"Ebay_{name}.txt").write_text(f"image_id class_id super_class_id path\n1 1 1 {entry}\n")
    said = refused(["retrieval", "--data", "sop", "--data_root", tmp_path, "--out", tmp_path / "runs"], capsys)
    assert "Ebay_train.txt, line 2: " in said
    assert what in said
    assert "Mend that line, or get the dataset again." in said


def test_debug_shows_where_an_error_came_from(run, capsys):
    cut(run / "checkpoints" / "best.ckpt")
    with pytest.raises(ValueError, match="is damaged"):
        main(["evaluate", str(run), "--debug"])
