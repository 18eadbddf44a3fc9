"""Markdown that shows text as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\`*_\[\]<>|{}#~$])")


def plain(text: str) -> str:
    """Return Markdown that shows exactly this text."""
    return _SPECIAL.sub(r"\\\1", text)


def code(text: str) -> str:
    """Return Markdown that shows a word of a program; also inside a table."""
    return f"`{text}`".replace("|", r"\|") if text else ""


def block(text: str, language: str = "text") -> str:
    """Return a block of code."""
    return f"```{language}\n{text}\n```"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already; an empty string without rows."""
    lines = [_row(cells) for cells in rows]
    if not lines:
        return ""
    return "\n".join([_row(head), _row(["---"] * len(head)), *lines])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace(chr(10), ' ') for cell in cells)} |"


def page(*parts: str) -> str:
    """Join the parts that are not empty."""
    return "\n\n".join(part for part in parts if part) + "\n"
