import socket

import pytest

from adaptive_memory_bank.lab.training.retrieval import backbone_checks


def test_a_missing_weights_file_is_an_error():
    with pytest.raises(ValueError, match=r"`weights` must be a file .* got '/nowhere/w.pth', which does not exist"):
        backbone_checks.check_weights_file("/nowhere/w.pth")


def test_weights_that_cannot_be_downloaded_name_the_flags_to_use(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody answers there
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ValueError, match=r"they are not in the cache .* Use `--weights FILE` .* or `--pretrained false`"
    ):
        backbone_checks.check_weights_reachable("resnet50")


def test_a_server_that_never_answers_does_not_hang(monkeypatch):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr(backbone_checks, "HUB_PATIENCE", 0.3)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(ValueError, match="does not answer"):
            backbone_checks.check_weights_reachable("resnet50")


def test_a_model_without_weights_says_so():
    with pytest.raises(ValueError, match="timm has no pretrained weights for 'conv4'"):
        backbone_checks.check_weights_reachable("conv4")
