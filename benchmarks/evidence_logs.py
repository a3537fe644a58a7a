"""The logs of a comparison, `metrics.jsonl` of every run, in one compressed file beside its JSON."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterable
from pathlib import Path

from adaptive_memory_bank.lab.runs.folder import RunFolder


def archive_of(name: str, results: Path) -> Path:
    """Where the logs of a comparison lie."""
    return results / f"{name}_logs.tar.xz"


def pack(folders: Iterable[Path], archive: Path) -> list[str]:
    """Write the logs of runs and return the names of those that have one; the same logs make the same bytes.

    A log that `restore.py` rebuilt from the curves has no steps in it, and is nothing to keep; without any log there is
    no file.
    """
    files = {folder.name: RunFolder(folder).metrics_file for folder in folders}
    logs = {name: files[name].read_bytes() for name in sorted(files) if files[name].exists()}
    logs = {name: log for name, log in logs.items() if b'"step"' in log}
    archive.unlink(missing_ok=True)
    if logs:
        with lzma.open(archive, "wb", preset=9 | lzma.PRESET_EXTREME) as file, tarfile.open(None, "w", file) as tar:
            for name, log in logs.items():
                entry = tarfile.TarInfo(f"{name}/metrics.jsonl")  # no time, no owner: those of a machine
                entry.size = len(log)
                tar.addfile(entry, io.BytesIO(log))
    return list(logs)


def unpack(archive: Path) -> dict[str, bytes]:
    """Every log by the name of its run; none where there is no file."""
    if not archive.exists():
        return {}
    with tarfile.open(archive, "r:xz") as tar:
        entries = [(entry, tar.extractfile(entry)) for entry in tar.getmembers()]
        return {entry.name.partition("/")[0]: file.read() for entry, file in entries if file is not None}
