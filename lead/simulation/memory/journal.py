"""What a transaction has done so far, and a table whose changes can be taken back."""

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
    """How to take back what the open transaction has done, and what it wants to tell."""

    def __init__(self) -> None:
        """Nothing has been done."""
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._told: dict[str, None] = {}

    def write(self, undo: Callable[..., None], *args: Any) -> None:
        """Something was done; this takes it back."""
        self._undo.append((undo, args))

    def tell(self, payload: str) -> None:
        """A notification, sent if the transaction commits; the same twice is sent once."""
        self._told[payload] = None

    def roll_back(self) -> None:
        """As if nothing had been done."""
        while self._undo:
            undo, args = self._undo.pop()
            undo(*args)
        self._told.clear()

    def commit(self) -> list[str]:
        """It is done for good; what is to be told."""
        self._undo.clear()
        told = list(self._told)
        self._told.clear()
        return told


class Table(Generic[K, R]):
    """Rows by primary key. Tables with indexes keep them in :meth:`_enter` and :meth:`_leave`."""

    def __init__(self, journal: Journal) -> None:
        """Empty."""
        self.rows: dict[K, R] = {}
        self._journal = journal
        self._numbers = count(1)

    @abstractmethod
    def key(self, row: R) -> K:
        """The primary key."""

    def insert(self, row: R) -> None:
        """A new row.

        :raises BrokenKey: there is one with this key.
        """
        if self.key(row) in self.rows:
            msg = f"{type(row).__name__.lower()} {self.key(row)} is there already"
            raise BrokenKey(msg)
        self._check(row)
        self._add(row)

    def _add(self, row: R) -> None:
        row.number = next(self._numbers)
        self._put(row)
        self._journal.write(self._take, row)

    def delete(self, row: R) -> None:
        """Away with it."""
        self._take(row)
        self._journal.write(self._put, row)

    def change(self, row: R, **changes: Any) -> None:
        """Give columns new values."""
        before = {column: getattr(row, column) for column in changes}
        self._leave(row)
        _set(row, changes)
        try:
            self._check(row)
        except BaseException:
            _set(row, before)
            self._enter(row)
            raise
        self._enter(row)
        self._journal.write(self._change_back, row, before)

    def _change_back(self, row: R, before: dict[str, Any]) -> None:
        self._leave(row)
        _set(row, before)
        self._enter(row)

    def _put(self, row: R) -> None:
        self.rows[self.key(row)] = row
        self._enter(row)

    def _take(self, row: R) -> None:
        del self.rows[self.key(row)]
        self._leave(row)

    def _check(self, row: R) -> None:
        """Raise what the database would, if the row breaks a constraint."""

    def _enter(self, row: R) -> None:
        """The row is in the table, with these values: into the indexes."""

    def _leave(self, row: R) -> None:
        """Out of the indexes, before a value changes or the row goes."""


def _set(row: TableRow, values: dict[str, Any]) -> None:
    for column, value in values.items():
        setattr(row, column, value)
