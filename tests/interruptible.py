"""`amb` as a process that Ctrl-C can end."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

ENTRY = "adaptive_memory_bank.lab.commands.entry"


def start_interruptible(words: Sequence[str], *, python: Sequence[str] = (), **options: Any) -> subprocess.Popen:
    """Start `amb` with these words; the background jobs of a shell, and so tests among them, have SIGINT ignored."""
    command = [sys.executable, *python, "-m", ENTRY, *words]
    return subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **options)
