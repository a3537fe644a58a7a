"""How a bank is saved, loaded and handed over, and with which filter it goes on."""

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from adaptive_memory_bank.adapters import Adapter, make_adapter
from adaptive_memory_bank.checks import check_labels, check_rows
from adaptive_memory_bank.ring import LazyRing
from adaptive_memory_bank.shards import WHOLE, Share, adopt_share, own_share
from adaptive_memory_bank.stats import BankStats


class StatefulBank(nn.Module):
    """The state of a bank: rows, a filter, and what both have seen.

    All of it is in ``state_dict()``, but hidden from ``buffers()``: DistributedDataParallel would copy the rows of rank
    0 over those of all others, at every step.
    """

    ring: LazyRing  # of this rank's share
    adapter: Adapter
    share: Share  # which part of the bank is here: all of it, but for `shard_distributed`
    shard_distributed: bool
    _size: int
    _rejected: Tensor  # (), on the device of the rows: how many were refused
    _stats: BankStats

    @property
    def size(self) -> int:
        """Rows it can hold, on all ranks together."""
        return self._size

    @property
    def dim(self) -> int:
        """Dimensions of an embedding."""
        return self.ring.dim

    @property
    def is_full(self) -> bool:
        """Whether the next row of this rank pushes the oldest out."""
        return self.ring.is_full

    @property
    def slots_in_use(self) -> int:
        """Slots that were written to, those of refused rows included: `len` without waiting for the device."""
        return self.ring.count

    @property
    def cursor(self) -> int:
        """The slot of the next row."""
        return self.ring.cursor

    @property
    def dtype(self) -> torch.dtype:
        """Of the stored rows."""
        return self.ring.dtype

    @property
    def compute_dtype(self) -> torch.dtype:
        """Of `embeddings` and of all arithmetic: float32, or float64 for float64 rows."""
        return self.ring.compute_dtype

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.ring.device

    def release_adapter(self) -> Adapter:
        """Give up the adapter, for another bank that takes the place of this one."""
        self.adapter.release()
        return self.adapter

    def change_adapter(self, adapter: Adapter | str) -> None:
        """Go on with another adapter: rows, labels and position stay, the filter starts anew."""
        adapter = make_adapter(adapter)
        adapter.attach()
        self.release_adapter()
        self.adapter = adapter
        self._reset_adapter()

    def by_slot(self) -> tuple[Tensor, Tensor]:
        """Realigned rows and labels of all slots in use, fresh tensors; for a refused one, those of the row before."""
        rows, labels = self.ring.read(), self.ring.labels
        if self.ring.gaps is None or not len(rows):
            return rows, labels.clone()
        before = torch.arange(len(rows), device=rows.device).masked_fill(self.ring.gaps, -1).cummax(0).values
        before = torch.where(before < 0, before[-1], before)
        return rows[before], labels[before]

    @torch.no_grad()
    def restore(self, rows: Tensor, labels: Tensor | None, *, cursor: int) -> None:
        """Hold rows that another memory held, and no others; the filter stays as it is.

        Args:
            rows: Shape (n, dim), in slot order, n up to `size`.
            labels: Shape (n,), integers, or None.
            cursor: The slot of the next row: n, or any slot if the rows fill the bank.
        """
        check_rows("rows", rows, self.dim, self.device)
        if labels is not None:
            check_labels("labels", labels, rows)
        size = self.ring.size
        if not ((len(rows) == size and 0 <= cursor < size) or len(rows) == cursor < size):
            raise ValueError(f"`cursor` must be the first free slot, or any slot of a full bank, got {cursor!r}.")
        self.ring.restore(rows.to(self.compute_dtype), labels, cursor)
        self._stats.ages.renew(len(rows))

    def _reset_adapter(self) -> None:
        self._stats.realignment = None
        self.adapter.reset(self.ring.dim)
        self.adapter.to(device=self.ring.device, dtype=self.ring.compute_dtype)

    def named_modules(
        self, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Module]]:
        """Yield the bank alone: its parts stay out of ``buffers()``, and so out of DDP's reach (see the class)."""
        memo = set() if memo is None else memo
        if self not in memo or not remove_duplicate:
            memo.add(self)
            yield prefix, self

    def _claim_share(self) -> None:
        """Take this rank's share of the rows, as soon as the ranks are known."""
        share = own_share() if self.shard_distributed else WHOLE
        if share == self.share:
            return
        if self.ring.count:
            raise RuntimeError(
                f"This bank holds the share of rank {self.share.rank} of {self.share.ranks}, but this is now rank "
                f"{share.rank} of {share.ranks}; make it after `init_process_group`, and load its state_dict there."
            )
        self.share = share
        self.ring = LazyRing(share.rows_of(self.size), self.dim, self.dtype).to(self.device)

    def state_dict(self, *args: Any, prefix: str = "", **options: Any) -> Any:
        """The state of this rank's share; in shards, its keys say whose it is."""
        if not self.ring.count:
            self._claim_share()
        return super().state_dict(*args, prefix=f"{prefix}{self.share.prefix}", **options)

    def get_extra_state(self) -> dict[str, Any]:
        """Non-tensor state, and which adapter the filter's state is of."""
        adapter = type(self.adapter).__name__
        return {"rejected_rows": int(self._rejected), "adapter": adapter, "stats": self._stats.state_dict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_extra_state` returned."""
        self._rejected = torch.tensor(int(state["rejected_rows"]))
        if "stats" in state:  # not in checkpoints of 0.1
            self._stats.load_state_dict(state["stats"])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Refuse a bank of another shape before anything is overwritten, and take that of another adapter.

        Also that of other ranks: `adopt_share` says how.
        """
        self._claim_share()
        adopt_share(state_dict, prefix, self.share, self.size)
        self.ring.check_loadable(state_dict, f"{prefix}ring.")
        super()._load_from_state_dict(state_dict, prefix, *args)
        if f"{prefix}ring.stored" in state_dict and not self._has_own_filter(state_dict, prefix):
            self._start_filter_anew(state_dict, f"{prefix}adapter.")

    def _has_own_filter(self, state_dict: dict[str, Any], prefix: str) -> bool:
        """Whether a checkpoint is of a bank with the same kind of adapter."""
        kind = type(self.adapter).__name__
        saved = {key for key in state_dict if key.startswith(f"{prefix}adapter.")}
        named = state_dict.get(f"{prefix}_extra_state", {}).get("adapter", kind)  # checkpoints of 0.1 name none
        return bool(named == kind and saved == set(self.adapter.state_dict(prefix=f"{prefix}adapter.")))

    def _start_filter_anew(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Put the state of a new filter in the place of that of another adapter."""
        warnings.warn(
            f"The checkpoint is of a bank with another adapter than {type(self.adapter).__name__}: rows, labels and "
            "position were loaded, the filter starts anew.",
            stacklevel=2,
        )
        self._reset_adapter()
        for key in [key for key in state_dict if key.startswith(prefix)]:
            del state_dict[key]
        state_dict.update(self.adapter.state_dict(prefix=prefix))
