import os
import subprocess
import sys

import pytest

from adaptive_memory_bank.lab.commands.main import main
from adaptive_memory_bank.lab.tracking.sync import offline_runs
from adaptive_memory_bank.lab.tracking.wandb_run import start_wandb
from fake_wandb import fake_wandb


def test_offline_runs_are_found_oldest_first(tmp_path):
    for run, name in (("b", "offline-run-20260102_000000-x"), ("a", "offline-run-20260101_000000-y"), ("a", "run-1-z")):
        (tmp_path / run / "wandb" / name).mkdir(parents=True)
    found = offline_runs([tmp_path, tmp_path / "a"])
    assert [path.name for path in found] == ["offline-run-20260101_000000-y", "offline-run-20260102_000000-x"]


def test_nothing_to_upload_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="No offline W&B runs below"):
        offline_runs([tmp_path])
    with pytest.raises(ValueError, match="is not a folder"):
        offline_runs([tmp_path / "nowhere"])


@pytest.fixture
def offline(tmp_path):
    (tmp_path / "a" / "wandb" / "offline-run-20260101_000000-y").mkdir(parents=True)
    return tmp_path


def test_without_a_login_it_says_so(offline, monkeypatch, capsys):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(offline / "netrc"))
    assert main(["sync", str(offline)]) == 2
    assert "Not logged in to W&B. Run `wandb login`" in capsys.readouterr().err


def test_without_a_network_it_fails_at_once_and_never_asks(offline):
    environment = {**os.environ, "WANDB_API_KEY": "x" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "adaptive_memory_bank.lab.commands.main", "sync", str(offline)],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "W&B at http://127.0.0.1:9 cannot be reached" in done.stderr


def make_offline_run(folder, run_id):
    """A real one."""
    folder.mkdir(parents=True)
    logger = start_wandb("offline", folder=folder, run_id=run_id, resume=False, quiet=True, project="p")
    logger.log_metrics({"x": 1.0}, step=1)
    logger.end({}, failed=False)


@pytest.mark.slow  # seven processes of W&B
def test_it_shows_progress_skips_what_is_uploaded_and_says_what_failed(tmp_path):
    for name in ("first", "second", "third"):
        make_offline_run(tmp_path / name, run_id=f"{name}id")
    with fake_wandb() as server:
        server.refuses.add("secondid")
        first = amb_sync(tmp_path, server)
        assert first.returncode == 1, first.stdout + first.stderr
        server.refuses.clear()
        again = amb_sync(tmp_path, server)
    assert sorted(server.taken) == ["firstid", "secondid", "thirdid"]
    lines = first.stdout.splitlines()
    assert [line.split(" (")[0] for line in lines[:3]] == ["[1/3] first", "[2/3] second", "[3/3] third"]
    assert "uploaded in" in lines[0]
    assert "FAILED, " in lines[1]
    assert lines[3] == "Uploaded 2 runs, 1 failed (the same command tries them again):"
    assert lines[4].startswith("  second (offline-run-")
    assert "secondid is not welcome" in lines[4]
    assert again.returncode == 0
    assert again.stdout.splitlines()[0].startswith("[1/1] second (")
    assert again.stdout.splitlines()[-1] == "Uploaded 1 runs, skipped 2 that had been uploaded."


def amb_sync(folder, server):
    return subprocess.run(
        [sys.executable, "-m", "adaptive_memory_bank.lab.commands.main", "sync", str(folder)],
        env={**os.environ, **server.environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
