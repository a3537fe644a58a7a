"""What a resumed run keeps of the run it continues: everything, but for what cannot change its numbers."""

from argparse import ArgumentError
from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path

from adaptive_memory_bank.lab.runs.config import REMEDY, Config, make_config, read_options
from adaptive_memory_bank.lab.runs.files import DamagedFileError
from adaptive_memory_bank.lab.runs.options import parse_options


def load_config(kind: type[Config], path: Path) -> Config:
    """Read what `save_config` wrote; options that did not exist when it was written have their defaults.

    Raises:
        ValueError: Where it is of another task.
        DamagedFileError: Where a value is not what its option takes.
    """
    task, options = read_options(path)
    unknown = set(options) - {field.name for field in fields(kind)}
    if unknown or task != kind.task:
        why = f"unknown option(s) {', '.join(sorted(unknown))}" if unknown else f"it is of `amb {task}`"
        raise ValueError(f"{path} does not fit `amb {kind.task}`: {why}.")
    try:
        return parse_options(kind, options)
    except (ArgumentError, TypeError, ValueError) as error:
        raise DamagedFileError(path, " ".join(str(error).split()).rstrip("."), REMEDY.format(path.parent)) from error


def load_whole_config(kind: type[Config], path: Path) -> Config:
    """Read the configuration of a run that is to go on: nothing that decides its numbers may be left to defaults.

    Raises:
        DamagedFileError: Where the file was cut short.
    """
    config, (_, options) = load_config(kind, path), read_options(path)
    missing = [f.name for f in fields(kind) if f.name not in options and f.name not in kind.machine_fields]
    if missing or not path.read_bytes().endswith(b"\n"):
        lacks = f"it lacks {', '.join(missing)}" if missing else "its last line has no end"
        add = "Add what the run was made with, or delete"
        raise DamagedFileError(path, f"cut short, {lacks}", f"{add} {path.parent} and start the run anew.")
    return config


def resumed_config(config: Config, saved: Config, *, given: Collection[str] | None = None) -> Config:
    """The saved run's options, with those of this call that cannot change its numbers.

    Args:
        config: This call's options.
        saved: The run's.
        given: Names of the options that this call asks for; default: all that differ from their preset's.

    Raises:
        ValueError: Where the call asks for another value of anything else, naming both.
    """
    asked = set(_changed(config) if given is None else given) - {"out", "run_name", "resume"}
    before, now = vars(saved), vars(config)
    differing = [name for name in now if name in asked and now[name] != before[name]]
    for name in differing:
        if name not in config.machine_fields:
            raise ValueError(
                f"`{name}` is {before[name]!r} in the run to resume, got {now[name]!r}. "
                "Leave it out, or start a new run."
            )
    return replace(saved, resume=config.resume, **{name: now[name] for name in differing})


def _changed(config: Config) -> list[str]:
    """The options that are not as their preset has them; the preset itself may be a default."""
    default = make_config(type(config), config.preset) if config.preset in config.presets else config
    names = (f.name for f in fields(config) if f.name != "preset")
    return [name for name in names if getattr(config, name) != getattr(default, name)]
