"""How the benchmarks measure: interleaved rounds in one process, minimum and median, facts about the machine beside."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

RESULTS = Path(__file__).parent / "results"


Times = dict[str, dict[str, float]]


def interleaved(cases: dict[str, Callable[[], object]], *, rounds: int, warm_up: int = 2) -> Times:
    """Time every case once per round, so that a slow moment of the machine hits all alike; milliseconds."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for round_ in range(warm_up + rounds):
        for name, case in cases.items():
            begin = time.perf_counter(), time.process_time()
            case()
            if round_ >= warm_up:
                times[name].append((1e3 * (time.perf_counter() - begin[0]), 1e3 * (time.process_time() - begin[1])))
    return {name: _summary(*zip(*found, strict=True)) for name, found in times.items()}


def _summary(wall: tuple[float, ...], cpu: tuple[float, ...]) -> dict[str, float]:
    return {"min_ms": min(wall), "median_ms": statistics.median(wall), "min_cpu_ms": min(cpu)}


def peak_mib(case: Callable[[], object]) -> float:
    """The most that is allocated at any moment of a call beyond what was there before, as the profiler sees it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        case()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / 2**20


def facts(*packages: str) -> dict[str, Any]:
    """What a reader needs to repeat a measurement."""
    cpu = next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    return {
        "command": "python " + shlex.join(portable([Path(sys.argv[0]).name, *sys.argv[1:]])),
        "versions": {name: metadata.version(name) for name in ("torch", *packages)},
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "cpu": cpu.split(":")[-1].strip(),
    }


def portable(words: Sequence[str]) -> list[str]:
    """A command without the paths of a machine.

    Example:
        >>> portable(["--data_root", "/mnt/data", "--out", "/tmp/runs/first", "--weights", "/mnt/w.pth"])
        ['--data_root', 'FOLDER', '--out', 'runs/first', '--weights', 'w.pth']
    """
    places = {"--data_root": lambda path: "FOLDER", "--out": lambda path: f"runs/{path.name}"}
    named = [places.get(before, lambda path: path.name) for before in ["", *words][:-1]]
    return [name(Path(word)) if Path(word).is_absolute() else word for name, word in zip(named, words, strict=True)]


def read(name: str, results: Path = RESULTS) -> Any:
    """Read ``results/<name>.json``; None where there is none."""
    path = results / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def maker(cpu: str) -> str:
    """Who made a processor, as part of a file's name.

    Example:
        >>> maker("AMD EPYC"), maker("Intel(R) Xeon(R) Processor")
        ('amd', 'intel')
    """
    found = re.match(r"[A-Za-z]+", cpu)
    return found[0].lower() if found else "unknown"


def listed(versions: dict[str, str]) -> str:
    """Versions in a row."""
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def write(name: str, content: dict[str, Any], results: Path = RESULTS) -> Path:
    """Write ``results/<name>.json``."""
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{name}.json"
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
