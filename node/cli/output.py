"""Print answers: a table on a terminal, JSON in a pipe.

Standard output always holds one document, one table, or lines of one kind. Progress and errors
go to standard error (``node.cli.progress``, ``node.cli.failures``). Records are the JSON objects
of the API; a :class:`RecordLayout` says what a table shows of them.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pydantic import BaseModel

Record = Mapping[str, Any]
Cell = Callable[[Record], str]


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and the text of its cell for a record."""

    heading: str
    cell: Cell
    whole: bool = False
    """True for cells that are never wrapped, such as an id that will be typed again."""


@dataclass(frozen=True)
class RecordLayout:
    """The columns, CSV fields, and key of one kind of record."""

    columns: tuple[Column, ...]
    fields: tuple[str, ...]
    """The fields of a CSV line, unless ``--fields`` names others."""
    empty: str
    """The text in place of an empty table: what to do next."""
    key: str = "id"


def sanitise_line(line: str) -> str:
    """Replace the control characters of a line, so that a terminal does not obey them."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)


def sanitise_text(text: str) -> str:
    """Replace the control characters of a text, except tabs and line ends."""
    return "".join(letter if letter in "\t\n" else sanitise_line(letter) for letter in text)


def printable(value: object) -> str:
    """Return a value as text on one line, without control characters."""
    return sanitise_line(" ".join(str(value).split()))


def pick(record: Record, path: str) -> Any:
    """Return the value at a dotted path; ``None`` if there is none."""
    value: Any = record
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def flat(value: object) -> str:
    """Format a value for a cell: text as it is, lists of texts joined, the rest as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return json.dumps(value, ensure_ascii=False)


def records_of(models: Iterable[BaseModel]) -> list[dict[str, Any]]:
    """Return wire models as the JSON objects of the API."""
    return [model.model_dump(mode="json") for model in models]


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun: ``1 task``, ``2 tasks``."""
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def percent(share: float | None) -> str:
    """Format a share as ``97.2 %``; nothing for ``None``."""
    return "" if share is None else f"{share * 100:.1f} %".replace(".0 %", " %")


class OutputWriter:
    """Writes records to standard output in the chosen format."""

    def __init__(
        self, chosen: str | None, fields: Sequence[str] = (), stream: TextIO | None = None
    ) -> None:
        """``chosen`` is ``None`` for a table on a terminal and JSON elsewhere."""
        self._stream = stream or sys.stdout
        self.terminal = self._stream.isatty()
        self.format = chosen or ("table" if self.terminal else "json")
        self._fields = tuple(fields)

    def many(self, records: Sequence[Record], kind: RecordLayout) -> None:
        """Print a list."""
        if self.format == "json":
            self._json([self._picked(record) for record in records], indent=2)
        elif self.format == "table":
            self._table(records, kind)
        else:
            self._lines(records, kind)

    def one(
        self, record: Record | BaseModel, kind: RecordLayout, view: Callable[[Record], str]
    ) -> None:
        """Print a single record or wire model; ``view`` formats it for a person."""
        if not isinstance(record, Mapping):
            record = record.model_dump(mode="json")
        if self.format == "json":
            self._json(self._picked(record), indent=2)
        elif self.format == "table":
            self.text(view(record) if not self._fields else pairs(self._picked(record).items()))
        else:
            self._lines([record], kind)

    def raw(self, document: object) -> None:
        """Print a document as JSON in any format: indented, or on one line for ``jsonl``."""
        self._json(document, indent=None if self.format == "jsonl" else 2)

    def verbatim(self, text: str) -> None:
        """Print foreign text unchanged; on a terminal, without control characters."""
        self._stream.write(sanitise_text(text) if self.terminal else text)
        self._stream.flush()

    def text(self, text: str) -> None:
        """Print a text for a person."""
        self._stream.write(text + "\n")
        self._stream.flush()

    def _picked(self, record: Record) -> Record:
        if not self._fields:
            return record
        return {path: pick(record, path) for path in self._fields}

    def _json(self, document: object, indent: int | None) -> None:
        ascii_only = (self._stream.encoding or "").lower().replace("-", "") != "utf8"
        self.text(json.dumps(document, indent=indent, ensure_ascii=ascii_only))

    def _lines(self, records: Sequence[Record], kind: RecordLayout) -> None:
        if self.format == "jsonl":
            for record in records:
                self._json(self._picked(record), indent=None)
        elif self.format == "ids":
            for record in records:
                self.text(str(record[kind.key]))
        else:
            fields = self._fields or kind.fields
            writer = csv.writer(self._stream, lineterminator="\n")
            writer.writerow(fields)
            writer.writerows([flat(pick(record, path)) for path in fields] for record in records)
            self._stream.flush()

    def _table(self, records: Sequence[Record], kind: RecordLayout) -> None:
        columns = kind.columns
        if self._fields:
            columns = tuple(Column(path, _at(path), whole=True) for path in self._fields)
        if not records:
            self.text(kind.empty)
        elif self.terminal:
            self._rich_table(records, columns)
        else:
            rows = [[printable(column.cell(record)) for column in columns] for record in records]
            self.text(aligned([[column.heading for column in columns], *rows]))

    def _rich_table(self, records: Sequence[Record], columns: Sequence[Column]) -> None:
        from rich.console import Console  # slow to load, needed on terminals only
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in columns:
            table.add_column(column.heading, no_wrap=column.whole, overflow="fold")
        for record in records:
            cells = (printable(column.cell(record)) for column in columns)
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
        Console(file=self._stream, highlight=False, no_color=not colour_wanted()).print(table)


_STYLES = {
    "running": "bold cyan",
    "merging": "cyan",
    "finished": "green",
    "failed": "bold red",
    "missed": "bold red",
    "unplaced": "red",
    "refused": "red",
    "displaced": "yellow",
    "waiting": "yellow",
    "cancelled": "dim",
}
"""The styles of cells that consist of one of these words."""


def colour_wanted() -> bool:
    """Return whether colours may be used (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _at(path: str) -> Cell:
    return lambda record: flat(pick(record, path))


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Format rows of cells in columns, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(indent + line for line in lines)


def pairs(items: Iterable[tuple[str, object]], indent: str = "") -> str:
    """Format names and values in two columns, without those that have no value."""
    rows = [(name, printable(flat(value))) for name, value in items if flat(value)]
    return aligned(rows, indent) if rows else ""
