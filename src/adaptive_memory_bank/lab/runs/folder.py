"""The folder of a run: the names of its files, declared once, and writing that a crash cannot leave half done."""

import json
import os
import re
from pathlib import Path
from typing import Any

from adaptive_memory_bank.lab.runs.config import RunConfig, save_config


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
        save_config(config, folder.config_file)
        return folder

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """The folder of an earlier run."""
        folder = cls(Path(path))
        if not folder.config_file.is_file():
            raise ValueError(f"{path} is not a run: it has no {folder.config_file.name}.")
        return folder


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


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty where there is no such file or it holds something else."""
    content = read_json(path)
    return content if isinstance(content, dict) else {}


def read_json(path: Path) -> Any:
    """Read a JSON file; None where there is none.

    Raises:
        ValueError: Naming the file, where it is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except json.JSONDecodeError as error:
        raise ValueError(f"`{path}` is not valid JSON ({error}).") from error
