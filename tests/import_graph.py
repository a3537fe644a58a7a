"""The import graph of a package, read from its sources, and the rules of a house that it may break."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    """A module that imports another: anywhere in its file, at the top, in a function, or for type checking only."""

    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.importer} -> {self.imported}"


def read_imports(package: Path) -> list[Import]:
    """All imports of all modules below a package's folder; `from a import b` is of `a.b` where that is a module."""
    files = {_name_of(file, package): file for file in sorted(package.rglob("*.py"))}
    found = []
    for name, file in files.items():
        inside = name if file.stem == "__init__" else name.rpartition(".")[0]  # what a relative import starts from
        for node in ast.walk(ast.parse(file.read_text())):
            found += [Import(name, imported) for imported in _imported(node, inside, set(files))]
    return found


def _name_of(file: Path, package: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(node: ast.AST, inside: str, modules: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = ".".join(inside.split(".")[: len(inside.split(".")) - node.level + 1]) if node.level else ""
        base = ".".join(filter(None, (above, node.module)))
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield inner if inner in modules else base


def room_of(module: str, rooms: set[str]) -> str | None:
    """The innermost of the rooms (modules or packages) that a module is in."""
    parts = module.split(".")
    candidates = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in candidates if name in rooms), None)


def between_rooms(imports: list[Import], rooms: set[str]) -> dict[tuple[str, str], list[Import]]:
    """Imports that leave a room for another, by both rooms."""
    found = defaultdict(list)
    for each in imports:
        start, end = room_of(each.importer, rooms), room_of(each.imported, rooms)
        if start and end and start != end:
            found[start, end].append(each)
    return dict(found)


def undeclared(imports: list[Import], allowed: dict[str, set[str]]) -> list[Import]:
    """Imports between rooms that nobody declared."""
    crossing = between_rooms(imports, set(allowed))
    wrong = [each for (start, end), found in crossing.items() if end not in allowed[start] for each in found]
    return list(dict.fromkeys(wrong))


def cycle(allowed: dict[str, set[str]]) -> list[str] | None:
    """Rooms that lead back to the first of them, or None."""
    done: set[str] = set()

    def visit(room: str, path: list[str]) -> list[str] | None:
        if room in path:
            return [*path[path.index(room) :], room]
        if room in done:
            return None
        found = next(filter(None, (visit(other, [*path, room]) for other in sorted(allowed.get(room, ())))), None)
        done.add(room)
        return found

    return next(filter(None, (visit(room, []) for room in sorted(allowed))), None)


def foreign(imports: list[Import], native: set[str], free_rooms: set[str]) -> list[Import]:
    """Imports of other than the native libraries, by modules outside the rooms that are free to."""
    return [
        each
        for each in imports
        if each.imported.split(".")[0] not in native and room_of(each.importer, free_rooms) is None
    ]


def attributes_read(file: Path) -> set[str]:
    """Names of all attributes that a file reads or writes: ``a.b`` is `b`."""
    return {node.attr for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)}
