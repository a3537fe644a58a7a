"""One walk over all rows of a bank, in cache-sized blocks, for sums over them and for the gradients of these sums.

The gradient of a contrastive loss needs each row of the bank once more, weighted by a softmax whose denominator is
known only at the end of the walk. But the denominator is one number per query: it can be divided out afterwards. So a
block is realigned, multiplied, masked and summed up while it is in the cache, and nothing as large as the bank, nor the
B x n similarities, ever exists. The gradient is ready when the loss is; no later enqueue can disturb it.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from adaptive_memory_bank.masks import reading_is_free
from adaptive_memory_bank.ring import LazyRing

BLOCK_BYTES = {"cpu": 16 << 20}  # of a block and its logits: in the last cache, and few barriers between threads
DEVICE_BLOCK_BYTES = 64 << 20  # elsewhere, launching costs more than a full cache
SMALLEST_NORM = 1e-12  # as in `torch.nn.functional.normalize`


class Block(NamedTuple):
    """Some rows of the bank and their logits."""

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

    def __reduce__(self) -> tuple[type["Workspace"], tuple[()]]:
        return Workspace, ()


def _room(memory: Tensor | None, count: int, like: Tensor) -> Tensor:
    fits = memory is not None and memory.dtype == like.dtype and memory.device == like.device and len(memory) >= count
    return memory if memory is not None and fits else like.new_empty(count)


def rows_per_block(ring: LazyRing, queries: Tensor) -> int:
    """How many rows fit the cache together with their logits; about, so that all blocks are of one size."""
    bytes_in_all = ring.count * (ring.dim + len(queries)) * queries.element_size()
    blocks = max(round(bytes_in_all / BLOCK_BYTES.get(queries.device.type, DEVICE_BLOCK_BYTES)), 1)
    return max(math.ceil(ring.count / blocks), 1)


def unit_factors(rows: Tensor) -> Tensor:
    """What rows (b, dim) must be multiplied by to have unit length, (b, 1)."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return norms.clamp_(min=SMALLEST_NORM).reciprocal_()


def walk(ring: LazyRing, queries: Tensor, workspace: Workspace) -> Iterator[Block]:
    """Yield the rows block by block, with their products with queries (B, dim): unit vectors over temperature.

    Gaps come along: their logits are minus infinity. Without queries there is nothing to walk for.
    """
    if not len(queries):
        return
    step = rows_per_block(ring, queries)
    rows_memory, logits_memory = workspace.take(min(step, ring.count), queries)
    for start in range(0, ring.count, step):
        count = min(step, ring.count - start)
        rows = ring.read(start, start + count, out=rows_memory[:count])
        factors, logits = unit_factors(rows), logits_memory[:count]
        if 2 * len(queries) < ring.dim:  # scale the smaller thing: logits and their exponentials, or the rows
            block = Block(rows, factors, torch.mm(rows, queries.T, out=logits).mul_(factors))
        else:
            block = Block(rows, None, torch.mm(rows.mul_(factors), queries.T, out=logits))
        if ring.gaps is not None:
            logits.masked_fill_(ring.gaps[start : start + count, None], -torch.inf)
        yield block


def rows_above(block: Block, above: float | Tensor) -> Block:
    """The rows of a block with a logit above a bound, a number or (B,), where these are few; else all of them.

    The others add nothing to a sum over larger logits: once a miner has little to keep, most of the work can be left
    out. A GPU would have to wait for their number, and takes all rows.
    """
    if not reading_is_free(block.logits.device):
        return block
    excess = block.logits - above if isinstance(above, Tensor) else block.logits
    none_above = excess.amax(1) <= (0 if isinstance(above, Tensor) else above)  # not so where one is NaN
    rows = none_above.logical_not_().nonzero()[:, 0]
    if 2 * len(rows) > len(block.rows):
        return block
    factors = None if block.factors is None else block.factors[rows]
    return Block(block.rows[rows], factors, block.logits[rows])
