"""The twins of the named queries: which function answers which text.

A statement is found by its text, because that is what a connection is given; two queries of the
same text mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from node.store.database import Queries

Answer = Sequence[tuple[Any, ...]]
Twin = Callable[..., Answer]
T = TypeVar("T", bound=Twin)

_CHANGES = re.compile(r"\b(INSERT|UPDATE|DELETE|FOR SHARE|pg_notify)\b")


class Record(tuple[Any, ...]):
    """A row of an answer: by place, by name of column, or as a mapping."""

    __slots__ = ()
    columns: ClassVar[dict[str, int]] = {}

    def __getitem__(self, key: Any) -> Any:
        """By place or by name."""
        return tuple.__getitem__(self, self.columns[key] if key.__class__ is str else key)

    def keys(self) -> Iterator[str]:
        """The names of the columns, in order."""
        return iter(self.columns)


@dataclass(frozen=True)
class Statement:
    """A named query and its twin. ``changes``: it writes, locks or notifies.

    ``before`` and ``after`` are the moments around it, made once: it is asked thousands of times.
    """

    name: str
    before: str
    after: str
    text: str
    twin: Twin
    columns: tuple[str, ...]
    changes: bool
    record: type[Record]


class Twins:
    """The twins of the queries of one ``.sql`` file."""

    def __init__(self, package: str, file: str) -> None:
        """Of ``sql/<file>.sql`` in that package of a store."""
        self.package = package
        self.file = file
        self.statements: dict[str, Statement] = {}
        self._queries = Queries(package, file)

    def of(self, *columns: str) -> Callable[[T], T]:
        """Make a function the twin of the query of its name, whose answer has these columns.

        :raises KeyError: there is no such query.
        """

        def made(twin: T) -> T:
            text = self._queries[twin.__name__]
            bare = re.sub(r"--.*", "", text)
            places = {column: place for place, column in enumerate(columns)}
            name = f"{self.file}.{twin.__name__}"
            self.statements[twin.__name__] = Statement(
                name=name,
                before=f"before {name}",
                after=f"after {name}",
                text=text,
                twin=twin,
                columns=columns,
                changes=_CHANGES.search(bare) is not None,
                record=type("Record", (Record,), {"__slots__": (), "columns": places}),
            )
            return twin

        return made
