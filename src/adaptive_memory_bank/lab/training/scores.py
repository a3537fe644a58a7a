"""Embeddings of whole sets, on any number of processes, and the scores made of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adaptive_memory_bank.distributed import gather_batch
from adaptive_memory_bank.lab.data import ImageDataset, Part
from adaptive_memory_bank.lab.data.loader import fetch
from adaptive_memory_bank.lab.data.transforms import Transform
from adaptive_memory_bank.metrics import QueryScores, score_queries

Embed = Callable[[Tensor], Tensor]
OnEmbedded = Callable[[int, int], None]
"""Is told how many of how many images are embedded."""


def tell_nobody(done: int, total: int) -> None:
    """For whoever does not ask."""


@torch.no_grad()
def embed_part(
    embed: Embed,
    part: Part,
    transform: Transform,
    *,
    batch_size: int,
    device: torch.device,
    workers: int = 0,
    on_embedded: OnEmbedded = tell_nobody,
) -> Tensor:
    """Embeddings (N, dim) of every image of a part, in order, on the CPU; each rank computes its share.

    Args:
        embed: Images (B, C, H, W) to rows (B, dim); put its modules into `eval` mode first (see `evaluating`).
        part: The images.
        transform: What becomes of them.
        batch_size: Images at a time.
        device: Where `embed` computes.
        workers: Processes that open files; images in memory need none.
        on_embedded: Is told after every batch how many of how many images are done.
    """
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if _is_distributed() else (0, 1)
    mine = range(rank, len(part), world_size)
    dataset = ImageDataset(part, transform)
    chunks = [list(mine[start : start + batch_size]) for start in range(0, len(mine), batch_size)]
    batches = fetch(dataset, chunks, workers=0 if part.in_memory else workers)
    rows, done = [], 0
    for images, _, _ in batches:
        rows.append(embed(images.to(device, non_blocking=True)).float())
        done += len(images)
        on_embedded(done, len(mine))
    if not rows:  # fewer images than ranks: learn the width from any image
        rows = [embed(dataset.batch([0])[0].to(device)).float()[:0]]
    return gather_interleaved(torch.cat(rows), len(part)).cpu()


def gather_interleaved(rows: Tensor, total: int) -> Tensor:
    """Put together what ranks hold of a list that was dealt out in turn (rank r: r, r + world, ...): each row once."""
    if not _is_distributed():
        return rows
    gathered, _, _ = gather_batch(rows, None)
    ranks = dist.get_world_size()
    order = torch.cat([torch.arange(rank, total, ranks) for rank in range(ranks)])
    return gathered[torch.argsort(order)]


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Have modules in `eval` mode inside, with equal batch-norm statistics on all ranks; put modes back after."""
    modes = [(module, module.training) for top in modules for module in top.modules()]
    try:
        for module in modules:
            module.eval()
            if _is_distributed():  # every rank saw other images: rank 0's averages are those that checkpoints hold
                for buffer in module.buffers():
                    dist.broadcast(buffer, src=0)
        yield
    finally:
        for module, training in modes:
            module.training = training


def retrieval_scores(rows: Tensor, part: Part, gallery_rows: Tensor | None, gallery: Part | None) -> QueryScores:
    """Score every query; without a gallery the queries search each other."""
    return score_queries(rows, part.labels, gallery_rows, None if gallery is None else gallery.labels)


def summary(scores: QueryScores, ks: Sequence[int], prefix: str) -> dict[str, float]:
    """Metrics named `<prefix>/recall@1` and so on, for the k that the set is large enough for."""
    values = scores.summary([k for k in ks if k <= scores.candidates] or [1])
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
