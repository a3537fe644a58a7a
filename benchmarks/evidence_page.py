"""The page of a comparison, in Markdown, from its JSON alone."""

from __future__ import annotations

import re
from typing import Any

import markers
import measure
from evidence_logs import archive_of
from evidence_words import sentences, show_difference

from adaptive_memory_bank.lab.compare.ceiling import show_share
from adaptive_memory_bank.lab.compare.comparison import show_memory
from adaptive_memory_bank.lab.compare.statistics import FEWEST_SEEDS, Spread
from adaptive_memory_bank.lab.compare.table import MISSING, show_spread
from adaptive_memory_bank.lab.runs.metrics import BY_NAME, shown_in

PICKS = {"chosen": "chosen epoch", "last": "last epoch"}
ROLES = {"plain": "to plain", "none": "to none"}


def render(content: dict[str, Any]) -> str:
    """The whole page."""
    state = f"{content['complete']} of {content['planned']} runs are complete"
    failed = f"; failed: {', '.join(content['failed'])}" if content["failed"] else ""
    seeds, epochs = (", ".join(map(str, content[key])) for key in ("seeds", "epochs"))
    kept = {name for run in content["runs"] for name in run["curves"]}
    pictures = [content["name"], *([f"{content['name']}_staleness"] if "bank/staleness" in kept else [])]
    parts = [
        f"# {content['title']}",
        f"{state}{failed}. Seeds {seeds}; epochs: {epochs}. {explanation(content)}",
        *(part for table in content["tables"] if table["rows"] for part in condition(table)),
        *(f"![{picture}]({picture}.svg)" for picture in pictures),
        f"```\n{content['command']}\npython benchmarks/evidence.py RUNS --name {content['name']}{_files(content)}\n```",
        origin(content),
    ]
    return "\n\n".join(parts) + "\n"


def _files(content: dict[str, Any]) -> str:
    """The files to gather where they are several: the folder has the plan of one command alone."""
    files = re.findall(r"--config (\S+)", content["command"])
    return f" --config {' '.join(files)}" if len(files) > 1 else ""


def explanation(content: dict[str, Any]) -> str:
    """What the columns mean."""
    chosen = any("chosen" in table["picks"] for table in content["tables"])
    epoch = (
        "The chosen epoch is the best one on held-out training classes; the test classes choose nothing."
        if chosen
        else "All values are those of epochs fixed beforehand: nothing was chosen on the test images."
    )
    return (
        f"{epoch} Mean ± standard deviation over seeds. Differences are in points, paired over seeds, with 95 % "
        "intervals that hold for all rows of a table together, bold where they leave out zero and rest on "
        f"{FEWEST_SEEDS} seeds or more. Of the way from plain memory to a fresh one: where the difference of "
        "these two, asked alone, is beyond the noise. "
        "Staleness: mean distance of stored rows to fresh embeddings of the same images; read it beside that of the "
        "same rows, not realigned, because an encoder that maps everything to one place has stale rows nowhere. "
        "Minutes are rough: runs went two at a time, one thread each, and shared the machine with other work."
    )


def origin(content: dict[str, Any]) -> str:
    """Machine, versions, commit of the code, logs."""
    commits = content["commits"]
    counts = [f"`{commit}`" + f" ({count} runs)" * (len(commits) > 1) for commit, count in commits.items()]
    code = f" Code: {', '.join(counts)}." if counts else ""
    file = archive_of(content["name"], measure.RESULTS).name
    logs = f" Logs (`metrics.jsonl`) of {content['logs']} runs: [{file}]({file})." if content["logs"] else ""
    return f"{content['machine']}; {measure.listed(content['versions'])}.{code}{logs}"


def condition(table: dict[str, Any]) -> list[str]:
    """One condition: title, sentences, how rows were trained and what they reached, differences."""
    parts = [f"## {table['setting']}: {table['condition']}", "\n".join(f"- {each}" for each in sentences(table))]
    parts += [shared_options(table), score_table(table), difference_table(table)]
    return [part for part in parts if part]


def shared_options(table: dict[str, Any]) -> str:
    """Options with their value, or with the rows of every value where they differ."""
    told = []
    for name in ("embedding_dim", "lr", "warmup_epochs", "memory_start", "momentum"):
        found: dict[Any, list[str]] = {}
        for row in table["rows"]:
            if name in row["trained"] and not (name == "memory_start" and row["variant"] in table["without_memory"]):
                found.setdefault(row["trained"][name], []).append(row["variant"])
        found = {} if name == "warmup_epochs" and set(found) == {0} else found
        told += [f"`{name} {value:g}`" + f" ({', '.join(rows)})" * (len(found) > 1) for value, rows in found.items()]
    return f"Trained with {', '.join(told)}." if told else ""


def score_table(table: dict[str, Any]) -> str:
    """Every variant: how it was trained, and its scores."""
    keys = score_keys(table)
    heads = ["", "backbone", "px", "batch", "memory", "epochs", "seeds", "min a run", *map(heading, keys)]
    heads += ["published %"] * bool(table["published"])
    rows = [[*trained(row), *(show(row["values"].get(key), key) for key in keys)] for row in table["rows"]]
    if table["published"]:
        said = (table["published"].get(row["variant"], MISSING) for row in table["rows"])
        rows = [[*cells, str(value)] for cells, value in zip(rows, said, strict=True)]
    frozen = frozen_row(table, keys)
    return markers.table(heads, [*([frozen] if frozen else []), *rows])


def score_keys(table: dict[str, Any]) -> list[str]:
    """The columns of scores: what decides at every epoch shown, other scores at the chosen one where there is one."""
    # Not the time of a step: two trainings at a time share a machine; speed is measured by itself.
    order = [metric.name for metric in shown_in("evidence")]
    found = dict.fromkeys(key for row in table["rows"] for key in row["values"] if key.split(" ")[-1] in order)
    beside = {key for key in found if key.startswith("last ") and f"chosen {key[5:]}" in found}
    beside.discard(f"last {table['metric']}")
    return sorted(set(found) - beside, key=lambda key: (order.index(key.split(" ")[-1]), list(found).index(key)))


def trained(row: dict[str, Any]) -> list[str]:
    """The first cells of a row: what was trained, on what, how often, how long."""
    how = row["trained"]
    width = "" if how.get("width", 1) == 1 else f", width {how['width']:g}"
    cells = [f"{how.get('model', MISSING)}{width}", str(how.get("image_size", MISSING)), str(how["batch_size"])]
    cells += [memory_of(how), str(how["epochs"]), str(row["seeds"])]
    return [row["variant"], *cells, f"{how['minutes']:.1f}" if how["minutes"] else MISSING]


def memory_of(how: dict[str, Any]) -> str:
    """A memory's share of the training images, where it was given as one, and its rows."""
    if not how["memory_rows"]:
        return MISSING
    rows = f"{how['memory_rows']:,} rows"
    share = how["memory"] if isinstance(how["memory"], float) and how["memory"] <= 1 else None
    return rows if share is None else f"{show_memory(share)}, {rows}"


def frozen_row(table: dict[str, Any], keys: list[str]) -> list[str]:
    """What the backbone's own features score, with nothing trained; empty where that was not measured."""
    if not table["frozen"]:
        return []
    scores = {f"{table['picks'][0]} val/{name}": value for name, value in table["frozen"].items()}
    how = table["rows"][0]["trained"]
    cells = ["frozen features", str(how["model"]), str(how["image_size"]), *[MISSING] * 5]
    return [*cells, *(BY_NAME[key.split(" ")[-1]].show(scores[key]) if key in scores else MISSING for key in keys)]


def difference_table(table: dict[str, Any]) -> str:
    """Every variant against plain memory and against none, and how much of the way to a fresh memory it goes."""
    columns = [(role, pick) for role in table["references"] for pick in table["picks"]]
    heads = ["difference in " + BY_NAME[table["metric"]].label]
    heads += [f"{ROLES[role]} ({PICKS.get(pick, pick)})" for role, pick in columns]
    has_way = any(row["way"] is not None for row in table["rows"])
    rows = []
    for row in table["rows"]:
        cells = [show_difference(row["differences"][role].get(pick)) for role, pick in columns]
        rows.append([row["variant"], *cells, *[show_way(row)] * has_way])
    return markers.table([*heads, *["of the way to fresh"] * has_way], rows) if columns else ""


def show_way(row: dict[str, Any]) -> str:
    """The share of the way from plain memory to a fresh one."""
    return MISSING if row["way"] is None else show_share(row["way"])


def heading(key: str) -> str:
    """`chosen val/recall@1` as people read it.

    Example:
        >>> heading("chosen val/recall@1"), heading("last bank/staleness")
        ('Recall@1 % (chosen epoch)', 'staleness')
    """
    pick, _, name = key.rpartition(" ")
    return BY_NAME[name].heading + (f" ({PICKS.get(pick, pick)})" if BY_NAME[name].is_score else "")


def show(value: dict[str, Any] | None, key: str) -> str:
    """Mean ± standard deviation."""
    spread = None if value is None else Spread(value["mean"], value["std"], value.get("seeds", 1))
    return show_spread(spread, BY_NAME[key.rpartition(" ")[2]])
