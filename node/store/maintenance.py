"""A database as a whole: what is in it, room for what a backup has, and repairs.

It is repaired if its indexes are damaged, or its transaction ids are used up. First it is vacuumed,
because an index cannot be made without a transaction id; that reads no index. Then all indexes are
made anew. What is damaged in a table itself only a backup has.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg

from node.model.errors import DatabaseUnavailable
from node.store.faults import FAULTS, fault_of
from node.store.migrating import connection_to
from node.store.queries import Queries

_SQL = Queries("node.store", "setup")


@dataclass(frozen=True)
class Repaired:
    """The databases of a server that were vacuumed, and the tables that have new indexes."""

    vacuumed: tuple[str, ...]
    indexed: tuple[str, ...]


async def repair(dsn: str) -> Repaired:
    """Vacuum all databases of the server that let us, and make all indexes of this one anew.

    Nobody else may use the database meanwhile.

    :raises DatabaseUnavailable: this database could not be repaired, and why.
    """
    async with _connection_with_stated_errors(dsn) as connection:
        own, *others = [row[0] for row in await connection.fetch(_SQL["databases"])]
    async with _connection_with_stated_errors(dsn) as connection:
        await connection.execute(_SQL["vacuum"])
    vacuumed = [own]
    for name in others:
        with contextlib.suppress(DatabaseUnavailable):  # this role may not enter all of them
            async with _connection_with_stated_errors(dsn, name) as connection:
                await connection.execute(_SQL["vacuum"])
                vacuumed.append(name)
    async with _connection_with_stated_errors(dsn) as connection:
        tables = [row[0] for row in await connection.fetch(_SQL["own_tables"])]
        for table in tables:
            await connection.execute(f"REINDEX TABLE {table}")
        for (statement,) in await connection.fetch(_SQL["sorted_as_today"]):
            with contextlib.suppress(asyncpg.InsufficientPrivilegeError):  # its owner may do it
                await connection.execute(statement)
    return Repaired(tuple(vacuumed), tuple(tables))


@contextlib.asynccontextmanager
async def _connection_with_stated_errors(
    dsn: str, database: str | None = None
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Connect; the errors of the server are stated as they are to users of the node."""
    try:
        async with connection_to(dsn, database) as connection:
            yield connection
    except FAULTS as error:
        if (fault := fault_of(error, 0)) is None:
            raise
        raise fault from error


@dataclass(frozen=True)
class DatabaseContents:
    """The contents of a database, and the connections that services of a node have to it."""

    tables: bool
    connections: int


async def server_major(dsn: str) -> int:
    """Return the major version of a server."""
    async with connection_to(dsn) as connection:
        return connection.get_server_version().major


async def contents(dsn: str) -> DatabaseContents:
    """Return whether a database has tables, and how many connections services have to it."""
    async with connection_to(dsn) as connection:
        [(tables, connections)] = await connection.fetch(_SQL["contents"])
        return DatabaseContents(tables, connections)


async def clear(dsn: str) -> None:
    """Remove everything from a database."""
    async with connection_to(dsn) as connection, connection.transaction():
        await connection.execute(_SQL["drop_all"])
        await connection.execute(_SQL["make_schema"])
        await connection.execute(_SQL["open_schema"])


async def begin_generation_at_next_start(dsn: str) -> None:
    """Have the next start of a node make a new generation, as after a restore."""
    async with connection_to(dsn) as connection:
        await connection.execute(_SQL["reclaim"])


async def note_placed_by_owner(dsn: str) -> None:
    """Note that the owner has put the data here, so that no other host is asked for its leave."""
    async with connection_to(dsn) as connection:
        with contextlib.suppress(asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError):
            await connection.execute(_SQL["given_here"])


async def ensure_reader(dsn: str) -> bool:
    """Return whether the server has the role that reads views; it is made if that is allowed."""
    async with connection_to(dsn) as connection:
        with contextlib.suppress(asyncpg.DuplicateObjectError, asyncpg.InsufficientPrivilegeError):
            await connection.execute(_SQL["make_reader"])
        return bool(await connection.fetchval(_SQL["has_reader"]))
