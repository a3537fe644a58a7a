import pytest

from adaptive_memory_bank.lab.tracking.server import check_server


def test_a_server_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    monkeypatch.setattr("wandb.setup", lambda: _Singleton)
    with pytest.raises(ConnectionError, match=r"W&B at http://127\.0\.0\.1:9 cannot be reached"):
        check_server()


class _Singleton:
    """W&B reads its address once a process, so a test cannot set it by the environment."""

    class settings:  # noqa: N801
        base_url = "http://127.0.0.1:9"
