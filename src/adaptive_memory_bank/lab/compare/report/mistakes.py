"""The mistakes: queries with their nearest images, the worst first."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adaptive_memory_bank.lab.compare.comparison import Section
from adaptive_memory_bank.lab.runs.folder import RunFolder, read_json_object
from adaptive_memory_bank.lab.runs.results import Run

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True)
class Picture:
    """An image with its class; `source` is an address that needs no network, or empty."""

    source: str
    name: str


@dataclass(frozen=True)
class Match:
    """One of the nearest images."""

    picture: Picture
    correct: bool
    score: float | None


@dataclass(frozen=True)
class Query:
    """A query and its nearest images, nearest first."""

    picture: Picture
    first_match: int | None
    matches: tuple[Match, ...]


@dataclass(frozen=True)
class WorstQueries:
    """The worst queries of one run."""

    name: str
    title: str
    queries: tuple[Query, ...]


def worst_queries(section: Section) -> list[WorstQueries]:
    """Collect the worst queries of every variant: those of its first complete run that left any."""
    found = []
    for name in section.names:
        for run in section.of(name):
            queries = read_queries(run) if run.is_complete else ()
            if queries:
                found.append(WorstQueries(name, f"{name}, seed {run.seed}", queries))
                break
    return found


def read_queries(run: Run) -> tuple[Query, ...]:
    """Read the queries a run left, the worst first; none where it left none."""
    entries = _objects(read_json_object(RunFolder(run.folder).gallery_file).get("queries"))
    queries = [_query(entry) for entry in entries]
    return tuple(sorted(queries, key=lambda query: -(query.first_match or 0)))


def _query(entry: Mapping[str, Any]) -> Query:
    first = entry.get("first_match")
    matches = tuple(
        Match(_picture(match), match.get("correct") is True, _score(match.get("score")))
        for match in _objects(entry.get("matches"))
    )
    return Query(_picture(entry), first if isinstance(first, int) else None, matches)


def _objects(entries: object) -> Iterable[Mapping[str, Any]]:
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def _score(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _picture(entry: Mapping[str, Any]) -> Picture:
    image = str(entry.get("image", ""))
    source = f"data:image/png;base64,{image}" if _BASE64.fullmatch(image) else ""
    return Picture(source, str(entry.get("class", "")))
