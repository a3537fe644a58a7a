"""`amb retrieval`: supervised-contrastive training with a memory that follows the encoder."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, cast

import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD, AdamW, Optimizer

from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.lab.data import Part, PKSampler, RetrievalData
from adaptive_memory_bank.lab.data.sampler import BatchPlan
from adaptive_memory_bank.lab.models.encoder import Encoder, build_encoder
from adaptive_memory_bank.lab.runs.config import check_memory
from adaptive_memory_bank.lab.training.fitting import (
    describe_fit,
    fit_batch,
    fit_held_out,
    fit_image_size,
    fit_memory,
    memory_rows,
)
from adaptive_memory_bank.lab.training.retrieval.backbone_checks import check_backbone
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from adaptive_memory_bank.lab.training.retrieval.criteria import (
    batch_criterion,
    check_loss_options,
    memory_criterion,
    pairs_kept,
)
from adaptive_memory_bank.lab.training.scores import evaluating, retrieval_scores, summary
from adaptive_memory_bank.lab.training.step import TrainingData, TrainingModule
from adaptive_memory_bank.lab.training.train import Training
from adaptive_memory_bank.lab.training.training_data import load_images, retrieval_data
from adaptive_memory_bank.lab.training.watch.evaluation import Evaluation
from adaptive_memory_bank.lab.training.worst_queries import worst_queries


def build(config: RetrievalConfig, given: Collection[str] = ()) -> Training:
    """Everything a run needs, its options fitted to the data; complains before anything is written or downloaded."""
    config.check()
    check_loss_options(config)
    check_backbone(config)
    _warn_of_idle_memory(config)
    images = load_images(config)
    fitted = fit_held_out(fit_image_size(config, images, given), images, given)
    data = retrieval_data(fitted, images)
    fitted = fit_memory(fit_batch(fitted, data.train, given), len(data.train), given)
    module = RetrievalModule(fitted, data)
    told = describe_fit(config, fitted, images, data.train)
    return Training(module, evaluate, data.source.gallery, told, idle_parameters=config.warmup_epochs > 0)


class RetrievalModule(TrainingModule):
    """Encoder, loss and memory of a retrieval run."""

    config: RetrievalConfig

    def __init__(self, config: RetrievalConfig, data: TrainingData) -> None:
        classes = len(data.source.train.class_names)
        steps = len(_make_sampler(config, data.train, 0, config.processes))
        start_after = round(config.memory_start * steps)
        criterion, bank = self._make_criterion(config, data.train, classes, start_after)
        super().__init__(config, data, bank)
        self.first_use = config.warmup_epochs * steps + start_after
        side = config.image_size or data.source.image_size
        self.encoder: Encoder = build_encoder(config, gray=data.source.gray, image_size=side)
        self.criterion = criterion
        self.warmup_criterion = batch_criterion(config, classes) if config.warmup_epochs else None

    @staticmethod
    def _make_criterion(
        config: RetrievalConfig, train: Part, classes: int, start_after: int
    ) -> tuple[nn.Module, AdaptiveMemoryBank | None]:
        if config.adapter == "none":
            return batch_criterion(config, classes), None
        rows = memory_rows(config.memory, len(train))
        check_memory(rows, config.batch_size * config.processes)
        return memory_criterion(config, classes, rows=rows, start_after=start_after)

    @property
    def warming_up(self) -> bool:
        """Whether this epoch trains the head alone."""
        return self.current_epoch < self.config.warmup_epochs

    def batch_loss(self, images: Tensor, labels: Tensor, indices: Tensor, number: int) -> Tensor:
        """Contrast the batch with the memory; in the warm-up with itself, through a frozen backbone."""
        if self.warming_up and self.warmup_criterion is not None:
            with torch.no_grad():
                features = self.encoder.backbone(images)
            criterion: nn.Module = self.warmup_criterion
            loss = criterion(self.encoder.embed(features), labels)
        else:
            rows, criterion = self.encoder(images), self.criterion
            loss = criterion(rows, labels)
            if self.bank is not None:
                self.remember(rows, number)
        pairs = pairs_kept(criterion)
        if pairs is not None:
            self.last["train/pairs"] = pairs
        return cast("Tensor", loss)

    def on_train_epoch_start(self) -> None:
        """Freeze the backbone (batch norm included) while the head warms up."""
        super().on_train_epoch_start()
        self._set_modes()

    def on_train_start(self) -> None:
        """A run that is resumed in the warm-up enters it in mid-epoch."""
        self._set_modes()

    def _set_modes(self) -> None:
        self.encoder.backbone.train(not self.warming_up)
        if self.config.freeze_batch_norm:
            for part in self.encoder.backbone.modules():
                if isinstance(part, _BatchNorm):
                    part.eval()

    def embed(self, images: Tensor) -> Tensor:
        """Rows as the bank stores them."""
        return cast("Tensor", self.encoder(images))

    def embed_batch(self, images: Tensor, number: int) -> Tensor:
        """Rows of a batch: the encoder is all there is to it."""
        return self.embed(self.shaped(images))

    @property
    def embedders(self) -> tuple[nn.Module, ...]:
        """The encoder."""
        return (self.encoder,)

    def make_sampler(self, rank: int, world_size: int) -> BatchPlan:
        """P classes x K images, whole groups on every rank."""
        return _make_sampler(self.config, self.data.train, rank, world_size)

    def configure_optimizers(self) -> list[Optimizer]:
        """AdamW for everything, SGD for the warm-up of the head."""
        config = self.config
        parameters = [*self.encoder.parameters(), *self.criterion.parameters()]
        head = [*self.encoder.head.parameters(), *self.encoder.norm.parameters()]
        main = AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay)
        return [main, SGD(head, lr=config.warmup_lr)] if config.warmup_epochs else [main]

    def active_optimizer(self) -> Any:
        """SGD in the warm-up, AdamW after."""
        optimizers = self.optimizers()
        return optimizers[int(self.warming_up)] if isinstance(optimizers, list) else optimizers

    def learning_rate(self, epoch: int) -> float:
        """Multiplied by `lr_gamma` every `lr_step` epochs."""
        config = self.config
        if epoch < config.warmup_epochs:
            return config.warmup_lr
        return float(config.lr * config.lr_gamma ** (epoch // config.lr_step))


def _make_sampler(config: RetrievalConfig, train: Part, rank: int, world_size: int) -> PKSampler:
    return PKSampler(
        train.labels,
        classes_per_batch=config.batch_size // config.images_per_class,
        images_per_class=config.images_per_class,
        seed=config.seed,
        rank=rank,
        world_size=world_size,
    )


def _warn_of_idle_memory(config: RetrievalConfig) -> None:
    epochs = config.epochs - config.warmup_epochs
    if config.adapter != "none" and config.memory_start >= epochs:
        rank_zero_warn(
            f"The memory is never used: `memory_start` is {config.memory_start:g} epochs, and {epochs} of the run's "
            f"{config.epochs} epochs follow the warm-up."
        )


def evaluate(module: RetrievalModule) -> Evaluation:
    """Recall@k and MAP@R on the evaluation set, and on held-out classes if there are any."""
    data, ks = module.data, module.data.source.ks
    query, gallery = data.source.query, data.source.gallery
    with evaluating(*module.embedders):
        rows = module.embed_part(module.embed, query)
        gallery_rows = None if gallery is None else module.embed_part(module.embed, gallery)
        held_rows = None if data.held_out is None else module.embed_part(module.embed, data.held_out)
    scores = retrieval_scores(rows, query, gallery_rows, gallery)
    metrics = summary(scores, ks, "val")
    if data.held_out is not None and held_rows is not None:
        metrics |= summary(retrieval_scores(held_rows, data.held_out, None, None), ks, "holdout")
    return Evaluation(metrics, worst_queries(scores, rows, gallery_rows))


def restore(config: RetrievalConfig, state: dict[str, Tensor], *, gray: bool, image_size: int) -> Encoder:
    """The encoder of a checkpoint, to be scored."""
    encoder = build_encoder(replace(config, pretrained=False, weights=None), gray=gray, image_size=image_size)
    prefix = "encoder."
    encoder.load_state_dict({name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)})
    return encoder


def score(config: RetrievalConfig, embed: Callable[[Part], Tensor], data: RetrievalData) -> dict[str, float]:
    """Score what `restore` restored on a dataset: Recall@k and MAP@R."""
    found = None if data.gallery is None else embed(data.gallery)
    return summary(retrieval_scores(embed(data.query), data.query, found, data.gallery), data.ks, "val")
