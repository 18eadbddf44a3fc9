"""The journal of a transaction, and a table whose changes can be rolled back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Any, Generic, TypeVar

from lead.simulation.memory.rows import TableRow
from node.store.database import BrokenKey

K = TypeVar("K")
R = TypeVar("R", bound=TableRow)


class Journal:
    """The undo log of the open transaction and its pending notifications."""

    def __init__(self) -> None:
        """Create an empty journal."""
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._payloads: dict[str, None] = {}

    def write(self, undo: Callable[..., None], *args: Any) -> None:
        """Record how to undo a change."""
        self._undo.append((undo, args))

    def tell(self, payload: str) -> None:
        """Queue a notification for the commit; equal ones are sent once."""
        self._payloads[payload] = None

    def roll_back(self) -> None:
        """Undo all changes, the last first, and drop the notifications."""
        while self._undo:
            undo, args = self._undo.pop()
            undo(*args)
        self._payloads.clear()

    def commit(self) -> list[str]:
        """Keep the changes and return the notifications to send."""
        self._undo.clear()
        payloads = list(self._payloads)
        self._payloads.clear()
        return payloads


class Table(Generic[K, R]):
    """Rows by primary key. Subclasses maintain indexes in :meth:`_enter` and :meth:`_leave`."""

    def __init__(self, journal: Journal) -> None:
        """Create an empty table."""
        self.rows: dict[K, R] = {}
        self._journal = journal
        self._numbers = count(1)

    @abstractmethod
    def key(self, row: R) -> K:
        """Return the primary key of a row."""

    def insert(self, row: R) -> None:
        """Insert a row.

        :raises BrokenKey: the key exists already.
        """
        if self.key(row) in self.rows:
            msg = f"{type(row).__name__.lower()} {self.key(row)} exists already"
            raise BrokenKey(msg)
        self._check(row)
        self._add(row)

    def _add(self, row: R) -> None:
        row.number = next(self._numbers)
        self._put(row)
        self._journal.write(self._take, row)

    def delete(self, row: R) -> None:
        """Delete a row."""
        self._take(row)
        self._journal.write(self._put, row)

    def change(self, row: R, **changes: Any) -> None:
        """Give columns new values."""
        previous = {column: getattr(row, column) for column in changes}
        self._leave(row)
        _set(row, changes)
        try:
            self._check(row)
        except BaseException:
            _set(row, previous)
            self._enter(row)
            raise
        self._enter(row)
        self._journal.write(self._change_back, row, previous)

    def _change_back(self, row: R, previous: dict[str, Any]) -> None:
        self._leave(row)
        _set(row, previous)
        self._enter(row)

    def _put(self, row: R) -> None:
        self.rows[self.key(row)] = row
        self._enter(row)

    def _take(self, row: R) -> None:
        del self.rows[self.key(row)]
        self._leave(row)

    def _check(self, row: R) -> None:
        """Raise the database's error if the row breaks a constraint."""

    def _enter(self, row: R) -> None:
        """Add a row with its current values to the indexes."""

    def _leave(self, row: R) -> None:
        """Remove a row from the indexes before a value changes or the row is deleted."""


def _set(row: TableRow, values: dict[str, Any]) -> None:
    for column, value in values.items():
        setattr(row, column, value)
