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

BLOCK_BYTES = {"cpu": 16 << 20}  # of a block and its logits: a part of the last cache, and few barriers between threads
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
    few_queries = 2 * len(queries) < ring.dim
    columns = queries.T.contiguous() if few_queries else queries.T  # the faster product in either case, as measured
    for start in range(0, ring.count, step):
        count = min(step, ring.count - start)
        rows = ring.read(start, start + count, out=rows_memory[:count])
        factors, logits = unit_factors(rows), logits_memory[:count]
        if few_queries:  # scale the smaller thing: logits and their exponentials, or the rows
            block = Block(rows, factors, _products(rows, columns, logits).mul_(factors))
        else:
            block = Block(rows, None, _products(rows.mul_(factors), columns, logits))
        if ring.gaps is not None:
            logits.masked_fill_(ring.gaps[start : start + count, None], -torch.inf)
        yield block


def _products(rows: Tensor, columns: Tensor, out: Tensor) -> Tensor:
    """Products (b, B) of rows (b, dim) and columns (dim, B); on a CPU each thread takes its share of the rows."""
    threads = _sharing_threads(rows)
    shared = len(rows) // threads * threads if threads > 1 else 0
    if shared:
        shares, of_threads = rows[:shared].view(threads, -1, rows.shape[1]), columns.expand(threads, -1, -1)
        torch.bmm(shares, of_threads, out=out[:shared].view(threads, -1, columns.shape[1]))
    if shared < len(rows):
        torch.mm(rows[shared:], columns, out=out[shared:])
    return out


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


class WeightedRows:
    """A running sum (B, dim) of rows, weighted for each query.

    On a CPU each thread sums up its share of the rows: for a product that is small on both sides and long in between,
    that was measured to be faster than one product that all threads share. What they sum up is added at the end.

    Example:
        >>> total = WeightedRows(torch.zeros(1, 2))
        >>> total.add(torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        >>> total.sum()
        tensor([[1., 3.]])
    """

    def __init__(self, queries: Tensor) -> None:
        self._total = torch.zeros_like(queries)
        self._of_threads: Tensor | None = None  # (threads, B, dim), if they share

    def add(self, weights: Tensor, rows: Tensor) -> None:
        """Add rows (b, dim), weighted by (b, B)."""
        threads = _sharing_threads(rows)
        shared = len(rows) // threads * threads
        if threads > 1:
            if self._of_threads is None:
                self._of_threads = rows.new_zeros(threads, *self._total.shape)
            mine = weights[:shared].view(threads, shared // threads, -1).transpose(1, 2)
            self._of_threads.baddbmm_(mine, rows[:shared].view(threads, shared // threads, -1))
            weights, rows = weights[shared:], rows[shared:]
        if len(rows):
            self._total.addmm_(weights.T, rows)

    def mul_(self, factors: Tensor) -> None:
        """Multiply what there is by a number for each query, (B,)."""
        self._total *= factors[:, None]
        if self._of_threads is not None:
            self._of_threads *= factors[:, None]

    def sum(self) -> Tensor:
        """The sum so far, (B, dim), a fresh tensor."""
        return self._total.clone() if self._of_threads is None else self._of_threads.sum(0).add_(self._total)


def _sharing_threads(rows: Tensor) -> int:
    """How many threads share rows (b, dim): all of a CPU's, or one where each would have too few."""
    threads = torch.get_num_threads() if rows.device.type == "cpu" else 1
    return threads if len(rows) // threads > rows.shape[1] else 1
