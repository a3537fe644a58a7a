"""The folder of a run: the names of its files, declared once."""

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adaptive_memory_bank.lab.runs.config import RunConfig, save_config
from adaptive_memory_bank.lab.runs.files import write_text

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"


class RunFolder:
    """Paths of one run, and of what the runs beside it share.

    Args:
        path: `<out>/<run>`.

    Example:
        >>> RunFolder(Path("runs/first")).result_file.as_posix(), RunFolder(Path("runs/first")).list_file.as_posix()
        ('runs/first/result.json', 'runs/results.json')
    """

    RESULT, LIST, PLAN = "result.json", "results.json", "compare.json"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"
        self.result_file = path / self.RESULT
        self.metrics_file = path / "metrics.jsonl"
        self.gallery_file = path / "gallery.json"
        self.log_file = path / "log.txt"
        self.checkpoints = path / "checkpoints"
        self.process_file = path / ".process"
        self.list_file = path.parent / self.LIST

    @classmethod
    def create(cls, config: RunConfig) -> "RunFolder":
        """A new folder below `out`, with the configuration in it."""
        out = Path(config.out)
        folder = cls(out / config.run_name if config.run_name else _free_name(out, default_name(config)))
        if folder.config_file.exists():
            raise ValueError(
                f"`run_name`: {folder.path} holds a run already. Continue it (`--resume {folder.path}`) or choose "
                "another name."
            )
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        try:
            save_config(config, folder.config_file)
        except OSError:  # no room: a folder without a configuration is no run, so leave none behind
            with suppress(OSError):
                folder.checkpoints.rmdir()
                folder.path.rmdir()
            raise
        return folder

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """The folder of an earlier run."""
        folder = cls(Path(path))
        if not folder.config_file.is_file():
            raise ValueError(f"{path} is not a run: it has no {folder.config_file.name}.")
        return folder

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Say which process trains in the folder, for as long as it does."""
        write_text(self.process_file, f"{platform.node()} {os.getpid()}\n")
        try:
            yield
        finally:
            self.process_file.unlink(missing_ok=True)

    @property
    def in_use(self) -> bool:
        """Whether another process trains in the folder; one that was killed does not."""
        host, _, process = self.process_file.read_text().partition(" ") if self.process_file.exists() else ("", "", "")
        if host != platform.node():
            return bool(host)
        try:
            os.kill(int(process), 0)  # sends nothing
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return int(process) != os.getpid()

    @property
    def starts_anew(self) -> bool:
        """Whether it holds a run that was begun, and no checkpoint to resume it from."""
        return self.config_file.exists() and not any((self.checkpoints / name).exists() for name in (LAST, PREVIOUS))


def data_name(config: RunConfig) -> str:
    """The dataset's name; of `npz:PATH` that of the file."""
    return Path(config.data.split(":", 1)[1]).stem if ":" in config.data else config.data


def default_name(config: RunConfig) -> str:
    """Task, data, adapter and seed, as a folder's name."""
    words = (config.task, data_name(config), config.name or config.adapter, f"s{config.seed}")
    return re.sub(r"[^\w.@=-]+", "-", "-".join(words))


def _free_name(out: Path, name: str) -> Path:
    path, number = out / name, 1
    while path.exists():
        number += 1
        path = out / f"{name}-{number}"
    return path
