"""What `amb moco` can be told, and its presets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from adaptive_memory_bank.lab.data.registry import check_dataset
from adaptive_memory_bank.lab.models.names import RESNETS
from adaptive_memory_bank.lab.runs.config import RunConfig, check_memory

CIFAR: dict[str, Any] = {
    "data": "cifar10",
    "model": "resnet-18",
    "width": 1.0,
    "embedding_dim": 128,
    "memory": 4096,
    "same_image_negatives": True,
    "split_batch_norm": 8,
    "epochs": 200,
    "batch_size": 128,
    "views": "lightly",
    "min_scale": 0.08,
    "flip": 0.5,
    "gray_probability": 0.2,
    "knn_k": 200,
    "num_workers": 4,
}


@dataclass
class MocoConfig(RunConfig):
    """Self-supervised training with MoCo, built from lightly's modules.

    Args:
        model: ResNet with a CIFAR stem: `resnet-9`, `-18`, `-34`, `-50`, `-101` or `-152`.
        width: Multiplier of the ResNet's channels.
        head: `linear`, or `mlp` (MoCo v2's two layers).
        embedding_dim: Length of queries and keys.
        memory: Keys in the queue.
        momentum: Of the key encoder: keys = momentum * keys + (1 - momentum) * queries.
        temperature: Of the contrastive loss.
        same_image_negatives: Let earlier keys of an image be negatives of its query, as the original recipe does.
        split_batch_norm: Groups that batch norm sees separately (simulates so many GPUs); 0: plain batch norm.
        shuffle: Shuffle the keys' batch, so that batch norm cannot leak which key belongs to which query.
        lr: Learning rate of SGD, on a cosine to 0 over all epochs.
        scale_lr: Multiply the learning rate by batch size / 128 (lightly's benchmark).
        sgd_momentum: Of SGD.
        weight_decay: Of SGD.
        views: `batched` makes the views of a batch at once, `lightly` one by one by lightly's transform (slower).
        min_scale: Smallest share of the image that a random crop keeps.
        flip: Probability of a horizontal flip.
        jitter: Strengths of brightness, contrast, saturation and hue.
        jitter_probability: Probability of the colour jitter.
        gray_probability: Probability of dropping the colours.
        blur: Probability of a Gaussian blur (of `lightly` views).
        knn_k: Neighbours that vote in the kNN evaluation.
        knn_temperature: Of the votes.
    """

    task: ClassVar[str] = "moco"
    presets: ClassVar[Mapping[str, dict[str, Any]]] = {
        "small": {},
        "paper": {**CIFAR, "lr": 0.03},
        "lightly": {**CIFAR, "head": "mlp", "lr": 0.06, "scale_lr": True},
    }

    data: str = "digits"
    epochs: int = 20
    model: str = "resnet-9"
    width: float = 0.25
    head: Literal["linear", "mlp"] = "linear"
    embedding_dim: int = 64
    memory: int = 1024
    momentum: float = 0.99
    temperature: float = 0.1
    same_image_negatives: bool = False
    split_batch_norm: int = 4
    shuffle: bool = True
    lr: float = 0.06
    scale_lr: bool = False
    sgd_momentum: float = 0.9
    weight_decay: float = 5e-4
    views: Literal["batched", "lightly"] = "batched"
    min_scale: float = 0.4
    flip: float = 0.0
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    jitter_probability: float = 0.8
    gray_probability: float = 0.0
    blur: float = 0.0
    knn_k: int = 20
    knn_temperature: float = 0.1

    def check(self) -> None:
        """Check what both tasks share, then what is MoCo's own."""
        super().check()
        check_dataset(self.data, download=self.download)
        self.require("model", self.model in RESNETS, f"one of {', '.join(RESNETS)}")
        splits = self.split_batch_norm
        self.require("split_batch_norm", splits >= 0, "zero or a positive integer")
        if splits and self.batch_size % splits:
            raise ValueError(f"`batch_size` must be divisible by `split_batch_norm` ({splits}), got {self.batch_size}.")
        if self.same_image_negatives:
            self.refuse_shards("with `same_image_negatives`, as lightly's loss compares with the rows of one process")
        if self.adapter != "none":
            check_memory(self.memory, self.batch_size * self.processes)
        self.require_positive("embedding_dim", "knn_k")
        self.require_rates("lr")
        for name in ("temperature", "knn_temperature", "width"):
            self.require(name, getattr(self, name) > 0, "positive")
        self.require("momentum", 0 <= self.momentum < 1, "in [0, 1)")
        for name in ("flip", "jitter_probability", "gray_probability", "blur"):
            self.require(name, 0 <= getattr(self, name) <= 1, "a probability")
        if self.blur and self.views != "lightly":
            raise ValueError(f"`blur` needs `--views lightly`, got {self.blur} with {self.views} views.")
