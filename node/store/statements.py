"""Functions of the stores that only execute one named query: they are declared, not written.

``known: Query[[str, int], list[Node]] = _SQL.rows("known_nodes", Node)`` makes ``known`` an async
function. It takes a connection and then what the brackets say, in the order of ``$1``, ``$2``, … in
the text of ``known_nodes``, and returns what follows them. mypy holds callers to that type, and a
test compares it with what Postgres says of the query. A misspelt name fails when the module is
imported.

What decides, executes two queries, or takes values apart is written as a function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from node.store.database import Connection, Record
from node.store.queries import Queries

P = ParamSpec("P")
T = TypeVar("T")

Query: TypeAlias = Callable[Concatenate[Connection, P], Coroutine[Any, Any, T]]
"""A function that executes one query: what it takes after the connection, and what it returns."""
Purge: TypeAlias = Query[[int, int], int]
"""Deletes what is before an instant, or beyond a number, at most so many; returns how many."""
_Declared: TypeAlias = Callable[..., Coroutine[Any, Any, T]]


class Statements(Queries):
    """The named queries of one ``.sql`` file, and the functions that each execute one of them.

    ``make`` gets the columns of a row as its arguments. By default a row stays as it is.
    """

    def command(self, name: str) -> _Declared[None]:
        """A function that returns nothing."""
        return partial(_execute, self[name])

    def value(self, name: str) -> _Declared[Any]:
        """A function that returns the first column of the first row; None if there is none."""
        return partial(_value, self[name])

    def finds(self, name: str) -> _Declared[bool]:
        """A function that returns whether there is a row; its first column is never null."""
        return partial(_finds, self[name])

    def column(self, name: str) -> _Declared[list[Any]]:
        """A function that returns the first column of all rows."""
        return partial(_column, self[name])

    def distinct(self, name: str) -> _Declared[set[Any]]:
        """A function that returns the different values in the first column."""
        return partial(_distinct, self[name])

    def by_key(self, name: str) -> _Declared[dict[Any, Any]]:
        """A function that returns the second column by the first one."""
        return partial(_by_key, self[name])

    def records(self, name: str) -> _Declared[list[Record]]:
        """A function that returns all rows as they are."""
        return partial(_records, self[name])

    def record(self, name: str) -> _Declared[Record | None]:
        """A function that returns the first row as it is; None if there is none."""
        return partial(_record, self[name])

    def rows(self, name: str, make: Callable[..., T]) -> _Declared[list[T]]:
        """A function that returns what ``make`` makes of each row."""
        return partial(_rows, self[name], make)

    def rows_by_key(self, name: str, make: Callable[..., T]) -> _Declared[dict[Any, T]]:
        """A function that returns by first column what ``make`` makes of the other ones."""
        return partial(_rows_by_key, self[name], make)

    def lists_by_key(self, name: str, make: Callable[..., T]) -> _Declared[dict[Any, list[T]]]:
        """A function that returns by first column all that ``make`` makes of the other ones."""
        return partial(_lists_by_key, self[name], make)

    def row(self, name: str, make: Callable[..., T]) -> _Declared[T | None]:
        """A function that returns what ``make`` makes of the first row; None if there is none."""
        return partial(_row, self[name], make)

    def only_row(self, name: str, make: Callable[..., T]) -> _Declared[T]:
        """A function that returns what ``make`` makes of the row that there always is."""
        return partial(_only_row, self[name], make)


def spread(function: _Declared[T]) -> _Declared[T]:
    """Return a function that takes some arguments in one value.

    A value of a dataclass is given to the query as its fields, in their order, and a mapping as two
    columns: its keys and its values.
    """
    return partial(_spread, function)


def as_tuple(*columns: Any) -> Any:
    """Return the columns of a row as a tuple."""
    return columns


def columns_of(kind: type[Any], values: Collection[Any]) -> list[list[Any]]:
    """Return the fields of values of a dataclass as columns, in the order of the fields."""
    return [[getattr(value, field.name) for value in values] for field in fields(kind)]


def _spread(
    function: _Declared[T], connection: Connection, *arguments: Any
) -> Coroutine[Any, Any, T]:
    given: list[Any] = []
    for argument in arguments:
        if is_dataclass(argument):
            given += (getattr(argument, field.name) for field in fields(argument))
        elif isinstance(argument, Mapping):
            given += list(argument), list(argument.values())
        else:
            given.append(argument)
    return function(connection, *given)


async def _execute(query: str, connection: Connection, *arguments: object) -> None:
    await connection.execute(query, *arguments)


async def _value(query: str, connection: Connection, *arguments: object) -> Any:
    return await connection.fetchval(query, *arguments)


async def _finds(query: str, connection: Connection, *arguments: object) -> bool:
    return await connection.fetchval(query, *arguments) is not None


async def _column(query: str, connection: Connection, *arguments: object) -> list[Any]:
    return [row[0] for row in await connection.fetch(query, *arguments)]


async def _distinct(query: str, connection: Connection, *arguments: object) -> set[Any]:
    return {row[0] for row in await connection.fetch(query, *arguments)}


async def _by_key(query: str, connection: Connection, *arguments: object) -> dict[Any, Any]:
    return {row[0]: row[1] for row in await connection.fetch(query, *arguments)}


async def _records(query: str, connection: Connection, *arguments: object) -> list[Record]:
    return await connection.fetch(query, *arguments)


async def _record(query: str, connection: Connection, *arguments: object) -> Record | None:
    return await connection.fetchrow(query, *arguments)


async def _rows(
    query: str, make: Callable[..., T], connection: Connection, *arguments: object
) -> list[T]:
    return [make(*row) for row in await connection.fetch(query, *arguments)]


async def _rows_by_key(
    query: str, make: Callable[..., T], connection: Connection, *arguments: object
) -> dict[Any, T]:
    rows = await connection.fetch(query, *arguments)
    return {row[0]: make(*row[1:]) for row in rows}


async def _lists_by_key(
    query: str, make: Callable[..., T], connection: Connection, *arguments: object
) -> dict[Any, list[T]]:
    found: dict[Any, list[T]] = {}
    for key, *rest in await connection.fetch(query, *arguments):
        found.setdefault(key, []).append(make(*rest))
    return found


async def _row(
    query: str, make: Callable[..., T], connection: Connection, *arguments: object
) -> T | None:
    row = await connection.fetchrow(query, *arguments)
    return None if row is None else make(*row)


async def _only_row(
    query: str, make: Callable[..., T], connection: Connection, *arguments: object
) -> T:
    [row] = await connection.fetch(query, *arguments)
    return make(*row)
