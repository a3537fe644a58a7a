"""A W&B workspace for some runs: the same curves as in the report, on the server and live."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb_workspaces.workspaces as ws
from wandb_workspaces.reports.v2 import interface as wr

from adaptive_memory_bank.lab.runs.files import write_json
from adaptive_memory_bank.lab.runs.metrics import CURVES, Metric, shown_in
from adaptive_memory_bank.lab.runs.results import Run
from adaptive_memory_bank.lab.tracking.network import within
from adaptive_memory_bank.lab.tracking.wandb_run import check_server

WORST_QUERIES = "worst_queries"
SAVE_PATIENCE = 120.0  # seconds
_OVER_RUNS: Any = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}


def make_workspace(title: str, runs: Sequence[Run], *, entity: str, project: str) -> ws.Workspace:
    """Describe the workspace of some runs; nothing is sent."""
    # The runs' own files say what W&B has of them; a panel for anything else would stay empty.
    logged = {name for run in runs for name in run.history()}
    best = [m.best_name for m in shown_in("table") if m.is_score and any(m.best_name in run.best for run in runs)]
    groups = list(dict.fromkeys(str(group) for run in runs if (group := run.config().get("group"))))
    # Variants that share an adapter (XBM and XBM*) are told apart by their names.
    group_key = "adapter" if all(run.name == run.adapter for run in runs) else "name"
    key = wr.Config(group_key)
    sections = [
        ws.Section(name=name, panels=[_curve(m, key) for m in metrics if m.name in logged], is_open=True)
        for name, metrics in CURVES.items()
    ]
    sections.insert(1, ws.Section(name="Best values", panels=[_bars(name, key) for name in best], is_open=True))
    tables: list[Any] = [wr.WeavePanelSummaryTable(table_name=WORST_QUERIES), wr.RunComparer(diff_only="split")]
    sections.append(ws.Section(name="Tables", panels=tables, is_open=True))
    return ws.Workspace(
        entity=entity,
        project=project,
        name=title,
        sections=[section for section in sections if section.panels],
        runset_settings=ws.RunsetSettings(
            filters=ws.And(ws.Metric("Group").isin(groups)) if groups else "",
            groupby=[ws.Config(group_key)],
            pinned_columns=[f"summary:{name}" for name in best],
        ),
    )


def _curve(metric: Metric, key: Any) -> Any:
    """A metric over epochs: mean over the runs of a group, and one standard deviation around it."""
    names: list[Any] = [name for name in (metric.name, metric.beside) if name]
    return wr.LinePlot(title=metric.name, x="epoch", y=names, groupby=key, **_OVER_RUNS)


def _bars(metric: str, key: Any) -> Any:
    return wr.BarPlot(title=metric, metrics=[wr.SummaryMetric(metric)], groupby=key, **_OVER_RUNS)


def spec_of(workspace: ws.Workspace) -> dict[str, Any]:
    """The specification as it would be sent."""
    spec: dict[str, Any] = workspace._to_model().model_dump(mode="json", by_alias=True, exclude_none=True)
    return spec


def dashboard(
    title: str,
    runs: Sequence[Run],
    *,
    entity: str | None = None,
    project: str | None = None,
    dry_run: bool = False,
    out: Path | str | None = None,
) -> str:
    """Create the workspace of some runs, or write its specification, and say where it is.

    Args:
        title: Name of the workspace.
        runs: What it shows.
        entity: W&B team or user; default: what the runs were made with.
        project: W&B project; default: what the runs were made with.
        dry_run: Send nothing.
        out: JSON file for the specification.

    Raises:
        ValueError: Without an entity, or without being logged in.
        ConnectionError: Where the server does not answer in time.
    """
    configs = [run.config() for run in runs]
    entity = entity or next((config["entity"] for config in configs if config.get("entity")), None)
    project = project or next((config["project"] for config in configs if config.get("project")), None)
    if not entity or not project:
        missing = "entity" if not entity else "project"
        raise ValueError(f"`{missing}` must name the W&B {missing}: the runs do not say which (`--{missing} NAME`).")
    workspace = make_workspace(title, runs, entity=entity, project=project)
    if out is not None:
        write_json(Path(out), spec_of(workspace))
    if dry_run:
        return str(out) if out is not None else "nothing sent (--dry_run)"
    check_server()
    within(SAVE_PATIENCE, workspace.save, doing="saving the workspace")
    return str(workspace.url)
