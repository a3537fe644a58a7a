"""Cosine similarities of all queries to a gallery, one block of queries at a time.

The matrix product is the floor of every metric here, so what surrounds it touches each similarity as rarely as
possible: one buffer for all blocks (fresh memory costs page faults), and the largest entries of a row are found through
the maxima of groups.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from adaptive_memory_bank.metrics.inputs import clamp_k, positive_integer, unit_search

BLOCK_BYTES = 32 * 2**20  # large enough for an efficient product, small enough to stay in a last-level cache
FEWEST_ROWS = 64  # below, the product becomes slow; a huge gallery may take up to 8 blocks' bytes instead
GROUP = 32  # columns that share one maximum in `largest`


@torch.no_grad()
def nearest(queries: Tensor, gallery: Tensor | None = None, *, k: int = 10, progress: bool = False) -> Tensor:
    """Return the indices of the `k` gallery rows most similar (cosine) to each query, most similar first.

    Args:
        queries: (N, dim) embeddings, normalised here.
        gallery: (M, dim) embeddings; None lets the queries search each other, each leaving out itself by index.
        k: how many; clamped with a warning to the rows there are. The order among equal similarities is open.
        progress: show a progress bar (needs tqdm).

    Returns:
        (N, k) int64 row numbers of the gallery.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> nearest(rows, k=2)
        tensor([[1, 2],
                [0, 2],
                [1, 0]])
    """
    units, others = unit_search(queries, gallery)
    k = clamp_k(positive_integer(k, "k"), "k", len(units) - 1 if others is None else len(others))
    found = torch.empty(len(units), k, dtype=torch.int64, device=units.device)
    everything = torch.arange(len(units), device=units.device)
    for chunk, block in similarity_blocks(units, others, split(everything, units, others), progress=progress):
        found[chunk] = largest(block, k)[1]
    return found


def split(order: Tensor, units: Tensor, others: Tensor | None, positives: Tensor | None = None) -> list[Tensor]:
    """Cut `order` (query numbers) into chunks whose blocks of similarities, and their positives, stay small.

    `positives` (the same length, descending) counts what each query gathers on top of its row of similarities.
    """
    row_bytes = len(units if others is None else others) * units.element_size()
    chunks, start = [], 0
    while start < len(order):
        # 64: index, similarity, sorted copy and rank of a positive, and the negative it is ranked against.
        cost = row_bytes + (0 if positives is None else 64 * int(positives[start]))
        rows = max(BLOCK_BYTES // cost, min(FEWEST_ROWS, 8 * BLOCK_BYTES // cost), 1)
        chunks.append(order[start : start + rows])
        start += rows
    return chunks


def similarity_blocks(
    units: Tensor, others: Tensor | None, chunks: Sequence[Tensor], *, progress: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each chunk (query numbers) with its similarities (len(chunk), width >= M) to the gallery `others`.

    Width is M rounded up to whole groups; what cannot be found (the query itself when there is no gallery, the columns
    past M) is -inf. All blocks share one buffer: the consumer may overwrite it, and must not keep it.
    """
    gallery = units if others is None else others
    columns = len(gallery)
    width = -(-columns // GROUP) * GROUP
    buffer = units.new_empty(max(map(len, chunks), default=0), width)
    for chunk in _with_bar(chunks) if progress else chunks:
        block = buffer[: len(chunk)]
        with _full_precision():
            torch.mm(units[chunk], gallery.T, out=block[:, :columns])  # `out=` is also what autocast leaves alone
        block[:, columns:] = -torch.inf
        if others is None:
            block.scatter_(1, chunk[:, None], -torch.inf)
        yield chunk, block


def largest(block: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` largest values of each row, descending, and their columns: `topk` with most of the work left out.

    The k largest lie in the k groups with the largest maxima, and a maximum is far cheaper than a selection.
    """
    rows, width = block.shape
    if 2 * k * GROUP > width:
        values, columns = block.topk(k, dim=1)
        return values, columns
    folded = block.view(rows, GROUP, width // GROUP)  # column c is entry c // groups of group c % groups
    groups = folded.amax(dim=1).topk(k, dim=1).indices
    candidates = folded.gather(2, groups[:, None].expand(-1, GROUP, -1)).flatten(1)  # (rows, GROUP * k)
    values, chosen = candidates.topk(k, dim=1)
    return values, chosen // k * folded.shape[2] + groups.gather(1, chosen % k)


def tolerance(units: Tensor) -> float:
    """Return how far two computations of one cosine can be apart: the same pair, at another position in the product.

    Over kernels, block shapes and rescaled copies the measured spread stays below half of this, up to 8,192 dimensions.
    """
    return torch.finfo(units.dtype).eps * (8 + units.shape[1] / 16)


@contextmanager
def _full_precision() -> Iterator[None]:
    """Keep TF32 and bfloat16 products, which a training may have switched on, out of the metrics."""
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # set for one backend by the newer switches, which this one cannot read back: left alone
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _with_bar(chunks: Sequence[Tensor]) -> Iterator[Tensor]:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        warnings.warn("`progress=True` needs tqdm (`pip install tqdm`); going on without a bar.", stacklevel=2)
        yield from chunks
        return
    with tqdm(total=sum(map(len, chunks)), desc="evaluating", unit="query") as bar:
        for chunk in chunks:
            yield chunk
            bar.update(len(chunk))
