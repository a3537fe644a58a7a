"""What ranks tell each other: whole batches, or of a bank in shards what its ranks need to act as one."""

import math
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor


def rank_and_ranks() -> tuple[int, int]:
    """The rank of this process, and how many there are; (0, 1) outside a distributed run."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def gather_batch(rows: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor | None, int]:
    """Concatenate rows (and labels) of all ranks in rank order; every rank gets the same. Alone: the batch itself.

    The third return value is the position of this rank's first row.
    """
    ranks = ranks_of(rows)
    if labels is None:
        return ranks.gather(rows)[0], None, ranks.own.start
    return *ranks.gather(rows, labels), ranks.own.start


def rank_order(count: int) -> Tensor | None:
    """Positions in rank order of ``count`` gathered rows that begin with those of this rank; None for one rank.

    So pytorch-metric-learning's ``DistributedLossWrapper`` gathers them.
    """
    rank, ranks = rank_and_ranks()
    if ranks == 1 or not count or count % ranks:
        return None
    own, *others = torch.arange(count).view(ranks, -1).unbind()
    others.insert(rank, own)
    return torch.cat(others)


class Ranks(Protocol):
    """The ranks of a step, each with some queries: all of them call the same methods in the same order.

    Attributes:
        own: Where among the queries of all ranks, in rank order, those of this rank are.
        want_gradient: Whether a backward pass may follow, on any rank.
    """

    own: slice
    want_gradient: bool

    def gather(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Values (B, ...) of the queries of this rank to those of all, (Q, ...): in one message."""

    def largest(self, values: Tensor) -> Tensor:
        """The largest over the ranks, elementwise."""

    def sum(self, *values: Tensor) -> tuple[Tensor, ...]:
        """The sums over the ranks, elementwise, of values of one shape: in one message."""

    def sum_to_owners(self, values: Tensor) -> Tensor:
        """Values (Q, ...) of all queries, summed over the ranks; each gets those of its own queries, (B, ...)."""


class Alone:
    """One rank: everything is here already."""

    def __init__(self, queries: Tensor) -> None:
        self.own = slice(0, len(queries))
        self.want_gradient = wants_gradient(queries)

    def gather(self, *values: Tensor) -> tuple[Tensor, ...]:
        """The values themselves."""
        return values

    def largest(self, values: Tensor) -> Tensor:
        """The values themselves."""
        return values

    def sum(self, *values: Tensor) -> tuple[Tensor, ...]:
        """The values themselves."""
        return values

    def sum_to_owners(self, values: Tensor) -> Tensor:
        """The values themselves."""
        return values


class Together:
    """Ranks that send each other something.

    Args:
        counts: How many queries each rank has; may differ, and be 0.
        want_gradient: See `Ranks`.
    """

    def __init__(self, counts: list[int], *, want_gradient: bool = False) -> None:
        self.counts, rank = counts, dist.get_rank()
        first = sum(counts[:rank])
        self.own = slice(first, first + counts[rank])
        self.want_gradient = want_gradient

    def gather(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Bytes beside bytes, so that one message carries values of any type."""
        packed = [_as_bytes(value) for value in values]
        gathered = _gather_uneven(torch.cat(packed, dim=1), self.counts)
        parts = torch.split(gathered, [part.shape[1] for part in packed], dim=1)
        return tuple(_from_bytes(part, like=value) for part, value in zip(parts, values, strict=True))

    def largest(self, values: Tensor) -> Tensor:
        """A fresh tensor."""
        return _reduced(values, dist.ReduceOp.MAX)

    def sum(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Fresh tensors, summed up in double precision: of a billion rows, some are few."""
        summed = _reduced(torch.stack([value.double() for value in values]), dist.ReduceOp.SUM)
        return tuple(total.to(value.dtype) for total, value in zip(summed, values, strict=True))

    def sum_to_owners(self, values: Tensor) -> Tensor:
        """Each rank sends the others what is theirs, and adds up what it gets, in rank order."""
        own, ranks = self.own.stop - self.own.start, len(self.counts)
        parts = values.new_empty(ranks * own, *values.shape[1:])
        dist.all_to_all_single(parts, values.contiguous(), [own] * ranks, self.counts)
        return parts.view(ranks, own, *values.shape[1:]).sum(0)


def ranks_of(queries: Tensor) -> Ranks:
    """All ranks of a step in which this one has these queries. A GPU waits for the others' counts."""
    if rank_and_ranks()[1] == 1:
        return Alone(queries)
    told = torch.tensor([len(queries), wants_gradient(queries)], device=queries.device)
    counts, wanted = all_gather(told).T.tolist()
    return Together(counts, want_gradient=any(wanted))


def wants_gradient(queries: Tensor) -> bool:
    """Whether a backward pass may follow."""
    return torch.is_grad_enabled() and queries.requires_grad


def all_gather(values: Tensor) -> Tensor:
    """Values (...) of the same shape on every rank to those of all, (ranks, ...); alone (1, ...)."""
    parts = [torch.empty_like(values) for _ in range(rank_and_ranks()[1])]
    if len(parts) == 1:
        return values[None]
    dist.all_gather(parts, values.contiguous())
    return torch.stack(parts)


def _gather_uneven(values: Tensor, counts: list[int]) -> Tensor:
    """All-gather wants equal shapes: pad to the longest, and cut again."""
    padded = values.new_zeros(max(counts), *values.shape[1:])
    padded[: len(values)] = values
    return torch.cat([part[:count] for part, count in zip(all_gather(padded), counts, strict=True)])


def _reduced(values: Tensor, operation: Any) -> Tensor:
    reduced = values.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(reduced, operation)
    return reduced


def _as_bytes(values: Tensor) -> Tensor:
    """Values (n, ...) as bytes (n, b)."""
    return values.reshape(len(values), math.prod(values.shape[1:])).contiguous().view(torch.uint8)


def _from_bytes(values: Tensor, *, like: Tensor) -> Tensor:
    """The reverse of `_as_bytes`: the type, and the shape but for the first dimension, are those of another tensor."""
    aligned = values.clone(memory_format=torch.contiguous_format)
    return aligned.view(like.dtype).view(len(values), *like.shape[1:])
