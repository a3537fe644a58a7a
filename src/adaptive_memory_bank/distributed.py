"""Batches of all ranks, also where they differ in length."""

import torch
import torch.distributed as dist
from torch import Tensor


def gather_batch(rows: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor | None, int]:
    """Concatenate rows (and labels) of all ranks in rank order; every rank gets the same. Alone: the batch itself.

    The third return value is the position of this rank's first row.
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return rows, labels, 0
    sizes = _all_gather(torch.tensor([len(rows)], device=rows.device))
    counts = [int(size) for size in torch.cat(sizes)]
    gathered = _gather_uneven(rows, counts)
    return gathered, None if labels is None else _gather_uneven(labels, counts), sum(counts[: dist.get_rank()])


def _gather_uneven(tensor: Tensor, counts: list[int]) -> Tensor:
    """All-gather wants equal shapes: pad to the longest, and cut again."""
    padded = tensor.new_zeros(max(counts), *tensor.shape[1:])
    padded[: len(tensor)] = tensor
    return torch.cat([part[:count] for part, count in zip(_all_gather(padded), counts, strict=True)])


def _all_gather(tensor: Tensor) -> list[Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return parts


def rank_order(count: int) -> Tensor | None:
    """Positions in rank order of ``count`` gathered rows that begin with those of this rank; None for one rank.

    So pytorch-metric-learning's ``DistributedLossWrapper`` gathers them.
    """
    ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if ranks == 1 or not count or count % ranks:
        return None
    own, *others = torch.arange(count).view(ranks, -1).unbind()
    others.insert(dist.get_rank(), own)
    return torch.cat(others)
