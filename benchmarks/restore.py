"""Puts the runs that `results/<name>.json` holds back into a folder, so that a comparison can be continued elsewhere.

    python benchmarks/restore.py omniglot runs/omniglot     # then the command of the comparison again

A restored run has its numbers, and its log where `<name>_logs.tar.xz` holds it (its curves otherwise), not its weights:
`amb compare` does not train it again, and `evidence.py` counts it. Runs whose options have changed since have other
names, so they are trained anew.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import measure
from evidence_logs import archive_of, unpack

from adaptive_memory_bank.lab.runs.files import write_json
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.results import RunResult, write_result


def restore(source: Path, folder: Path) -> list[Path]:
    """Write what is missing and return the folders of the runs it made; runs that are there stay as they are."""
    content = json.loads(source.read_text(encoding="utf-8"))
    logs = unpack(archive_of(source.stem, source.parent))
    made = []
    for run in content["runs"]:
        target = folder / run["run"]
        if not target.exists():
            target.mkdir(parents=True)
            # `result.json` comes last: it says that the run is complete.
            RunFolder(target).metrics_file.write_bytes(logs.get(run["run"]) or _log_of_curves(run))
            write_result(RunFolder(target), _result(run, content))
            made.append(target)
    if content["plan"] and not (folder / RunFolder.PLAN).exists():
        write_json(folder / RunFolder.PLAN, content["plan"])
    return made


def _log_of_curves(run: dict[str, Any]) -> bytes:
    """`metrics.jsonl` with a line an epoch."""
    lines = []
    for epoch in range(run["epochs"]):
        values = {key: curve[str(epoch)] for key, curve in run["curves"].items() if str(epoch) in curve}
        lines.append(json.dumps({"epoch": epoch, **values}) + "\n")
    return "".join(lines).encode()


def _result(run: dict[str, Any], content: dict[str, Any]) -> RunResult:
    commit = {"commit": run["commit"]} if run["commit"] else {}
    return RunResult(
        **{field.name: run[field.name] for field in fields(RunResult) if field.name in run},
        versions={**run.get("packages", content["versions"]), **commit},
        machine=content["machine"],
        name=run["variant"],
        memory_size=run["memory_rows"],
        metrics=run["last"],
        best=run.get("chosen", {}),
        best_epoch=run.get("chosen_epoch"),
        other={"options": run["options"]},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of a file in `results/`, without its ending")
    parser.add_argument("folder", type=Path, help="what `amb compare --out` will name")
    options = parser.parse_args()
    made = restore(measure.RESULTS / f"{options.name}.json", options.folder)
    print(f"{len(made)} runs restored below {options.folder}.")


if __name__ == "__main__":
    main()
