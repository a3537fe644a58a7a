"""Uploads runs that were tracked offline."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from adaptive_memory_bank.lab.tracking.wandb_run import check_server

UPLOAD_PATIENCE = 600.0  # seconds for one run


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


def sync(folders: Iterable[Path | str], *, entity: str | None = None, project: str | None = None) -> list[Path]:
    """Upload the offline runs below some folders and return them; those already on the server are unchanged.

    Args:
        folders: Folders of runs.
        entity: W&B team or user instead of the one the runs were made for.
        project: W&B project instead of theirs.

    Raises:
        ValueError: Where there is nothing to upload, or nobody is logged in.
        ConnectionError: Where the server does not answer or an upload fails.
    """
    runs = offline_runs(folders)
    check_server()
    options = [*(("--entity", entity) if entity else ()), *(("--project", project) if project else ())]
    for run in runs:
        print(f"{run.parent.parent.name} ...", flush=True)
        _upload(run, options)
    return runs


def _upload(run: Path, options: list[str]) -> None:
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
        raise ConnectionError(f"Gave up uploading {run.name} after {UPLOAD_PATIENCE:g} seconds.") from error
    if done.returncode:
        said = (done.stdout or "").strip().splitlines()[-3:]
        raise ConnectionError(f"W&B did not take {run.name}: {' '.join(said) or f'exit code {done.returncode}'}")
