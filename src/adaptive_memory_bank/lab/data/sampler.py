"""Batches of indices: deterministic in (seed, epoch), aware of ranks, able to start in mid-epoch."""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from adaptive_memory_bank.checks import check_positive_integer
from adaptive_memory_bank.lab.data.randomness import Stream

_IMAGES, _GROUPS = 1001, 1002  # lanes of their own: shuffles must not share numbers with augmentation
_PLANS_KEPT = 8  # epochs: more than a memory reaches back, as a rule


class BatchPlan(Sampler[list[int]]):
    """A batch sampler whose every epoch is a plan that can be entered anywhere.

    Every batch of every rank and epoch has a number, from which any rank can find its images again.

    Subclasses write `_plan(epoch)`: all batches of all ranks of an epoch, equal on every rank.
    """

    def __init__(self, *, seed: int, rank: int, world_size: int) -> None:
        if world_size < 1 or not 0 <= rank < world_size:
            raise ValueError(f"`rank` must lie in 0 ... world_size - 1, got rank {rank} of {world_size}.")
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self._epoch, self._start = 0, 0
        self._plans: dict[int, Tensor] = {}

    @abstractmethod
    def _plan(self, epoch: int) -> Tensor:
        """(batches, batch size) int64: the global batches of an epoch; rank r takes column block r."""

    @abstractmethod
    def __len__(self) -> int:
        """Batches of an epoch, the same for every rank and epoch."""

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration walks."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Walk another epoch, from its first batch (the same epoch again: keeps the start)."""
        if epoch != self._epoch:
            self._epoch, self._start = epoch, 0

    def start_at(self, batch: int) -> None:
        """Let the next iteration, and only that, begin at this batch of the epoch."""
        if not 0 <= batch <= len(self):
            raise ValueError(f"`batch` must lie in 0 ... {len(self)}, got {batch}.")
        self._start = batch

    def __iter__(self) -> Iterator[list[int]]:
        start, self._start = self._start, 0
        mine = self.plan(self._epoch).chunk(self.world_size, dim=1)[self.rank]
        yield from mine[start:].tolist()

    def plan(self, epoch: int) -> Tensor:
        """(batches, world size x batch size) int64: the images of all batches of an epoch, rank beside rank."""
        if epoch not in self._plans:
            latest = sorted(self._plans)[1 - _PLANS_KEPT :]
            self._plans = {kept: self._plans[kept] for kept in latest} | {epoch: self._plan(epoch)}
        return self._plans[epoch]

    def number(self, epoch: int, batch: int) -> int:
        """The number of this rank's batch: no other batch, of any rank or epoch, has it."""
        return (epoch * len(self) + batch) * self.world_size + self.rank

    def find(self, number: int) -> tuple[int, Tensor]:
        """The epoch and the images (batch size,) of the batch with this number, whichever rank it was of."""
        step, rank = divmod(number, self.world_size)
        epoch, batch = divmod(step, len(self))
        return epoch, self.plan(epoch)[batch].chunk(self.world_size)[rank]

    def state_dict(self) -> dict[str, Any]:
        """Epoch and start. How far a loader got is the loader's knowledge (it prefetches): see `BatchLoader`."""
        return {"epoch": self._epoch, "batch": self._start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.set_epoch(int(state["epoch"]))
        self.start_at(int(state["batch"]))


class PKSampler(BatchPlan):
    """P classes x K images per class in every batch, the sampling of metric learning.

    An epoch shuffles each class, cuts it into groups of K (what is left over waits for another epoch's shuffle) and
    spreads each class's groups evenly over the epoch; no global batch holds a class twice. A class with fewer than K
    images repeats some. Where a few large classes outnumber the rest, groups of other classes come up again.

    Args:
        labels: (N,) of the images to sample from.
        classes_per_batch: P, per rank.
        images_per_class: K (the paper: 4).
        seed: Of the shuffles.
        rank: Of this process.
        world_size: How many processes; each takes whole groups, of different classes, of one global batch.

    Example:
        >>> sampler = PKSampler([0, 0, 1, 1, 2, 2], classes_per_batch=2, images_per_class=2)
        >>> len(sampler), [len(batch) for batch in sampler]
        (1, [4])
    """

    def __init__(
        self,
        labels: Tensor | Sequence[int],
        *,
        classes_per_batch: int,
        images_per_class: int = 4,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(seed=seed, rank=rank, world_size=world_size)
        check_positive_integer("classes_per_batch", classes_per_batch)
        check_positive_integer("images_per_class", images_per_class)
        self.classes_per_batch, self.images_per_class = classes_per_batch, images_per_class
        _, self._classes, self._sizes = torch.unique(torch.as_tensor(labels), return_inverse=True, return_counts=True)
        self._width = classes_per_batch * world_size
        if len(self._sizes) < self._width:
            ranks = f" on each of {world_size} ranks" if world_size > 1 else ""
            raise ValueError(
                f"`classes_per_batch` must be at most the number of classes ({len(self._sizes)}), "
                f"got {classes_per_batch}{ranks}."
            )
        self._groups = (self._sizes // images_per_class).clamp(min=1)  # per class

    def __len__(self) -> int:
        return max(1, int(self._groups.sum()) // self._width)

    def _plan(self, epoch: int) -> Tensor:
        order, owner = self._shuffled_groups(epoch)
        batches = _deal(order.tolist(), owner.tolist(), width=self._width, count=len(self))
        return self._members(epoch)[torch.tensor(batches)].flatten(1)

    def _members(self, epoch: int) -> Tensor:
        """(groups, K): the images of every group, class by class."""
        keys = Stream(self.seed, epoch, lane=_IMAGES).uniform(range(len(self._classes)), 1)[:, 0]
        shuffled = torch.argsort(keys, stable=True)
        by_class = shuffled[torch.argsort(self._classes[shuffled], stable=True)]
        first = self._sizes.cumsum(0) - self._sizes
        number = _count_up(self._groups)[:, None] * self.images_per_class + torch.arange(self.images_per_class)
        owner = torch.repeat_interleave(torch.arange(len(self._sizes)), self._groups)[:, None]
        return by_class[first[owner] + number % self._sizes[owner]]

    def _shuffled_groups(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Groups in the order of a random time; the j-th of a class's g groups comes within [j/g, (j+1)/g)."""
        owner = torch.repeat_interleave(torch.arange(len(self._sizes)), self._groups)
        draws = Stream(self.seed, epoch, lane=_GROUPS).uniform(range(len(owner)), 1)[:, 0]
        time = (_count_up(self._groups) + draws.double()) / self._groups[owner]
        order = torch.argsort(time, stable=True)
        return order, owner


class ShuffleSampler(BatchPlan):
    """Plain shuffled batches, MoCo's sampling: every image at most once an epoch, a short last batch is dropped.

    Args:
        length: Number of images.
        batch_size: Per rank.
        seed: Of the shuffles.
        rank: Of this process.
        world_size: How many processes.

    Example:
        >>> sorted(sum(ShuffleSampler(6, batch_size=2), []))
        [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, length: int, *, batch_size: int, seed: int = 0, rank: int = 0, world_size: int = 1) -> None:
        super().__init__(seed=seed, rank=rank, world_size=world_size)
        check_positive_integer("batch_size", batch_size)
        self.length, self.batch_size = length, batch_size
        if len(self) == 0:
            raise ValueError(
                f"`batch_size` must be at most the images per rank ({length // world_size}), got {batch_size}."
            )

    def __len__(self) -> int:
        return self.length // (self.batch_size * self.world_size)

    def _plan(self, epoch: int) -> Tensor:
        keys = Stream(self.seed, epoch, lane=_IMAGES).uniform(range(self.length), 1)[:, 0]
        width = self.batch_size * self.world_size
        return torch.argsort(keys, stable=True)[: len(self) * width].view(-1, width)


def _count_up(sizes: Tensor) -> Tensor:
    """0 ... n-1 for every n in sizes, one after the other."""
    first = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    return torch.arange(int(sizes.sum())) - first


def _deal(order: list[int], owner: list[int], *, width: int, count: int) -> list[list[int]]:
    """Fill `count` batches of `width` groups in order; a group whose class is already there waits for the next one."""
    pending, repeats = deque(order), cycle(order)
    batches: list[list[int]] = []
    for _ in range(count):
        batch: dict[int, int] = {}  # class -> group
        waiting: list[int] = []
        while pending and len(batch) < width:
            group = pending.popleft()
            if owner[group] in batch:
                waiting.append(group)
            else:
                batch[owner[group]] = group
        while len(batch) < width:  # what is left has too few classes: others come up again
            group = next(repeats)
            batch.setdefault(owner[group], group)
        pending.extendleft(reversed(waiting))
        batches.append(list(batch.values()))
    return batches
