"""The one place that writes and reads files: written whole or not at all, and named where they are damaged."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import yaml

MOST_VALUES = 100_000  # in a YAML file, its aliases written out


class DamagedFileError(ValueError):
    """A file does not hold what it should; the message says which, and what to do about it."""

    exit_code = 1

    def __init__(self, path: Path, what: str, remedy: str = "Delete it.") -> None:
        super().__init__(f"{path} is damaged: {what}. {remedy}")


class DiskFullError(OSError):
    """There was no room for a file; the one that was there before is untouched."""


def write_file(path: Path, write: Callable[[BinaryIO], object], *, keep_as: Path | None = None) -> None:
    """Replace a file in one step: whatever happens meanwhile, it is either as it was or all new.

    Args:
        path: The file. It has one writer at a time.
        write: Writes the content into an open file.
        keep_as: A second name under which the content before lives on.

    Raises:
        DiskFullError: Where there is no room.
    """
    draft = path.with_name(f".{path.name}.draft")  # always the same, so that a kill leaves one at most
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            write(file)
            _to_disk(file)
        if keep_as is not None and path.exists():
            _keep(path, keep_as)
        os.replace(draft, path)
        _sync_folder(path.parent)
    except (OSError, RuntimeError) as error:
        _explain_full_disk(error, path)
        raise
    finally:
        with suppress(OSError):
            draft.unlink()


def append_text(path: Path, text: str) -> None:
    """Add to a file; where there is no room for all of it, nothing is added.

    Raises:
        DiskFullError: Where there is no room.
    """
    size = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            file.write(text.encode())
            _to_disk(file)
    except OSError as error:
        if path.exists():
            os.truncate(path, size)
        _explain_full_disk(error, path)
        raise


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    write_file(path, lambda file: file.write(text.encode()))


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file in one step."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _keep(path: Path, copy: Path) -> None:
    """Give the file a second name without a moment in which it has none."""
    draft = copy.with_name(f".{copy.name}.draft")
    draft.unlink(missing_ok=True)
    try:
        os.link(path, draft)
    except OSError:  # file systems without hard links
        shutil.copyfile(path, draft)
    os.replace(draft, copy)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _explain_full_disk(error: OSError | RuntimeError, path: Path) -> None:
    if _is_disk_full(error, path.parent):
        left = "the file before is intact" if path.exists() else "there is none before it"
        raise DiskFullError(errno.ENOSPC, f"Disk full while writing {path}; {left}") from error


def _is_disk_full(error: BaseException, folder: Path) -> bool:
    """`torch.save` wraps write errors in RuntimeErrors, so look at the chain and, failing that, at the disk."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        cause = cause.__cause__ or cause.__context__
    return isinstance(error, RuntimeError) and shutil.disk_usage(folder).free < 1 << 20


def read_json(path: Path, *, remedy: str = "Delete it.") -> Any:
    """Read a JSON file; None where there is none.

    Raises:
        DamagedFileError: Where it is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(path, f"it is not valid JSON ({_brief(error)})", remedy) from error


def read_json_object(path: Path, *, remedy: str = "Delete it.") -> dict[str, Any]:
    """Read a JSON object; empty where there is no such file or it holds something else."""
    content = read_json(path, remedy=remedy)
    return content if isinstance(content, dict) else {}


def read_yaml(path: Path, *, remedy: str = "Delete it.") -> dict[str, Any]:
    """Read a YAML file of options by name, as plain data.

    Raises:
        DamagedFileError: Where it is something else, or one that a few aliases blow up beyond measure.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if _values(yaml.compose(text, Loader=yaml.SafeLoader), {}) > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values")
        content = yaml.safe_load(text)
    except OSError:
        raise
    except Exception as error:  # of many kinds, depending on what is wrong
        raise DamagedFileError(path, f"it is not valid YAML ({_brief(error)})", remedy) from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise DamagedFileError(path, "it is empty" if content is None else "it does not name options", remedy)
    return content


def _values(node: Any, known: dict[int, float]) -> float:
    """How many values a YAML node stands for, its aliases written out; infinitely many where it holds itself."""
    if id(node) not in known:
        known[id(node)] = float("inf")
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [part for child in children for part in (child if isinstance(child, tuple) else (child,))]
        known[id(node)] = 1 + sum(_values(part, known) for part in inner)
    return known[id(node)]


def _brief(error: BaseException) -> str:
    """The first line of what went wrong."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"line {mark.line + 1}: {getattr(error, 'problem', None) or 'cannot be read'}"
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
