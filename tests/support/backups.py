"""Backups of the databases of a world's nodes: copies that a node may be given back."""

from __future__ import annotations

from itertools import count

import asyncpg

from node.store.database import PostgresDatabase
from node.store.queries import Queries
from tests.support.databases import copy_database
from tests.support.worlds import Site, World

_NUMBERS = count(1)


async def back_up(site: Site) -> str:
    """Copy a node's database; return the name of the copy."""
    database = _database(site)
    await database.close()
    copy = f"backup_{next(_NUMBERS)}"
    await copy_database(database._dsn, copy, _name(database))
    await database.open()
    return copy


async def restore(world: World, site: Site, backup: str) -> None:
    """Put a backup in the place of a node's database, and start the node anew."""
    database = _database(site)
    await database.close()
    name = _name(database)
    await _execute(database, f'DROP DATABASE "{name}"')
    await _execute(database, f'ALTER DATABASE "{backup}" RENAME TO "{name}"')
    await database.open()
    await world.restart(site)


async def put_back(world: World, site: Site, backup: str) -> None:
    """Put a backup in the place of a node's database as a snapshot of its file system does.

    Unlike after :func:`restore`, nothing in the data tells that they are older than they were.
    """
    database = _database(site)
    connection = await asyncpg.connect(database._dsn, database=backup)
    place = await connection.fetchval(Queries("node.store", "setup")["place"])
    await connection.execute("UPDATE generation SET place = $1", place)
    await connection.close()
    database.marked_at = None  # as in a new process
    await restore(world, site, backup)


def _database(site: Site) -> PostgresDatabase:
    assert isinstance(site.database, PostgresDatabase)
    return site.database


def _name(database: PostgresDatabase) -> str:
    return database._dsn.removeprefix("postgresql:///").partition("?")[0]


async def _execute(database: PostgresDatabase, statement: str) -> None:
    connection = await asyncpg.connect(database._dsn, database="postgres")
    await connection.execute(statement)
    await connection.close()
