"""Small HTML tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Return a table; without a head, the first cell of each row is its head."""
    lines = ["<table>"]
    if head:
        lines.append(_row("th", head))
        lines += [_row("td", row) for row in rows]
    else:
        lines += [
            f"<tr><th>{_cell(first)}</th>{''.join(f'<td>{_cell(each)}</td>' for each in rest)}</tr>"
            for first, *rest in rows
        ]
    return "\n".join([*lines, "</table>"])


def _row(tag: str, cells: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_cell(each)}</{tag}>' for each in cells)}</tr>"


def _cell(value: object) -> str:
    return "" if value is None else escape(str(value))
