"""`amb` as a process: Ctrl-C at any time."""

import os
import signal
import subprocess

import pytest

from interruptible import start_interruptible


@pytest.mark.parametrize("imported", ["jsonargparse", "torchmetrics", "pytorch_lightning.trainer"])
def test_ctrl_c_during_imports_ends_quietly(imported, tmp_path):
    process = start_interruptible(
        ["retrieval", "--out", str(tmp_path / "runs")],
        python=["-X", "importtime"],  # prints a line for each module that was imported
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for line in process.stderr:
        if imported in line:
            process.send_signal(signal.SIGINT)
            break
    said = [line for line in process.communicate(timeout=120)[1].splitlines() if not line.startswith("import time:")]
    assert (process.returncode, said) == (130, [])
    assert not (tmp_path / "runs").exists()
