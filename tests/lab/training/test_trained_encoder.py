import numpy as np
import pytest
import timm
import torch
from PIL import Image

from adaptive_memory_bank.lab.data.transforms import IMAGENET, Normalization
from adaptive_memory_bank.lab.training import scores as scores_module
from adaptive_memory_bank.lab.training import step, train, trained_encoder
from adaptive_memory_bank.lab.training.trained_encoder import embed_run, evaluate_run, load_run
from adaptive_memory_bank.metrics import retrieval_metrics


@pytest.fixture
def run(retrieval_config):
    train.run(retrieval_config(adapter="xbn", run_name="run"))
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


@pytest.fixture
def photographs(tmp_path):
    """Four classes of noise that differ in colour, as files larger than they are trained."""
    random = np.random.default_rng(0)
    for part, shift in (("train", 0), ("test", 100)):
        for label in range(4):
            folder = tmp_path / "photographs" / part / f"class{label}"
            folder.mkdir(parents=True)
            for number in range(6):
                pixels = random.integers(0, 120, (40, 48, 3)) + np.array([10 * label, shift, 20 * label])
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return f"folder:{tmp_path / 'photographs'}"


def test_a_pretrained_backbone_scores_the_same_from_its_folder_to_the_last_digit(
    retrieval_config, photographs, tmp_path
):
    model = "tf_efficientnet_lite0"  # normalised by 0.5, not as ImageNet
    torch.save(timm.create_model(model).state_dict(), tmp_path / "weights.pth")
    # Without mining: random weights may leave no pair within the margins.
    options = {"weights": str(tmp_path / "weights.pth"), "image_size": 32, "batch_size": 8, "mine": False}
    config = retrieval_config(
        model=model, data=photographs, run_name="run", validation=0.0, epochs=1, augmentation="crop", **options
    )
    result = train.run(config)
    (tmp_path / "weights.pth").unlink()  # the run holds all it needs
    saved = load_run(f"{config.out}/run")
    assert saved.normalization == Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    scores = evaluate_run(f"{config.out}/run")
    assert scores == {name: value for name, value in result.metrics.items() if name in scores}


def test_a_checkpoint_that_names_no_normalisation_used_imagenets(run):
    file = f"{run}/checkpoints/best.ckpt"
    content = torch.load(file, weights_only=True)
    del content["images"]["mean"], content["images"]["std"]
    torch.save(content, file)
    assert load_run(run).normalization == IMAGENET


def test_a_run_is_scored_on_another_dataset(run):
    scores = evaluate_run(run, "digits")
    assert 0 < scores["val/recall@1"] <= 1


def test_a_gray_encoder_refuses_colours(run, tmp_path):
    images = np.zeros((8, 16, 16, 3), np.uint8)
    labels = np.arange(8) % 2
    np.savez(tmp_path / "rgb.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    with pytest.raises(ValueError, match="`data` must be gray as the images this run was trained on"):
        evaluate_run(run, f"npz:{tmp_path / 'rgb.npz'}")


def write_array(path, *, colour):
    """Noise of four classes that differ in brightness, 24 x 20: not the size they are trained at."""
    random, shape = np.random.default_rng(0), (24, 24, 20, 3) if colour else (24, 24, 20)
    labels = np.arange(24) % 4
    level = labels.reshape(-1, *[1] * (len(shape) - 1))
    images = {part: (random.integers(0, 120, shape) + 10 * level).astype(np.uint8) for part in ("train", "test")}
    np.savez(
        path,
        train_images=images["train"],
        train_labels=labels,
        test_images=images["test"],
        test_labels=labels,
    )
    return f"npz:{path}"


def write_gray_files(root):
    """Omniglot's tree, with characters of noise that are larger than they are trained at."""
    random = np.random.default_rng(0)
    for part in ("images_background", "images_evaluation"):
        for character in range(4):
            folder = root / "omniglot-py" / part / "Alphabet" / f"character{character:02d}"
            folder.mkdir(parents=True)
            for number in range(6):
                pixels = random.integers(0, 200, (35, 30)) + 10 * character
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return "omniglot"


@pytest.fixture(params=["gray array", "colour array", "gray files", "colour files"])
def source(request, photographs, tmp_path):
    """Every kind of source, at another size than it is trained at."""
    if request.param == "colour files":
        return {"data": photographs}
    if request.param == "gray files":
        return {"data": write_gray_files(tmp_path / "root"), "data_root": str(tmp_path / "root")}
    return {"data": write_array(tmp_path / "x.npz", colour=request.param == "colour array")}


@pytest.mark.parametrize("task", ["retrieval", "moco"])
def test_a_run_scores_the_same_from_its_folder_to_the_last_digit(task, source, retrieval_config, moco_config):
    own = {"validation": 0.0, "augmentation": "crop"} if task == "retrieval" else {"memory": 8, "split_batch_norm": 2}
    make = retrieval_config if task == "retrieval" else moco_config
    config = make(**source, **own, run_name="run", image_size=16, batch_size=8, epochs=1, eval_batch_size=7)
    result = train.run(config)
    scores = evaluate_run(f"{config.out}/run")
    assert scores == {name: value for name, value in result.metrics.items() if name.startswith("val/")}


@pytest.mark.parametrize("task", ["retrieval", "moco"])
def test_a_restored_encoder_makes_the_rows_of_the_trained_one(task, source, retrieval_config, moco_config, monkeypatch):
    """Scores of few images are coarse: the rows behind them must be equal, too."""
    seen, embed_part = [], scores_module.embed_part
    for place in (step, trained_encoder):
        monkeypatch.setattr(place, "embed_part", lambda *args, **kw: seen.append(embed_part(*args, **kw)) or seen[-1])
    own = {"validation": 0.0, "augmentation": "crop"} if task == "retrieval" else {"memory": 8, "split_batch_norm": 2}
    make = retrieval_config if task == "retrieval" else moco_config
    config = make(**source, **own, run_name="run", image_size=16, batch_size=8, epochs=1, eval_batch_size=7)
    train.run(config)
    evaluate_run(f"{config.out}/run")
    half = len(seen) // 2
    assert half == (1 if task == "retrieval" else 2)
    for trained, restored in zip(seen[:half], seen[half:], strict=True):
        assert torch.equal(trained, restored)


def test_a_run_without_checkpoint_says_so(run, tmp_path):
    (tmp_path / "runs" / "run" / "checkpoints" / "best.ckpt").unlink()
    with pytest.raises(ValueError, match=r"has no best.ckpt: the run has not come that far"):
        load_run(run)
    assert load_run(run, checkpoint="last").image_size == 16
