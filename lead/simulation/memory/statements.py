"""The twins of the named queries: the mapping from the text of a query to its function.

A statement is looked up by its text, because that is all a connection is given; queries of equal
text are equivalent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from node.store.queries import Queries

Answer = Sequence[tuple[Any, ...]]
Twin = Callable[..., Answer]
T = TypeVar("T", bound=Twin)

_CHANGES = re.compile(r"\b(INSERT|UPDATE|DELETE|FOR SHARE|pg_notify)\b")


class Record(tuple[Any, ...]):
    """A row of an answer: a tuple with access by column name, and a mapping."""

    __slots__ = ()
    columns: ClassVar[dict[str, int]] = {}

    def __getitem__(self, key: Any) -> Any:
        """Return a column by position or by name."""
        return tuple.__getitem__(self, self.columns[key] if key.__class__ is str else key)

    def keys(self) -> Iterator[str]:
        """Return the names of the columns in order."""
        return iter(self.columns)


@dataclass(frozen=True)
class Statement:
    """A named query and its twin; ``changes`` if it writes, locks or notifies.

    ``before`` and ``after`` are the names of the moments around it, built once for performance.
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
        """Create the registry for ``sql/<file>.sql`` in a package of a store."""
        self.package = package
        self.file = file
        self.statements: dict[str, Statement] = {}
        self._queries = Queries(package, file)

    def of(self, *columns: str) -> Callable[[T], T]:
        """Register a function as the twin of the query of its name, with these answer columns.

        :raises KeyError: there is no query of that name.
        """

        def register(twin: T) -> T:
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

        return register
