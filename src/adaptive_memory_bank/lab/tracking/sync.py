"""Uploads runs that were tracked offline."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from adaptive_memory_bank.lab.tracking.wandb_run import check_server

UPLOAD_PATIENCE = 600.0  # seconds for one run
MARK = "*.wandb.synced"  # W&B's own, of what it has uploaded


@dataclass(frozen=True)
class Synced:
    """What became of offline runs: `uploaded` now, `skipped` because they had been, or `failed`, and why."""

    uploaded: list[Path] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)
    failed: dict[Path, str] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"Uploaded {len(self.uploaded)} runs"]
        parts += [f"skipped {len(self.skipped)} that had been uploaded"] if self.skipped else []
        parts += [f"{len(self.failed)} failed (the same command tries them again)"] if self.failed else []
        reasons = [f"  {name_of(run)}: {reason}" for run, reason in self.failed.items()]
        return "\n".join([", ".join(parts) + (":" if reasons else "."), *reasons])


def offline_runs(folders: Iterable[Path | str]) -> list[Path]:
    """Find the offline W&B runs below some folders, oldest first.

    Raises:
        ValueError: Where a folder does not exist, or none holds an offline run.
    """
    roots = [Path(folder) for folder in folders]
    for root in roots:
        if not root.is_dir():
            raise ValueError(f"`{root}` is not a folder.")
    found = {path.resolve() for root in roots for path in root.rglob("wandb/offline-run-*") if path.is_dir()}
    if not found:
        raise ValueError(f"No offline W&B runs below {', '.join(map(str, roots))}.")
    return sorted(found, key=lambda path: path.name)


def name_of(run: Path) -> str:
    """What people call an offline run: its own folder and, for the halves of one that was resumed, W&B's."""
    return f"{run.parent.parent.name} ({run.name})"


def sync(
    folders: Iterable[Path | str],
    *,
    entity: str | None = None,
    project: str | None = None,
    again: bool = False,
    file: TextIO | None = None,
) -> Synced:
    """Upload the offline runs below some folders; one that fails does not stop the others.

    Args:
        folders: Folders of runs.
        entity: W&B team or user instead of the one the runs were made for.
        project: W&B project instead of theirs.
        again: Also upload what has been uploaded, say to another project.
        file: Where progress goes; default: standard output.

    Raises:
        ValueError: Where there are no such runs, or nobody is logged in.
        ConnectionError: Where the server does not answer.
    """
    runs = offline_runs(folders)
    synced = Synced(skipped=[run for run in runs if not again and any(run.glob(MARK))])
    waiting = [run for run in runs if run not in synced.skipped]
    if waiting:
        check_server()
    options = [*(("--entity", entity) if entity else ()), *(("--project", project) if project else ())]
    for number, run in enumerate(waiting, start=1):
        print(f"[{number}/{len(waiting)}] {name_of(run)} ... ", end="", file=file, flush=True)
        started = time.perf_counter()
        try:
            _upload(run, options)
        except ConnectionError as error:
            synced.failed[run] = str(error)
            print(f"FAILED, {error}", file=file, flush=True)
        else:
            synced.uploaded.append(run)
            print(f"uploaded in {time.perf_counter() - started:.1f} s", file=file, flush=True)
    return synced


def _upload(run: Path, options: list[str]) -> None:
    for mark in run.glob(MARK):
        mark.unlink()
    command = [sys.executable, "-m", "wandb", "sync", "--yes", *options, str(run)]
    # Without a terminal it cannot prompt, and without WANDB_MODE it cannot stay offline: it uploads or fails.
    environment = {name: value for name, value in os.environ.items() if name != "WANDB_MODE"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            timeout=UPLOAD_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConnectionError(f"gave up after {UPLOAD_PATIENCE:g} seconds") from error
    # It ends with 0 also where the server turned the run down; what it took, it marks.
    if done.returncode or not any(run.glob(MARK)):
        said = (done.stdout or "").strip().splitlines()[-3:]
        raise ConnectionError(" ".join(said) or f"exit code {done.returncode}")
