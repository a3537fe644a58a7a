"""The trainings that a comparison's file asks for, as `amb compare --config` would plan them, and where they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from adaptive_memory_bank.lab.commands.compare import to_compare_config
from adaptive_memory_bank.lab.commands.main import make_parser
from adaptive_memory_bank.lab.commands.words import normalized
from adaptive_memory_bank.lab.compare.config import CompareConfig
from adaptive_memory_bank.lab.compare.plan import plan_runs, write_plan
from adaptive_memory_bank.lab.runs.config import RunConfig


def read(path: Path, *words: object) -> CompareConfig:
    """A file of `benchmarks/`; `words` are further options, as on the command line."""
    arguments = normalized(["compare", "--config", str(path), *map(str, words)])
    return to_compare_config(make_parser(arguments).parse_args(arguments).compare)


def configs(path: Path, *words: object) -> list[RunConfig]:
    """The options of every run."""
    return [run.config for run in plan_runs(read(path, *words))]


@contextmanager
def planned_by(paths: Sequence[Path], runs: Path) -> Iterator[Path]:
    """A folder with the plan of a file, or of several, and links to those of its runs that lie in `runs`.

    A grid may be trained in parts and in any order; `runs` then has the plan of the last part. Names of runs end in a
    digest of their options, so no other run is taken for one of these files.
    """
    with TemporaryDirectory() as folder:
        config, *more = (read(path, "--out", folder) for path in paths)
        planned = [run for each in (config, *more) for run in plan_runs(each)]
        out = f"--data_root FOLDER --out runs/{paths[0].stem}"
        write_plan(config, planned, command="\n".join(f"amb compare --config benchmarks/{p.name} {out}" for p in paths))
        for run in planned:
            if (runs / run.name).is_dir():
                run.folder.symlink_to((runs / run.name).resolve())
        yield Path(folder)
