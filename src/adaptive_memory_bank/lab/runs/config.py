"""What a run can be told: typed, documented dataclasses that the command line, YAML files and Python share."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import yaml

from adaptive_memory_bank.lab.runs.variants import NAMES

if TYPE_CHECKING:
    AdapterName = str
else:
    AdapterName = Literal[NAMES]  # the command line shows and checks the choices


@dataclass
class RunConfig:
    """What both trainers can be told.

    Args:
        preset: Defaults to start from; every other option overrides them.
        data: Dataset name (see `amb datasets`) or `npz:PATH`.
        data_root: Folder with the dataset's files; default: where the dataset's loader looks by itself.
        download: Fetch the dataset if it is missing.
        image_size: Side length of training images in pixels; default: the dataset's own.
        adapter: How the memory follows the encoder; `none` trains without memory, `fresh` (retrieval) re-embeds it.
        adapter_options: Hyper-parameters of the adapter, e.g. `--adapter_options.momentum 0.9`.
        epochs: Passes over the training set.
        batch_size: Images per step and process.
        seed: Of weights, sampling and augmentation.
        out: Parent folder of runs.
        run_name: Folder of this run below `out`; default: made from task, data, adapter and seed.
        name: Label of the run in tables and dashboards; default: the adapter.
        resume: Folder of a run to go on with; its own options apply.
        eval_every: Evaluate every this many epochs (and after the last).
        eval_batch_size: Images per evaluation batch.
        log_every: Log the training loss every this many steps.
        checkpoint_every: Write a resumable checkpoint every this many steps, besides every epoch's end; 0: only there.
        drift_every: Measure feature drift every this many steps; 1 is the paper's figure, 0 turns it off.
        probe_size: Images in the fixed batch that measures drift.
        staleness_rows: Stored rows compared with fresh embeddings every epoch; 0 turns it off.
        num_workers: Loader processes; 0 loads in the training process.
        threads: CPU threads of torch; default: leave as it is.
        accelerator: Lightning's accelerator (`auto`, `cpu`, `gpu`, ...).
        devices: Processes (one per device) of this node.
        num_nodes: Machines.
        precision: Lightning's precision: `32-true`, `16-mixed` or `bf16-mixed`.
        wandb: Weights & Biases: `auto` is online when logged in and offline otherwise.
        project: W&B project.
        entity: W&B team or user.
        group: W&B group; default: data + task.
        tags: W&B tags.
        quiet: Print nothing but errors and the result.
    """

    task: ClassVar[str]
    # What may differ between a run and its continuation: where and how it runs, not what it computes.
    machine_fields: ClassVar[frozenset[str]] = frozenset(
        {"out", "run_name", "resume", "data_root", "download", "num_workers", "threads", "quiet"}
        | {"accelerator", "devices", "num_nodes", "wandb", "project", "entity"}
    )

    preset: str = "small"
    data: str = "glyphs"
    data_root: str | None = None
    download: bool = False
    image_size: int | None = None
    adapter: AdapterName = "auto"
    adapter_options: dict[str, Any] = field(default_factory=dict)
    epochs: int = 10
    batch_size: int = 64
    seed: int = 0
    out: str = "runs"
    run_name: str | None = None
    name: str | None = None
    resume: str | None = None
    eval_every: int = 1
    eval_batch_size: int = 256
    log_every: int = 50
    checkpoint_every: int = 500
    drift_every: int = 50
    probe_size: int = 64
    staleness_rows: int = 512
    num_workers: int = 0
    threads: int | None = None
    accelerator: str = "auto"
    devices: int = 1
    num_nodes: int = 1
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = "32-true"
    wandb: Literal["auto", "online", "offline", "disabled"] = "auto"
    project: str = "adaptive-memory-bank"
    entity: str | None = None
    group: str | None = None
    tags: list[str] = field(default_factory=list)
    quiet: bool = False


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
        fresh_every: With `--adapter fresh`, re-embed all of the memory every this many steps.
        images_per_class: Images of each class in a batch.
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
    fresh_every: int = 8
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


Config = TypeVar("Config", bound=RunConfig)

PAPER_RETRIEVAL: dict[str, Any] = {
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
PHOTOS_RETRIEVAL: dict[str, Any] = {
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
CIFAR_MOCO: dict[str, Any] = {
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
PRESETS: dict[type[RunConfig], dict[str, dict[str, Any]]] = {
    RetrievalConfig: {"small": {}, "photos": PHOTOS_RETRIEVAL, "paper": PAPER_RETRIEVAL},
    MocoConfig: {
        "small": {},
        "paper": {**CIFAR_MOCO, "lr": 0.03},
        "lightly": {**CIFAR_MOCO, "head": "mlp", "lr": 0.06, "scale_lr": True},
    },
}


def make_config(kind: type[Config], preset: str = "small", **options: Any) -> Config:
    """A configuration that starts from a preset.

    Example:
        >>> make_config(RetrievalConfig, "paper", epochs=3).model
        'resnet50'
    """
    presets = PRESETS[kind]
    if preset not in presets:
        raise ValueError(f"`preset` must be one of {', '.join(presets)}, got {preset!r}.")
    return kind(**{"preset": preset, **presets[preset], **options})


def save_config(config: RunConfig, path: Path) -> None:
    """Write a configuration as YAML that `--config` reads."""
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    path.write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")


def load_config(kind: type[Config], path: Path) -> Config:
    """Read what `save_config` wrote."""
    plain: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    unknown = set(plain) - {f.name for f in fields(kind)}
    if unknown:
        raise ValueError(f"{path} does not fit `amb {kind.task}`: unknown option(s) {', '.join(sorted(unknown))}.")
    options: dict[str, Any] = {key: tuple(value) if key == "jitter" else value for key, value in plain.items()}
    return kind(**options)


def resumed_config(config: Config, saved: Config) -> Config:
    """The saved run's options, with this call's machine options; an error where the call asks for something else."""
    default = make_config(type(config), config.preset) if config.preset in PRESETS[type(config)] else config
    for name in (f.name for f in fields(config) if f.name not in config.machine_fields | {"preset"}):
        given = getattr(config, name)
        if given not in (getattr(default, name), getattr(saved, name)):
            raise ValueError(
                f"`{name}` is {getattr(saved, name)!r} in the run to resume, got {given!r}. "
                "Leave it out, or start a new run."
            )
    machine = {name: getattr(config, name) for name in config.machine_fields - {"out", "run_name"}}
    return replace(saved, **machine)
