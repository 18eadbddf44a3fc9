"""Setting up an empty database, and migrating one with an earlier schema.

All of it is one transaction, under a lock that one process of a node has at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import asyncpg

from node.model.errors import DatabaseInUse, DatabaseUnavailable, SchemaMismatch
from node.store import schema
from node.store.queries import PostgresConnection, Queries

_SQL = Queries("node.store", "setup")
_SETUP_LOCK = 8642
_STEP_S = 86_400.0
"""Longest time of a step, which may write each row of a large table anew."""


@dataclass(frozen=True)
class Standing:
    """The version of a database's schema, and the steps that this program would do."""

    version: int
    missing: tuple[schema.Migration, ...]


async def set_up(connection: PostgresConnection, *, migrate: bool) -> tuple[schema.Migration, ...]:
    """Create the schema in an empty database; in any other, see that this program can use it.

    Returns the steps that were done.

    :raises SchemaMismatch: it cannot, or only after steps that it may not do.
    :raises DatabaseInUse: programs that could not use it afterwards are in the way of a step.
    """
    await connection.execute(_SQL["lock_set_up"], _SETUP_LOCK, timeout=_STEP_S)
    if not await connection.fetchval(_SQL["has_version"]):
        if await connection.fetchval(_SQL["count_tables"]):
            msg = (
                "the database is not empty and is not Parley's; create one for Parley: "
                "createdb -O parley parley"
            )
            raise SchemaMismatch(msg)
        await connection.execute(schema.schema_text())
        await _keep_version(connection, schema.migrations()[-1], None)
    missing = schema.missing_steps(await _applied_versions(connection))
    if missing and not migrate:
        number = "a step is" if len(missing) == 1 else f"{len(missing)} steps are"
        msg = (
            f"the database has schema version {missing[0].version - 1}, and this program's is "
            f"{missing[-1].version}: {number} missing; show and do what is missing with parley "
            "admin migrate, or set PARLEY_MIGRATE=1, which does it at each start"
        )
        raise SchemaMismatch(msg)
    await _apply_steps(connection, missing)
    return missing


async def find_standing(dsn: str) -> Standing:
    """Return the schema version of a database, and the steps that this program would do.

    :raises DatabaseUnavailable: there is no connection.
    :raises SchemaMismatch: this program can neither use nor migrate it.
    """
    async with connection_to(dsn) as connection:
        if not await connection.fetchval(_SQL["has_version"]):
            msg = "the database has no schema yet; start the node, which sets it up"
            raise SchemaMismatch(msg)
        versions = await _applied_versions(connection)
        missing = schema.missing_steps(versions)
        return Standing(versions[-1].version, missing)


async def migrate(dsn: str) -> None:
    """Do what is missing in a database.

    :raises DatabaseUnavailable: there is no connection.
    :raises SchemaMismatch: this program can neither use nor migrate it.
    :raises DatabaseInUse: programs that could not use it afterwards are in the way.
    """
    async with connection_to(dsn) as connection, connection.transaction():
        await set_up(connection, migrate=True)


@contextlib.asynccontextmanager
async def connection_to(
    dsn: str, database: str | None = None
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Connect to a database, whatever its schema: that of the DSN, or another of its server.

    :raises DatabaseUnavailable: there is no connection.
    """
    try:
        connection = await asyncpg.connect(
            dsn, database=database, server_settings=schema.connection_settings()
        )
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        place = schema.place_of(dsn)
        msg = f"no connection to Postgres at {place}: {error}; check --dsn or PARLEY_DSN"
        raise DatabaseUnavailable(msg) from error
    try:
        yield connection
    finally:
        await connection.close()


async def _applied_versions(connection: PostgresConnection) -> list[schema.AppliedVersion]:
    rows = await connection.fetch(_SQL["versions"])
    return [schema.AppliedVersion(*row) for row in rows]


async def _apply_steps(connection: PostgresConnection, missing: Sequence[schema.Migration]) -> None:
    """Apply migrations while no program that could not use the result is connected."""
    if missing:
        oldest = max(step.oldest_program for step in missing)
        others = await connection.fetchval(_SQL["count_earlier"], oldest)
        if others:
            msg = (
                f"programs that cannot use the new schema have {others} "
                f"connection{'s' * (others > 1)} to the database; stop parley-node and "
                "parley-lead, and try again"
            )
            raise DatabaseInUse(msg)
    for step in missing:
        await connection.execute(_SQL["wait_briefly"])
        try:
            await connection.execute(step.text, timeout=_STEP_S)
        except asyncpg.LockNotAvailableError as error:
            msg = (
                f"step {step.version} waited in vain for a table that others use, so nothing was "
                "changed; try again, or stop parley-node and parley-lead meanwhile"
            )
            raise DatabaseInUse(msg) from error
        await _keep_version(connection, step, step.digest)


async def _keep_version(
    connection: PostgresConnection, step: schema.Migration, migration: str | None
) -> None:
    await connection.execute(
        _SQL["keep_version"],
        step.version,
        schema.digest_of_schema(),
        migration,
        step.oldest_program,
    )
