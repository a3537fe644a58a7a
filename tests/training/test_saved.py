import numpy as np
import pytest
import torch

from adaptive_memory_bank.metrics import retrieval_metrics
from adaptive_memory_bank.training import moco, retrieval
from adaptive_memory_bank.training.saved import embed_run, evaluate_run, load_run


@pytest.fixture
def run(retrieval_config):
    retrieval.run(retrieval_config(adapter="xbn", run_name="run"))
    return f"{retrieval_config().out}/run"


def test_exported_embeddings_score_as_the_run_did(run, tmp_path):
    shapes = embed_run(run, tmp_path / "deep" / "x.npz")
    assert shapes["query_embeddings"] == (96, 16)
    content = np.load(tmp_path / "deep" / "x.npz")
    rows, labels = torch.from_numpy(content["query_embeddings"]), torch.from_numpy(content["query_labels"])
    scores = evaluate_run(run)
    assert retrieval_metrics(rows, labels, ks=(1,))["recall@1"] == scores["val/recall@1"]
    assert content["train_embeddings"].shape == (192, 16)  # held-out classes included
    assert len(content["class_names"]) >= 24


def test_a_run_is_scored_on_another_dataset(run):
    scores = evaluate_run(run, "digits")
    assert 0 < scores["val/recall@1"] <= 1


def test_a_gray_encoder_refuses_colours(run, tmp_path):
    images = np.zeros((8, 16, 16, 3), np.uint8)
    labels = np.arange(8) % 2
    np.savez(tmp_path / "rgb.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    with pytest.raises(ValueError, match="`data` must be gray as the images this run was trained on"):
        evaluate_run(run, f"npz:{tmp_path / 'rgb.npz'}")


def test_moco_is_scored_by_neighbours(moco_config):
    config = moco_config(run_name="run", epochs=1)
    result = moco.run(config)
    assert evaluate_run(f"{config.out}/run") == pytest.approx(
        {name: result["metrics"][name] for name in ("val/knn", "val/knn_proj")}
    )


def test_a_run_without_checkpoint_says_so(run, tmp_path):
    (tmp_path / "runs" / "run" / "checkpoints" / "best.ckpt").unlink()
    with pytest.raises(ValueError, match=r"has no best.ckpt: the run has not come that far"):
        load_run(run)
    assert load_run(run, checkpoint="last").image_size == 16
