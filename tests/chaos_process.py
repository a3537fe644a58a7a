"""`amb` in processes that start at once, and can be killed at any moment."""

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["adaptive_memory_bank.lab.training.retrieval.task", "adaptive_memory_bank.lab.training.moco.task"]
)
PATIENCE = 120.0  # seconds


def start(target: Callable[..., None], *arguments: Any) -> Any:
    """Run a function in a process that has imported everything and has no threads."""
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


def start_amb(words: Sequence[str], log: Path, *, processes: int = 1) -> list[Any]:
    """Run a command on so many processes that train together."""
    if processes == 1:
        return [start(run_amb, words, log, {})]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes), "NODE_RANK": "0"}
    return [start(run_amb, words, log, {**shared, "LOCAL_RANK": str(rank)}) for rank in range(processes)]


def run_amb(words: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    """What such a process does."""
    from pytorch_lightning.utilities import rank_zero_only

    from adaptive_memory_bank.lab.commands.main import main

    os.environ.update(environment)
    rank_zero_only.rank = int(environment.get("LOCAL_RANK", "0"))  # Lightning read it when it was imported
    multiprocessing.set_start_method("fork", force=True)  # or a fork server's child forks its workers from there
    sys.stdout = sys.stderr = log.open("a", buffering=1)
    sys.exit(main(list(words)))
