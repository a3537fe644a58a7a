"""Fills `benchmarks/README.md` and `benchmarks/paper/README.md` from the files in `results/`.

    python benchmarks/pages.py

Run it after a benchmark; a test fails where page and files disagree.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from evidence_page import show
from markers import Fill, fill_page, table
from measure import RESULTS

HERE = Path(__file__).parent
PAPER = HERE / "paper"
NOT_RUN = "not run"


def read(name: str, results: Path = RESULTS) -> dict[str, Any] | None:
    """The file of a benchmark; None where it was not run."""
    path = results / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def times(ratio: float) -> str:
    """A ratio as people read it."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def adaptation_cost(found: dict[str, Any]) -> str:
    rows = [
        [
            str(row["dim"]),
            f"{row['size']:,}",
            f"{row['lazy_median_ms']:.2f}",
            f"{row['literal_median_ms']:.2f}",
            times(row["speed_up"]),
            f"{row['bytes_over_rows_and_labels']:.3f}",
        ]
        for row in found["rows"]
    ]
    heads = ["dim", "rows", "our step, ms", "literal formula, ms", "times faster", "bytes / (rows + labels)"]
    ratios = [f"- {name}: {times(ratio)}" for name, ratio in found["ratios"].items()]
    return "\n".join([table(heads, rows), "", *ratios])


def loss_step(found: dict[str, Any]) -> str:
    rows = [
        [
            result["case"],
            f"{row['ours']} / {row['against']}",
            row["what"],
            f"{row['ratio']:.3f}",
            f"<= {row['at_most']:.3f}",
            "yes" if row["met"] else "**no**",
        ]
        for result in found["results"]
        for row in result["targets"]
    ]
    return table(["case", "ours / theirs", "of", "ratio", "aim", "reached"], rows)


def queue_step(found: dict[str, Any]) -> str:
    names = list(dict.fromkeys(name for case in found["cases"].values() for name in case))
    rows = [
        [case, f"{measured['original']['min_ms']:.1f}", *(f"{measured[name]['of_original']:.2f}" for name in names[1:])]
        for case, measured in found["cases"].items()
    ]
    return table(["case", "original, ms", *(f"{name}, of it" for name in names[1:])], rows)


def retrieval_eval(found: dict[str, Any]) -> str:
    rows = [
        [name, f"{line['min_seconds']:.2f}", times(line["times_ours_min"]), times(line["times_ours_median"])]
        for name, line in found["contestants"].items()
    ]
    memory, setting = found["memory"], found["setting"]
    return "\n".join(
        [
            f"{setting['rows']:,} x {setting['dim']}, every row a query:",
            "",
            table(["", "min s", "x ours (min)", "x ours (median)"], rows),
            "",
            f"{memory['rows']:,} x {memory['dim']} takes {memory['seconds']:.1f} s and "
            f"{memory['peak_gib_above_embeddings']:.2f} GiB above the embeddings.",
        ]
    )


def trainer_overhead(found: dict[str, Any]) -> str:
    rows = [
        [run["adapter"], f"{run['cpu_ms']['step']:.1f}"]
        + [f"{100 * run['model_share'][clock]:.0f} %" for clock in ("cpu", "wall")]
        for run in found["runs"]
    ]
    return table(["adapter", "step, CPU ms", "of which model (CPU time)", "of which model (wall time)"], rows)


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


SPEED = {
    "loss_step": loss_step,
    "queue_step": queue_step,
    "adaptation_cost": adaptation_cost,
    "retrieval_eval": retrieval_eval,
    "trainer_overhead": trainer_overhead,
    "tracking": tracking,
}


def speed(name: str) -> str:
    """The ratios of one benchmark, with what a reader needs to repeat it."""
    found = read(name)
    if found is None:
        return f"{NOT_RUN[0].upper()}{NOT_RUN[1:]} yet."
    versions = ", ".join(f"{package} {number}" for package, number in found["versions"].items())
    return f"{SPEED[name](found)}\n\n`{found['command']}`; {versions}."


def comparisons() -> str:
    """Links to the comparisons whose results are here."""
    lines = []
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if "tables" in found:
            state = f"{found['complete']} of {found['planned']} runs, {len(found['seeds'])} seeds"
            lines.append(f"- [{found['title']}](results/{path.stem}.md): {state}.")
    return "\n".join(lines) or "Not run yet."


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
    HERE / "README.md": {**{name: partial(speed, name) for name in SPEED}, "comparisons": comparisons},
    PAPER / "README.md": {"paper": paper},
}


def main() -> None:
    for path, parts in PAGES.items():
        fill_page(path, parts)
        print(path)


if __name__ == "__main__":
    main()
