"""A table of results in a Postgres that is not Parley's own, for the archiver ``postgresql``."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import asyncpg

from node.model.errors import ArchiverFailed
from node.store.queries import Queries

_SQL = Queries("node.store.results", "results")

_UNFIT = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
)
"""Errors caused by a row itself, which a retry cannot fix."""

Tls = Literal["disable", "prefer", "require", "verify-full"]


@dataclass(frozen=True)
class ResultRow:
    """A row of the table; ``at`` is in microseconds."""

    at: int
    key: str
    series: str
    succeeded: bool
    document: str


@dataclass(frozen=True)
class Address:
    """A database, its user, and the table's schema; ``seconds`` is the limit of each statement."""

    host: str
    port: int
    database: str
    user: str
    password: str | None
    tls: Tls
    schema: str
    create: bool
    seconds: float
    foreign: tuple[str, str] | None = None
    """A table of somebody else's, and its column for documents, instead of parley_result."""


class ResultTable:
    """The table of results, with one connection that is kept open."""

    def __init__(self, address: Address) -> None:
        """Connect to ``address`` when a method is called first."""
        self._address = address
        self._open: asyncpg.Connection[asyncpg.Record] | None = None

    async def insert(self, rows: Sequence[ResultRow]) -> str | None:
        """Add the rows that are not there yet, all or none.

        Return the reason if one of the rows cannot be added.

        :raises ArchiverFailed: the database cannot do it now, whatever the rows.
        """
        columns = (
            [row.at for row in rows],
            [row.key for row in rows],
            [row.series for row in rows],
            [row.succeeded for row in rows],
            [row.document for row in rows],
        )
        try:
            connection = await self._open_connection()
            if self._address.foreign is None:
                await connection.execute(_SQL["insert"], *columns)
            else:
                table, column = self._address.foreign
                await connection.copy_records_to_table(
                    table, columns=[column], records=[(row.document,) for row in rows]
                )
        except _UNFIT as error:
            return _error_sentence(error)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            self.close()
            raise ArchiverFailed(_error_sentence(error)) from error
        except BaseException:
            self.close()  # a statement may still be running
            raise
        return None

    async def test(self) -> None:
        """Connect, create the table if there is none, and check the permission to insert.

        :raises ArchiverFailed: one of these fails.
        """
        try:
            connection = await self._open_connection()
            allowed = await connection.fetchval(_SQL["may_insert"], self._table)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            self.close()
            raise ArchiverFailed(_error_sentence(error)) from error
        if not allowed:
            msg = f"{self._address.user} may not insert into {self._name}"
            raise ArchiverFailed(msg)

    @property
    def _name(self) -> str:
        return "parley_result" if self._address.foreign is None else self._address.foreign[0]

    @property
    def _table(self) -> str:
        """The name of the table, in quotes."""
        doubled = self._name.replace('"', '""')
        return f'"{doubled}"'

    async def _open_connection(self) -> asyncpg.Connection[asyncpg.Record]:
        if self._open is None or self._open.is_closed():
            self._open = await self._connect()
            await self._create_table(self._open)
        return self._open

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        address = self._address
        verified = address.tls == "verify-full"
        return await asyncpg.connect(
            host=address.host,
            port=address.port,
            database=address.database,
            user=address.user,
            password=address.password or "",  # not that of PGPASSWORD
            ssl=await asyncio.to_thread(ssl.create_default_context) if verified else address.tls,
            timeout=address.seconds,
            command_timeout=address.seconds,
            server_settings={"search_path": address.schema, "application_name": "parley"},
        )

    async def _create_table(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Create table, index, and view if there is no table and the address allows it."""
        if await connection.fetchval(_SQL["find"], self._table):
            return
        if self._address.foreign is not None or not self._address.create:
            msg = f"there is no table {self._name} in schema {self._address.schema}"
            raise asyncpg.UndefinedTableError(msg)
        async with connection.transaction():
            await connection.execute(_SQL["lock"])
            if not await connection.fetchval(_SQL["find"], self._table):
                await connection.execute(_SQL["table"])
                await connection.execute(_SQL["index"])
                await connection.execute(_SQL["figures"])

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._open = self._open, None
        if connection is not None and not connection.is_closed():
            connection.terminate()


def _error_sentence(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "did not answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"  # asyncio would name the system call instead
    return str(error) or type(error).__name__
