"""Pages with parts that scripts fill: everything between `<!-- name -->` and `<!-- /name -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

Fill = Callable[[], str]


def filled(text: str, parts: Mapping[str, Fill]) -> str:
    """Put the parts into a page.

    Raises:
        ValueError: For a part whose markers the page does not have.
    """
    for name, fill in parts.items():
        pattern = re.compile(rf"(<!-- {name} -->).*?(<!-- /{name} -->)", flags=re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise ValueError(f"The page must hold `<!-- {name} -->` and `<!-- /{name} -->` once.")
        content = fill()
        body = f"\n{content}\n" if content else "\n"
        text = pattern.sub(lambda found, body=body: found[1] + body + found[2], text)  # type: ignore[misc]
    return text


def fill_page(path: Path, parts: Mapping[str, Fill]) -> None:
    """Rewrite a page."""
    path.write_text(filled(path.read_text(encoding="utf-8"), parts), encoding="utf-8")


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
