"""The database: what its users see of it, and Postgres: pool, codecs, schema, notifications.

The port is the named query: whoever executes them all, and tells what was notified, is a
:class:`Database`. Instants travel as ``int`` microseconds and durations as ``int`` microseconds:
Postgres' binary format of ``timestamptz`` and ``interval`` is just that, so that no datetime is
made on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import asyncpg
import orjson
import structlog

from node.clock import Clock
from node.model import times
from node.model.errors import DatabaseUnavailable, SchemaMismatch

SCHEMA_VERSION = 3
CHANNEL = "parley"
POSTGRES_EPOCH = times.EARLIEST  # 2000-01-01 for Postgres too
_SETUP_LOCK = 8642
_MONTH_DAYS = 30
_ATTEMPTS = 6

T = TypeVar("T")

log = structlog.get_logger()

Record: TypeAlias = asyncpg.Record

PostgresConnection: TypeAlias = (
    "asyncpg.pool.PoolConnectionProxy[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]"
)


class Connection(Protocol):
    """What the stores ask of a connection: one statement, given as the text of a named query."""

    async def fetch(self, query: str, *args: Any) -> list[Record]:
        """All rows."""
        ...

    async def fetchrow(self, query: str, *args: Any) -> Record | None:
        """The first row; None if there is none."""
        ...

    async def fetchval(self, query: str, *args: Any) -> Any:
        """The first column of the first row; None if there is none."""
        ...

    async def execute(self, query: str, *args: Any) -> object:
        """Nothing is wanted of what it says."""
        ...


_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # being shut down, or not up yet
    asyncpg.InsufficientResourcesError,  # disk full, too many connections
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,  # after a fail-over: still the old one
)
"""The server cannot do it now and may well do it later."""

RETRYABLE_DATABASE_ERRORS = (
    asyncpg.DeadlockDetectedError,
    asyncpg.ExclusionViolationError,
    asyncpg.SerializationError,
)
"""A transaction lost against a concurrent one; the same transaction may well succeed now."""

BrokenOverlap: TypeAlias = asyncpg.ExclusionViolationError
BrokenKey: TypeAlias = asyncpg.UniqueViolationError
BrokenReference: TypeAlias = asyncpg.ForeignKeyViolationError
BrokenCheck: TypeAlias = asyncpg.CheckViolationError
"""What a statement raises that breaks a constraint, for other databases than Postgres."""


class Queries(dict[str, str]):
    """The named queries of one ``.sql`` file: ``queries["fetch_run"]`` is the text of one."""

    def __init__(self, package: str, name: str) -> None:
        """Read ``sql/<name>.sql`` of a store package."""
        text = resources.files(package).joinpath("sql", f"{name}.sql").read_text("utf-8")
        super().__init__(parse_queries(text))


def parse_queries(text: str) -> dict[str, str]:
    """Split at lines ``-- name --``; the comment lines behind a name stay with its query."""
    parts = re.split(r"^-- (\w+) --$", text, flags=re.MULTILINE)
    names, bodies = parts[1::2], parts[2::2]
    if len(set(names)) != len(names):
        msg = "two queries of one file have the same name"
        raise ValueError(msg)
    return {name: body.strip() for name, body in zip(names, bodies, strict=True)}


class Notice(NamedTuple):
    """One notification: what kind of thing changed, which one, and a few words more."""

    kind: str
    id: str
    words: tuple[str, ...]


def parse_notice(payload: str) -> Notice:
    """``run <id> <task> <state>`` as a :class:`Notice`."""
    kind, identifier, *words = (payload + " ").split(" ")
    return Notice(kind, identifier, tuple(filter(None, words)))


class Database(ABC):
    """The database of one node, as the services use it."""

    @abstractmethod
    async def open(self) -> None:
        """Make ready; raises :class:`DatabaseUnavailable` or :class:`SchemaMismatch`."""

    @abstractmethod
    async def close(self) -> None:
        """Give everything back."""

    @abstractmethod
    def connection(self) -> contextlib.AbstractAsyncContextManager[Connection]:
        """Each statement is a transaction of its own."""

    @abstractmethod
    def transaction(self) -> contextlib.AbstractAsyncContextManager[Connection]:
        """One transaction: all of it or nothing."""

    @abstractmethod
    async def listen(self, heard: Callable[[Notice], None], clock: Clock) -> None:
        """Hear notifications until cancelled.

        ``deaf`` tells that none is heard for now, ``wake`` that some may have been lost.
        """

    async def settle(self, action: Callable[[Connection], Awaitable[T]]) -> T:
        """One transaction, repeated if it lost against a concurrent one."""
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(*RETRYABLE_DATABASE_ERRORS):
                async with self.transaction() as connection:
                    return await action(connection)
        async with self.transaction() as connection:
            return await action(connection)


class PostgresDatabase(Database):
    """A pool of connections to this node's Postgres."""

    def __init__(self, dsn: str, *, size: int = 10) -> None:
        """Remember where; :meth:`open` connects."""
        self._dsn = dsn
        self._size = size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Connect, and set up an empty database; refuse one of another version."""
        try:
            self._pool = await asyncpg.create_pool(
                self._dsn,
                min_size=1,
                max_size=self._size,
                init=_prepare,
                reset=_nothing_to_reset,
                command_timeout=60,
            )
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
            msg = (
                f"no connection to Postgres: {error}; check --dsn or PARLEY_DSN, "
                "or leave both out for a private cluster"
            )
            raise DatabaseUnavailable(msg) from error
        try:
            async with self.transaction() as connection:
                await _set_up(connection)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Give back all connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pool.close(), 5)
            pool.terminate()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[PostgresConnection]:
        """One connection of the pool; what it cannot do becomes :class:`DatabaseUnavailable`."""
        pool = self._pool
        if pool is None:
            msg = "the database is not open"
            raise DatabaseUnavailable(msg)
        try:
            connection = await pool.acquire(timeout=20)
            try:
                yield connection
            finally:
                # One that breaks just as it is given back was taken back by the pool already,
                # which then takes that for a fault of its own; what was done with it is done.
                with contextlib.suppress(asyncpg.InternalClientError):
                    await pool.release(connection)
        except _AWAY as error:
            msg = f"the database does not answer: {str(error) or type(error).__name__}"
            raise DatabaseUnavailable(msg) from error

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresConnection]:
        """One transaction: all of it or nothing."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def listen(self, heard: Callable[[Notice], None], clock: Clock) -> None:
        """Hear notifications until cancelled; connects again by itself.

        After each new connection a ``wake`` notice tells that others may have been lost, and
        ``deaf`` that the connection was.
        """
        pause = 0.5
        while True:
            try:
                await self._listen_once(heard)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("notifications interrupted", error=str(error))
            await clock.sleep(pause)

    async def _listen_once(self, heard: Callable[[Notice], None]) -> None:
        connection = await asyncpg.connect(self._dsn)
        closed = asyncio.Event()
        connection.add_termination_listener(lambda *_: closed.set())
        try:
            await connection.add_listener(
                CHANNEL, lambda _c, _pid, _channel, payload: heard(parse_notice(str(payload)))
            )
            heard(Notice("wake", "", ()))
            await closed.wait()
        finally:
            heard(Notice("deaf", "", ()))
            connection.terminate()


async def _nothing_to_reset(_: PostgresConnection) -> None:
    """Nobody sets anything on a connection of the pool: a round trip after each use is saved."""


async def _prepare(connection: PostgresConnection) -> None:
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        encoder=lambda instant: (instant - POSTGRES_EPOCH,),
        decoder=lambda value: value[0] + POSTGRES_EPOCH,
        format="tuple",
    )
    await connection.set_type_codec(
        "interval",
        schema="pg_catalog",
        encoder=lambda duration: (0, 0, duration),
        decoder=lambda value: (value[0] * _MONTH_DAYS + value[1]) * times.DAY + value[2],
        format="tuple",
    )
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        encoder=lambda value: b"\x01" + orjson.dumps(value),
        decoder=lambda data: orjson.loads(data[1:]),
        format="binary",
    )


async def _set_up(connection: PostgresConnection) -> None:
    """Make the schema in an empty database, and compare versions in any other."""
    queries = Queries("node.store", "setup")
    await connection.execute(queries["lock_set_up"], _SETUP_LOCK)
    if not await connection.fetchval(queries["has_version"]):
        if await connection.fetchval(queries["count_tables"]):
            msg = (
                "the database is not empty and is not Parley's; give it one of its own: "
                "createdb -O parley parley"
            )
            raise SchemaMismatch(msg)
        await connection.execute(schema_text())
    found = await connection.fetchval(queries["version"])
    if found != SCHEMA_VERSION:
        which, remedy = (
            ("newer", "upgrade the program")
            if found > SCHEMA_VERSION
            else ("older", "use the program it was made by, or give this one an empty database")
        )
        msg = (
            f"the database has schema version {found}, which is {which} than this program's "
            f"version {SCHEMA_VERSION}; {remedy}"
        )
        raise SchemaMismatch(msg)


def schema_text() -> str:
    """The whole of ``schema.sql``."""
    return resources.files("node.store").joinpath("schema.sql").read_text("utf-8")
