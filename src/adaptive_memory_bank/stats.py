"""What a bank tells of itself: how old its rows are, what the adapter believed, how far the rows were moved."""

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptive_memory_bank.affine import have_spread
from adaptive_memory_bank.moments import Moments

RUNS = 256  # generations of rows that are told apart
WINDOW = 100  # updates between two looks at the rows that were refused: each one waits for the device
TINY = 1e-300


class Ages:
    """Mean age of the rows of a ring, in updates, from the lengths of the batches alone.

    Rows leave in the order in which they came, so runs of (rows, mean update in which they came) say it all. Batches
    that are small against the ring share a run, which keeps the sum; only while such a run is leaving is the mean off,
    by far less than a `RUNS`-th of it.

    Example:
        >>> ages = Ages()
        >>> for batch in (4, 4, 4):
        ...     ages.add(batch, size=10)
        >>> ages.mean()  # two rows of age 2, four of age 1, four of age 0
        0.8
    """

    def __init__(self) -> None:
        self.updates = self.rows = 0
        self.runs: list[list[float]] = []  # rows, and the mean update in which they came; oldest first

    def add(self, rows: int, *, size: int) -> None:
        """Count an update by so many rows; as many of the oldest leave as a ring of this size has no room for."""
        self.updates += 1
        if self.runs and self.runs[-1][0] < size / RUNS:
            self.runs[-1] = _joined(self.runs[-1], [rows, self.updates])
        else:
            self.runs.append([rows, self.updates])
        excess: float = self.rows + rows - size
        self.rows = min(self.rows + rows, size)
        while excess > 0:
            leaving = min(excess, self.runs[0][0])
            excess -= leaving
            self.runs[0][0] -= leaving
            if not self.runs[0][0]:
                del self.runs[0]

    def renew(self, rows: int) -> None:
        """Forget the past: so many rows, all of them new."""
        self.rows, self.runs = rows, [[rows, self.updates]]

    def mean(self) -> float:
        """Mean age; 0 for the rows of the last update."""
        return sum(rows * (self.updates - came) for rows, came in self.runs) / max(self.rows, 1)

    def state_dict(self) -> dict[str, Any]:
        """The whole state."""
        return {"updates": self.updates, "runs": [list(run) for run in self.runs]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.updates, self.runs = int(state["updates"]), [list(run) for run in state["runs"]]
        self.rows = int(sum(count for count, _ in self.runs))


def _joined(first: list[float], second: list[float]) -> list[float]:
    rows = first[0] + second[0]
    return [rows, (first[0] * first[1] + second[0] * second[1]) / max(rows, 1)]


Pair = Tensor | tuple[Tensor, Tensor]  # mean and std, (dim,) each


class Realignment(NamedTuple):
    """Moments from before and after the rows were moved. Nobody writes into these tensors any more."""

    previous: Pair  # what the adapter held before it saw the batch
    batch: Pair
    held: Tensor  # (2, dim): what the adapter holds now
    before: Pair  # of the rows before they were moved

    def stacked(self) -> Tensor:
        """All of them, (4, 2, dim)."""
        return torch.stack([vector for pair in self for vector in pair]).view(4, 2, -1)


class BankStats:
    """Remembers what a bank's ``stats()`` tells. The device is asked when somebody wants to know, and not before."""

    def __init__(self) -> None:
        self.ages = Ages()
        self.realignment: Realignment | None = None
        self.warned = False

    def adapted(
        self,
        batch: Moments,
        target: Moments | None,
        before: tuple[Tensor, Tensor] | None,
        where: Tensor | None = None,
    ) -> None:
        """Note what an adapter made of a batch, and mean and std of the rows before they were moved.

        With ``where``, a boolean tensor of one, nothing is noted if that is False.
        """
        if target is None:
            self.realignment = None
            return
        held = torch.stack([target.mean, target.std])  # a copy: an adapter may go on with its own tensors
        last = self.realignment
        previous = held if last is None else last.held.to(held)
        now = Realignment(previous, (batch.mean, batch.population_std), held, held if before is None else before)
        if where is not None and last is not None:
            now = Realignment(*torch.where(where, now.stacked(), last.stacked().to(held)).unbind())
        self.realignment = now

    def enqueued(self, rows: int, *, size: int) -> bool:
        """Count an update; returns whether it is time to look at the rows that were refused."""
        self.ages.add(rows, size=size)
        return self.ages.updates % WINDOW == 0

    def warn_of(self, rejected_rows: float) -> None:
        """Say once that rows were refused."""
        if rejected_rows and not self.warned:
            self.warned = True
            warnings.warn(
                f"{rejected_rows:.0f} rows with NaN or infinity were offered to the memory bank and refused: look at "
                "the encoder, its learning rate or its precision. (`stats` counts them; this is said once.)",
                stacklevel=3,
            )

    def tell(self) -> dict[str, float]:
        """``age``, ``gain_mean``, ``gain_std``, ``shift`` and ``stretch``."""
        return {"age": self.ages.mean(), **_movement(self.realignment)}

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as plain numbers."""
        moments = None if self.realignment is None else self.realignment.stacked().tolist()
        return {"ages": self.ages.state_dict(), "realignment": moments, "warned": self.warned}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.ages.load_state_dict(state["ages"])
        moments, self.warned = state["realignment"], bool(state["warned"])
        self.realignment = (
            None if moments is None else Realignment(*torch.tensor(moments, dtype=torch.float64).unbind())
        )


def _movement(realignment: Realignment | None) -> dict[str, float]:
    if realignment is None:
        return dict.fromkeys(("gain_mean", "gain_std", "shift", "stretch"), 0.0)
    previous, batch, target, before = realignment.stacked().cpu().double()
    news = batch - previous
    # 1 - K is the share that was not believed; without news the batch was, if it is what the adapter holds.
    doubted = ((batch - target) * news).sum(1) / news.square().sum(1).clamp(min=TINY)
    scaled = have_spread(*before) & have_spread(*target)
    shift = ((target[0] - before[0]) / before[1])[scaled]
    stretch = (target[1] / before[1])[scaled].log()
    gain_mean, gain_std = (1 - doubted).tolist()
    return {"gain_mean": gain_mean, "gain_std": gain_std, "shift": _rms(shift), "stretch": _rms(stretch)}


def _rms(values: Tensor) -> float:
    return values.square().mean().sqrt().item() if len(values) else 0.0
