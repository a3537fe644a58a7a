"""Nothing of W&B can fail a training: it warns, the run's own files are whole, and the command ends with 0."""

import dataclasses
import json
import signal
import subprocess
import sys

import pytest

from fake_wandb import fake_wandb
from small_disk import small_disk


@pytest.fixture
def config(retrieval_config):
    return retrieval_config(run_name="run", wandb="offline", quiet=False)


def check(ended, run, *, warned: str | None):
    assert ended.code == 0, ended.output
    assert "complete: " in ended.output
    assert "Traceback" not in ended.output
    if warned is not None:
        assert f"UserWarning: {warned}" in ended.output
        assert "its own files in" in ended.output
    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "complete"
    assert (run / "gallery.json").exists()
    assert (run / "checkpoints" / "last.ckpt").exists()


def test_a_home_that_cannot_be_written_is_not_needed(amb, config, tmp_path):
    (tmp_path / "file").touch()
    homes = {name: str(tmp_path / "file" / "x") for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
    run = tmp_path / "runs" / "run"
    check(amb(config, environment=homes), run, warned=None)
    (offline,) = (run / "wandb").glob("offline-run-*")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(offline)]
    sent = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "worst_queries" in sent


def test_a_folder_that_cannot_be_staged_in(amb, config, tmp_path):
    (tmp_path / "file").touch()
    ended = amb(config, environment={"WANDB_DATA_DIR": str(tmp_path / "file" / "x")})
    check(ended, tmp_path / "runs" / "run", warned="W&B failed while logging a table: Unable to write staging files")


def test_a_full_disk_below_its_folder(amb, config, tmp_path):
    run = tmp_path / "runs" / "run"
    with small_disk(run / "wandb", "60k"):
        check(amb(config), run, warned="W&B failed while logging a table: [Errno 28] No space left on device")


def test_its_service_dies(amb, config, tmp_path):
    ended = amb(config, signal_at=4, number=signal.SIGKILL, victim="wandb-core")
    check(ended, tmp_path / "runs" / "run", warned="W&B failed while ")


def test_it_cannot_even_start(amb, config, tmp_path):
    ended = amb(config, environment={"WANDB_ANONYMOUS": "nonsense", "WANDB_INIT_TIMEOUT": "x"})
    check(ended, tmp_path / "runs" / "run", warned="W&B cannot be started: ")


@pytest.mark.slow  # W&B itself waits for 20 seconds before a table
def test_a_server_that_stops_answering_is_waited_for_a_limited_time_and_that_is_said(amb, config, tmp_path):
    with fake_wandb() as server:
        server.stalls = True
        ended = amb(dataclasses.replace(config, wandb="online"), environment=server.environment, patience=2.0)
        assert server.taken  # it had answered before
    check(ended, tmp_path / "runs" / "run", warned="W&B failed while ")
    assert "Timed out finishing run" in ended.output
