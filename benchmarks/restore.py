"""Puts the runs that `results/<name>.json` holds back into a folder, so that a comparison can be continued elsewhere.

    python benchmarks/restore.py omniglot runs/omniglot     # then the command of the comparison again

A restored run has its numbers and curves, not its weights: `amb compare` does not train it again, and `evidence.py`
counts it. Runs whose options have changed since have other names, so they are trained anew.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import measure

from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.results import RunResult, write_result


def restore(source: Path, folder: Path) -> list[Path]:
    """Write what is missing and return the folders of the runs it made; runs that are there stay as they are."""
    content = json.loads(source.read_text(encoding="utf-8"))
    shared = {key: content[key] for key in ("versions", "machine")}
    made = []
    for run in content["runs"]:
        target = folder / run["run"]
        if not target.exists():
            target.mkdir(parents=True)
            _write(RunFolder(target), run, shared)
            made.append(target)
    return made


def _write(folder: RunFolder, run: dict[str, Any], shared: dict[str, Any]) -> None:
    """`metrics.jsonl` with a line an epoch, then `result.json`, which says that the run is complete."""
    with folder.metrics_file.open("w", encoding="utf-8") as file:
        for epoch in range(run["epochs"]):
            values = {key: curve[str(epoch)] for key, curve in run["curves"].items() if str(epoch) in curve}
            file.write(json.dumps({"epoch": epoch, **values}) + "\n")
    result = RunResult(
        **{field.name: run[field.name] for field in fields(RunResult) if field.name in run},
        **shared,
        name=run["variant"],
        memory_size=run["memory_rows"],
        metrics=run["last"],
        best=run.get("chosen", {}),
        best_epoch=run.get("chosen_epoch"),
    )
    write_result(folder, result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of a file in `results/`, without its ending")
    parser.add_argument("folder", type=Path, help="what `amb compare --out` will name")
    options = parser.parse_args()
    made = restore(measure.RESULTS / f"{options.name}.json", options.folder)
    print(f"{len(made)} runs restored below {options.folder}.")


if __name__ == "__main__":
    main()
