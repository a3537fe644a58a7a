"""One colour and one marker for every variant, the same in all charts, readable on light and on dark paper."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from adaptive_memory_bank.lab.compare.comparison import FRESH

QUIET = "#8b929c"
NO_MEMORY = QUIET
CEILING = "#6a9a1f"
# Told apart with the usual colour deficiencies as well; markers help where colours do not.
COLORS = ("#e0812c", "#3d85e0", "#1ba98c", "#a46be0", "#d8436b", "#b39a12", "#4cb2d4", "#9c6b4e")
MARKERS = ("square", "diamond", "triangle-up", "cross", "star", "triangle-down", "pentagon", "hexagon")
# The same adapter looks the same in every chart of every report.
_PLACES = {"identity": 0, "xbm": 0, "xbn": 1, "ema": 2, "axbn": 3, "kalman": 3, "auto": 4}


class Look(NamedTuple):
    """How a variant is drawn."""

    color: str
    marker: str

    def band(self) -> str:
        """The colour, thinned for the area between two curves."""
        red, green, blue = (int(self.color[start : start + 2], 16) for start in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.16)"


def looks(names: Sequence[str], baseline: str | None, ceilings: Collection[str] = (FRESH,)) -> dict[str, Look]:
    """Give every variant its look; training without memory is gray, a memory kept fresh looks like no adapter.

    Example:
        >>> looks(["none", "XBN", "mine"], "none")["mine"]
        Look(color='#e0812c', marker='square')
    """
    places = {name: _PLACES[name.lower()] for name in names if name.lower() in _PLACES}
    free = [place for place in range(len(COLORS)) if place not in places.values()] or list(range(len(COLORS)))
    special = {baseline: Look(NO_MEMORY, "circle")} | dict.fromkeys(ceilings, Look(CEILING, "x"))
    others = [name for name in names if name not in places and name not in special]
    places |= {name: free[index % len(free)] for index, name in enumerate(others)}
    return {
        name: special[name] if name in special else Look(COLORS[places[name]], MARKERS[places[name]]) for name in names
    }
