"""A database as a whole: what is in it, and making room for what a backup has."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import asyncpg

from node.store.migrating import connected
from node.store.queries import Queries

_SQL = Queries("node.store", "setup")


@dataclass(frozen=True)
class DatabaseContents:
    """The contents of a database, and the connections that services of a node have to it."""

    tables: bool
    connections: int


async def server_major(dsn: str) -> int:
    """Return the major version of a server."""
    async with connected(dsn) as connection:
        return connection.get_server_version().major


async def contents(dsn: str) -> DatabaseContents:
    """Return whether a database has tables, and how many connections services have to it."""
    async with connected(dsn) as connection:
        [(tables, connections)] = await connection.fetch(_SQL["contents"])
        return DatabaseContents(tables, connections)


async def clear(dsn: str) -> None:
    """Remove everything from a database."""
    async with connected(dsn) as connection, connection.transaction():
        await connection.execute(_SQL["drop_all"])
        await connection.execute(_SQL["make_schema"])
        await connection.execute(_SQL["open_schema"])


async def begin_generation_at_next_start(dsn: str) -> None:
    """Have the next start of a node make a new generation, as after a restore."""
    async with connected(dsn) as connection:
        await connection.execute(_SQL["reclaim"])


async def note_placed_by_owner(dsn: str) -> None:
    """Note that the owner has put the data here, so that no other host is asked for its leave."""
    async with connected(dsn) as connection:
        with contextlib.suppress(asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError):
            await connection.execute(_SQL["given_here"])


async def ensure_reader(dsn: str) -> bool:
    """Return whether the server has the role that reads views; it is made if that is allowed."""
    async with connected(dsn) as connection:
        with contextlib.suppress(asyncpg.DuplicateObjectError, asyncpg.InsufficientPrivilegeError):
            await connection.execute(_SQL["make_reader"])
        return bool(await connection.fetchval(_SQL["has_reader"]))
