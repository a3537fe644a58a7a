import copy
import math

import numpy as np
import pytest
import torch
from lightly.loss import NTXentLoss
from lightly.models.batchnorm import SplitBatchNorm

from adaptive_memory_bank.lab.models.resnet import Backbone
from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.training import train
from adaptive_memory_bank.lab.training.moco import task as moco
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.losses import MemoryInfoNCELoss


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ["none", "auto"])
def test_features_learn_without_labels(adapter, moco_config):
    """On digits, against the same network untrained."""
    options = {
        "data": "digits",
        "width": 0.25,
        "memory": 512,
        "batch_size": 64,
        "adapter": adapter,
        "staleness_rows": 0,
    }
    untrained = train.run(moco_config(**options, epochs=1, lr=1e-12))
    trained = train.run(moco_config(**options, epochs=4))
    assert trained.best["best/knn_proj"] > untrained.best["best/knn_proj"] + 0.05


@pytest.fixture(scope="module")
def colours(tmp_path_factory) -> str:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (48, 32, 32, 3), np.uint8)
    path = tmp_path_factory.mktemp("data") / "colours.npz"
    labels = np.arange(48) % 4
    np.savez(path, train_images=images, train_labels=labels, test_images=images[:16], test_labels=labels[:16])
    return f"npz:{path}"


@pytest.mark.parametrize("preset", ["paper", "lightly"])
def test_presets_train_on_colour_images(preset, colours, tmp_path):
    short = {"epochs": 1, "batch_size": 16, "memory": 32, "num_workers": 0, "width": 0.125, "threads": 1}
    config = make_config(MocoConfig, preset, **short, data=colours, out=str(tmp_path), wandb="disabled", quiet=True)
    result = train.run(config)
    assert result.status == "complete"
    assert result.chosen_on == "evaluation"
    assert result.metrics["train/lr"] == pytest.approx(0.06 * 16 / 128 if preset == "lightly" else 0.03)


def test_the_stem_keeps_the_size_and_has_no_pool():
    backbone = Backbone("resnet-18", 1.0, 8)
    assert backbone.stem(torch.randn(8, 3, 32, 32)).shape == (8, 64, 32, 32)
    assert backbone.layers(torch.randn(8, 64, 32, 32)).shape == (8, 512, 4, 4)
    assert sum(isinstance(module, SplitBatchNorm) for module in backbone.modules()) == 20


def test_an_unknown_resnet_names_the_others(moco_config):
    with pytest.raises(ValueError, match=r"`model` must be one of resnet-9, .*, got 'resnet18'"):
        train.run(moco_config(model="resnet18"))


def test_keys_follow_queries_by_momentum_and_take_no_gradient(moco_config, monkeypatch):
    seen = []
    step = moco.MocoModule.training_step

    def watched(self, batch, batch_idx):
        before = [copy.deepcopy(head.weight.data) for head in (self.head, self.key_head)]
        step(self, batch, batch_idx)
        seen.append((before, self.key_head.weight.data.clone(), self.key_head.weight.grad))

    monkeypatch.setattr(moco.MocoModule, "training_step", watched)
    train.run(moco_config(epochs=1, momentum=0.9))
    for (query, key), after, gradient in seen:
        torch.testing.assert_close(after, 0.9 * key + 0.1 * query)
        assert gradient is None


def test_the_learning_rate_is_a_cosine_over_all_epochs(moco_config):
    module = moco.build(moco_config(epochs=8, lr=1.0)).module
    expected = [(1 + math.cos(math.pi * epoch / 8)) / 2 for epoch in range(8)]
    assert [module.learning_rate(epoch) for epoch in range(8)] == pytest.approx(expected)


@pytest.mark.parametrize(("same_image_negatives", "kind"), [(True, NTXentLoss), (False, MemoryInfoNCELoss)])
def test_the_queue_holds_the_latest_keys_with_their_images(same_image_negatives, kind, moco_config, monkeypatch):
    modules, seen = [], []
    step = moco.MocoModule.training_step

    def watched(self, batch, batch_idx):
        modules.append(self)
        seen.append(batch[2])
        step(self, batch, batch_idx)

    monkeypatch.setattr(moco.MocoModule, "training_step", watched)
    train.run(moco_config(epochs=1, adapter="xbn", memory=70, same_image_negatives=same_image_negatives))
    module = modules[0]
    assert isinstance(module.criterion, kind)
    latest = torch.cat(seen)[-70:]
    sources = module.sources.images(torch.arange(70))
    numbers, positions = sources // 16, sources % 16
    images = torch.stack([seen[number][position] for number, position in zip(numbers, positions, strict=True)])
    assert sorted(images.tolist()) == sorted(latest.tolist())
    norms = module.sources.raw.embeddings.norm(dim=1)
    torch.testing.assert_close(norms, torch.ones(70))
    if same_image_negatives:
        assert module.bank.labels is None
    else:
        assert torch.equal(module.bank.labels, images)


def test_without_a_memory_there_is_nothing_to_leave_out(moco_config):
    module = moco.build(moco_config(adapter="none")).module
    assert isinstance(module.criterion, NTXentLoss)
