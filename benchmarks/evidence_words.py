"""What a table of a comparison says, in sentences: when a memory helps, by how much, and what would do as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adaptive_memory_bank.lab.compare.ceiling import listed, show_share
from adaptive_memory_bank.lab.compare.statistics import FEWEST_SEEDS

Row = dict[str, Any]
Table = dict[str, Any]


def sentences(table: Table) -> list[str]:
    """Up to five, and one for each early epoch: plain memory, adapters against it and none, ceiling, larger batches."""
    pick, references = table["picks"][0], table["references"]
    early = [other for other in table["picks"] if other.startswith("epoch ")]
    rows = {row["variant"]: row for row in table["rows"]}
    plain, none = references.get("plain"), references.get("none")
    apart = {*table["without_memory"], *table["ceilings"], plain}
    adapters = [row for name, row in rows.items() if name not in apart]
    larger = [rows[name] for name in table["without_memory"] if name != none]
    found = [
        plain and none and _sentence("Plain memory against none", [rows[plain]], "none", pick),
        plain and _sentence("Adapters against plain memory", adapters, "plain", pick),
        *(plain and _sentence(f"The same at {epoch}", adapters, "plain", epoch) for epoch in early),
        none and _sentence("Adapters against no memory", adapters, "none", pick),
        plain and _ceiling([rows[name] for name in table["ceilings"]], adapters, pick),
        none and _sentence("Larger batches without memory against none", larger, "none", pick),
    ]
    return [sentence for sentence in found if sentence]


def _sentence(what: str, rows: Iterable[Row], role: str, pick: str) -> str:
    """The differences of some rows, and which of them are beyond the noise; empty where there are none."""
    known = {row["variant"]: found for row in rows if (found := row["differences"].get(role, {}).get(pick))}
    if not known:
        return ""
    each = [f"`{name}` {show_difference(found, bold=False)}" for name, found in known.items()]
    return f"{what}: {listed(each)}; {_judgement(known)}."


def _judgement(known: dict[str, dict[str, Any]]) -> str:
    better = [f"`{name}`" for name, found in known.items() if found["beyond_noise"] and found["mean"] > 0]
    worse = [f"`{name}`" for name, found in known.items() if found["beyond_noise"] and found["mean"] < 0]
    parts = [
        f"{listed(names)} {how} beyond the noise" for names, how in ((better, "better"), (worse, "worse")) if names
    ]
    if parts:
        return " and ".join(parts)
    few = max(found["seeds"] for found in known.values()) < FEWEST_SEEDS
    return f"fewer than {FEWEST_SEEDS} seeds cannot tell" if few else "within the noise"


def _ceiling(ceilings: list[Row], adapters: Iterable[Row], pick: str) -> str:
    """What a memory kept fresh adds to plain memory, and how much of that adapters reach."""
    gain = _sentence("A memory kept fresh against plain memory", ceilings, "plain", pick)
    shares = [f"`{row['variant']}` {show_share(row['way'])}" for row in adapters if row["way"] is not None]
    return f"{gain[:-1]}; of that way go {listed(shares)}." if gain and shares else gain


def show_difference(value: dict[str, Any] | None, *, bold: bool = True) -> str:
    """Points with their interval; bold where it leaves out zero and rests on enough seeds."""
    if value is None:
        return "-"
    mean = f"{100 * value['mean']:+.1f}"
    if value["low"] is None:
        return f"{mean} [unknown]"
    text = f"{mean} [{100 * value['low']:+.1f}, {100 * value['high']:+.1f}]"
    return f"**{text}**" if bold and value["beyond_noise"] else text
