"""Stored rows embedded again as they were made: same images, same augmentation, same batch, same mode."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn
from torch.utils.data import Dataset

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.data.loader import fetch
from adaptive_memory_bank.lab.data.randomness import Stream, kept_generators
from adaptive_memory_bank.lab.data.sampler import BatchPlan
from adaptive_memory_bank.lab.data.transforms import Transform
from adaptive_memory_bank.lab.training.scores import gather_interleaved
from adaptive_memory_bank.lab.training.step import TrainingModule


class PastBatches(Dataset[Tensor]):
    """The augmented images of every batch of a run, of all epochs and processes, by the batch's number in its plan."""

    def __init__(self, part: Part, transform: Transform, plan: BatchPlan, seed: int) -> None:
        self.part, self.transform, self.plan, self.seed = part, transform, plan, seed

    def __getitem__(self, number: int) -> Tensor:
        epoch, indices = self.plan.find(number)
        return self.transform(self.part, indices, Stream(self.seed, epoch))


class KeptImages:
    """Images of past batches, kept from one look at them to the next as far as there is room.

    Making them again takes as long as a small encoder takes to embed them.

    Args:
        room: Bytes to keep; batches beyond that are made again every time.
    """

    def __init__(self, room: int = 2 << 30) -> None:
        self.room = room
        self._images: dict[int, Tensor] = {}

    def fetch(self, past: PastBatches, numbers: Sequence[int], *, workers: int) -> Iterator[Tensor]:
        """The images of batches, in the order of their numbers; those of all other batches are let go."""
        self._images = {number: self._images[number] for number in numbers if number in self._images}
        made = fetch(past, [number for number in numbers if number not in self._images], workers=workers)
        left = self.room - sum(images.nbytes for images in self._images.values())
        for number in numbers:
            images = self._images.get(number)
            if images is None:
                images = next(made)
                if images.nbytes <= left:
                    self._images[number] = images
                    left -= images.nbytes
            yield images


def sample_slots(module: TrainingModule, rows: int) -> Tensor:
    """Slots of about so many stored rows: all that are left of some batches, evenly spread over their ages."""
    batch_size = module.config.batch_size
    numbers = _stored(module) // batch_size
    by_age = torch.unique(numbers)
    count = min(len(by_age), max(1, round(rows / batch_size)))
    middles = (torch.arange(count) + 0.5) * len(by_age) / count  # of `count` equal stretches of age
    return torch.isin(numbers, by_age[middles.long()]).nonzero()[:, 0]


def embed_again(module: TrainingModule, slots: Tensor, kept: KeptImages | None = None) -> Tensor:
    """Rows (n, dim) of stored slots as the encoder of now would make them, in the batches they came in.

    With an encoder that has not moved these are the stored rows. Modes are those of the training step, so batch norm
    normalises by the batch; running averages, all other buffers and the random generators stay as they are.
    """
    batch_size = module.config.batch_size
    sources = _stored(module)[slots]
    numbers, which = torch.unique(sources // batch_size, return_inverse=True)
    return _embed_batches(module, numbers.tolist(), kept or KeptImages(room=0))[which, sources % batch_size]


def refresh(module: TrainingModule, kept: KeptImages) -> None:
    """Replace every row of the bank by what the encoder of now makes of its image."""
    assert module.bank is not None
    if len(module.bank):
        module.bank.replace(embed_again(module, torch.arange(len(module.bank)), kept))


class FreshMemory(Callback):
    """Refreshes the memory every few steps, from the first step on that uses it.

    Not within the step: its autocast would keep weights that were cast without gradient.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self._kept = KeptImages()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Refresh it, if that is due."""
        assert isinstance(pl_module, TrainingModule)
        used = pl_module.current_epoch * len(pl_module.plan) + batch_idx - pl_module.first_use
        if used >= 0 and used % self.every == 0:
            refresh(pl_module, self._kept)


def _stored(module: TrainingModule) -> Tensor:
    """The sources of all stored rows, (n,): number of the batch x batch size + position in it."""
    assert module.sources is not None
    return module.sources.images(torch.arange(len(module.sources.raw)))


@torch.no_grad()
def _embed_batches(module: TrainingModule, numbers: list[int], kept: KeptImages) -> Tensor:
    """Rows (n, batch size, dim) of whole batches; each process embeds a part, or in shards those of its own rows."""
    trainer, config, data = module.trainer, module.config, module.data
    assert module.bank is not None
    shared_out = not module.bank.shard_distributed
    mine = numbers[trainer.global_rank :: trainer.world_size] if shared_out else numbers
    past = PastBatches(data.train, data.train_transform, module.plan, config.seed)
    workers = 0 if data.train.in_memory else config.num_workers
    rows = []
    with kept_generators():  # dropout draws from them
        for number, images in zip(mine, kept.fetch(past, mine, workers=workers), strict=True):
            with _same_buffers(*module.embedders), trainer.precision_plugin.train_step_context():
                rows.append(module.embed_batch(images.to(module.device), number))
    none = torch.empty(0, config.batch_size, module.bank.dim, device=module.device)  # fewer batches than processes
    embedded = torch.stack(rows) if rows else none
    return gather_interleaved(embedded, len(numbers)) if shared_out else embedded


@contextmanager
def _same_buffers(*modules: nn.Module) -> Iterator[None]:
    """Put running averages and every other buffer back after."""
    buffers = [buffer for module in modules for buffer in module.buffers()]
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
