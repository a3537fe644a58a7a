"""The trials that chose the protocol on CUB see training species alone, and each is told as far as it came."""

import json
import signal
from functools import partial
from itertools import product
from pathlib import Path

import cub200_protocol as protocol
import measure
import pytest
import timm
import torch
import yaml

from adaptive_memory_bank.lab.compare.plan import plan_runs
from adaptive_memory_bank.lab.data import load_dataset
from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from adaptive_memory_bank.lab.training.retrieval.task import RetrievalModule
from replicas import write_image


def test_no_test_species_is_laid_out(tmp_path):
    for number in range(1, 201):
        write_image(tmp_path / "CUB_200_2011" / "images" / f"{number:03}.Bird" / "1.jpg")
    protocol.training_species(tmp_path, tmp_path / "species")
    data = load_dataset(f"folder:{tmp_path / 'species'}")
    assert [path.parent.name[:3] for path in data.train.images] == [f"{number:03}" for number in range(1, 76)]
    assert [path.parent.name[:3] for path in data.query.images] == [f"{number:03}" for number in range(76, 101)]


@pytest.mark.parametrize("trial", protocol.TRIALS)
def test_a_trial_is_a_valid_run(trial):
    make_config(RetrievalConfig, **{**protocol.BASE, **protocol.UNSEEN, **protocol.TRIALS[trial]}).check()


def test_trials_are_at_the_size_and_with_the_schedule_of_the_grid(parse):
    words = ("--config", Path(protocol.__file__).with_name("cub200.yaml"), "--weights", "w.pth")
    for run in plan_runs(parse(*words)):
        for name, value in protocol.BASE.items():
            if name != "batch_size":
                assert getattr(run.config, name) == value, name


def test_plain_memory_and_none_are_tried_with_the_care_of_the_adapters():
    def tried(contestant):
        own = [trial for name, trial in protocol.TRIALS.items() if name.startswith(f"{contestant}, lr ")]
        return {(trial["lr"], trial.get("memory_start")) for trial in own}

    assert tried("identity") == tried("xbn") == tried("auto") == {(3e-5, 1), (1e-4, 1), (3e-4, 1), (1e-4, 0)}
    assert {lr for lr, _ in tried("none")} == {lr for lr, _ in tried("none, batch 128")} == {3e-5, 1e-4, 3e-4}
    assert protocol.TRIALS["none, batch 128, lr 0.0003"]["batch_size"] == 128


def test_each_contestant_gets_its_own_best_trial_once_all_of_them_are_complete():
    scores = dict.fromkeys(protocol.TRIALS, 0.1)
    scores |= {"none, lr 0.0003": 0.2, "identity, lr 0.0001, at once": 0.3}
    found = [
        {"trial": trial, "status": "complete", "held_out_recall@1": [0.9, score]} for trial, score in scores.items()
    ]
    found[-1]["status"] = "running"  # of auto
    chosen = protocol.choices(found)
    assert list(chosen) == ["none", "none, batch 128", "identity", "xbn"]
    assert chosen["none"] == {"lr": 3e-4}
    assert chosen["identity"] == {"lr": 1e-4, "memory_start": 0.0}


def test_a_trial_is_told_as_far_as_it_came(tmp_path):
    folder = protocol.folder_of("none, lr 0.0003", tmp_path)
    folder.mkdir()
    assert protocol.read("none, lr 0.0003", tmp_path) is None
    lines = [{"train/loss_epoch": 3.0, "time/step_ms": 9.0}, {"val/recall@1": 0.25}, {"val/recall@1": 0.5}]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "result.json").write_text(json.dumps({"status": "running", "versions": {"commit": "abc"}}))
    found = protocol.read("none, lr 0.0003", tmp_path)
    assert found["held_out_recall@1"] == [0.25, 0.5]
    page = protocol.table([found], {"64": 0.3})
    assert "| none, lr 0.0003 | `adapter none`, `lr 0.0003` | 25.0 50.0 | not finished |" in page
    assert "# nothing yet" in page
    assert page.endswith("\nCode: `abc`.\n")


def test_a_trial_that_is_complete_in_the_results_is_known_unless_its_options_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "RESULTS", tmp_path)
    trial, other = "none, lr 0.0003", "none, lr 0.0001"
    assert protocol.known(trial) is None
    told = [{"trial": name, "changed": protocol.TRIALS[name], "status": "complete"} for name in (trial, other)]
    told[1]["status"] = "running"
    measure.write(protocol.NAME, {"base": protocol.BASE, "trials": told}, tmp_path)
    assert protocol.known(trial) == told[0]
    assert protocol.known(other) is None
    monkeypatch.setitem(protocol.TRIALS, trial, {**protocol.TRIALS[trial], "lr": 1.0})
    assert protocol.known(trial) is None


def test_the_grid_has_what_the_trials_chose_and_nothing_else():
    grid = yaml.safe_load(Path(protocol.__file__).with_name("cub200.yaml").read_text())
    chosen = measure.read(protocol.NAME).get("chosen", {})  # the provisional trials chose nothing
    assert grid["settings"][0]["variants"] == protocol.grid_variants(chosen)


def test_who_had_no_trials_takes_after_a_relative():
    chosen = {"identity": {"lr": 1e-4, "memory_start": 0.0}, "xbn": {"lr": 3e-4, "memory_start": 1.0}}
    found = protocol.grid_variants(chosen)
    assert (found["fresh"], found["axbn"]) == (chosen["identity"], chosen["xbn"])
    assert yaml.safe_load(yaml.safe_dump(found)) == found


@pytest.mark.slow
def test_a_trial_trains_and_is_collected_also_after_a_signal(tmp_path, monkeypatch):
    """The script itself, on birds of 16 x 16 and a backbone without knowledge."""
    for number, image in product(range(1, 101), range(4)):
        write_image(tmp_path / "CUB_200_2011" / "images" / f"{number:03}.Bird" / f"{image}.jpg")
    torch.save(timm.create_model(protocol.BASE["model"]).state_dict(), tmp_path / "w.pth")
    monkeypatch.setattr(protocol, "BASE", {**protocol.BASE, "image_size": 32, "epochs": 2})
    monkeypatch.setattr(protocol, "RESULTS", tmp_path)
    monkeypatch.setattr(protocol, "write", partial(measure.write, results=tmp_path))
    where = ["--weights", str(tmp_path / "w.pth"), "--data_root", str(tmp_path), "--runs", str(tmp_path / "runs")]
    trials = ["auto, lr 0.0001, at once", "xbn, lr 0.0001"]
    monkeypatch.setattr("sys.argv", ["cub200_protocol.py", *trials, *where])
    with monkeypatch.context() as patched:
        patched.setattr(RetrievalModule, "on_train_epoch_start", lambda module: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(SystemExit, match="at once: interrupted"):
            protocol.main()
    assert not protocol.folder_of(trials[1], tmp_path / "runs").exists()
    monkeypatch.setattr("sys.argv", ["cub200_protocol.py", trials[0], *where])
    protocol.main()
    found = measure.read(protocol.NAME, tmp_path)
    assert [(trial["trial"], trial["status"]) for trial in found["trials"]] == [
        ("auto, lr 0.0001, at once", "complete")
    ]
    assert len(found["trials"][0]["held_out_recall@1"]) == 2
    assert set(found["frozen_recall@1"]) == {"32"}
    assert str(tmp_path) not in found["command"]
