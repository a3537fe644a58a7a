"""The numbers a comparison shows: their names in a run's files, and how people read them."""

from collections.abc import Mapping
from dataclasses import dataclass

from adaptive_memory_bank.lab.runs.history import is_number
from adaptive_memory_bank.lab.runs.results import Run


@dataclass(frozen=True)
class Column:
    """One measured quantity.

    Attributes:
        key: Metric name in the run's files, without what stands before the slash for the chosen epoch.
        title: Heading.
        meaning: One sentence for readers who do not know the quantity.
        percent: Whether the value is a share in [0, 1] that people read in percent.
        higher_is_better: Direction; None where no direction is better.
        decimals: Of a value that is not in percent.
    """

    key: str
    title: str
    meaning: str
    percent: bool = True
    higher_is_better: bool | None = True
    decimals: int = 3

    @property
    def short_key(self) -> str:
        """The name without its group: `recall@1` of `val/recall@1`."""
        return self.key.rpartition("/")[2]

    def chosen(self, run: Run) -> float | None:
        """Value at the chosen epoch, or at the last one where the run chose none."""
        for name in (self.short_key, f"best/{self.short_key}", self.key):
            if name in run.best:
                return run.best[name]
        return self.last(run)

    def last(self, run: Run) -> float | None:
        """Value at the last epoch."""
        return run.metrics.get(self.key)

    def show(self, value: float) -> str:
        """Write a value as tables have it: percent with one decimal, anything else with `decimals`.

        Example:
            >>> RECALL_1.show(0.8123), STALENESS.show(0.41267)
            ('81.2', '0.413')
        """
        return f"{100 * value:.1f}" if self.percent else f"{value:.{self.decimals}f}"

    def show_difference(self, value: float, *, unit: bool = True) -> str:
        """Write a difference with its sign; shares differ by percentage points.

        Example:
            >>> RECALL_1.show_difference(0.0123), RECALL_1.show_difference(-0.004, unit=False)
            ('+1.2 points', '-0.4')
        """
        text = f"{100 * value:+.1f}" if self.percent else f"{value:+.{self.decimals}f}"
        return f"{text} points" if unit and self.percent else text


class StepTime(Column):
    """Milliseconds per training step."""

    def chosen(self, run: Run) -> float | None:
        """A step costs the same in every epoch."""
        return self.last(run)

    def last(self, run: Run) -> float | None:
        """Milliseconds per step, from whichever of its two names the run wrote."""
        seconds = run.result.seconds_per_step
        return 1000 * seconds if isinstance(seconds, int | float) and seconds > 0 else run.metrics.get(self.key)


class TrainingTime(Column):
    """Seconds that all training steps of a run took together."""

    def chosen(self, run: Run) -> float | None:
        """The whole run counts, whichever epoch was chosen."""
        return self.last(run)

    def last(self, run: Run) -> float | None:
        """Seconds; None where the run did not count them."""
        seconds = getattr(run.result, self.key)
        return float(seconds) if is_number(seconds) else None


RECALL_1 = Column("val/recall@1", "Recall@1", "share of queries whose nearest image is of the same class")
RECALL_10 = Column(
    "val/recall@10", "Recall@10", "share of queries with an image of the same class among the nearest 10"
)
RECALL_8 = Column("val/recall@8", "Recall@8", "share of queries with an image of the same class among the nearest 8")
MAP_R = Column("val/map@r", "MAP@R", "mean average precision over the R nearest, R being the size of the class")
KNN = Column("val/knn", "kNN", "accuracy of a nearest-neighbour vote on the backbone's features")
KNN_PROJECTED = Column("val/knn_proj", "kNN (proj.)", "the same on the projected embedding")
STALENESS = Column(
    "bank/staleness",
    "staleness",
    "mean distance between stored embeddings, realigned, and fresh ones of the same images",
    percent=False,
    higher_is_better=False,
)
STEP_TIME = StepTime(
    "time/step_ms",
    "step time",
    "milliseconds per step, and relative to no memory; trainings that run side by side disturb each other",
    False,
    None,
)
TRAINING_TIME = TrainingTime(
    "train_seconds",
    "training s",
    "seconds in training steps of a whole run, without evaluation; trainings that run side by side disturb each other",
    percent=False,
    higher_is_better=None,
    decimals=0,
)

COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "retrieval": (RECALL_1, RECALL_8, RECALL_10, MAP_R, STALENESS, STEP_TIME, TRAINING_TIME),
    "moco": (KNN, KNN_PROJECTED, STALENESS, STEP_TIME, TRAINING_TIME),
}


def columns_of(task: str) -> tuple[Column, ...]:
    """List the columns of a task; the first one decides."""
    if task not in COLUMNS:
        raise ValueError(f"`task` must be one of {', '.join(COLUMNS)}, got {task!r}.")
    return COLUMNS[task]
