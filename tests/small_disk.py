"""A real file system of so many bytes."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    """Have it at a path; skips the test where nothing can be mounted."""
    path.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"mounting needs root: {mounted.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)
