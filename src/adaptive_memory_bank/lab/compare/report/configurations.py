"""What every run was made with: the options all share, the options that differ, the versions."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adaptive_memory_bank.lab.runs.results import Run

# The location of a run does not change what it computes.
_LOCATIONS = ("out", "run_name", "resume", "group")


class Configurations(NamedTuple):
    """Options and versions of many runs, listed once where they agree."""

    shared: Mapping[str, str]
    differing: tuple[str, ...]
    rows: tuple[tuple[Run, tuple[str, ...]], ...]
    versions: Mapping[str, str]


def configurations(runs: Sequence[Run]) -> Configurations:
    """Sort the options of some runs into shared ones and differing ones."""
    configs = [{key: value for key, value in run.config().items() if key not in _LOCATIONS} for run in runs]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    values = {key: ["" if config.get(key) is None else str(config[key]) for config in configs] for key in keys}
    shared = {key: shown[0] for key, shown in values.items() if len(set(shown)) == 1}
    differing = tuple(key for key in keys if key not in shared)
    rows = tuple((run, tuple(values[key][index] for key in differing)) for index, run in enumerate(runs))
    return Configurations(shared, differing, rows, _versions(runs))


def _versions(runs: Sequence[Run]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for package, version in {**run.result.versions, "machine": run.result.machine}.items():
            if version:
                found.setdefault(str(package), {})[str(version)] = None
    return {package: ", ".join(versions) for package, versions in found.items()}
