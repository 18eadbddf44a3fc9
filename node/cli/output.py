"""Print answers: a table on a terminal, JSON in a pipe.

Standard output always holds one document, one table, or lines of one kind. Progress and errors
go to standard error (``node.cli.progress``, ``node.cli.failures``). Records are the JSON objects
of the API; a :class:`RecordLayout` says what a table shows of them.
"""

from __future__ import annotations

import csv
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

from node.cli.times import with_local_times
from node.model.similar import suggestion

if TYPE_CHECKING:
    from pydantic import BaseModel

_FIGURES = "metrics"
_OTHER_SPACE = re.compile(r"(?<!\s)\s*[^\S ]\s*")
"""White space that is not just spaces (headlines have two); each row of it is looked at once."""

Record = Mapping[str, Any]
Cell = Callable[[Record], str]


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and the text of its cell for a record."""

    heading: str
    cell: Cell
    whole: bool = False
    """True for cells that are never wrapped, such as an id that will be typed again."""
    optional: bool = False
    """True for a column that is left out if its cells are empty, or the terminal is too narrow."""
    exact: bool = False
    """True for a cell whose times stay as the API has them."""

    def text(self, record: Record) -> str:
        """Return the cell as printed."""
        written = self.cell(record) or ""
        return printable_text(written) if self.exact else readable_text(written)


class RecordLayout:
    """The CSV fields, columns, and key of one kind of record."""

    def __init__(
        self,
        fields: str,
        *columns: Column,
        empty: str = "",
        wide: str | None = None,
        key: str = "",
        model: str = "",
    ) -> None:
        """``fields`` are those of a CSV line, as ``--fields`` names others in their place.

        ``empty`` is the text in place of an empty table: what to do next. ``wide`` are the fields
        of further columns of a wide table, by default all. ``key`` is the field that names a
        record, by default the first one. ``model`` is the wire model of the records,
        ``module:Class``, whose fields ``--fields`` may name, too.
        """
        self.fields = field_names(fields)
        self.columns = columns
        self.empty = empty
        self.wide = self.fields if wide is None else field_names(wide)
        self.key = key or self.fields[0]
        self.model = model

    def members(self) -> tuple[str, ...]:
        """Return the names that the wire model and the fields of CSV lines have at the top."""
        heads = tuple(path.partition(".")[0] for path in self.fields)
        if not self.model:
            return heads
        module, _, name = self.model.partition(":")
        return (*getattr(importlib.import_module(module), name).model_fields, *heads)


def field_names(written: str) -> tuple[str, ...]:
    """Return the names of fields that are written as ``A,B.C``."""
    names = (name.strip() for name in written.split(","))
    return tuple(name for name in names if name)


def sanitise_line(line: str) -> str:
    """Replace the control characters of a line, so that a terminal does not obey them."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)


def sanitise_text(text: str) -> str:
    """Replace the control characters of a text, except tabs and line ends."""
    return "".join(letter if letter in "\t\n" else sanitise_line(letter) for letter in text)


def printable_text(value: object) -> str:
    """Return a value as text on one line, without control characters."""
    return sanitise_line(_OTHER_SPACE.sub(" ", str(value)).strip())


def readable_text(value: object) -> str:
    """Return a sentence or time of the API on one line, with instants in the terminal's zone."""
    return with_local_times(printable_text(value))


def value_at(record: Record, path: str) -> Any:
    """Return the value at a dotted path; ``None`` if there is none.

    ``metrics.NAME`` is the figure of this name (:func:`figures`).
    """
    value: Any = record
    steps = path.split(".")
    for at, step in enumerate(steps):
        if at == 1 and steps[0] == _FIGURES:
            return figures(record).get(".".join(steps[1:]))
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def figures(record: Record) -> dict[str, float]:
    """Return the figures of a run by name, those of one name by their labels, too.

    >>> figures({"metrics": [{"name": "loss", "labels": {"direction": "forward"}, "value": 0.5}]})
    {'loss.forward': 0.5}
    """
    return {
        ".".join((figure["name"], *figure["labels"].values())): figure["value"]
        for figure in record.get(_FIGURES) or ()
    }


def unknown_field(path: str, known: Iterable[str]) -> click.UsageError:
    """Return the refusal of a field of ``--fields``, with similar names, or with all of them."""
    names = sorted(set(known))
    return click.UsageError(f"--fields: there is no field {path}; {suggestion(path, names)}")


def _check_field(path: str, records: Sequence[Record], kind: RecordLayout) -> None:
    """Check that records of this kind have, or may have, a value at this path.

    :raises click.UsageError: they cannot have one.
    """
    if not records and not kind.model:
        return  # nothing tells what they have
    head, dot, rest = path.partition(".")
    members = {*kind.members(), *(name for record in records for name in record)}
    if head not in members:
        named = {f"{_FIGURES}.{name}" for record in records for name in figures(record)}
        raise unknown_field(path, named | members)
    inside = {
        name
        for record in records
        for name in (figures(record) if head == _FIGURES else _keys(record.get(head)))
    }
    step = rest if head == _FIGURES else rest.partition(".")[0]
    if dot and inside and step not in inside:
        raise unknown_field(path, {f"{head}.{name}" for name in inside})


def _keys(value: object) -> Iterable[str]:
    return value if isinstance(value, Mapping) else ()


def cell_text(value: object) -> str:
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
        self,
        chosen: str | None,
        fields: Sequence[str] = (),
        stream: TextIO | None = None,
        *,
        program: str | None = None,
    ) -> None:
        """``chosen`` is ``None`` for a table on a terminal and JSON elsewhere.

        ``program`` is one of jq, for JSON.

        :raises click.UsageError: the program is wrong, or there is no JSON for it.
        """
        self._stream = stream or sys.stdout
        self.terminal = self._stream.isatty()
        self._filter = None if program is None else JsonFilter(program, chosen)
        preferred = "table" if self.terminal and program is None else "json"
        self.format = "table" if chosen == "wide" else chosen or preferred
        self.wide = chosen == "wide"
        self._fields = tuple(fields)

    def require_fields(self, kind: RecordLayout, records: Sequence[Record] = ()) -> None:
        """Check that ``--fields`` names only fields that records of this kind can have.

        A command that changes something calls it before, when there are no records yet.

        :raises click.UsageError: it names another one.
        """
        for path in self._fields:
            _check_field(path, records, kind)

    def print_list(self, records: Sequence[Record], kind: RecordLayout) -> None:
        """Print a list of records in the chosen format."""
        self.require_fields(kind, records)
        if self.format in _WHOLE:
            self.print_document([self._selected_fields(record) for record in records])
        elif self.format == "table":
            self._print_table(records, kind)
        else:
            self._print_lines(records, kind)

    def print_one(
        self, record: Record | BaseModel, kind: RecordLayout, view: Callable[[Record], str]
    ) -> None:
        """Print one record or wire model; for a person, as ``view`` formats it."""
        if not isinstance(record, Mapping):
            record = record.model_dump(mode="json")
        self.require_fields(kind, [record])
        if self.format in _WHOLE:
            self.print_document(self._selected_fields(record))
        elif self.format == "table":
            exact = (
                self._selected_fields(record)
                if self._fields
                else leaves(record)
                if self.wide
                else None
            )
            self.print_text(
                view(record) if exact is None else pairs_text(exact.items(), exact=True)
            )
        else:
            self._print_lines([record], kind)

    def print_line(self, record: Record, kind: RecordLayout) -> None:
        """Print one record of a stream as JSON on a line of its own, or as a document of YAML."""
        self.require_fields(kind, [record])
        if self.format == "yaml":
            self.print_text("---")
            self.print_document(self._selected_fields(record))
        else:
            self._print_json(self._selected_fields(record), indent=None)

    def print_document(self, document: object) -> None:
        """Print a document as YAML if that is the format, else as JSON.

        It is indented, or on one line for ``jsonl``.
        """
        if self.format == "yaml":
            self._print_yaml(document)
        else:
            self._print_json(document, indent=None if self.format == "jsonl" else 2)

    def print_report(self, report: BaseModel, text: str) -> None:
        """Print a document that is no record: as JSON or YAML if that is the format, or as text."""
        if self.format in _WHOLE:
            self.print_document(report.model_dump(mode="json"))
        else:
            self.print_text(text)

    def print_verbatim(self, text: str) -> None:
        """Print foreign text unchanged; on a terminal, without control characters."""
        self._stream.write(sanitise_text(text) if self.terminal else text)
        self._stream.flush()

    def print_text(self, text: str) -> None:
        """Print a text for a person, with a line break at its end."""
        self._stream.write(text + "\n")
        self._stream.flush()

    def _selected_fields(self, record: Record) -> Record:
        if not self._fields:
            return record
        return {path: value_at(record, path) for path in self._fields}

    def _print_json(self, document: object, indent: int | None) -> None:
        for result in (document,) if self._filter is None else self._filter.results(document):
            if self._filter is not None and isinstance(result, str):
                self.print_verbatim(result + "\n")
            else:
                self.print_text(json.dumps(result, indent=indent, ensure_ascii=not self._unicode))

    @property
    def _unicode(self) -> bool:
        return (self._stream.encoding or "").lower().replace("-", "") == "utf8"

    def _print_yaml(self, document: object) -> None:
        import yaml  # slow to load

        plain = json.loads(json.dumps(document))
        kind = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        text = yaml.dump(plain, Dumper=kind, sort_keys=False, allow_unicode=self._unicode)
        self.print_text(text.removesuffix("\n...\n").removesuffix("\n"))

    def _print_lines(self, records: Sequence[Record], kind: RecordLayout) -> None:
        if self.format == "jsonl":
            for record in records:
                self._print_json(self._selected_fields(record), indent=None)
        elif self.format == "ids":
            for record in records:
                self.print_text(str(record[kind.key]))
        else:
            self._print_csv(records, self._fields or kind.fields)

    def _print_csv(self, records: Sequence[Record], fields: Sequence[str]) -> None:
        """Print a line for each record; unless ``--fields`` names others, with all its figures."""
        measured = [{} if self._fields else figures(record) for record in records]
        names = list(dict.fromkeys(name for found in measured for name in found))
        writer = csv.writer(self._stream, lineterminator="\n")
        writer.writerow([*fields, *names])
        writer.writerows(
            [cell_text(value_at(record, path)) for path in fields]
            + [cell_text(found.get(n)) for n in names]
            for record, found in zip(records, measured, strict=True)
        )
        self._stream.flush()

    def _print_table(self, records: Sequence[Record], kind: RecordLayout) -> None:
        columns = kind.columns
        if self._fields:
            columns = tuple(
                Column(path, _cell_at(path), whole=True, exact=True) for path in self._fields
            )
        elif self.wide:
            columns += _wide_columns(kind)
        columns = tuple(
            column for column in columns if not column.optional or any(map(column.text, records))
        )
        if not records:
            self.print_text(kind.empty)
        elif self.terminal:
            self._print_rich_table(records, columns)
        else:
            rows = [[column.text(record) for column in columns] for record in records]
            self.print_text(aligned_text([[column.heading for column in columns], *rows]))

    def _print_rich_table(self, records: Sequence[Record], columns: Sequence[Column]) -> None:
        from rich.console import Console  # slow to load, needed on terminals only
        from rich.table import Table
        from rich.text import Text

        console = Console(file=self._stream, highlight=False, no_color=not is_colour_wanted())
        rows = [[column.text(record) for column in columns] for record in records]
        widths = column_widths(columns, rows, console.width)
        table = Table(box=None, header_style="bold", pad_edge=False)
        for number, width in widths.items():
            column = columns[number]
            table.add_column(column.heading, no_wrap=column.whole, overflow="fold", width=width)
        for row in rows:
            cells = (row[number] for number in widths)
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
        console.print(table)


_WHOLE = frozenset({"json", "yaml"})
"""The formats in which a list is one document."""


def _wide_columns(kind: RecordLayout) -> tuple[Column, ...]:
    """Return the additional columns of a wide table, but those that are empty in each row."""
    shown = {column.heading for column in kind.columns}
    return tuple(
        Column(path, _cell_at(path), whole=True, optional=True, exact=True)
        for path in kind.wide
        if path not in shown
    )


class JsonFilter:
    """A program of jq, which is applied to what would be printed."""

    def __init__(self, program: str, chosen: str | None) -> None:
        """Compile it.

        :raises click.UsageError: it is wrong, or the chosen format is not JSON.
        """
        import jq  # loads a library of C, and hardly any command needs it

        if chosen not in {None, "json", "jsonl"}:
            raise click.UsageError(f"--jq is for JSON; with it, -o {chosen} makes no sense")
        try:
            self._program = jq.compile(program)
        except ValueError as error:
            raise click.UsageError(f"--jq: {_first_line(error)}") from None

    def results(self, document: object) -> list[Any]:
        """Return the outputs of the jq program for a document.

        :raises click.UsageError: the program fails on this document.
        """
        try:
            return list(self._program.input_value(document))
        except ValueError as error:
            raise click.UsageError(f"--jq: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return printable_text(str(error).partition("\n")[0])


def leaves(record: Record, path: str = "") -> dict[str, object]:
    """Return the values of a document by their dotted paths, those of inner objects, too.

    >>> leaves({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    found: dict[str, object] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            found |= leaves(value, f"{path}{name}.")
        else:
            found[f"{path}{name}"] = value
    return found


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


def is_colour_wanted() -> bool:
    """Return whether colours may be used: NO_COLOR is unset, and the terminal is not ``dumb``."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def column_widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> dict[int, int | None]:
    """Return the widths of the columns of a table on a terminal, by their numbers.

    Cells are wrapped between words, the last ones first. Optional columns are left out if there is
    no room for them. The widths are None if words have to be broken nevertheless.
    """
    texts = [(column.heading, *(row[n] for row in rows)) for n, column in enumerate(columns)]
    natural = [max(map(len, each)) for each in texts]
    least = [
        natural[n] if column.whole else min(natural[n], max(_NARROWEST, *map(_longest, texts[n])))
        for n, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    spare = width - sum(least) - _GAP * (len(columns) - 1)
    for number in [n for n in reversed(kept) if columns[n].optional]:
        if spare >= 0:
            break
        kept.remove(number)
        spare += least[number] + _GAP
    if spare < 0:
        return dict.fromkeys(kept)
    widths: dict[int, int | None] = {}
    for number in kept:
        more = min(natural[number] - least[number], spare)
        widths[number] = least[number] + more
        spare -= more
    return widths


_GAP = 2
"""Number of blanks between two columns."""
_NARROWEST = 14
"""Least width of a column whose cells are wrapped, if they are as long."""
_LONGEST_WORD = 24
"""A longer word is broken where there is no room for it."""


def _longest(text: str) -> int:
    return min(_LONGEST_WORD, max(map(len, text.split()), default=0))


def _cell_at(path: str) -> Cell:
    return lambda record: cell_text(value_at(record, path))


def aligned_text(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Return rows of cells as lines, in columns two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(indent + line for line in lines)


def titled_lines(
    title: str,
    rows: Sequence[Sequence[str]],
    most: int | None = None,
    *,
    count: int = 0,
    rest: str = "-o json lists them",
) -> list[str]:
    """Return a title, the first ``most`` rows in columns, and how many there are besides.

    Nothing, if there are no rows. ``count`` is their number, if not all are given; ``rest`` says
    how to see the others.
    """
    shown = rows[:most]
    more = max(count, len(rows)) - len(shown)
    left = [f"  and {more} more; {rest}"] if more else []
    return [title, *aligned_text(shown, "  ").splitlines(), *left] if rows else []


def pairs_text(
    items: Iterable[tuple[str, object]], indent: str = "", *, exact: bool = False
) -> str:
    """Return lines of names and values in two columns; leave out names without a value.

    ``exact``: times stay as the API has them.
    """
    form = printable_text if exact else readable_text
    rows = [(name, form(cell_text(value))) for name, value in items if cell_text(value)]
    return aligned_text(rows, indent) if rows else ""
