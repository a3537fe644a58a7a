"""Sums over all rows of a bank, with their gradients, in one walk over cache-sized blocks.

The gradient of a contrastive loss needs each row of the bank once more, weighted by a softmax whose denominator is
known only at the end of the walk. But the denominator is one number per query: it can be divided out afterwards. So a
block is realigned, multiplied, masked and summed up while it is in the cache, and nothing as large as the bank, nor the
B x n similarities, ever exists. The gradient is ready when the loss is; no later enqueue can disturb it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adaptive_memory_bank.ring import LazyRing

BLOCK_BYTES = {"cpu": 16 << 20}  # of a block and its logits: in the last cache, and few barriers between threads
DEVICE_BLOCK_BYTES = 64 << 20  # elsewhere, launching costs more than a full cache
SAFE_EXPONENT = 32.0  # sums of exp(+-this) over any bank are far from the ends of float32
SMALLEST_NORM = 1e-12  # as in `torch.nn.functional.normalize`


class Block(NamedTuple):
    """Some rows of the bank and their logits."""

    start: int
    rows: Tensor  # (b, dim), unit length once multiplied by `factors`; the memory is used again for the next block
    factors: Tensor | None  # (b, 1)
    logits: Tensor  # (b, B), cosine similarities over temperature; likewise


class Workspace:
    """Memory for one block, kept from step to step: taking 16 MiB anew costs more than all small operations together.

    A copy starts without any, and nothing of it is saved.
    """

    def __init__(self) -> None:
        self._rows: Tensor | None = None
        self._logits: Tensor | None = None

    def take(self, rows: int, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Room for rows (rows, dim) and for their logits (rows, B)."""
        self._rows = _room(self._rows, rows * queries.shape[1], queries)
        self._logits = _room(self._logits, rows * len(queries), queries)
        return (
            self._rows[: rows * queries.shape[1]].view(rows, queries.shape[1]),
            self._logits[: rows * len(queries)].view(rows, len(queries)),
        )

    def __reduce__(self) -> tuple[type[Workspace], tuple[()]]:
        return Workspace, ()


def _room(memory: Tensor | None, count: int, like: Tensor) -> Tensor:
    fits = memory is not None and memory.dtype == like.dtype and memory.device == like.device and len(memory) >= count
    return memory if memory is not None and fits else like.new_empty(count)


def rows_per_block(ring: LazyRing, queries: Tensor) -> int:
    """How many rows fit the cache together with their logits; about, so that all blocks are of one size."""
    bytes_in_all = ring.count * (ring.dim + len(queries)) * queries.element_size()
    blocks = max(round(bytes_in_all / BLOCK_BYTES.get(queries.device.type, DEVICE_BLOCK_BYTES)), 1)
    return max(math.ceil(ring.count / blocks), 1)


def realigned(ring: LazyRing, stored: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Realign stored rows (b, dim); the factors (b, 1) would give them unit length."""
    rows = torch.addcmul(ring.shift, stored.to(ring.scale.dtype), ring.scale, out=out)
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows, norms.clamp_(min=SMALLEST_NORM).reciprocal_()


def walk(ring: LazyRing, queries: Tensor, workspace: Workspace) -> Iterator[Block]:
    """Yield the rows block by block, with their products.

    Args:
        ring: Holds the rows.
        queries: Shape (B, dim): unit vectors over temperature.
        workspace: Memory for a block.
    """
    step = rows_per_block(ring, queries)
    rows_memory, logits_memory = workspace.take(min(step, ring.count), queries)
    for start in range(0, ring.count, step):
        stored = ring.rows[start : min(start + step, ring.count)]
        rows, factors = realigned(ring, stored, out=rows_memory[: len(stored)])
        if 2 * len(queries) < ring.dim:  # scale the smaller thing: logits and their exponentials, or the rows
            logits = torch.mm(rows, queries.T, out=logits_memory[: len(stored)]).mul_(factors)
            yield Block(start, rows, factors, logits)
        else:
            logits = torch.mm(rows.mul_(factors), queries.T, out=logits_memory[: len(stored)])
            yield Block(start, rows, None, logits)


class SoftSum:
    """Running ``sum_j exp(logit_ij)`` and ``sum_j exp(logit_ij) z_j``, per query i.

    Cosine is bounded, so plain exponentials do for temperatures from 1/32. Below, everything is kept relative to the
    largest logit so far (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).

    Args:
        queries: Shape (B, dim).
        temperature: Bounds the logits by its inverse.
        gradient: Whether the second sum is wanted.

    Attributes:
        nothing: A logit that adds nothing. Minus infinity, and whatever has a subnormal exponential, would take exp's
            slow path, which costs more than all else on the similarities together.
    """

    def __init__(self, queries: Tensor, temperature: float, *, gradient: bool) -> None:
        self.offset = queries.new_zeros(len(queries))
        self.bounded = 1 / temperature <= SAFE_EXPONENT
        self.nothing = -300.0 if queries.dtype == torch.float64 else -72.0
        if not self.bounded:
            self.offset -= 1 / temperature
            self.nothing = -torch.inf
        self.total = queries.new_zeros(len(queries))
        self.weighted = torch.zeros_like(queries) if gradient else None

    def add(self, block: Block) -> None:
        """Count a block in; its logits are used up."""
        self.weigh(self.terms(block.logits), block)

    def terms(self, logits: Tensor) -> Tensor:
        """Turn logits (b, B) into terms of the first sum, in place, and add them up."""
        terms = logits
        if not self.bounded:
            self._raise_offset(terms)
            terms -= self.offset
        terms.exp_()
        self.total += terms.sum(0)
        return terms

    def weigh(self, terms: Tensor, block: Block) -> None:
        """Add to the second sum, where it is wanted; the terms are used up."""
        if self.weighted is None:
            return
        if block.factors is not None:
            terms *= block.factors
        self.weighted.addmm_(terms.T, block.rows)

    def _raise_offset(self, logits: Tensor) -> None:
        offset = torch.maximum(self.offset, logits.amax(0))
        shrink = torch.exp(self.offset - offset)
        self.offset = offset
        self.total *= shrink
        if self.weighted is not None:
            self.weighted *= shrink[:, None]

    def log(self) -> Tensor:
        """Logarithm of the first sum, (B,)."""
        return self.total.log() + self.offset

    def over(self, log_total: Tensor) -> Tensor | None:
        """The second sum divided by a total (B,) given as its logarithm, (B, dim)."""
        return None if self.weighted is None else self.weighted * (self.offset - log_total).exp()[:, None]


class Known(torch.autograd.Function):
    """Per-query values (B,) whose gradient (B, dim) in the queries is known already."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, values: Tensor, gradient: Tensor) -> Tensor:
        """Pass the values on."""
        ctx.save_for_backward(gradient)
        return values.view_as(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        """Apply the chain rule."""
        (gradient,) = ctx.saved_tensors
        return grad_output[:, None] * gradient, None, None


def with_gradient(queries: Tensor, values: Tensor, gradient: Tensor | None) -> Tensor:
    """Attach a gradient, where one was wanted."""
    if gradient is None:
        return values
    attached: Tensor = Known.apply(queries, values, gradient)
    return attached


def wants_gradient(queries: Tensor) -> bool:
    """Whether a backward pass may follow."""
    return torch.is_grad_enabled() and queries.requires_grad
