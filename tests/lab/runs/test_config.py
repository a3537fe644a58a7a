import pytest

from adaptive_memory_bank.lab.runs.config import make_config, save_config
from adaptive_memory_bank.lab.runs.resuming import load_config
from adaptive_memory_bank.lab.training import train
from adaptive_memory_bank.lab.training.fitting import memory_rows
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.retrieval import criteria
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from adaptive_memory_bank.lab.training.tasks import TASKS, read_config


def test_the_papers_protocol():
    config = make_config(RetrievalConfig, "paper")
    assert (config.model, config.pretrained, config.embedding_dim, config.images_per_class) == (
        "resnet50",
        True,
        512,
        4,
    )
    assert (config.lr, config.lr_gamma, config.lr_step, config.epochs) == (1e-4, 0.33, 15, 50)
    assert (config.warmup_epochs, config.warmup_lr, config.validation, config.memory) == (2, 1e-3, 0.0, 0.5)
    assert (config.pos_margin, config.neg_margin, config.precision) == (0.2, 0.8, "16-mixed")
    assert config.memory_start == 0  # the warm-up of the head is what comes before the memory


def test_the_papers_appendix_on_cifar():
    config = make_config(MocoConfig, "paper")
    assert (config.model, config.width, config.head, config.embedding_dim) == ("resnet-18", 1.0, "linear", 128)
    assert (config.batch_size, config.memory, config.momentum, config.temperature) == (128, 4096, 0.99, 0.1)
    assert (config.split_batch_norm, config.shuffle, config.epochs, config.views) == (8, True, 200, "lightly")
    assert (config.lr, config.sgd_momentum, config.weight_decay, config.scale_lr) == (0.03, 0.9, 5e-4, False)
    assert (config.flip, config.jitter, config.jitter_probability) == (0.5, (0.4, 0.4, 0.4, 0.1), 0.8)
    assert (config.gray_probability, config.blur, config.knn_k, config.knn_temperature) == (0.2, 0.0, 200, 0.1)
    assert config.same_image_negatives


def test_lightlys_benchmark():
    config = make_config(MocoConfig, "lightly")
    assert (config.head, config.lr, config.scale_lr, config.batch_size) == ("mlp", 0.06, True, 128)
    assert config.same_image_negatives


@pytest.mark.parametrize(
    ("kind", "preset"), [(task.config, preset) for task in TASKS.values() for preset in task.presets]
)
def test_presets_are_valid_and_survive_yaml(kind, preset, tmp_path):
    config = make_config(kind, preset)
    config.check()
    save_config(config, tmp_path / "config.yaml")
    assert load_config(kind, tmp_path / "config.yaml") == config


def test_an_unknown_preset_names_the_others():
    with pytest.raises(ValueError, match="`preset` must be one of small, photos, paper, got 'papier'"):
        make_config(RetrievalConfig, "papier")
    with pytest.raises(ValueError, match="`preset` must be one of small, paper, lightly, got 'x'"):
        MocoConfig(preset="x").check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"adapter": "kalmann"},
            "one of none, identity, xbm, xbn, ema, axbn, kalman, auto, fresh, or `package.module:Class`, got 'kal",
        ),
        ({"adapter": "ema", "adapter_options": {"q": 1}}, "`adapter_options` of ema must be among momentum, got q"),
        ({"adapter": "ema", "adapter_options": {"momentum": 2}}, "`momentum` must"),
        ({"adapter": "none", "adapter_options": {"q": 1}}, "`adapter_options` need an adapter"),
        ({"adapter": "fresh", "adapter_options": {"q": 1}}, "`adapter_options` need an adapter, .* `adapter` fresh"),
        ({"fresh_every": 0}, "`fresh_every` must be a positive integer, got 0"),
        ({"memory_start": -0.5}, "`memory_start` must be zero or a positive number of epochs, got -0.5"),
        ({"memory_start": float("nan")}, "`memory_start` must be zero or a positive number of epochs, got nan"),
        ({"memory_start": float("inf")}, "`memory_start` must be zero or a positive number of epochs, got inf"),
        ({"batch_size": 62}, r"`batch_size` must be divisible by `images_per_class` \(4\), got 62"),
        ({"memory": 0}, "`memory` must be positive"),
        ({"memory": 100.5}, "`memory` must be whole rows beyond 1, got 100.5"),
        ({"validation": 1.0}, r"`validation` must be a share in \[0, 1\), got 1.0"),
        ({"warmup_epochs": 11}, "`warmup_epochs` must be between 0 and `epochs`, got 11"),
        ({"epochs": 0}, "`epochs` must be a positive integer, got 0"),
        ({"num_workers": -1}, "`num_workers` must be zero or a positive integer, got -1"),
        ({"images_per_class": 1}, "`images_per_class` must be at least 2"),
        ({"lr": 1e38}, r"`lr` must be positive and at most 1000, got 1e\+38"),
        ({"lr": float("nan")}, "`lr` must be positive and at most 1000, got nan"),
        ({"warmup_lr": float("inf"), "warmup_epochs": 1}, "`warmup_lr` must be positive and at most 1000, got inf"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_config(RetrievalConfig, **options).check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 1e38}, r"`lr` must be positive and at most 1000, got 1e\+38"),
        ({"memory": 32}, r"`memory` must hold at least a batch \(64 rows\), got 32 rows"),
        ({"split_batch_norm": 7}, r"`batch_size` must be divisible by `split_batch_norm` \(7\), got 64"),
        ({"blur": 0.5}, "`blur` needs `--views lightly`, got 0.5 with batched views"),
        ({"flip": 1.5}, "`flip` must be a probability, got 1.5"),
        ({"momentum": 1.0}, r"`momentum` must be in \[0, 1\), got 1.0"),
        ({"adapter": "fresh", "fresh_every": 0}, "`fresh_every` must be a positive integer, got 0"),
    ],
)
def test_wrong_moco_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_config(MocoConfig, **options).check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "nonsense"}, "must be one of glyphs, digits"),
        ({"model": "resnt18"}, "`model` must be `conv4` or a timm model"),
        ({"memory": 10}, r"`memory` must hold at least a batch \(16 rows\), got 10 rows"),
        (
            {"batch_size": 96, "images_per_class": 3},  # of 8: 96 images of 19 classes are 6 of 16 classes
            r"no more classes than the 19 there are to train on, got 96 \(32 classes a step\)."
            " `--batch_size 57` or `--images_per_class 6` would work.",
        ),
        ({"loss": "SupConn"}, "`loss` must be one of supcon, AngularLoss"),
        ({"loss_options": {"margin": 1}}, "`loss_options` belong to a pytorch-metric-learning loss"),
        ({"validation": 0.95}, "`validation` must leave at least 2 of 24 classes to train on, got 0.95"),
        ({"weights": "/nowhere"}, "`weights` must be a file"),
    ],
)
def test_complaints_come_before_anything_is_written(options, message, retrieval_config, tmp_path):
    with pytest.raises(ValueError, match=message):
        train.run(retrieval_config(**options))
    assert not (tmp_path / "runs").exists()


def test_losses_take_their_own_options_only():
    criteria.check_loss_options(RetrievalConfig(loss="TripletMarginLoss", loss_options={"margin": 0.1}))


@pytest.mark.parametrize(("memory", "rows"), [(0.5, 50), (1.0, 100), (2, 2), (4096, 4096), (0.001, 1)])
def test_memory_is_a_share_or_rows(memory, rows):
    assert memory_rows(memory, 100) == rows


def test_a_config_of_another_task_is_refused(tmp_path):
    save_config(make_config(MocoConfig), tmp_path / "config.yaml")
    with pytest.raises(ValueError, match="does not fit `amb retrieval`: unknown option"):
        load_config(RetrievalConfig, tmp_path / "config.yaml")


@pytest.mark.parametrize("task", TASKS)
def test_a_config_file_names_its_task(task, tmp_path):
    config = make_config(TASKS[task].config, epochs=3)
    save_config(config, tmp_path / "config.yaml")
    assert f"task: {task}" in (tmp_path / "config.yaml").read_text().splitlines()
    assert read_config(tmp_path / "config.yaml") == config


@pytest.mark.parametrize("task", TASKS)
def test_files_from_before_they_named_their_task_are_recognised(task, tmp_path):
    config = make_config(TASKS[task].config, epochs=3)
    save_config(config, tmp_path / "config.yaml")
    lines = (tmp_path / "config.yaml").read_text().splitlines()
    (tmp_path / "config.yaml").write_text("\n".join(line for line in lines if not line.startswith("task:")))
    assert read_config(tmp_path / "config.yaml") == config


def test_a_task_that_does_not_exist_is_refused(tmp_path):
    (tmp_path / "config.yaml").write_text("task: tagging\nepochs: 3\n")
    with pytest.raises(ValueError, match="`task` must be one of retrieval, moco, got 'tagging'"):
        read_config(tmp_path / "config.yaml")
