import os
import subprocess
import sys

import pytest

from adaptive_memory_bank.lab.commands.main import main
from adaptive_memory_bank.lab.tracking.sync import offline_runs


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
