"""One colour and one marker for every variant, the same in all charts, readable on light and dark backgrounds."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from adaptive_memory_bank.lab.runs.variants import CHOICES, FRESH, NONE

QUIET = NONE.color


class Style(NamedTuple):
    """How a variant is drawn."""

    color: str
    marker: str

    def band(self) -> str:
        """The colour, thinned for the area between two curves."""
        red, green, blue = (int(self.color[start : start + 2], 16) for start in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.16)"


_KNOWN = {name: Style(c.color, c.marker) for c in CHOICES for name in (c.name, *c.aliases)}
_SPARE = (Style("#b39a12", "triangle-down"), Style("#4cb2d4", "pentagon"), Style("#9c6b4e", "hexagon"))
STYLES = tuple(Style(c.color, c.marker) for c in CHOICES if c not in (NONE, FRESH)) + _SPARE
"""The styles of adapters, and some more for variants with other names."""


def styles_of(
    names: Sequence[str], baseline: str | None, ceilings: Collection[str] = (FRESH.name,)
) -> dict[str, Style]:
    """Give every variant its style; training without memory is gray, a memory kept fresh looks like no adapter.

    Example:
        >>> styles_of(["none", "XBN", "mine"], "none")["mine"]
        Style(color='#e0812c', marker='square')
    """
    special = {baseline: _KNOWN[NONE.name]} | dict.fromkeys(ceilings, _KNOWN[FRESH.name])
    known = {name: style for name in names if (style := special.get(name) or _KNOWN.get(name.lower()))}
    free = [style for style in STYLES if style not in known.values()] or list(STYLES)
    others = [name for name in names if name not in known]
    made = {name: free[index % len(free)] for index, name in enumerate(others)}
    return {name: known.get(name) or made[name] for name in names}
