"""A bank in shards: each rank holds a share of the rows, and all of them realign theirs as one."""

import re
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from adaptive_memory_bank.batch import Batch
from adaptive_memory_bank.distributed import Together, all_gather, rank_and_ranks
from adaptive_memory_bank.moments import Classes, Moments
from adaptive_memory_bank.ring import LazyRing

State = dict[str, Any]


class Share(NamedTuple):
    """Which part of a bank a rank holds.

    Example:
        >>> [Share(rank, 4).rows_of(10) for rank in range(4)]
        [3, 3, 2, 2]
        >>> Share(1, 4).prefix, Share(0, 1).prefix
        ('rank_1_of_4.', '')
    """

    rank: int
    ranks: int

    def rows_of(self, size: int) -> int:
        """How many rows of a bank of this size it has."""
        return size // self.ranks + (self.rank < size % self.ranks)

    @property
    def prefix(self) -> str:
        """What the keys of its state begin with, so that those of different ranks are never taken for one another."""
        return "" if self.ranks == 1 else f"rank_{self.rank}_of_{self.ranks}."


WHOLE = Share(0, 1)


def own_share() -> Share:
    """The share of this process."""
    return Share(*rank_and_ranks())


def pooled_moments(batch: Batch, stored: Moments, *, uses_labels: bool) -> tuple[Moments, Moments]:
    """Moments of the batches of all ranks together, and of all rows that they hold, from those of this rank.

    One message of O(dim) numbers, and one of O(classes x dim) where labels are used.

    Args:
        batch: That of this rank; may be empty.
        stored: Moments of the rows that this rank holds.
        uses_labels: Whether the adapter looks at what only labels tell.
    """
    plain = Moments.of(batch.rows, None, batch.kept)
    labels = batch.labels if uses_labels else None
    classes = None if labels is None else Classes.of(batch.rows, labels, batch.kept)
    counts = [plain.count, stored.count, 0 if classes is None else len(classes.labels)]
    within = torch.zeros_like(plain.mean) if classes is None else classes.within
    vectors = plain.mean, plain.std, stored.mean, stored.std, within
    numbers = torch.stack([torch.as_tensor(count, device=plain.mean.device).double() for count in counts])
    told = all_gather(torch.cat([numbers, *(vector.double() for vector in vectors)]))
    sizes, moments = told[:, : len(counts)], told[:, len(counts) :].reshape(len(told), len(vectors), -1)
    whole = Moments.pooled(sizes[:, 0], moments[:, 0], moments[:, 1])
    if classes is not None:
        together = _of_all_ranks(classes, sizes[:, 2], moments[:, 4].sum(0))
        whole = Moments.in_classes(whole.mean, whole.std, whole.count, together)
    rows = Moments.pooled(sizes[:, 1], moments[:, 2], moments[:, 3])
    return _cast(whole, batch.rows.dtype), _cast(rows, batch.rows.dtype)


def _of_all_ranks(classes: Classes, counts: Tensor, within: Tensor) -> Classes:
    """The classes of all ranks, which have so many each (ranks,), and squared deviations within them (dim,)."""
    ranks = Together([int(count) for count in counts.tolist()])
    labels, sizes, means = ranks.gather(classes.labels, classes.sizes, classes.means)
    return Classes(labels, sizes.double(), means.double(), within).joined()


def _cast(moments: Moments, dtype: torch.dtype) -> Moments:
    vectors = {name: value.to(dtype) for name, value in moments._asdict().items() if name != "count"}
    return moments._replace(**vectors)


def adopt_share(state: State, prefix: str, share: Share, size: int) -> None:
    """Turn what a checkpoint holds of a bank, whoever saved it, into the state of this rank's share, in place.

    The share of the same rank of as many ranks is taken as it is. Rows of other numbers of ranks, one rank included,
    are dealt out anew, which takes the shares of all of them.

    Args:
        state: A ``state_dict``; keys that do not begin with the prefix are left alone.
        prefix: What the keys of the bank begin with.
        share: What this rank is to hold.
        size: Rows of the whole bank.

    Raises:
        ValueError: Where shares are missing, or are those of a bank of another size.
    """
    shares = _pop_shares(state, prefix)
    if not shares:
        return
    own = shares.get(share)
    if own is None:
        (ranks,) = {found.ranks for found in shares}
        missing = [rank for rank in range(ranks) if Share(rank, ranks) not in shares]
        if missing:
            raise ValueError(
                f"This state holds shares of a bank of {ranks} ranks without that of rank {missing[0]}; rank "
                f"{share.rank} of {share.ranks} needs all of them, to deal the rows out anew. Load a state with all "
                "shares: that of a trainer, or `python -m torch.distributed.checkpoint.format_utils dcp_to_torch`."
            )
        own = _dealt_out([shares[Share(rank, ranks)] for rank in range(ranks)], share, size)
    state.update({f"{prefix}{key}": value for key, value in own.items()})


def _pop_shares(state: State, prefix: str) -> dict[Share, State]:
    """Take the keys of a bank out of a state, by share."""
    pattern = re.compile(rf"{re.escape(prefix)}(?:rank_(\d+)_of_(\d+)\.)?(.+)")
    shares: dict[Share, State] = {}
    for key in [key for key in state if key.startswith(prefix)]:
        found = pattern.fullmatch(key)
        assert found is not None
        rank, ranks, name = found.groups()
        shares.setdefault(Share(int(rank), int(ranks)) if rank else WHOLE, {})[name] = state.pop(key)
    return shares


def _dealt_out(states: list[State], share: Share, size: int) -> State:
    """The state of a share of rows that other ranks hold: every so many of them, from the newest to the oldest."""
    rings = [_ring_of(state) for state in states]
    if sum(ring.size for ring in rings) != size:
        raise ValueError(
            f"A bank of size {sum(ring.size for ring in rings)} cannot be loaded into one of size {size}; make the "
            "bank with the size of the checkpoint."
        )
    rows, labels = _newest_first(rings)
    rows, labels = rows[share.rank :: share.ranks].flip(0), labels[share.rank :: share.ranks].flip(0)
    ring = LazyRing(share.rows_of(size), rings[0].dim, rings[0].dtype)
    labelled = any(other.labelled for other in rings)
    ring.restore(rows, labels if labelled else None, len(rows) % ring.size)
    filter_state = {key: value for key, value in states[0].items() if key.startswith("adapter.")}
    extra = _extra_of([state["_extra_state"] for state in states], share, len(rows))
    return {**ring.state_dict(prefix="ring."), **filter_state, "_extra_state": extra}


def _ring_of(state: State) -> LazyRing:
    stored: Tensor = state["ring.stored"]
    ring = LazyRing(stored.shape[0], stored.shape[1], stored.dtype)
    ring.load_state_dict({key.removeprefix("ring."): value for key, value in state.items() if key.startswith("ring.")})
    return ring


def _newest_first(rings: list[LazyRing]) -> tuple[Tensor, Tensor]:
    """Embeddings and labels of all rows, those of all rings with the same place in theirs side by side."""
    rows, labels, places = [], [], []
    for ring in rings:
        order = torch.arange(ring.cursor - 1, ring.cursor - 1 - ring.count, -1) % ring.size
        if ring.gaps is not None:
            order = order[~ring.gaps[order]]
        rows.append(ring.gather(order))
        labels.append(ring.labels[order])
        places.append(torch.arange(len(order)))
    order = torch.cat(places).argsort(stable=True)
    return torch.cat(rows)[order], torch.cat(labels)[order]


def _extra_of(extras: list[State], share: Share, rows: int) -> State:
    """Non-tensor state: refused rows stay counted once, and ages are counted anew."""
    rejected = sum(int(extra["rejected_rows"]) for extra in extras[share.rank :: share.ranks])
    extra = {**extras[0], "rejected_rows": rejected}
    if "stats" in extra:
        updates = extra["stats"]["ages"]["updates"]
        extra["stats"] = {**extra["stats"], "ages": {"updates": updates, "runs": [[rows, updates]]}}
    return extra


def gather_shares(state: State) -> State:
    """A ``state_dict`` with the shares of all ranks, on rank 0, for checkpoints that one rank writes; elsewhere as is.

    All ranks call it. Rank 0 must have room for the whole bank.
    """
    own = {key: value for key, value in state.items() if re.search(r"(^|\.)rank_\d+_of_\d+\.", key)}
    rank, ranks = rank_and_ranks()
    if ranks == 1 or not own:
        return state
    shares: list[State] | None = [{}] * ranks if rank == 0 else None
    dist.gather_object(own, shares)
    for share in shares or []:
        state = {**state, **share}
    return state
