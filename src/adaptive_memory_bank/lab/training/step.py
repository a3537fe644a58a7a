"""What all tasks share as LightningModules: one optimisation step, a guard against NaN, the loader."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.diagnostics import StoredSources
from adaptive_memory_bank.lab.data import BatchLoader, ImageDataset, Part, RetrievalData
from adaptive_memory_bank.lab.data.sampler import BatchPlan
from adaptive_memory_bank.lab.data.transforms import IMAGENET, Normalization, Transform
from adaptive_memory_bank.lab.runs.config import RunConfig
from adaptive_memory_bank.lab.runs.files import DamagedFileError
from adaptive_memory_bank.lab.runs.variants import FRESH
from adaptive_memory_bank.lab.training.scores import OnEmbedded, embed_part, tell_nobody
from adaptive_memory_bank.masks import reading_is_free
from adaptive_memory_bank.shards import gather_shares

# With fewer channels, oneDNN's gradient of a strided 1x1 convolution crashes or hangs in channels-last memory on AVX2.
FEWEST_CHANNELS = 8
START_ANEW = "Delete the folder of checkpoints and resume the run: it starts anew."


class NonFiniteLossError(ArithmeticError):
    """The loss became NaN or infinite; no checkpoint holds what followed."""


class NonFiniteWeightsError(NonFiniteLossError):
    """A weight or a running average became NaN or infinite, while the loss was still a number."""


@dataclass(frozen=True)
class TrainingData:
    """What a run trains on and is scored on."""

    source: RetrievalData
    train: Part  # without held-out classes
    held_out: Part | None  # training classes to choose the epoch on
    train_transform: Transform  # with augmentation
    eval_transform: Transform  # without
    normalization: Normalization = IMAGENET  # of colours, in both


class TrainingModule(pl.LightningModule):
    """One step: loss, check, backward, optimiser. Subclasses write what is between batch and loss.

    Optimisation is manual: the learning rate is a function of the epoch alone, so that a checkpoint taken anywhere
    holds all of it.
    """

    def __init__(self, config: RunConfig, data: TrainingData, bank: AdaptiveMemoryBank | None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.config, self.data = config, data
        self._bank = [bank]  # in a list: it is a submodule of the loss already
        follow = config.staleness_rows > 0 or config.adapter == FRESH.name
        self.sources = None
        if follow and bank is not None:
            self.sources = StoredSources(bank.size, bank.dim, **config.bank_layout)
        self.first_use = 0  # the first step whose loss uses the memory
        self.last: dict[str, float | Tensor] = {}  # what the last step measured
        self._bad_step: Tensor | None = None  # the first one whose loss was not finite, or -1; on the loss's device
        self.on_embedded: OnEmbedded = tell_nobody  # watches evaluations

    @property
    def bank(self) -> AdaptiveMemoryBank | None:
        """The memory, or None."""
        return self._bank[0]

    @abstractmethod
    def batch_loss(self, images: Tensor, labels: Tensor, indices: Tensor, number: int) -> Tensor:
        """The loss of one batch, which has a number in `plan`; updates the bank and calls `remember`."""

    @abstractmethod
    def embed(self, images: Tensor) -> Tensor:
        """Rows (B, dim) as the bank stores them, of images (B, C, H, W); for diagnostics."""

    @abstractmethod
    def embed_batch(self, images: Tensor, number: int) -> Tensor:
        """Rows (B, dim) as the training step makes them of a whole batch, images as the loader gives them."""

    @property
    @abstractmethod
    def embedders(self) -> tuple[nn.Module, ...]:
        """The modules that `embed` and `embed_batch` run through."""

    @abstractmethod
    def make_sampler(self, rank: int, world_size: int) -> BatchPlan:
        """The batches of this rank."""

    @abstractmethod
    def learning_rate(self, epoch: int) -> float:
        """The learning rate of an epoch."""

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> None:
        """Take one optimiser step."""
        images, labels, indices = batch
        number = self.plan.number(self.current_epoch, batch_idx)
        loss = self.batch_loss(self.shaped(images), labels, indices, number)
        self.last["train/loss"] = measured(loss)
        self._note_loss(loss, batch_idx, indices)
        optimizer = cast("Any", self.active_optimizer())
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def _note_loss(self, loss: Tensor, batch_idx: int, indices: Tensor) -> None:
        """Stop before the optimiser sees a NaN, and say where it came from; a GPU is asked later, by `check_losses`."""
        value, step = self.last["train/loss"], self.trainer.global_step
        if isinstance(value, Tensor):
            unknown = value.new_full((), -1, dtype=torch.int64) if self._bad_step is None else self._bad_step
            self._bad_step = torch.where((unknown < 0) & ~value.isfinite(), step, unknown)
        elif not math.isfinite(value):
            images = ", ".join(map(str, indices[:8].tolist())) + (", ..." if len(indices) > 8 else "")
            where = f"epoch {self.current_epoch}, batch {batch_idx}, training images {images}"
            raise NonFiniteLossError(f"The loss is {value} at step {step} ({where}).")

    def check_losses(self) -> None:
        """Stop if any loss so far was not finite. Waits for the device, so only logs and checkpoints ask."""
        step = -1 if self._bad_step is None else int(self._bad_step)
        if step >= 0:
            raise NonFiniteLossError(f"The loss was not finite at step {step} (noticed in epoch {self.current_epoch}).")

    def active_optimizer(self) -> Any:
        """The optimiser of this epoch."""
        return self.optimizers()

    def on_train_epoch_start(self) -> None:
        """Set the epoch's learning rate."""
        for group in self.active_optimizer().param_groups:
            group["lr"] = self.learning_rate(self.current_epoch)

    def remember(self, rows: Tensor, number: int) -> None:
        """Note which batch the rows that the bank just stored came from, and their positions in it."""
        if self.sources is not None:
            first = number * self.config.batch_size
            self.sources.enqueue(rows, torch.arange(first, first + len(rows), device=rows.device))

    @cached_property
    def plan(self) -> BatchPlan:
        """The batches of this process, and of all others; known once training starts."""
        return self.make_sampler(self.trainer.global_rank, self.trainer.world_size)

    def train_dataloader(self) -> BatchLoader:
        """Batches of this rank; made by Lightning once the ranks are known."""
        dataset = ImageDataset(self.data.train, self.data.train_transform, seed=self.config.seed)
        on_gpu = self.trainer.strategy.root_device.type == "cuda"
        loader = BatchLoader(dataset, self.plan, num_workers=self.config.num_workers, pin_memory=on_gpu)
        # Starting workers draws a seed; from a generator of its own, or resumed runs would draw otherwise.
        loader.generator = torch.Generator()
        return loader

    def check_finite_weights(self) -> None:
        """Raise, on all processes, where a checkpoint would hold a weight or a running average that is no number."""
        averages = (pair for pair in self.named_buffers() if pair[0].endswith(("running_mean", "running_var")))
        broken = [name for name, value in (*self.named_parameters(), *averages) if not value.isfinite().all()]
        if self.trainer.strategy.reduce_boolean_decision(bool(broken), all=False):
            which = f"`{broken[0]}` is" if broken else "Weights of another process are"
            raise NonFiniteWeightsError(
                f"{which} not finite at step {self.trainer.global_step} (epoch {self.current_epoch}): no checkpoint is "
                "written. A smaller learning rate may help."
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Note what images the encoder takes, so that it can be rebuilt without its dataset. Never after a NaN.

        Rank 0 writes: the shares that other processes hold of a memory go there.
        """
        self.check_losses()
        self.check_finite_weights()
        checkpoint["state_dict"] = gather_shares(checkpoint["state_dict"])
        source, colours = self.data.source, self.data.normalization
        images = {"gray": source.gray, "image_size": self.config.image_size or source.image_size}
        checkpoint["images"] = {**images, "mean": list(colours.mean), "std": list(colours.std)}
        checkpoint["processes"] = self.trainer.world_size

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse the checkpoint of another run, and another number of processes: both would train something else."""
        path, saved = Path(str(self.trainer.ckpt_path)), checkpoint["state_dict"]
        for name, value in self.named_parameters():
            if name not in saved or saved[name].shape != value.shape:
                other = tuple(saved[name].shape) if name in saved else "missing"
                raise DamagedFileError(
                    path, f"it is of another run (`{name}` is {other}, not {tuple(value.shape)})", START_ANEW
                )
        before, now = checkpoint.get("processes", self.trainer.world_size), self.trainer.world_size
        if before != now:
            raise ValueError(f"The run must be resumed on as many processes as before ({before}), got {now}.")

    @cached_property
    def memory_format(self) -> torch.memory_format:
        """Channels last, for convolutions are faster that way on CPUs and on tensor cores; not where it is not safe."""
        return best_memory_format(self)

    def embed_part(self, embed: Callable[[Tensor], Tensor], part: Part) -> Tensor:
        """Rows (N, dim) that `embed` makes of a part's images, without augmentation, on the CPU."""
        return embed_part(
            lambda images: embed(self.shaped(images)),
            part,
            self.data.eval_transform,
            batch_size=self.config.eval_batch_size,
            device=self.device,
            workers=self.config.num_workers,
            on_embedded=self.on_embedded,
        )

    def shaped(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) in the module's memory format; views (B, 2, C, H, W) as they are."""
        return images.contiguous(memory_format=self.memory_format) if images.ndim == 4 else images


def measured(value: Tensor) -> float | Tensor:
    """A number where reading it is free; elsewhere a tensor, which is read once per `log_every` steps."""
    return value.item() if reading_is_free(value.device) else value.detach()


def best_memory_format(module: nn.Module) -> torch.memory_format:
    """Channels last, unless a strided 1x1 convolution is too narrow for it.

    Example:
        >>> best_memory_format(nn.Conv2d(8, 16, 1, stride=2)), best_memory_format(nn.Conv2d(4, 8, 1, stride=2))
        (torch.channels_last, torch.contiguous_format)
    """
    convolutions = [part for part in module.modules() if isinstance(part, nn.Conv2d)]
    shortcuts = [part for part in convolutions if part.kernel_size == (1, 1) and part.stride != (1, 1)]
    narrow = any(part.in_channels < FEWEST_CHANNELS for part in shortcuts)
    return torch.contiguous_format if narrow else torch.channels_last
