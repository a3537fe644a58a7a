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
from contest import show_aims_by_processor
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
NOT_RUN_YET = "Not run yet."


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


def contests(name: str) -> list[dict[str, Any]]:
    """What a contest measured, processor by processor."""
    return [read(path.stem) for path in sorted(RESULTS.glob(f"{name}_*.json"))]


def contest(name: str) -> str:
    """The aims, processor by processor, and where originals take part everyone beside them."""
    files = contests(name)
    if not files:
        return NOT_RUN_YET
    parts = [show_aims_by_processor(files)]
    for found in files:
        parts += [*_beside_the_original(found), f"{found['cpu']}: `{found['command']}`; {listed(found['versions'])}."]
    return "\n\n".join(parts)


def _beside_the_original(found: dict[str, Any]) -> list[str]:
    """A table of all contestants in the original's time, if there is an original."""
    results = [result for result in found["results"] if "original" in result["measured"]]
    names = dict.fromkeys(name for result in results for name in result["measured"] if name != "original")
    rows = []
    for result in results:
        measured = result["measured"]
        original = measured["original"]["min_ms"]
        ratios = [f"{measured[name]['min_ms'] / original:.2f}" if name in measured else "-" for name in names]
        rows.append([result["case"], f"{original:.1f}", *ratios])
    heads = [f"case, {found['cpu']}", "original, ms", *(f"{name}, of it" for name in names)]
    return [table(heads, rows)] if rows else []


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


FILLS = (encoder_share, adaptation_cost, retrieval_eval, trainer_overhead, tracking, cub200_pace)
SPEED = {fill.__name__: fill for fill in FILLS}
CONTESTS = ("loss_step", "queue_step")
OWN_PAGES = {"scaling": show_measured}


def speed(name: str) -> str:
    """The ratios of one benchmark, with what a reader needs to repeat it."""
    found = read(name)
    if found is None:
        return NOT_RUN_YET
    return f"{(SPEED | OWN_PAGES)[name](found)}\n\n`{found['command']}`; {listed(found['versions'])}."


def cost() -> str:
    """README's figures: what the swap takes of the original's time, and what share of a step that is at all."""
    shares = read("encoder_share")
    swap = _swap_ratios(contests("queue_step")) or f"The swap: {NOT_RUN} yet."
    return "\n\n".join([swap, show_shares(shares) if shares else f"Loss against encoder: {NOT_RUN} yet."])


def _swap_ratios(files: list[dict[str, Any]]) -> str:
    """A line for every size of a memory, with the losses on it; empty where none was measured."""
    lines: dict[str, dict[str, list[float]]] = {}
    for result in (result for found in files for result in found["results"]):
        loss, size, batch = result["case"].replace(", queue ", ", ").split(", ")
        for row in result["targets"]:
            if row["ours"] == "auto" and row["against"]:
                lines.setdefault(f"{size}, {batch}", {}).setdefault(loss, []).append(row["ratio"])
    return "\n".join(
        f"- {size}, `auto`, of the original's time: "
        + "; ".join(f"{loss} {_from_to(ratios)}" for loss, ratios in losses.items())
        for size, losses in lines.items()
    )


def _from_to(ratios: list[float]) -> str:
    """The least and the most, or the one that both are; what two digits would call 0 has three."""
    ends = (min(ratios), max(ratios))
    return " to ".join(dict.fromkeys(f"{ratio:.2f}" if ratio >= 0.005 else f"{ratio:.3f}" for ratio in ends))


def comparisons() -> str:
    """Links to the comparisons whose results are here."""
    lines = []
    for path in sorted(RESULTS.glob("*.json")):
        found = read(path.stem)
        if "tables" in found:
            runs = f"{found['complete']} of {found['planned']} runs"
            lines.append(f"- [{found['title']}](results/{path.stem}.md): {runs}, {_seeds(*found['tables'])}.")
    return "\n".join(lines) or NOT_RUN_YET


def _seeds(*tables: dict[str, Any]) -> str:
    """How many seeds every row has, or the fewest and the most."""
    counts = {row["seeds"] for here in tables for row in here["rows"]}
    ends = sorted({min(counts, default=0), max(counts, default=0)})
    return f"{' to '.join(map(str, ends))} seed{'s' * (ends != [1])}"


def findings() -> str:
    """What the fair comparisons say, condition by condition; those that are not there are left out."""
    parts = []
    for found in (content for name in headline.FAIR if (content := read(name)) is not None):
        for here in (here for here in found["tables"] if here["rows"]):
            link = f"[{here['setting']}: {here['condition']}](results/{found['name']}.md)"
            parts += [f"{link}, {_seeds(here)}:", "\n".join(f"- {sentence}" for sentence in sentences(here))]
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
        **{name: partial(contest, name) for name in CONTESTS},
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
