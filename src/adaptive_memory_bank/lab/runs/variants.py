"""What `--adapter` takes: the library's adapters, and the two trainings that have none."""

from dataclasses import dataclass

from adaptive_memory_bank.adapters import ADAPTERS, CATALOGUE


@dataclass(frozen=True)
class Choice:
    """One choice of `--adapter`, with the colour and the marker (as Plotly names it) that it has in every chart."""

    name: str
    color: str
    marker: str
    aliases: tuple[str, ...] = ()


NONE = Choice("none", "#8b929c", "circle")
"""Training without memory."""
FRESH = Choice("fresh", "#6a9a1f", "x")
"""A plain memory that is re-embedded every few steps: what perfect freshness would give, whatever it costs."""
CHOICES = (NONE, *(Choice(entry.name, entry.color, entry.marker, entry.aliases) for entry in CATALOGUE), FRESH)
"""All of them, in the order of tables and legends."""
NAMES = tuple(name for choice in CHOICES for name in (choice.name, *choice.aliases))
PLAIN_MEMORY = tuple(name for name, entry in ADAPTERS.items() if entry.name == "identity")
"""The names of a memory that is left as it is: what the others are compared with."""
COMPARED = ("none", "identity", "xbn", "auto")
"""What is compared by default."""
