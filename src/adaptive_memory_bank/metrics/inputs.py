"""What the metrics accept: finite rows, integer labels, positive counts. Checked once, at the public boundary."""

import operator
import warnings

import torch
from torch import Tensor


def unit_rows(rows: Tensor, name: str) -> Tensor:
    """Return `rows` (N, dim) divided by their Euclidean norms; half precision becomes float32, zero rows stay zero."""
    _check_rows(rows, name)
    rows = rows.detach().contiguous()
    if rows.dtype in (torch.float16, torch.bfloat16):
        rows = rows.float()
    tiny = torch.finfo(rows.dtype).tiny
    # By the largest entry first: the squares of 1e30 or 1e-30 would leave the range of float32.
    rows = rows / rows.abs().amax(dim=1, keepdim=True).clamp_min(tiny)
    return rows.div_(torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min(tiny))


def unit_pair(queries: Tensor, gallery: Tensor, names: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """Return both sides as unit rows that can be multiplied with each other."""
    units, others = unit_rows(queries, names[0]), unit_rows(gallery, names[1])
    if others.shape[1] != units.shape[1]:
        raise ValueError(
            f"`{names[0]}` and `{names[1]}` must have the same dimension, got {units.shape[1]} and {others.shape[1]}."
        )
    if others.device != units.device:
        raise ValueError(f"`{names[0]}` and `{names[1]}` must share a device, got {units.device} and {others.device}.")
    dtype = torch.promote_types(units.dtype, others.dtype)
    return units.to(dtype), others.to(dtype)


def unit_search(queries: Tensor, gallery: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return queries and gallery as unit rows; no gallery (the queries search each other) stays None."""
    if gallery is None:
        return unit_rows(queries, "queries"), None
    return unit_pair(queries, gallery, ("queries", "gallery"))


def integer_labels(labels: Tensor, name: str, rows: Tensor) -> Tensor:
    """Return `labels` as int64 on the device of `rows`, one for each of them."""
    if not isinstance(labels, Tensor):
        raise TypeError(f"`{name}` must be a tensor, got {type(labels).__name__}.")
    if labels.dtype.is_floating_point or labels.dtype.is_complex:
        raise TypeError(f"`{name}` must hold integers, got {labels.dtype}.")
    if labels.shape != rows.shape[:1]:
        raise ValueError(f"`{name}` must have shape ({len(rows)},), got {tuple(labels.shape)}.")
    return labels.to(device=rows.device, dtype=torch.int64).contiguous()


def positive_integer(value: int, name: str) -> int:
    """Return `value` as an int, at least 1; also takes NumPy's integers."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"`{name}` must be a positive integer, got {value!r}.")
    return number


def clamp_k(k: int, name: str, available: int) -> int:
    """Return `k`, or, with a warning, the number of rows that can be found at all."""
    if k > available:
        warnings.warn(f"`{name}` of {k} is clamped to {available}, the rows there are to find.", stacklevel=4)
    return min(k, available)


def _check_rows(rows: Tensor, name: str) -> None:
    if not isinstance(rows, Tensor):
        raise TypeError(f"`{name}` must be a tensor, got {type(rows).__name__}.")
    if not rows.dtype.is_floating_point:
        raise TypeError(f"`{name}` must hold floating point embeddings, got {rows.dtype}; convert with `.float()`.")
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"`{name}` must have shape (N, dim) with N, dim >= 1, got {tuple(rows.shape)}.")
    broken = ~rows.isfinite().all(dim=1)
    if broken.any():
        first = int(broken.nonzero()[0])
        raise ValueError(f"`{name}` must be finite, got NaN or inf in {int(broken.sum())} rows, first in row {first}.")
