"""The metrics: what each is called in a run's files, how people read it, and where it is shown.

A new metric is an entry of `METRICS` here, and the line that logs it; tables, reports, dashboards and the progress line
follow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from adaptive_memory_bank.lab.runs.history import is_number
from adaptive_memory_bank.lab.runs.results import Run

Unit = Literal["percent", "ms", "s", "count", "plain"]
"""How values are read; those in percent are shares in [0, 1] in files."""
View = Literal["table", "progress", "evidence"]
"""The table of a comparison, the progress line of a run, the pages below `benchmarks/results`."""
QUALITY, DRIFT, STALE, BANK, COST = "Quality over epochs", "Drift", "Staleness", "What the memory does", "Cost"
_DECIMALS: dict[Unit, int] = {"percent": 1, "ms": 1, "s": 0, "count": 0, "plain": 3}


@dataclass(frozen=True)
class Metric:
    """One measured quantity.

    Attributes:
        name: In the run's files and on W&B.
        label: What people call it.
        meaning: Half a sentence for readers who do not know it.
        unit: How its values are read.
        better: Which values are better; None where neither is.
        shown: Where it is shown besides charts.
        curve: Section of the report and of the dashboard in which it is drawn over epochs; None: nowhere.
        beside: Name of a second metric in the same chart, dashed.
        instead_of: Name of a metric that it replaces in tables where no run has that one.
        read: How to read it off a run that has it in another place than its metrics.
    """

    name: str
    label: str
    meaning: str
    unit: Unit = "percent"
    better: Literal["higher", "lower"] | None = "higher"
    shown: tuple[View, ...] = ()
    curve: str | None = None
    beside: str | None = None
    instead_of: str | None = None
    read: Callable[[Run], float | None] | None = None

    @property
    def short_name(self) -> str:
        """The name without its group: `recall@1` of `val/recall@1`."""
        return self.name.rpartition("/")[2]

    @property
    def is_score(self) -> bool:
        """Whether a run has it for every epoch that it evaluates, so that the chosen epoch has one of its own."""
        return self.name.startswith("val/")

    @property
    def best_name(self) -> str:
        """Name of its value at the chosen epoch."""
        return f"best/{self.short_name}"

    @property
    def heading(self) -> str:
        """The label with its unit, for tables and axes."""
        return f"{self.label} %" if self.unit == "percent" else self.label

    @property
    def scale(self) -> float:
        """Factor from the value in files to the one people read."""
        return 100.0 if self.unit == "percent" else 1.0

    def chosen(self, run: Run) -> float | None:
        """Value at the chosen epoch, or at the last one where the run chose none."""
        return run.best[self.best_name] if self.is_score and self.best_name in run.best else self.last(run)

    def last(self, run: Run) -> float | None:
        """Value at the last epoch."""
        return self.read(run) if self.read else run.metrics.get(self.name)

    def show(self, value: float) -> str:
        """Write a value as tables have it.

        Example:
            >>> RECALL_1.show(0.8123), STALENESS.show(0.41267)
            ('81.2', '0.413')
        """
        return f"{self.scale * value:.{_DECIMALS[self.unit]}f}"

    def show_difference(self, value: float, *, unit: bool = True) -> str:
        """Write a difference with its sign; shares differ by percentage points.

        Example:
            >>> RECALL_1.show_difference(0.0123), RECALL_1.show_difference(-0.004, unit=False)
            ('+1.2 points', '-0.4')
        """
        text = f"{self.scale * value:+.{_DECIMALS[self.unit]}f}"
        return f"{text} points" if unit and self.unit == "percent" else text


def _step_ms(run: Run) -> float | None:
    """The median over a run's steps where it kept one, else the mean over the last ones."""
    seconds = run.result.seconds_per_step
    return 1000 * seconds if is_number(seconds) and seconds > 0 else run.metrics.get("time/step_ms")


def _train_seconds(run: Run) -> float | None:
    seconds = run.result.train_seconds
    return float(seconds) if is_number(seconds) else None


_ALONGSIDE = "trainings that run side by side disturb each other"
# fmt: off
METRICS = (
    Metric("train/loss", "loss", "training loss of the last steps", "plain", "lower", shown=("progress",)),
    Metric("train/pairs", "pairs", "pairs that the loss kept", "count", None, shown=("progress",)),
    Metric("val/recall@1", "Recall@1", "share of queries whose nearest image is of the same class",
           shown=("table", "progress", "evidence"), curve=QUALITY),
    Metric("holdout/recall@1", "Recall@1 on held-out classes",
           "the same on training classes that are held out, to choose the epoch on", curve=QUALITY),
    Metric("val/recall@2", "Recall@2", "share of queries with an image of the same class among the nearest 2",
           shown=("evidence",)),
    Metric("val/recall@4", "Recall@4", "share of queries with an image of the same class among the nearest 4",
           shown=("evidence",)),
    Metric("val/recall@8", "Recall@8", "share of queries with an image of the same class among the nearest 8",
           shown=("table", "evidence"), instead_of="val/recall@10"),
    Metric("val/recall@10", "Recall@10", "share of queries with an image of the same class among the nearest 10",
           shown=("table",), curve=QUALITY),
    Metric("val/map@r", "MAP@R", "mean average precision over the R nearest, R being the size of the class",
           shown=("table", "progress", "evidence"), curve=QUALITY),
    Metric("val/knn", "kNN", "accuracy of a nearest-neighbour vote on the backbone's features",
           shown=("table", "progress", "evidence"), curve=QUALITY),
    Metric("val/knn_proj", "kNN (proj.)", "the same on the projected embedding",
           shown=("table", "evidence"), curve=QUALITY),
    Metric("train/loss_epoch", "training loss", "mean over the epoch", "plain", "lower", curve=QUALITY),
    Metric("drift/mean", "mean feature drift", "how far a fixed batch moves from one measurement to the next",
           "plain", None, curve=DRIFT),
    Metric("drift/max", "largest feature drift", "the image of the fixed batch that moves most",
           "plain", None, curve=DRIFT),
    Metric("bank/staleness", "staleness",
           "mean distance between stored embeddings, realigned, and fresh ones of the same images", "plain", "lower",
           shown=("table", "progress", "evidence"), curve=STALE, beside="bank/staleness_unadapted"),
    Metric("bank/staleness_unadapted", "not realigned", "the same, had the stored embeddings not been realigned",
           "plain", "lower", shown=("evidence",)),
    Metric("bank/gain_mean", "gain, means", "share of a batch's news about the means that the adapter believes",
           "plain", None, curve=BANK, beside="bank/gain_std"),
    Metric("bank/gain_std", "spreads", "the same of the standard deviations", "plain", None),
    Metric("bank/shift", "shift", "how far one step moves the mean of the stored embeddings, in units of their spread",
           "plain", None, curve=BANK),
    Metric("bank/stretch", "stretch", "by how much one step changes their spread: logarithm of the ratio",
           "plain", None, curve=BANK),
    Metric("bank/age", "age of rows", "mean, in steps", "plain", None, curve=BANK),
    Metric("bank/fill", "filled share of the memory", "at the end of the epoch", "percent", None, curve=BANK),
    Metric("bank/rejected_rows", "rejected rows", "had NaN or infinity, since the start", "count", "lower", curve=BANK),
    Metric("time/step_ms", "ms per step", f"milliseconds per step, and relative to no memory; {_ALONGSIDE}",
           "ms", None, shown=("table",), curve=COST, read=_step_ms),
    Metric("train_seconds", "training s",
           f"seconds in training steps of a whole run, without evaluation; {_ALONGSIDE}",
           "s", None, shown=("table",), read=_train_seconds),
    Metric("bank/size", "rows in memory", "at the end of the epoch", "count", None, curve=COST),
)
# fmt: on
BY_NAME = {metric.name: metric for metric in METRICS}
RECALL_1, STALENESS, LOSS = (BY_NAME[name] for name in ("val/recall@1", "bank/staleness", "train/loss_epoch"))
CURVES = {
    section: tuple(metric for metric in METRICS if metric.curve == section)
    for section in dict.fromkeys(metric.curve for metric in METRICS if metric.curve)
}
"""The charts over epochs, by section."""


def shown_in(view: View) -> tuple[Metric, ...]:
    """The metrics that are shown in a view, in order."""
    return tuple(metric for metric in METRICS if view in metric.shown)
