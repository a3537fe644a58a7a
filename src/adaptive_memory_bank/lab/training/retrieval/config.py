"""What `amb retrieval` can be told, and its presets."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from adaptive_memory_bank.lab.data.registry import check_dataset
from adaptive_memory_bank.lab.models.names import check_model, pml_losses
from adaptive_memory_bank.lab.runs.config import RunConfig

PAPER: dict[str, Any] = {
    "data": "sop",
    "image_size": 224,
    "model": "resnet50",
    "pretrained": True,
    "embedding_dim": 512,
    "adapter": "axbn",
    "epochs": 50,
    "lr": 1e-4,
    "memory_start": 0.0,
    "warmup_epochs": 2,
    "validation": 0.0,
    "precision": "16-mixed",
    "num_workers": 4,
}
# What taught a pretrained backbone on small batches of photographs (benchmarks/results/cub200_protocol.md).
PHOTOS: dict[str, Any] = {
    "data": "cub200",
    "image_size": 96,
    "model": "tf_efficientnet_lite0",
    "pretrained": True,
    "embedding_dim": 128,
    "augmentation": "crop",
    "freeze_batch_norm": True,
    "mine": False,
    "lr": 1e-4,
    "warmup_epochs": 1,
    "warmup_lr": 0.1,
}


@dataclass
class RetrievalConfig(RunConfig):
    """Supervised-contrastive training for retrieval, with a memory bank.

    Args:
        model: Any timm backbone, or `conv4`, the small Omniglot network (`conv4_32`: half as wide, for one thread).
        pretrained: Start from timm's ImageNet weights.
        weights: File with pretrained weights for the backbone (no download).
        embedding_dim: Length of the embeddings.
        embedding_norm: Normalisation after L2: `bn` batch, `mbn` momentum batch, `ln` layer (the paper's appendix).
        loss: `supcon`, the fused loss with pair-margin mining, or the name of a pytorch-metric-learning loss.
        loss_options: Arguments of a pytorch-metric-learning loss, e.g. `--loss_options.margin 0.5`.
        temperature: Of `supcon`.
        mine: Keep only the pairs that violate the margins.
        pos_margin: Positive pairs closer than this are dropped.
        neg_margin: Negative pairs farther apart than this are dropped.
        batch_weight: Weight of the loss within the batch next to that on the memory; 1 is the paper's XBM*.
        memory: Size of the bank: up to 1 a share of the training set, beyond that rows.
        memory_start: Epochs before the loss uses the memory, while it fills and adapts; may be a fraction.
        images_per_class: Images of each class in a batch; more where the data has few classes, unless it is given.
        lr: Learning rate of AdamW.
        weight_decay: Of AdamW.
        lr_step: Multiply the learning rate by `lr_gamma` every this many epochs.
        lr_gamma: See `lr_step`.
        warmup_epochs: First epochs that train the head alone with SGD, without memory (part of `epochs`).
        warmup_lr: Learning rate of the warm-up.
        freeze_batch_norm: Keep the backbone's batch norm at its pretraining's averages (scale and shift train).
        augmentation: `paper`: timm's RandAugment and erasing (affine jitter for gray images); `crop`: crops and flips.
        validation: Share of the training classes held out to choose the epoch on; 0 chooses on the evaluation set.
    """

    task: ClassVar[str] = "retrieval"
    presets: ClassVar[Mapping[str, dict[str, Any]]] = {"small": {}, "photos": PHOTOS, "paper": PAPER}
    fitted_fields: ClassVar[tuple[str, ...]] = (
        *RunConfig.fitted_fields, "images_per_class", "memory", "validation"
    )  # fmt: skip

    model: str = "conv4_32"
    pretrained: bool = False
    weights: str | None = None
    embedding_dim: int = 64
    embedding_norm: Literal["none", "bn", "mbn", "ln"] = "none"
    loss: str = "supcon"
    loss_options: dict[str, Any] = field(default_factory=dict)
    temperature: float = 0.1
    mine: bool = True
    pos_margin: float = 0.2
    neg_margin: float = 0.8
    batch_weight: float = 0.0
    memory: float = 0.5
    memory_start: float = 1.0
    images_per_class: int = 4
    lr: float = 1e-3
    weight_decay: float = 1e-2
    lr_step: int = 15
    lr_gamma: float = 0.33
    warmup_epochs: int = 0
    warmup_lr: float = 1e-3
    freeze_batch_norm: bool = False
    augmentation: Literal["paper", "crop"] = "paper"
    validation: float = 0.1

    def check(self) -> None:
        """Check what both tasks share, then what is retrieval's own."""
        super().check()
        check_dataset(self.data, download=self.download)
        check_model(self.model)
        known = ("supcon", *pml_losses())
        self.require("loss", self.loss in known, f"one of {', '.join(known)}")
        if self.loss != "supcon":
            self.refuse_shards(f"with `loss` {self.loss}, which compares with the rows of one process")
        self.require("images_per_class", self.images_per_class >= 2, "at least 2, or there are no positive pairs")
        if self.batch_size % self.images_per_class:
            raise ValueError(
                f"`batch_size` must be divisible by `images_per_class` ({self.images_per_class}), "
                f"got {self.batch_size}."
            )
        self.require("memory", self.memory > 0, "positive: up to 1 a share of the training set, beyond that rows")
        self.require("memory", self.memory <= 1 or self.memory == int(self.memory), "whole rows beyond 1")
        self.require("memory_start", 0 <= self.memory_start < math.inf, "zero or a positive number of epochs")
        self.require("validation", 0 <= self.validation < 1, "a share in [0, 1)")
        self.require("warmup_epochs", 0 <= self.warmup_epochs <= self.epochs, "between 0 and `epochs`")
        self.require_positive("embedding_dim", "lr_step")
        self.require_rates("lr", *(("warmup_lr",) if self.warmup_epochs else ()))
        self.require("temperature", self.temperature > 0, "positive")
