"""Written whole or not at all; read, or named with what to do."""

import errno
import re
from pathlib import Path

import pytest

from adaptive_memory_bank.lab.runs import files
from adaptive_memory_bank.lab.runs.files import (
    DamagedFileError,
    DiskFullError,
    append_text,
    read_json_object,
    read_yaml,
    write_file,
    write_json,
    write_text,
)

FULL = "/dev/full"  # every write says: no space left on device


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "below" / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    with pytest.raises(RuntimeError, match="no"):
        write_file(path, lambda file: file.write(b"half") and raise_error(RuntimeError("no")))
    assert read_json_object(path) == {"a": 1}
    assert [file.name for file in path.parent.iterdir()] == ["x.json"]


def raise_error(error):
    raise error


def test_a_full_disk_leaves_the_file_as_it_was_and_is_named(tmp_path):
    path = tmp_path / "x.txt"
    (tmp_path / ".x.txt.draft").symlink_to(FULL)
    with pytest.raises(DiskFullError, match=r"Disk full while writing .*x\.txt; there is none before it"):
        write_text(path, "new")
    assert list(tmp_path.iterdir()) == []
    write_text(path, "old")
    (tmp_path / ".x.txt.draft").symlink_to(FULL)
    with pytest.raises(DiskFullError, match="the file before is intact"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_does_not_fit_is_not_added(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    append_text(path, "first\n")
    monkeypatch.setattr(files, "_to_disk", lambda file: file.flush() or raise_error(OSError(errno.ENOSPC, "full")))
    with pytest.raises(DiskFullError, match=r"Disk full while writing .*x\.jsonl"):
        append_text(path, "second\n")
    assert path.read_text() == "first\n"


def test_the_file_before_can_be_kept(tmp_path):
    path, before = tmp_path / "x", tmp_path / "before"
    for text in ("first", "second", "third"):
        write_file(path, lambda file, text=text: file.write(text.encode()), keep_as=before)
    assert (path.read_text(), before.read_text()) == ("third", "second")


def test_no_object_reads_as_an_empty_one(tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    assert read_json_object(tmp_path / "list.json") == read_json_object(tmp_path / "none.json") == {}


@pytest.mark.parametrize("text", [b'{"a": ', b"\xff\xfe", b"[" * 100_000, b""])
def test_damaged_json_is_named_with_what_to_do(text, tmp_path):
    (tmp_path / "x.json").write_bytes(text)
    with pytest.raises(DamagedFileError, match=r"x\.json is damaged: it is not valid JSON \(.*\)\. Do this\."):
        read_json_object(tmp_path / "x.json", remedy="Do this.")


NESTED = [f"{name}: &{name} [{', '.join(['*' + inner] * 9)}]" for inner, name in ("ab", "bc", "cd", "de", "ef", "fg")]
LAUGHS = "\n".join(["a: &a [x, x]", *NESTED])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [1, 2", "it is not valid YAML .line 1: "),
        ("a: !!python/object/apply:os.system [touch HERE]", "it is not valid YAML .line 1: could not determine a cons"),
        ("a: !!timestamp x", "it is not valid YAML"),
        ("a: !!bool x", "it is not valid YAML"),
        ("a: " + "[" * 2000 + "]" * 2000, "it is not valid YAML .RecursionError"),
        (LAUGHS, "more than 100,000 values"),
        ("a: &a [*a]", "more than 100,000 values"),
        ("- a", "it does not name options"),
        ("1: a", "it does not name options"),
        ("", "it is empty"),
        ("a: \x00", "it is not valid YAML"),
    ],
)
def test_damaged_or_hostile_yaml_is_named_with_what_to_do(text, what, tmp_path):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(DamagedFileError, match=rf"(?s)x\.yaml is damaged: .*{what}.*\. Do this\."):
        read_yaml(tmp_path / "x.yaml", remedy="Do this.")


def test_a_few_aliases_are_fine(tmp_path):
    (tmp_path / "x.yaml").write_text("a: &a {x: 1}\nb: [*a, *a]\n")
    assert read_yaml(tmp_path / "x.yaml") == {"a": {"x": 1}, "b": [{"x": 1}, {"x": 1}]}


def test_nothing_else_of_the_lab_writes_files():
    lab = Path(files.__file__).parents[1]
    writes = re.compile(
        r"""\.write_(text|bytes)\(|open\([^)]*["'][wax]b?["']|np\.save\w*\(path|torch\.save\([^,]*, path"""
    )
    found = {file.name for file in lab.rglob("*.py") if writes.search(file.read_text(encoding="utf-8"))}
    assert found == {"files.py", "worker.py"}  # the log of a worker is what it prints
