"""`amb moco`: momentum contrast from lightly's modules, with an adaptive queue in place of theirs."""

import copy
import math
from collections.abc import Callable, Collection
from typing import Any, cast

import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss
from lightly.models.utils import batch_shuffle, batch_unshuffle, deactivate_requires_grad, update_momentum
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from adaptive_memory_bank.adapters import make_adapter
from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.integrations.lightly import swap_memory_bank
from adaptive_memory_bank.lab.data import Part, RetrievalData, ShuffleSampler
from adaptive_memory_bank.lab.data.randomness import Stream
from adaptive_memory_bank.lab.data.sampler import BatchPlan
from adaptive_memory_bank.lab.models.resnet import Backbone, WithHead, make_head
from adaptive_memory_bank.lab.training.fitting import describe_fit, fit_image_size, fit_moco_batch
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.scores import evaluating
from adaptive_memory_bank.lab.training.step import TrainingData, TrainingModule
from adaptive_memory_bank.lab.training.train import Training
from adaptive_memory_bank.lab.training.training_data import load_images, moco_data
from adaptive_memory_bank.lab.training.watch.evaluation import Evaluation
from adaptive_memory_bank.lab.training.worst_queries import worst_queries
from adaptive_memory_bank.losses import MemoryInfoNCELoss
from adaptive_memory_bank.metrics import knn_accuracy, score_queries

GALLERY_QUERIES = 512  # queries among which the worst are looked for
_KEYS = 1003  # a lane of the shuffles' own: they must not share numbers with the augmentation


def build(config: MocoConfig, given: Collection[str] = ()) -> Training:
    """Everything a run needs, its options fitted to the data; complains before anything is written."""
    config.check()
    images = load_images(config)
    _check_classes(images)
    fitted = fit_moco_batch(fit_image_size(config, images, given), len(images.train), given)
    data = moco_data(fitted, images)
    told = describe_fit(config, fitted, images, data.train)
    return Training(MocoModule(fitted, data), evaluate, data.source.train, told)


def _check_classes(data: RetrievalData) -> None:
    """Training images vote on the classes of test images: of classes they do not have, they get none right."""
    if not set(data.train.labels.tolist()) & set(data.query.labels.tolist()):
        raise ValueError(
            f"`data` must have the same classes for training and for testing, which {data.name} has not: `amb moco` is "
            "scored by the votes of training images, and kNN would be 0. Use `amb retrieval`, which is for unseen "
            "classes, or split every class: `folder:PATH` with `train/<class>/` and `test/<class>/`."
        )


class MocoModule(TrainingModule):
    """Query encoder, key encoder that follows it, and the queue of keys."""

    config: MocoConfig

    def __init__(self, config: MocoConfig, data: TrainingData) -> None:
        criterion, bank = _make_criterion(config)
        super().__init__(config, data, bank)
        self.criterion = criterion
        self.backbone = Backbone(config.model, config.width, config.split_batch_norm)
        self.head = make_head(config.head, self.backbone.features, config.embedding_dim)
        self.key_backbone, self.key_head = copy.deepcopy(self.backbone), copy.deepcopy(self.head)
        deactivate_requires_grad(self.key_backbone)
        deactivate_requires_grad(self.key_head)

    def batch_loss(self, images: Tensor, labels: Tensor, indices: Tensor, number: int) -> Tensor:
        """Contrast the queries with their keys and with the queue, views (B, 2, C, H, W)."""
        update_momentum(self.backbone, self.key_backbone, self.config.momentum)
        update_momentum(self.head, self.key_head, self.config.momentum)
        queries = self.head(self.backbone(self.shaped(images[:, 0]))).float()
        keys = self._keys(images[:, 1], number)
        loss = self.criterion(queries, keys, indices) if self.knows_images else self.criterion(queries, keys)
        if self.bank is not None:
            self.remember(F.normalize(keys, dim=1), number)
        return cast("Tensor", loss)

    @property
    def knows_images(self) -> bool:
        """Whether the loss is told which images it contrasts, so that none is its own negative."""
        return isinstance(self.criterion, MemoryInfoNCELoss)

    @torch.no_grad()
    def _keys(self, images: Tensor, number: int) -> Tensor:
        if not self.config.shuffle:
            return self._encode_keys(images)
        if self.trainer.world_size > 1:
            shuffled, order = batch_shuffle(images, distributed=True)
            return cast("Tensor", batch_unshuffle(self._encode_keys(shuffled), order, distributed=True))
        # The order decides the groups of split batch norm: drawn so that it can be drawn again.
        draws = Stream(self.config.seed, number, lane=_KEYS).uniform(range(len(images)), 1)[:, 0]
        order = torch.argsort(draws).to(images.device)
        return self._encode_keys(images[order])[torch.argsort(order)]

    def _encode_keys(self, images: Tensor) -> Tensor:
        return cast("Tensor", self.key_head(self.key_backbone(self.shaped(images))).float())

    def embed(self, images: Tensor) -> Tensor:
        """Keys, as the queue stores them."""
        return F.normalize(self._encode_keys(images), dim=1)

    def embed_batch(self, images: Tensor, number: int) -> Tensor:
        """Keys of a batch, views (B, 2, C, H, W)."""
        if self.trainer.world_size > 1:
            # Lightly's shuffle over all processes cannot be repeated: batch norm sees other groups of images here.
            return self.embed(images[:, 1])
        return F.normalize(self._keys(images[:, 1], number), dim=1)

    @property
    def embedders(self) -> tuple[nn.Module, ...]:
        """The key encoder."""
        return self.key_backbone, self.key_head

    def make_sampler(self, rank: int, world_size: int) -> BatchPlan:
        """Shuffled images, the last short batch dropped."""
        config = self.config
        return ShuffleSampler(
            len(self.data.train), batch_size=config.batch_size, seed=config.seed, rank=rank, world_size=world_size
        )

    def configure_optimizers(self) -> Optimizer:
        """SGD with momentum for the query encoder."""
        config = self.config
        parameters = [*self.backbone.parameters(), *self.head.parameters()]
        return SGD(parameters, lr=config.lr, momentum=config.sgd_momentum, weight_decay=config.weight_decay)

    def learning_rate(self, epoch: int) -> float:
        """A cosine from `lr` to 0 over all epochs."""
        config = self.config
        base = config.lr * config.batch_size / 128 if config.scale_lr else config.lr
        return base * (1 + math.cos(math.pi * epoch / config.epochs)) / 2


def _make_criterion(config: MocoConfig) -> tuple[nn.Module, AdaptiveMemoryBank | None]:
    gather = config.processes > 1
    if config.adapter == "none":
        return NTXentLoss(config.temperature, memory_bank_size=0, gather_distributed=gather), None
    size = (config.memory, config.embedding_dim)
    adapter = make_adapter(config.bank_adapter, **config.adapter_options)
    if not config.same_image_negatives:
        queue = AdaptiveMemoryBank(*size, adapter, **config.bank_layout)
        return MemoryInfoNCELoss(queue, config.temperature), queue
    criterion = NTXentLoss(config.temperature, memory_bank_size=size, gather_distributed=gather)
    swap_memory_bank(criterion, adapter)
    bank: AdaptiveMemoryBank = criterion.memory_bank.memory
    return criterion, bank


def evaluate(module: MocoModule) -> Evaluation:
    """Accuracy of a weighted kNN, and the worst queries."""
    data = module.data.source
    encoder = WithHead(module.backbone, module.head)
    with evaluating(encoder):
        rows, stored = (module.embed_part(encoder, part) for part in (data.query, data.train))
    features = module.backbone.features
    worst = _worst(rows[:, :features], data.query, stored[:, :features], data.train)
    return Evaluation(_knn_metrics(module.config, data, rows, stored), worst)


def restore(config: MocoConfig, state: dict[str, Tensor], *, gray: bool, image_size: int) -> WithHead:
    """The query encoder of a checkpoint, to be scored."""
    backbone = Backbone(config.model, config.width, config.split_batch_norm)
    encoder = WithHead(backbone, make_head(config.head, backbone.features, config.embedding_dim))
    encoder.load_state_dict({name: value for name, value in state.items() if name.startswith(("backbone.", "head."))})
    return encoder


def score(config: MocoConfig, embed: Callable[[Part], Tensor], data: RetrievalData) -> dict[str, float]:
    """Score what `restore` restored on a dataset."""
    return _knn_metrics(config, data, embed(data.query), embed(data.train))


def _knn_metrics(config: MocoConfig, data: RetrievalData, rows: Tensor, stored: Tensor) -> dict[str, float]:
    """Accuracy of a weighted kNN on the features (`val/knn`) and on the head's output (`val/knn_proj`).

    Rows (N, features + dim) are of the queries, those stored (M, features + dim) of the training images, which vote.
    """
    columns = {"val/knn": slice(-config.embedding_dim), "val/knn_proj": slice(-config.embedding_dim, None)}
    return {
        name: knn_accuracy(
            rows[:, part],
            data.query.labels,
            stored[:, part],
            data.train.labels,
            num_classes=len(data.train.class_names),
            k=min(config.knn_k, len(stored)),
            temperature=config.knn_temperature,
        )
        for name, part in columns.items()
    }


def _worst(rows: Tensor, query: Part, bank: Tensor, train: Part) -> dict[str, Any]:
    """The worst of a sample of the queries: ranking all of CIFAR's would take longer than an epoch's evaluation."""
    sample = torch.arange(0, len(rows), max(1, len(rows) // GALLERY_QUERIES))[:GALLERY_QUERIES]
    scores = score_queries(rows[sample], query.labels[sample], bank, train.labels)
    found = worst_queries(scores, rows[sample], bank)
    return {**found, "queries": sample[found["queries"]].tolist()}
