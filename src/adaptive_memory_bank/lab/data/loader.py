"""A DataLoader that asks for whole batches and knows, exactly, which batch comes next."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from adaptive_memory_bank.lab.data.dataset import ImageDataset
from adaptive_memory_bank.lab.data.sampler import BatchPlan


class BatchLoader(DataLoader[Any]):
    """Whole batches of an `ImageDataset` in the order of a batch sampler, resumable in mid-epoch.

    Call `set_epoch` before each epoch (Lightning does); sampler and dataset follow. `state_dict` counts the batches
    handed out, not those that workers prefetched, so Lightning (which saves stateful loaders) and plain loops resume
    with the very next batch. The sampler is rank-aware: under Lightning set `use_distributed_sampler=False`.

    Args:
        dataset: What makes the batches.
        sampler: What chooses them.
        num_workers: Processes; 0 is fastest for images in memory.
        pin_memory: For a GPU.
    """

    def __init__(
        self, dataset: ImageDataset, sampler: BatchPlan, *, num_workers: int = 0, pin_memory: bool = False
    ) -> None:
        self.plan, self.images = sampler, dataset
        self._position = (sampler.epoch, 0)  # (epoch, batch) that comes next
        super().__init__(
            dataset,
            batch_size=None,  # the sampler's items are whole batches already: no collating
            sampler=sampler,
            num_workers=num_workers,
            pin_memory=pin_memory,
            persistent_workers=num_workers > 0,
        )

    def set_epoch(self, epoch: int) -> None:
        """Move the sampler (and, when the epoch begins, the dataset's draws) to an epoch."""
        self.plan.set_epoch(epoch)
        self._position = (epoch, self.plan.state_dict()["batch"])

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:  # type: ignore[override]
        epoch, start = self.plan.epoch, self.plan.state_dict()["batch"]
        self.images.set_epoch(epoch)
        for number, batch in enumerate(super().__iter__(), start=start + 1):
            self._position = (epoch, number) if number < len(self.plan) else (epoch + 1, 0)
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Epoch and the number of its next batch."""
        epoch, batch = self._position
        return {"epoch": epoch, "batch": batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue with the batch after the last one handed out."""
        self.plan.load_state_dict(state)
        self._position = (state["epoch"], state["batch"])


def fetch(dataset: Dataset[Any], keys: Sequence[Any], *, workers: int) -> Iterator[Any]:
    """Items of a dataset in the order of their keys, made by so many processes; 0: by this one.

    Starting the processes draws a seed, from a generator of its own: the global one is not touched.
    """
    if workers == 0:
        yield from (dataset[key] for key in keys)
        return
    yield from DataLoader(dataset, batch_size=None, sampler=keys, num_workers=workers, generator=torch.Generator())
