"""The memory bank that stays fresh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adaptive_memory_bank.adapters import Adapter, make_adapter
from adaptive_memory_bank.distributed import gather_batch
from adaptive_memory_bank.moments import Moments
from adaptive_memory_bank.ring import LazyRing

LARGEST_SQUARED_NORM = 1e30  # beyond this, sums of squares over a bank leave the range of float32


class AdaptiveMemoryBank(nn.Module):
    """Keeps the embeddings of past batches and realigns them to the encoder as it moves.

    An adapter filters the moments of each batch, E[B] and s[B]; the bank maps its rows R, dimension by dimension, to
    the moments the adapter answers with: ``z <- (z - E[R]) * sigma / s[R] + mu``. The map is kept beside the rows and
    applied when they are read, so a step costs O(batch), whatever the size of the bank. Nothing here has a gradient
    except `similarity`, in its queries.

    The state is in ``state_dict()``, but hidden from ``buffers()``: DistributedDataParallel would copy the rows of rank
    0 over those of all others, at every step.

    Reference: Ajanthan et al., "Adaptive Cross Batch Normalization for Metric Learning", ICCV 2023.

    Args:
        size: Rows it holds; the oldest leave first.
        dim: Dimensions of an embedding.
        adapter: An `Adapter`, or its name: identity (or xbm), xbn, ema, axbn (or kalman), auto.
        dtype: Of the stored rows: float32, float64, or bfloat16 / float16 for half the memory.
        gather_distributed: Take the batches of all ranks, in rank order, so that every rank holds the same bank.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> bank = AdaptiveMemoryBank(size=6, dim=2, adapter="xbn")
        >>> bank.update(torch.randn(4, 2), torch.tensor([0, 0, 1, 1]))
        >>> fresh = 5 + 2 * torch.randn(4, 2)  # the encoder has moved
        >>> bank.adapt(fresh)
        >>> torch.testing.assert_close(bank.embeddings.mean(0), fresh.mean(0))
        >>> bank.enqueue(fresh, torch.tensor([2, 2, 3, 3]))
        >>> bank.embeddings.shape, bank.labels.tolist(), bank.is_full
        (torch.Size([6, 2]), [3, 3, 1, 1, 2, 2], True)
        >>> bank.similarity(torch.randn(3, 2)).shape
        torch.Size([3, 6])
    """

    def __init__(
        self,
        size: int,
        dim: int,
        adapter: Adapter | str = "axbn",
        *,
        dtype: torch.dtype = torch.float32,
        gather_distributed: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("size", size), ("dim", dim)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"`{name}` must be a positive integer, got {value!r}.")
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or dtype.itemsize < 2:
            raise ValueError(f"`dtype` must be float32, float64, bfloat16 or float16, got {dtype}.")
        adapter = make_adapter(adapter)
        if adapter.in_use:
            raise ValueError(
                f"`adapter` must not serve two banks, but this {type(adapter).__name__} has one already; make another."
            )
        self.gather_distributed = gather_distributed
        self.rejected_rows = 0  # rows with NaN or infinity that were offered and refused
        self.last_slots = torch.empty(0, dtype=torch.int64)  # of this rank's rows in the last enqueue; -1: not stored
        self.ring = LazyRing(size, dim, dtype)
        self.adapter = adapter
        self.adapter.in_use = True
        self._reset_adapter()

    @property
    def size(self) -> int:
        """Rows it can hold."""
        return self.ring.size

    @property
    def dim(self) -> int:
        """Dimensions of an embedding."""
        return self.ring.dim

    @property
    def is_full(self) -> bool:
        """Whether the next row pushes the oldest out."""
        return self.ring.is_full

    @property
    def embeddings(self) -> Tensor:
        """Realigned rows (n, dim) in ring order: a fresh tensor without gradient, safe to keep."""
        return self.ring.read()

    @property
    def labels(self) -> Tensor | None:
        """Labels (n,) in ring order, or None where none were ever given."""
        return self.ring.labels[: len(self)].clone() if self.ring.labelled else None

    @property
    def moments(self) -> Moments:
        """Moments of the realigned rows, without a pass over them."""
        return self.ring.moments

    def update(self, rows: Tensor, labels: Tensor | None = None) -> None:
        """Adapt to a batch, then enqueue it.

        Args:
            rows: Shape (B, dim), any floating point type. Rows with NaN or infinity are left out and counted.
            labels: Shape (B,), integers; all batches have them or none has.
        """
        self._check(rows, labels)
        self._check_labelled(labels)
        rows, labels, own = self._take(rows, labels, count_rejected=True)
        self._adapt(rows, labels)
        self._enqueue(rows, labels, own)

    def adapt(self, rows: Tensor, labels: Tensor | None = None) -> None:
        """Realign the bank to a batch, and store nothing. With labels, moments know about classes."""
        self._check(rows, labels)
        rows, labels, _ = self._take(rows, labels, count_rejected=False)
        self._adapt(rows, labels)

    def enqueue(self, rows: Tensor, labels: Tensor | None = None) -> None:
        """Store a batch, and realign nothing. A batch larger than the bank leaves its newest rows."""
        self._check(rows, labels)
        self._check_labelled(labels)
        self._enqueue(*self._take(rows, labels, count_rejected=True))

    @torch.no_grad()
    def replace(self, rows: Tensor) -> None:
        """Put other embeddings of the same samples in the place of the stored rows; the filter stays as it is.

        For whoever embeds a memory anew from its images. Afterwards `embeddings` are these rows, up to the storage's
        precision, and `moments` are theirs.

        Args:
            rows: Shape (n, dim), n rows as many as the bank holds, in ring order. Where one has NaN or infinity, the
                stored row stays, and is counted as rejected.
        """
        check_rows("rows", rows, self.ring)
        if len(rows) != len(self):
            raise ValueError(f"`rows` must be as many as the bank holds, {len(self)}, got {len(rows)}.")
        rows = rows.to(self.ring.scale.dtype)
        storable = self._storable(rows)
        if not storable.all():
            self.rejected_rows += int((~storable).sum())
            rows = torch.where(storable[:, None], rows, self.embeddings)
        self.ring.replace(rows)

    def similarity(self, queries: Tensor) -> Tensor:
        """Cosine similarity of queries (B, dim) to the realigned rows: (B, n), differentiable in the queries.

        Later updates do not disturb a backward pass through it.
        """
        check_rows("queries", queries, self.ring)
        queries = F.normalize(queries.to(self.ring.scale.dtype), dim=1)
        if torch.is_grad_enabled() and queries.requires_grad:
            # The backward pass needs rows that no later enqueue overwrites: this copy.
            return queries @ F.normalize(self.embeddings, dim=1).T
        products = [queries @ F.normalize(self.ring.read(b.start, b.stop), dim=1).T for b in self.ring.blocks()]
        return torch.cat(products, dim=1) if products else queries.new_zeros(len(queries), 0)

    @torch.no_grad()
    def reset(self) -> None:
        """Empty the bank and its filter: as new."""
        self.ring.reset()
        self.rejected_rows = 0
        self._reset_adapter()

    def _reset_adapter(self) -> None:
        self.adapter.reset(self.dim)
        self.adapter.to(device=self.ring.scale.device, dtype=self.ring.scale.dtype)

    @torch.no_grad()
    def _take(
        self, rows: Tensor, labels: Tensor | None, *, count_rejected: bool
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Gather, cast, and leave out rows that are not finite.

        The third answer tells where in the rows taken those of this rank are, with -1 for the ones left out.
        """
        rows, labels = rows.detach(), None if labels is None else labels.to(rows.device)
        count, first = len(rows), 0
        if self.gather_distributed:
            rows, labels, first = gather_batch(rows, labels)
        rows = rows.to(self.ring.scale.dtype)
        finite = self._storable(rows)
        if finite.all():
            return rows, labels, torch.arange(first, first + count, device=rows.device)
        if count_rejected:
            self.rejected_rows += int((~finite).sum())
        places = torch.where(finite, finite.cumsum(0) - 1, -1)
        return rows[finite], None if labels is None else labels[finite], places[first : first + count]

    def _storable(self, rows: Tensor) -> Tensor:
        """Which rows (B,) are finite, also as they are stored."""
        finite = rows.square().sum(1) < LARGEST_SQUARED_NORM  # NaN is not
        if self.ring.rows.dtype == torch.float16:  # has infinities of its own
            finite &= rows.to(torch.float16).isfinite().all(1)
        return finite

    @torch.no_grad()
    def _adapt(self, rows: Tensor, labels: Tensor | None) -> None:
        if len(rows) < 2:  # no spread to learn from
            return
        target = self.adapter.observe(Moments.of(rows, labels if self.adapter.uses_labels else None))
        if target is not None:
            self.ring.realign(target)

    @torch.no_grad()
    def _enqueue(self, rows: Tensor, labels: Tensor | None, own: Tensor) -> None:
        slots = self.ring.landing(len(rows))
        self.last_slots = torch.cat([slots, slots.new_tensor([-1])])[own]  # -1 finds the -1 at the end
        self.ring.write(rows, labels)

    def _check(self, rows: Tensor, labels: Tensor | None) -> None:
        check_rows("rows", rows, self.ring)
        if labels is not None:
            check_labels("labels", labels, rows)

    def _check_labelled(self, labels: Tensor | None) -> None:
        labelled = labels is not None
        if self.ring.labelled is not None and self.ring.labelled != labelled:
            holds, got = ("labelled", "rows without") if self.ring.labelled else ("unlabelled", "rows with")
            raise ValueError(
                f"This bank holds {holds} rows and was given {got} labels; all have them or none (reset() empties it)."
            )

    def named_modules(
        self, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Module]]:
        """Yield the bank alone: its parts stay out of ``buffers()``, and so out of DDP's reach (see the class)."""
        memo = set() if memo is None else memo
        if self not in memo or not remove_duplicate:
            memo.add(self)
            yield prefix, self

    def get_extra_state(self) -> dict[str, Any]:
        """Everything that is no tensor."""
        return {"rejected_rows": self.rejected_rows}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_extra_state` gave."""
        self.rejected_rows = int(state["rejected_rows"])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Refuse a bank of another shape before anything is overwritten."""
        rows = state_dict.get(f"{prefix}ring.rows")
        if rows is not None and rows.shape != self.ring.rows.shape:
            raise ValueError(
                f"A bank of size {rows.shape[0]} and dim {rows.shape[1]} cannot be loaded into one of "
                f"size {self.size} and dim {self.dim}; make the bank with the size and dim of the checkpoint."
            )
        super()._load_from_state_dict(state_dict, prefix, *args)

    def __len__(self) -> int:
        return self.ring.count

    def extra_repr(self) -> str:
        """Show size and fill."""
        return f"size={self.size}, dim={self.dim}, filled={len(self)}, dtype={self.ring.rows.dtype}"


def check_rows(name: str, rows: Tensor, ring: LazyRing) -> None:
    """Refuse what cannot be compared with, or stored among, the rows of a ring."""
    if not isinstance(rows, Tensor) or not rows.is_floating_point():
        found = rows.dtype if isinstance(rows, Tensor) else type(rows).__name__
        raise TypeError(f"`{name}` must be a floating point tensor, got {found}.")
    if rows.ndim != 2 or rows.shape[1] != ring.dim:
        raise ValueError(f"`{name}` must have shape (B, {ring.dim}) but has shape {tuple(rows.shape)}.")
    if rows.device != ring.rows.device:
        raise ValueError(
            f"`{name}` must be on the bank's device {ring.rows.device}, got {rows.device}; bank.to(...) moves the bank."
        )


def check_labels(name: str, labels: Tensor, rows: Tensor) -> None:
    """Refuse what is not one integer per row."""
    found = labels.dtype if isinstance(labels, Tensor) else labels if labels is None else type(labels).__name__
    if not isinstance(found, torch.dtype) or found.is_floating_point or found.is_complex or found == torch.bool:
        raise TypeError(f"`{name}` must be a tensor of integers, got {found}.")
    if labels.shape != rows.shape[:1]:
        raise ValueError(f"`{name}` must have shape ({len(rows)},), one per row, got {tuple(labels.shape)}.")
