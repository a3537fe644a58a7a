"""What happens to a memory while its encoder learns: feature drift and staleness."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adaptive_memory_bank.bank import AdaptiveMemoryBank


class Drift(NamedTuple):
    """How far one step moved the embeddings of fixed images: ``||z_k - z_(k-1)||``, over the images."""

    mean: float
    max: float


def feature_drift(before: Tensor, after: Tensor) -> Drift:
    """Compare embeddings of the same images before and after a step.

    Args:
        before: ``z_(k-1)``, shape (B, dim).
        after: ``z_k``, shape (B, dim).

    Example:
        >>> feature_drift(torch.zeros(2, 2), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
        Drift(mean=3.0, max=5.0)
    """
    if before.shape != after.shape:
        raise ValueError(f"`after` must have shape {tuple(before.shape)} but has shape {tuple(after.shape)}.")
    moved = (after.double() - before.double()).norm(dim=1)
    return Drift(moved.mean().item(), moved.max().item())


class DriftAverage:
    """Mean drift over an epoch, as plain numbers that a checkpoint can hold."""

    def __init__(self) -> None:
        self.count, self.mean, self.max = 0, 0.0, 0.0

    def add(self, drift: Drift) -> None:
        """Count one step."""
        self.count += 1
        self.mean += (drift.mean - self.mean) / self.count
        self.max += (drift.max - self.max) / self.count

    def pop(self) -> dict[str, float]:
        """Return the epoch's ``drift/mean`` and ``drift/max`` (none without steps), and start over."""
        averages = {"drift/mean": self.mean, "drift/max": self.max} if self.count else {}
        self.load_state_dict({"count": 0, "mean": 0.0, "max": 0.0})
        return averages

    def state_dict(self) -> dict[str, float]:
        """The whole state."""
        return {"count": self.count, "mean": self.mean, "max": self.max}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue from a `state_dict`."""
        self.count, self.mean, self.max = int(state["count"]), state["mean"], state["max"]


class Staleness(NamedTuple):
    """Mean distance of stored rows to fresh embeddings of the same images, realigned and as they were stored."""

    adapted: float
    unadapted: float


class StoredSources(nn.Module):
    """Remembers, row by row, which image a bank's rows came from and how they were before any realignment.

    It is a plain memory of the same rows in the same order, with the sources instead of labels: row i of one is row i
    of the other. Its arguments are those of the bank it follows.

    Example:
        >>> bank = AdaptiveMemoryBank(4, 2, "xbn")
        >>> sources = StoredSources(4, 2)
        >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> bank.update(rows)
        >>> sources.enqueue(rows, torch.tensor([7, 9]))
        >>> slots = sources.sample(8)
        >>> sources.images(slots).tolist()
        [7, 9]
        >>> sources.staleness(bank, slots, fresh=rows)
        Staleness(adapted=0.0, unadapted=0.0)
    """

    def __init__(
        self, size: int, dim: int, *, gather_distributed: bool = False, shard_distributed: bool = False
    ) -> None:
        super().__init__()
        self.raw = AdaptiveMemoryBank(
            size, dim, "identity", gather_distributed=gather_distributed, shard_distributed=shard_distributed
        )

    def enqueue(self, rows: Tensor, images: Tensor) -> None:
        """Follow the bank: rows (B, dim) that it just stored, images (B,) int64 that they came from."""
        self.raw.enqueue(rows.detach(), images)

    def sample(self, count: int) -> Tensor:
        """Up to `count` slots, evenly spread over the stored rows (and so over their ages)."""
        stored = len(self.raw)
        return torch.arange(stored)[:: max(1, -(-stored // count))] if stored else torch.arange(0)

    def images(self, slots: Tensor) -> Tensor:
        """The images that rows came from."""
        labels = self.raw.labels
        if labels is None:
            raise ValueError("`slots` must be of stored rows, but nothing was enqueued yet.")
        return labels[slots.to(labels.device)].cpu()

    def staleness(self, bank: AdaptiveMemoryBank, slots: Tensor, fresh: Tensor) -> Staleness:
        """Distance to fresh embeddings (n, dim) of `images(slots)`, all at unit length, as the losses see them."""
        if len(bank) != len(self.raw):
            raise ValueError(f"`bank` must hold the same rows: it has {len(bank)}, {len(self.raw)} were followed.")
        target = F.normalize(fresh.double(), dim=1)
        where = slots.to(self.raw.embeddings.device)
        distances = [
            (F.normalize(rows[where].double(), dim=1) - target.to(rows.device)).norm(dim=1).mean().item()
            for rows in (bank.embeddings, self.raw.embeddings)
        ]
        return Staleness(*distances)
