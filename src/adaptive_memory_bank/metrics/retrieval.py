"""Recall@k, MAP@R and R-precision by cosine similarity: exact, in blocks, from the ranks of the positives alone."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptive_memory_bank.metrics.inputs import integer_labels, positive_integer, unit_search
from adaptive_memory_bank.metrics.similarity import largest, similarity_blocks, split, tolerance

# Cosines of float32 rows are compared in float64 to this distance: wide enough for rescaled copies of one row, whose
# rounding (eps) turns them by eps ** 2 = 1.4e-14, and narrow enough for everything that is not a copy.
RESOLUTION = 2.0**-40


@dataclass(frozen=True)
class QueryScores:
    """What each query scored; `summary` averages it into the metrics.

    Attributes:
        best_rank: (N,) int64 rank of the most similar positive, from 1; 0 where a query has no positive.
        average_precision: (N,) float64 AP@R; NaN where a query has no positive.
        r_precision: (N,) float64 share of positives among the R nearest; NaN where a query has no positive.
        candidates: how many gallery rows each query can find.
    """

    best_rank: Tensor
    average_precision: Tensor
    r_precision: Tensor
    candidates: int

    def worst(self, count: int) -> Tensor:
        """Return the numbers of the `count` queries whose best positive ranks last, worst first."""
        return self.best_rank.sort(descending=True, stable=True).indices[: min(count, int((self.best_rank > 0).sum()))]

    def summary(self, ks: Iterable[int] = (1, 10, 100, 1000)) -> dict[str, float]:
        """Return `recall@k` for every k, `map@r`, `r_precision` and `queries_without_positive`."""
        ks = _checked_ks(ks)
        if beyond := [k for k in ks if k > self.candidates]:
            # Nothing to clamp below: no rank is beyond the candidates.
            warnings.warn(f"`ks` {beyond} are clamped to {self.candidates}, the rows there are to find.", stacklevel=3)
        scored = self.best_rank > 0
        if not scored.any():
            warnings.warn("No query has a positive in the gallery: every share is NaN.", stacklevel=3)
        ranks = self.best_rank[scored]
        metrics = {f"recall@{k}": (ranks <= k).double().mean().item() for k in ks}
        metrics["map@r"] = self.average_precision[scored].mean().item()
        metrics["r_precision"] = self.r_precision[scored].mean().item()
        metrics["queries_without_positive"] = float((~scored).sum())
        return metrics


def retrieval_metrics(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None = None,
    gallery_labels: Tensor | None = None,
    ks: Iterable[int] = (1, 10, 100, 1000),
    *,
    progress: bool = False,
) -> dict[str, float]:
    """Score how well each query finds the gallery rows of its own label, by cosine similarity.

    Recall@k is the share of queries with at least one positive among their k nearest. With R the number of a query's
    positives, R-precision is the share of positives among the R nearest, and MAP@R the mean of
    `1/R * sum_{i <= R} [i-th nearest is a positive] * precision@i` (Musgrave et al., "A Metric Learning Reality Check",
    2020).

    A tie is lost: a positive ranks behind every negative that is as similar, so that collapsed embeddings score no
    better than chance. Queries whose score hangs on the rounding of float32 are scored again in float64, where only
    similarities less than 1e-12 apart are tied.

    Args:
        queries: (N, dim) embeddings, normalised here; half precision is raised to float32, float64 stays.
        query_labels: (N,) integers of any size and sign.
        gallery: (M, dim) embeddings. None lets the queries search each other: each leaves out itself by index, so exact
            duplicates stay.
        gallery_labels: (M,) integers, with a gallery.
        ks: the k of Recall@k. Beyond the gallery they are clamped, with a warning, and keep their key.
        progress: show a progress bar (needs tqdm).

    Returns:
        `recall@k` for every k, `map@r` and `r_precision`, each in [0, 1] and averaged over the queries that have a
        positive, and `queries_without_positive`, the number of the others. Without any positive the shares are NaN.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.2, 1.0], [0.0, 1.0], [0.5, 0.5]])
        >>> retrieval_metrics(rows, torch.tensor([0, 0, 1, 1, 7]), ks=(1, 2))
        {'recall@1': 1.0, 'recall@2': 1.0, 'map@r': 1.0, 'r_precision': 1.0, 'queries_without_positive': 1.0}
    """
    ks = _checked_ks(ks)
    return score_queries(queries, query_labels, gallery, gallery_labels, progress=progress).summary(ks)


@torch.no_grad()
def score_queries(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None = None,
    gallery_labels: Tensor | None = None,
    *,
    progress: bool = False,
) -> QueryScores:
    """Score every query by itself, with the arguments of `retrieval_metrics`: for the worst queries, or for histograms.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [0.7, 0.7], [0.0, 1.0]])
        >>> scores = score_queries(rows, torch.tensor([5, 3, 5]))
        >>> scores.best_rank
        tensor([2, 0, 2])
    """
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("`gallery` and `gallery_labels` must be given together, or neither.")
    units, others = unit_search(queries, gallery)
    wanted = integer_labels(query_labels, "query_labels", units)
    if others is None or gallery_labels is None:
        positives = _Positives(wanted, wanted, includes_self=True)
    else:
        positives = _Positives(wanted, integer_labels(gallery_labels, "gallery_labels", others), includes_self=False)
    scores = torch.full((3, len(units)), torch.nan, dtype=torch.float64, device=units.device)
    scores[0] = 0
    order = positives.queries_by_count()
    scores[:, order], won = _score(units, others, positives, order, slack=tolerance(units), progress=progress)
    unsure = order[(scores[:, order] != won).any(dim=0)]
    if len(unsure) and units.dtype != torch.float64:
        units, others = unit_search(queries.double(), None if gallery is None else gallery.double())
        scores[:, unsure], _ = _score(units, others, positives, unsure, slack=RESOLUTION, progress=progress)
    return QueryScores(scores[0].long(), scores[1], scores[2], len(units) - 1 if others is None else len(others))


def _score(
    units: Tensor, others: Tensor | None, positives: "_Positives", order: Tensor, *, slack: float, progress: bool
) -> tuple[Tensor, Tensor]:
    """Return best rank, AP@R and R-precision, (3, len(order)), of some queries: with every tie lost, and with it won.

    Similarities less than `slack` apart are tied; where both results agree, they do not depend on how ties are broken.
    """
    lost, won = [units.new_empty(3, 0, dtype=torch.float64)], [units.new_empty(3, 0, dtype=torch.float64)]
    chunks, flags = split(order, units, others, positives.count[order]), units.new_empty(0, 0)
    for chunk, block in similarity_blocks(units, others, chunks, progress=progress):
        similar = positives.take_from(block, chunk)
        relevant = positives.count[chunk]
        rivals = largest(block, int(relevant.max()))[0].flip(1).contiguous()  # the nearest negatives, ascending
        if len(flags) < len(block):
            flags = torch.empty_like(block)
        for results, limits in ((lost, similar - slack), (won, similar + slack)):
            # In floats, whose sum is several times faster than that of booleans.
            ahead = torch.ge(block, limits[:, :1], out=flags[: len(block)]).sum(dim=1)
            results.append(torch.cat([1 + ahead.double()[None], _precisions_at_r(rivals, limits, relevant)]))
    return torch.cat(lost, dim=1), torch.cat(won, dim=1)


class _Positives:
    """Where the positives of each query are: a run of the gallery sorted by label. No mask of N x M is ever built."""

    def __init__(self, query_labels: Tensor, gallery_labels: Tensor, *, includes_self: bool) -> None:
        runs, self.gallery_order = gallery_labels.sort(stable=True)
        self.start = torch.searchsorted(runs, query_labels)
        self.length = torch.searchsorted(runs, query_labels, right=True) - self.start
        self.count = self.length - 1 if includes_self else self.length

    def queries_by_count(self) -> Tensor:
        """Return the queries that have positives, those with the most first: equals share a block, little is padded."""
        count, order = self.count.sort(descending=True, stable=True)
        return order[: int((count > 0).sum())]

    def take_from(self, block: Tensor, chunk: Tensor) -> Tensor:
        """Return the similarities of the positives, descending, padded with -inf, and overwrite them by -inf."""
        length = self.length[chunk][:, None]
        position = torch.arange(int(length.max()), device=chunk.device)
        run = self.start[chunk][:, None] + torch.minimum(position, length - 1)  # padding repeats the last one
        columns = self.gallery_order[run]
        similar = block.gather(1, columns).masked_fill_(position >= length, -torch.inf)
        block.scatter_(1, columns, -torch.inf)
        return similar.sort(dim=1, descending=True).values


def _precisions_at_r(rivals: Tensor, limits: Tensor, relevant: Tensor) -> Tensor:
    """Return AP@R and R-precision, (2, b), from what negatives must reach to come before each (sorted) positive.

    The j-th positive has rank j + the number of negatives that reach its limit. Only ranks up to R count, so the R most
    similar negatives, `rivals` (ascending), are all that is needed.
    """
    most = rivals.shape[1]
    ahead = most - torch.searchsorted(rivals, limits[:, :most].contiguous())  # (b, most)
    position = torch.arange(1, most + 1, device=rivals.device)  # among the positives, from 1
    rank = position + ahead
    hits = rank <= relevant[:, None]  # never true of the padding: its rank is at least its position
    precision = torch.where(hits, position.double() / rank, 0.0)
    return torch.stack([precision.sum(dim=1), hits.sum(dim=1, dtype=torch.float64)]) / relevant


def _checked_ks(ks: Iterable[int]) -> tuple[int, ...]:
    if not isinstance(ks, Iterable):
        raise TypeError(f"`ks` must be a sequence of positive integers, got {ks!r}.")
    return tuple(positive_integer(k, "ks") for k in ks)
