"""The trials that chose the protocol on CUB see training species alone, and each is told as far as it came."""

import json

import cub200_protocol as protocol
import pytest

from adaptive_memory_bank.lab.data import load_dataset
from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
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


def test_a_trial_is_told_as_far_as_it_came(tmp_path):
    folder = protocol.folder_of("none, lr 3e-4", tmp_path)
    folder.mkdir()
    assert protocol.read("none, lr 3e-4", tmp_path) is None
    lines = [{"train/loss_epoch": 3.0, "time/step_ms": 9.0}, {"val/recall@1": 0.25}, {"val/recall@1": 0.5}]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "result.json").write_text(json.dumps({"status": "running"}))
    found = protocol.read("none, lr 3e-4", tmp_path)
    assert found["held_out_recall@1"] == [0.25, 0.5]
    assert "| none, lr 3e-4 | `lr 0.0003` | 25.0 50.0 | not finished |" in protocol.table([found], {"64": 0.3})
