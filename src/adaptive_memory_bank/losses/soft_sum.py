"""Sums of exponentials over the blocks of a walk, and the gradient that is computed along with them."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adaptive_memory_bank.distributed import Ranks
from adaptive_memory_bank.losses.walk import Block, WeightedRows

SAFE_EXPONENT = 50.0  # sums of exp(+-this) over any bank are far from the ends of float32
LOG2_E = math.log2(math.e)
SMALLEST_TERM = 2.0**-80  # below the exponential of any bounded logit


class SoftSum:
    """Running ``sum_j exp(logit_ij)`` and ``sum_j exp(logit_ij) z_j``, per query i.

    Cosine is bounded, so plain exponentials do for temperatures from 1/50. Below, everything is kept relative to the
    largest logit so far (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). The second sum is
    for the gradient, and made if that is wanted.

    Attributes:
        sharpness: Logits are cosines times this: one over temperature.
        nothing: A logit that adds nothing: exactly 0. With a tiny exponential instead, products with rows would be
            subnormal, and a matrix of those takes an Intel processor 150 times as long.
    """

    nothing = -torch.inf

    def __init__(self, queries: Tensor, temperature: float, *, gradient: bool) -> None:
        self.sharpness = 1 / temperature
        self.bounded = self.sharpness <= SAFE_EXPONENT
        self.offset = queries.new_full((len(queries),), 0.0 if self.bounded else -self.sharpness)
        self.total = queries.new_zeros(len(queries))
        self.weighted = WeightedRows(queries) if gradient else None
        self._kept: list[Tensor] = []  # (B,) of each block, of bounded logits in units of the smallest term
        self._counted: Tensor | None = None  # memory to count terms in

    def add(self, block: Block) -> None:
        """Count a block in; its logits are used up."""
        self._weigh(self._terms(block.logits), block)

    def add_counted(self, block: Block) -> None:
        """The same, and count the logits that are not ``nothing``."""
        if not self.bounded:
            self._kept.append((block.logits > self.nothing).sum(0))
        terms = self._terms(block.logits)
        if self.bounded:
            self._kept.append(self._smallest(terms).sum(0))
        self._weigh(terms, block)

    def _smallest(self, terms: Tensor) -> Tensor:
        """The smallest term for each of (b, B) that is not 0: a third of the time that comparing them takes.

        Terms are 0 or larger than the smallest one, of which sums are exact: a power of two.
        """
        if self._counted is None or self._counted.shape != terms.shape:
            self._counted = torch.empty_like(terms)
        return torch.clamp(terms, max=SMALLEST_TERM, out=self._counted)

    @property
    def kept(self) -> Tensor:
        """The terms of each query counted by `add_counted`, (B,), whole numbers."""
        if not self._kept:
            return torch.zeros_like(self.total, dtype=torch.int64)
        counts = torch.stack(self._kept)
        return (counts / SMALLEST_TERM if self.bounded else counts).long().sum(0)

    def _terms(self, logits: Tensor) -> Tensor:
        """Turn logits (b, B) into terms of the first sum, in place, and add them up."""
        terms = logits
        if not self.bounded:
            self._raise_offset(terms)
            terms -= self.offset
        exponentiate(terms)
        self.total += terms.sum(0)
        return terms

    def _weigh(self, terms: Tensor, block: Block) -> None:
        """Add to the second sum, where it is wanted; the terms are used up."""
        if self.weighted is None:
            return
        if block.factors is not None:
            terms *= block.factors
        self.weighted.add(terms, block.rows)

    def agree(self, ranks: Ranks) -> None:
        """Keep sums relative to what those of all ranks are relative to, so that they can be added up."""
        if not self.bounded:
            self._raise_offset(ranks.largest(self.offset)[None])

    def _raise_offset(self, logits: Tensor) -> None:
        """Keep sums relative to the largest logit so far, those of (b, B) included."""
        offset = torch.maximum(self.offset, logits.amax(0))
        shrink = torch.exp(self.offset - offset)
        self.offset = offset
        self.total *= shrink
        if self.weighted is not None:
            self.weighted.mul_(shrink)

    def log(self) -> Tensor:
        """Logarithm of the first sum, (B,); minus infinity for a query without terms."""
        return self.total.log().add_(self.offset)

    def over(self, log_total: Tensor) -> Tensor | None:
        """The second sum divided by a total (B,) given as its logarithm, (B, dim)."""
        return None if self.weighted is None else self.weighted.sum().mul_((self.offset - log_total).exp_()[:, None])


def exponentiate(logits: Tensor) -> None:
    """Turn logits into their exponentials, in place.

    On a CPU as powers of two: there ``exp`` takes many times as long for minus infinity, and ``exp2`` does not.
    """
    if logits.device.type == "cpu":
        logits.mul_(LOG2_E).exp2_()
    else:
        logits.exp_()


class PrecomputedGradient(torch.autograd.Function):
    """A value, or one per query (B,), with a gradient (B, dim) in the queries that was computed along with it."""

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
        return grad_output[..., None] * gradient, None, None


def with_gradient(queries: Tensor, values: Tensor, gradient: Tensor | None) -> Tensor:
    """Attach a gradient, where one was wanted."""
    if gradient is None:
        return values
    attached: Tensor = PrecomputedGradient.apply(queries, values, gradient)
    return attached
