"""The negatives of InfoNCE, a whole bank of them, with their gradient, in one walk."""

from __future__ import annotations

import torch
from torch import Tensor

from adaptive_memory_bank._fused import SoftSum, Workspace, walk, wants_gradient, with_gradient
from adaptive_memory_bank._related import Related
from adaptive_memory_bank.ring import LazyRing


def log_sum_exp(
    ring: LazyRing, queries: Tensor, ids: Tensor | None, *, temperature: float, workspace: Workspace
) -> Tensor:
    """``log sum_j exp(q_i . z_j / temperature)`` over the rows of other images, (B,), differentiable in the queries.

    Minus infinity, with gradient 0, for a query without such rows.

    Args:
        ring: Holds the rows, with ids as labels if there are ids.
        queries: Unit vectors, shape (B, dim).
        ids: The image of each query, shape (B,); None takes all rows for those of other images.
        temperature: Divides the cosines.
        workspace: Memory for a block of rows.
    """
    wanted = wants_gradient(queries)
    with torch.no_grad():
        related = None if ids is None else Related.of(ring, queries, ids)
        sums = SoftSum(queries, temperature, gradient=wanted)
        for index, block in enumerate(walk(ring, queries / temperature, workspace)):
            if related is not None:
                related.part(index).hide(block.logits, sums.nothing)
            sums.add(block)
        values, gradient = sums.log(), None
        # Counted, not read off the sums: a hidden row adds next to nothing, but not always exactly nothing.
        own_rows = torch.zeros_like(values) if related is None else related.same.sum(0)
        alone = own_rows == ring.count
        values.masked_fill_(alone, -torch.inf)
        mean_row = sums.over(values)
        if mean_row is not None:
            gradient = mean_row.masked_fill_(alone[:, None], 0).div_(temperature)
    return with_gradient(queries, values, gradient)
