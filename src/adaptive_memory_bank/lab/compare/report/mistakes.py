"""The mistakes: queries with their nearest images, the worst first."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from adaptive_memory_bank.lab.compare.comparison import Section
from adaptive_memory_bank.lab.runs.files import read_json_object
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.results import Run

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


Shown = dict[str, Any]
"""A picture: `source`, an address that needs no network, or empty; `name`, its class; and what is known of it."""


def worst_queries(section: Section) -> dict[str, list[Shown]]:
    """Collect the worst queries of every variant, by title: those of its first complete run that left any."""
    found = {}
    for name in section.names:
        for run in section.of(name):
            queries = read_queries(run) if run.is_complete else []
            if queries:
                found[f"{name}, seed {run.seed}"] = queries
                break
    return found


def read_queries(run: Run) -> list[Shown]:
    """Read the queries a run left, the worst first, each with its `matches`; none where it left none."""
    entries = _objects(read_json_object(RunFolder(run.folder).gallery_file).get("queries"))
    return sorted(map(_query, entries), key=lambda query: -(query["first_match"] or 0))


def _query(entry: Mapping[str, Any]) -> Shown:
    first = entry.get("first_match")
    matches = [_match(match) for match in _objects(entry.get("matches"))]
    return {**_picture(entry), "first_match": first if isinstance(first, int) else None, "matches": matches}


def _match(entry: Mapping[str, Any]) -> Shown:
    score = entry.get("score")
    score = float(score) if isinstance(score, int | float) else None
    return {**_picture(entry), "correct": entry.get("correct") is True, "score": score}


def _objects(entries: object) -> Iterable[Mapping[str, Any]]:
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def _picture(entry: Mapping[str, Any]) -> Shown:
    image = str(entry.get("image", ""))
    source = f"data:image/png;base64,{image}" if _BASE64.fullmatch(image) else ""
    return {"source": source, "name": str(entry.get("class", ""))}
