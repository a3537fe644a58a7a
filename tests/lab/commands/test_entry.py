"""`amb` as a process: Ctrl-C at any time, damaged files, and what `--debug` adds."""

import os
import signal
import subprocess
import sys

import pytest

ENTRY = "adaptive_memory_bank.lab.commands.entry"


@pytest.mark.parametrize("imported", ["jsonargparse", "torchmetrics", "pytorch_lightning.trainer"])
def test_ctrl_c_during_imports_ends_quietly(imported, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", ENTRY, "retrieval", "--out", str(tmp_path / "runs")],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs have it ignored
    )  # fmt: skip
    for line in process.stderr:  # a line for each module that was imported
        if imported in line:
            process.send_signal(signal.SIGINT)
            break
    said = [line for line in process.communicate(timeout=120)[1].splitlines() if not line.startswith("import time:")]
    assert (process.returncode, said) == (130, [])
    assert not (tmp_path / "runs").exists()
