"""The memory bank that stays fresh."""

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_memory_bank.adapters import Adapter, make_adapter
from adaptive_memory_bank.batch import Batch, are_storable
from adaptive_memory_bank.checks import check_labels, check_positive_integer, check_rows
from adaptive_memory_bank.distributed import Alone, Ranks, ranks_of
from adaptive_memory_bank.graphs import outside_graphs
from adaptive_memory_bank.moments import Moments
from adaptive_memory_bank.ring import LazyRing
from adaptive_memory_bank.shards import WHOLE, own_share, pooled_moments
from adaptive_memory_bank.stateful import StatefulBank
from adaptive_memory_bank.stats import BankStats


class AdaptiveMemoryBank(StatefulBank):
    """Keeps the embeddings of past batches and realigns them to the encoder as it moves.

    An adapter filters the moments of each batch, E[B] and s[B]; the bank maps its rows R, dimension by dimension, to
    the moments the adapter returns: ``z <- (z - E[R]) * sigma / s[R] + mu``. The map is kept beside the rows and
    applied when they are read, so a step costs O(batch), whatever the size of the bank. Nothing here has a gradient
    except `similarity`, in its queries.

    The state is in ``state_dict()``, but hidden from ``buffers()`` (see `StatefulBank`).

    Reference: Ajanthan et al., "Adaptive Cross Batch Normalization for Metric Learning", ICCV 2023.

    Args:
        size: Rows it holds; the oldest leave first.
        dim: Dimensions of an embedding.
        adapter: An `Adapter`, or its name: identity (or xbm), xbn, ema, axbn (or kalman), auto.
        dtype: Of the stored rows: float32, float64, or bfloat16 / float16 for half the memory.
        gather_distributed: Take the batches of all ranks, in rank order, so that every rank holds the same bank.
        shard_distributed: Hold one bank together: each rank stores its own batches in its share of ``size``, and all
            realign theirs alike. All ranks call `update` and `adapt` in step, also with an empty batch. What a rank
            serves and tells (`embeddings`, `similarity`, `moments`, `stats`, ...) is of its share; the losses of this
            package compare with all rows. Make it after ``init_process_group``.

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
        adapter: Adapter | str = "auto",
        *,
        dtype: torch.dtype = torch.float32,
        gather_distributed: bool = False,
        shard_distributed: bool = False,
    ) -> None:
        super().__init__()
        check_positive_integer("size", size)
        check_positive_integer("dim", dim)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or dtype.itemsize < 2:
            raise ValueError(f"`dtype` must be float32, float64, bfloat16 or float16, got {dtype}.")
        if gather_distributed and shard_distributed:
            raise ValueError("`gather_distributed` and `shard_distributed` exclude each other: replicas, or shares.")
        adapter = make_adapter(adapter)
        adapter.attach()
        self.gather_distributed, self.shard_distributed = gather_distributed, shard_distributed
        self._size, self.share = size, own_share() if shard_distributed else WHOLE
        self._rejected = torch.zeros((), dtype=torch.int64)
        self.last_slots = torch.empty(0, dtype=torch.int64)  # of this rank's rows in the last enqueue; -1: not stored
        self.ring = LazyRing(self.share.rows_of(size), dim, dtype)
        self._stats = BankStats()
        self.adapter = adapter
        self._reset_adapter()

    @property
    def embeddings(self) -> Tensor:
        """Realigned rows (n, dim) in ring order: a fresh tensor without gradient, safe to keep."""
        return self._without_gaps(self.ring.read())

    @property
    def labels(self) -> Tensor | None:
        """Labels (n,) in ring order, or None where none were ever given."""
        return self._without_gaps(self.ring.labels.clone()) if self.ring.labelled else None

    def rows_in(self, slots: Tensor) -> Tensor:
        """Where in `embeddings` the rows of slots (n,) are, such as ``last_slots``; -1 stays -1.

        Slots and rows are counted alike until a row is refused.
        """
        return self.ring.positions(slots)

    @property
    def rejected_rows(self) -> int:
        """Rows with NaN or infinity that were offered and refused; reading it waits for the device."""
        return int(self._rejected)

    @property
    def moments(self) -> Moments:
        """Moments of the realigned rows, without a pass over them."""
        return self.ring.moments

    def _without_gaps(self, values: Tensor) -> Tensor:
        """Values (slots in use, ...) of those slots that hold a row. Waits for a GPU."""
        return values if self.ring.gaps is None else values[~self.ring.gaps]

    @outside_graphs
    def update(self, rows: Tensor, labels: Tensor | None = None) -> None:
        """Adapt to a batch, then enqueue it.

        Args:
            rows: Shape (B, dim), any floating point type. Rows with NaN or infinity are refused and counted; each
                leaves a gap, a slot without a row, that lasts one lap.
            labels: Shape (B,), integers; all batches have them or none has.
        """
        self.check(rows, labels)
        batch = self.take(rows, labels)
        self.adapt_to(batch)
        self.store(batch)

    @outside_graphs
    def adapt(self, rows: Tensor, labels: Tensor | None = None) -> None:
        """Realign the bank to a batch, and store nothing. With labels, moments know about classes."""
        self._check_batch(rows, labels, ("rows", "labels"))
        self.adapt_to(self.take(rows, labels))

    @outside_graphs
    def enqueue(self, rows: Tensor, labels: Tensor | None = None) -> None:
        """Store a batch, and realign nothing. A batch larger than the bank leaves its newest rows."""
        self.check(rows, labels)
        self.store(self.take(rows, labels))

    def check(self, rows: Tensor, labels: Tensor | None = None, *, names: tuple[str, str] = ("rows", "labels")) -> None:
        """Refuse a batch that cannot be stored. For losses, which check before they do anything.

        Args:
            rows: As for `update`.
            labels: As for `update`.
            names: What messages call the two.
        """
        self._check_batch(rows, labels, names)
        labelled = labels is not None
        if self.ring.labelled is not None and self.ring.labelled != labelled:
            holds, got = ("labelled", "rows without") if self.ring.labelled else ("unlabelled", "rows with")
            raise ValueError(
                f"This bank holds {holds} rows and was given {got} labels; all have them or none (reset() empties it)."
            )

    def check_queries(self, queries: Tensor) -> None:
        """Refuse queries that cannot be compared with the rows."""
        check_rows("queries", queries, self.dim, self.device)

    def _check_batch(self, rows: Tensor, labels: Tensor | None, names: tuple[str, str]) -> None:
        check_rows(names[0], rows, self.dim, self.device)
        if labels is not None:
            check_labels(names[1], labels, rows)

    @torch.no_grad()
    def take(self, rows: Tensor, labels: Tensor | None = None) -> Batch:
        """Gather a batch that passed `check`, cast it, and mark rows that are not finite.

        `update` is `take`, `adapt_to` and `store`; a loss that does something in between takes its batch once.
        """
        self._claim_share()
        return Batch.of(rows, labels, dtype=self.compute_dtype, stored_as=self.dtype, gather=self.gather_distributed)

    def ranks_of(self, queries: Tensor) -> Ranks:
        """Who holds the rows that queries (B, dim) are to be compared with: this rank, or in shards all of them.

        All ranks call it, with the queries of each.
        """
        return Alone(queries) if self.share == WHOLE else ranks_of(queries)

    @torch.no_grad()
    def adapt_to(self, batch: Batch) -> None:
        """Realign the bank to a batch that was taken."""
        if self.share == WHOLE and len(batch.rows) < 2:  # no spread to learn from
            return
        moments, now = self._moments(batch)
        if isinstance(moments.count, Tensor):
            self._adapt_where(moments.count > 1, moments, now)
        elif moments.count > 1:
            target = self.adapter.observe(moments)
            before = None if target is None else self.ring.realign(target, now=now)
            self._stats.adapted(moments, target, before)

    def _moments(self, batch: Batch) -> tuple[Moments, Moments | None]:
        """Moments of a batch, and of the rows of all ranks, where there are others that hold some."""
        uses_labels = self.adapter.uses_labels
        if self.share == WHOLE:
            return Moments.of(batch.rows, batch.labels if uses_labels else None, batch.kept), None
        return pooled_moments(batch, self.moments, uses_labels=uses_labels)

    def _adapt_where(self, enough: Tensor, moments: Moments, now: Moments | None) -> None:
        """Adapt if ``enough``, a boolean tensor of one, is True: without reading it."""
        earlier = {name: buffer.clone() for name, buffer in self.adapter.named_buffers()}
        target = self.adapter.observe(moments)
        for name, buffer in self.adapter.named_buffers():
            buffer.copy_(torch.where(enough, buffer, earlier[name]))
        before = None if target is None else self.ring.realign(target, where=enough, now=now)
        self._stats.adapted(moments, target, before, where=enough)

    @torch.no_grad()
    def store(self, batch: Batch) -> None:
        """Enqueue a batch that was taken. Sets ``last_slots`` and counts the rows refused."""
        slots = self.ring.next_slots(len(batch.rows))
        if batch.kept is not None:
            slots = slots.where(batch.kept, -1)
            self._rejected = self._rejected.to(slots.device) + (~batch.kept).sum()
        self.last_slots = slots[batch.own]
        self.ring.write(batch.rows, batch.labels, batch.kept)
        if self._stats.enqueued(len(batch.rows), size=self.ring.size):
            self._stats.warn_of(self.rejected_rows)

    @torch.no_grad()
    def replace(self, rows: Tensor) -> None:
        """Replace the stored rows by new embeddings of the same samples; the filter stays as it is.

        For memories that are re-embedded from their images. Afterwards `embeddings` are these rows, up to the storage's
        precision, and `moments` are theirs.

        Args:
            rows: Shape (n, dim), as many as the bank holds, in ring order. Where one has NaN or infinity, the
                stored row stays, and is counted as rejected.
        """
        check_rows("rows", rows, self.dim, self.device)
        if len(rows) != len(self):
            raise ValueError(f"`rows` must be as many as the bank holds, {len(self)}, got {len(rows)}.")
        rows = rows.to(self.compute_dtype)
        storable = are_storable(rows, self.dtype)
        self._rejected = self._rejected.to(self.device) + (~storable).sum()
        rows = torch.where(storable[:, None], rows, self.embeddings)
        if self.ring.gaps is not None:
            rows = torch.zeros_like(self.ring.read()).index_put_((~self.ring.gaps,), rows)
        self.ring.replace(rows)
        self._stats.ages.renew(len(rows))

    def stats(self) -> dict[str, float]:
        """What the bank does, as plain numbers for any logger; waits for the device.

        ``fill``: share of slots that hold a row. ``age``: mean age of the rows, in updates. ``gain_mean`` and
        ``gain_std``: share of the last batch's news that the adapter believed; 0 for identity, 1 for XBN. ``shift``:
        how far the last realignment moved the mean of the rows, root mean square over dimensions, in units of their
        std. ``stretch``: root mean square of the logarithm of the change of scale. ``rejected_rows``: NaN or infinite.
        """
        rejected = float(self.rejected_rows)
        self._stats.warn_of(rejected)
        return {"fill": len(self) / self.ring.size, **self._stats.tell(), "rejected_rows": rejected}

    @outside_graphs
    def similarity(self, queries: Tensor) -> Tensor:
        """Cosine similarity of queries (B, dim) to the realigned rows: (B, n), differentiable in the queries.

        Later updates do not disturb a backward pass through it. A row that was refused has a column all the same, for
        the shape must not depend on values: minus infinity, which no maximum finds and no softmax counts.
        """
        self.check_queries(queries)
        queries = F.normalize(queries.to(self.compute_dtype), dim=1)
        if torch.is_grad_enabled() and queries.requires_grad:
            # The backward pass needs rows that no later enqueue overwrites: this copy.
            products = queries @ F.normalize(self.ring.read(), dim=1).T
        else:
            blocks = [queries @ F.normalize(rows, dim=1).T for rows in self.ring.blocks()]
            products = torch.cat(blocks, dim=1) if blocks else queries.new_zeros(len(queries), 0)
        return products if self.ring.gaps is None else products.masked_fill(self.ring.gaps, -torch.inf)

    @torch.no_grad()
    def reset(self) -> None:
        """Empty the bank and its filter: as new."""
        self.ring.reset()
        self._rejected = torch.zeros((), dtype=torch.int64)
        self._stats = BankStats()
        self._reset_adapter()

    def __len__(self) -> int:
        return int(self.ring.rows_held)

    def extra_repr(self) -> str:
        """Show size and fill."""
        whose = f", rank={self.share.rank} of {self.share.ranks}" if self.shard_distributed else ""
        return f"size={self.size}, dim={self.dim}, filled={len(self)}, dtype={self.dtype}{whose}"
