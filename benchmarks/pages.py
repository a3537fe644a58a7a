"""Fills the project's README, that of the benchmarks and that of the paper from the files in `results/`.

    python benchmarks/pages.py

Run it after a benchmark; a test fails where page and files disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import headline
import paper_cost
import yaml
from contest import show_aims
from cub200_pace import show_plan
from encoder_share import show_shares
from evidence_page import show
from evidence_words import sentences
from markers import Fill, fill_page, table
from measure import RESULTS, listed, read
from scaling import show_billion, show_measured

HERE = Path(__file__).parent
PAPER = HERE / "paper"
NOT_RUN = "not run"


def times(ratio: float) -> str:
    """A ratio as people read it."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def columns(rows: Iterable[Mapping[str, Any]], cells: Mapping[str, str]) -> str:
    """A table with a column for every heading, whose cells are formatted from the rows."""
    return table(list(cells), [[cell.format(**row) for cell in cells.values()] for row in rows])


def adaptation_cost(found: dict[str, Any]) -> str:
    cells = {
        "dim": "{dim}",
        "rows": "{size:,}",
        "our step, ms": "{lazy_median_ms:.2f}",
        "literal formula, ms": "{literal_median_ms:.2f}",
        "times faster": "{faster}",
        "bytes / (rows + labels)": "{bytes_over_rows_and_labels:.3f}",
    }
    rows = [{**row, "faster": times(row["speed_up"])} for row in found["rows"]]
    ratios = [f"- {name}: {times(ratio)}" for name, ratio in found["ratios"].items()]
    return "\n".join([columns(rows, cells), "", *ratios])


def loss_step(found: dict[str, Any]) -> str:
    return show_aims(found["results"])


def queue_step(found: dict[str, Any]) -> str:
    """The aims, and every contestant beside the original."""
    names = dict.fromkeys(name for result in found["results"] for name in result["measured"] if name != "original")
    rows = []
    for result in found["results"]:
        measured = result["measured"]
        original = measured["original"]["min_ms"]
        ratios = [f"{measured[name]['min_ms'] / original:.2f}" if name in measured else "-" for name in names]
        rows.append([result["case"], f"{original:.1f}", *ratios])
    everyone = table(["case", "original, ms", *(f"{name}, of it" for name in names)], rows)
    has_aims = any(result["targets"] for result in found["results"])
    return "\n\n".join([*([show_aims(found["results"])] if has_aims else []), everyone])


def cub200_pace(found: dict[str, Any]) -> str:
    return show_plan(found)


def encoder_share(found: dict[str, Any]) -> str:
    return show_shares(found)


def retrieval_eval(found: dict[str, Any]) -> str:
    rows = [
        {"name": name, **line, "least": times(line["times_ours_min"]), "median": times(line["times_ours_median"])}
        for name, line in found["contestants"].items()
    ]
    cells = {"": "{name}", "min s": "{min_seconds:.2f}", "x ours (min)": "{least}", "x ours (median)": "{median}"}
    size = "{rows:,} x {dim}, every row a query:".format(**found["setting"])
    large = "{rows:,} x {dim} takes {seconds:.1f} s and {peak_gib_above_embeddings:.2f} GiB above the embeddings."
    return "\n\n".join([size, columns(rows, cells), large.format(**found["memory"])])


def trainer_overhead(found: dict[str, Any]) -> str:
    cells = {"adapter": "{adapter}", "step, CPU ms": "{cpu_ms[step]:.1f}"}
    cells |= {f"of which model ({name} time)": f"{{{name.lower()}:.0f}} %" for name in ("CPU", "wall")}
    rows = [{**run, **{clock: 100 * share for clock, share in run["model_share"].items()}} for run in found["runs"]]
    return columns(rows, cells)


def tracking(found: dict[str, Any]) -> str:
    """Errors of the adapters by quarter of the training, with the best fixed gain of each quarter beside."""
    errors = found["errors"]
    fixed = {name: values for name, values in errors.items() if name.startswith("gain ")}
    rows = []
    for moment in ("mean", "std"):
        for name in ("xbn", "auto"):
            rows.append([moment, f"`{name}`", *(f"{value:.4f}" for value in errors[name][moment])])
        best = [min(fixed, key=lambda name: fixed[name][moment][part]) for part in range(4)]
        cells = (f"{fixed[name][moment][part]:.4f} ({name.split()[1]})" for part, name in enumerate(best))
        rows.append([moment, "best fixed gain (which)", *cells])
    heads = ["of the", "", *(f"quarter {part + 1}" for part in range(4))]
    return f"{table(heads, rows)}\n\nBatch {found['batch_size']}, {found['steps']:,} steps."


FILLS = (loss_step, queue_step, encoder_share, adaptation_cost, retrieval_eval, trainer_overhead, tracking, cub200_pace)
SPEED = {fill.__name__: fill for fill in FILLS}
OWN_PAGES = {"scaling": show_measured}


def speed(name: str) -> str:
    """The ratios of one benchmark, with what a reader needs to repeat it."""
    found = read(name)
    if found is None:
        return f"{NOT_RUN[0].upper()}{NOT_RUN[1:]} yet."
    return f"{(SPEED | OWN_PAGES)[name](found)}\n\n`{found['command']}`; {listed(found['versions'])}."


def cost() -> str:
    """README's figures: what the swap takes of the original's time, and what share of a step that is at all."""
    swaps, shares = read("queue_step"), read("encoder_share")
    swap = _swap_ratios(swaps["results"] if swaps else []) or f"The swap: {NOT_RUN} yet."
    return "\n\n".join([swap, show_shares(shares) if shares else f"Loss against encoder: {NOT_RUN} yet."])


def _swap_ratios(results: list[dict[str, Any]]) -> str:
    """A line for every size of a memory, with the losses on it; empty where none was measured."""
    lines: dict[str, list[str]] = {}
    for result in results:
        loss, size, batch = result["case"].replace(", queue ", ", ").split(", ")
        for row in result["targets"]:
            if row["ours"] == "auto" and row["against"]:
                lines.setdefault(f"{size}, {batch}", []).append(f"{loss} {row['ratio']:.2f}")
    return "\n".join(f"- {size}, `auto`, of the original's time: {'; '.join(losses)}" for size, losses in lines.items())


def comparisons() -> str:
    """Links to the comparisons whose results are here."""
    lines = []
    for path in sorted(RESULTS.glob("*.json")):
        found = read(path.stem)
        if "tables" in found:
            lines.append(f"- [{found['title']}](results/{path.stem}.md): {_state(found)}.")
    return "\n".join(lines) or "Not run yet."


def _state(found: dict[str, Any]) -> str:
    seeds = len(found["seeds"])
    return f"{found['complete']} of {found['planned']} runs, {seeds} seed{'s' * (seeds != 1)}"


def findings() -> str:
    """What the fair comparisons say, condition by condition; those that are not there are left out."""
    parts = []
    for found in (content for name in headline.FAIR if (content := read(name)) is not None):
        for here in (here for here in found["tables"] if here["rows"]):
            link = f"[{here['setting']}: {here['condition']}](results/{found['name']}.md)"
            parts += [f"{link}, {_state(found)}:", "\n".join(f"- {sentence}" for sentence in sentences(here))]
    return "\n\n".join(parts) or "None of them is here yet."


def paper() -> str:
    """Published beside measured, file by file; what was not run says so."""
    rows = []
    for path in sorted(PAPER.glob("*.yaml")):
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        found = read(f"paper_{path.stem}")
        for setting in config["settings"]:
            for variant in (variant["name"] for variant in config["variants"]):
                published = setting.get("published", {}).get(variant)
                measured = _measured(found, setting["name"], variant)
                if published is not None or measured != NOT_RUN:
                    said = "-" if published is None else f"{published:.2f}"
                    rows.append([f"`{path.name}`", setting["name"], variant, said, measured])
        if not any(row[0] == f"`{path.name}`" for row in rows):
            rows.append([f"`{path.name}`", "all", "all", "-", NOT_RUN])
    return table(["file", "data", "variant", "published %", "measured %"], rows)


def _measured(found: dict[str, Any] | None, setting: str, variant: str) -> str:
    """The last epoch of every condition: the paper's protocol has no validation part to choose one on."""
    tables = [] if found is None else [t for t in found["tables"] if t["setting"] == setting]
    values = []
    for here in tables:
        key = f"last {'val/knn_proj' if here['metric'] == 'val/knn' else here['metric']}"
        values += [show(row["values"].get(key), key) for row in here["rows"] if row["variant"] == variant]
    return "; ".join(values) or NOT_RUN


PAGES: dict[Path, dict[str, Fill]] = {
    HERE.parent / "README.md": {**headline.PARTS, "cost": cost},
    HERE / "README.md": {
        **{name: partial(speed, name) for name in SPEED},
        "comparisons": comparisons,
        "findings": findings,
    },
    HERE / "scaling.md": {"scaling": partial(speed, "scaling"), "billion": show_billion},
    PAPER / "README.md": {"paper": paper, "paper_cost": paper_cost.show},
}


def main() -> None:
    headline.draw(RESULTS)
    for path, parts in PAGES.items():
        fill_page(path, parts)
        print(path)


if __name__ == "__main__":
    main()
