"""What a run writes, and that it tells nobody's secrets."""

import json
import subprocess
import sys

import pytest

from adaptive_memory_bank.lab.tracking import wandb_run as tracking
from adaptive_memory_bank.lab.tracking.wandb_run import check_server, is_logged_in, start_wandb, wandb_mode
from adaptive_memory_bank.lab.training import train

SECRET = "0123456789abcdef0123456789abcdef01234567"
COMMON = {"train/loss", "train/lr", "train/loss_epoch", "drift/mean", "drift/max", "bank/staleness"}
COMMON |= {"bank/staleness_unadapted", "bank/size", "time/step_ms"}
NAMES = {
    "retrieval": COMMON | {"train/pairs", "val/recall@1", "val/map@r", "holdout/recall@1", "best/recall@1"},
    "moco": COMMON | {"val/knn", "val/knn_proj", "best/knn"},
}


def inspect(folder):
    """An offline run as W&B itself reads it back."""
    (run,) = (folder / "wandb").glob("offline-run-*")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(run)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("task", NAMES)
def test_an_offline_run_has_every_name_and_no_secret(task, retrieval_config, moco_config, monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    make = {"retrieval": retrieval_config, "moco": moco_config}[task]
    result = train.run(make(adapter="xbn", wandb="offline", run_name="run", tags=["mine"]))
    folder = tmp_path / "runs" / "run"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert set().union(*lines) >= NAMES[task] | {"epoch", "step"}
    assert set(result.metrics) >= NAMES[task]
    found = inspect(folder)
    assert [name for name in NAMES[task] if name not in found] == []
    for expected in ("worst_queries", result.wandb_id, f"-{task}", "mine", "adaptive-memory-bank"):
        assert expected in found
    for path in folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_a_run_folder_holds_what_the_design_promises(retrieval_config, tmp_path):
    result = train.run(retrieval_config(adapter="xbn", run_name="run", name="XBN!"))
    folder = tmp_path / "runs" / "run"
    kept = {path.name for path in folder.iterdir()}
    assert kept >= {"config.yaml", "metrics.jsonl", "checkpoints", "result.json", "gallery.json"}
    assert json.loads((folder / "result.json").read_text()) == result.to_json()
    assert json.loads((tmp_path / "runs" / "results.json").read_text()) == [result.to_json()]
    promised = ["task", "data", "adapter", "seed", "batch_size", "memory_size", "epochs", "metrics", "best"]
    promised += ["seconds_per_step", "train_seconds", "status"]
    assert [name for name in promised if name not in result.to_json()] == []
    assert (result.status, result.name, result.chosen_on) == ("complete", "XBN!", "validation")
    assert result.memory_size == 76  # half of the 19 classes x 8 images that are not held out
    gallery = json.loads((folder / "gallery.json").read_text())
    assert len(gallery["queries"]) == 12
    ranks = [query["first_match"] for query in gallery["queries"]]
    assert ranks == sorted(ranks, reverse=True)
    match = gallery["queries"][0]["matches"][0]
    assert match["correct"] == (match["class"] == gallery["queries"][0]["class"])


def test_several_runs_share_one_list(retrieval_config, tmp_path):
    for adapter in ("none", "identity"):
        train.run(retrieval_config(adapter=adapter, epochs=1))
    entries = json.loads((tmp_path / "runs" / "results.json").read_text())
    assert [entry["adapter"] for entry in entries] == ["none", "identity"]
    again = train.run(retrieval_config(adapter="none", epochs=1))
    assert again.run.endswith("-none-s0-2")


def test_a_run_name_is_not_used_twice(retrieval_config):
    config = retrieval_config(adapter="none", epochs=1, run_name="run")
    train.run(config)
    with pytest.raises(ValueError, match=r"`run_name`: .*run holds a run already. Continue it \(`--resume"):
        train.run(config)


def test_modes(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert (wandb_mode("auto"), wandb_mode("disabled"), wandb_mode("online")) == ("offline", "disabled", "online")
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai login user password {SECRET}\n")
    assert is_logged_in()
    assert wandb_mode("auto") == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert wandb_mode("auto") == "disabled"


def test_a_server_out_of_reach_means_offline_with_a_warning(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # nobody answers there
    monkeypatch.setattr(tracking, "INIT_PATIENCE", 1.0)
    with pytest.warns(UserWarning, match="W&B cannot be reached, the run is kept offline"):
        logger = start_wandb("online", folder=tmp_path, run_id="abc", resume=False, quiet=True, project="p")
    logger.log_metrics({"x": 1.0}, step=1)
    logger.end({"best/x": 1.0}, failed=False)
    assert len(list((tmp_path / "wandb").glob("offline-run-*-abc"))) == 1


def test_a_server_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    monkeypatch.setattr("wandb.setup", lambda: _Singleton)
    with pytest.raises(ConnectionError, match=r"W&B at http://127\.0\.0\.1:9 cannot be reached"):
        check_server()


class _Singleton:
    """W&B reads its address once a process, so a test cannot set it by the environment."""

    class settings:  # noqa: N801
        base_url = "http://127.0.0.1:9"
