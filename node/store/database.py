"""The database interface, and its Postgres implementation: pool, codecs, schema, notifications.

The port is the named query: a :class:`Database` executes all of them, and delivers notifications.
Instants and durations are passed as ``int`` microseconds: that is Postgres' binary format of
``timestamptz`` and ``interval``, so no datetime is created on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import asyncpg
import orjson
import structlog

from node.clock import Clock
from node.model import times
from node.model.errors import DatabaseUnavailable, NoRoom, reason_of
from node.model.ids import Generation
from node.store import migrating, schema
from node.store.hangs import HangDetector, HangLimits
from node.store.mark import MarkFile
from node.store.queries import PostgresConnection, Queries

CHANNEL = "parley"
POSTGRES_EPOCH = times.EARLIEST  # 2000-01-01 for Postgres too
_MONTH_DAYS = 30
_ATTEMPTS = 6
_ACQUIRE_S = 20.0
_RELEASE_S = 5.0

T = TypeVar("T")

log = structlog.get_logger()

Record: TypeAlias = asyncpg.Record


class Connection(Protocol):
    """The methods that the stores use: each executes one statement, the text of a named query."""

    async def fetch(self, query: str, *args: Any) -> list[Record]:
        """Return all rows."""
        ...

    async def fetchrow(self, query: str, *args: Any) -> Record | None:
        """Return the first row; None if there is none."""
        ...

    async def fetchval(self, query: str, *args: Any) -> Any:
        """Return the first column of the first row; None if there is none."""
        ...

    async def fetchmany(self, query: str, args: Iterable[Sequence[Any]]) -> list[Record]:
        """Execute a statement with each of these arguments, at once; return the rows of all."""
        ...

    async def execute(self, query: str, *args: Any) -> object:
        """Execute a statement whose rows are not needed."""
        ...


_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server ended the connection while nobody used it
    asyncpg.PostgresConnectionError,
    asyncpg.LockNotAvailableError,  # somebody has locked the table for longer than lock_timeout
    asyncpg.OperatorInterventionError,  # being shut down, or not up yet
    asyncpg.InsufficientResourcesError,  # disk full, too many connections
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,  # after a fail-over: still the old one
)
"""Errors after which the server may succeed later."""

RETRYABLE_DATABASE_ERRORS = (
    asyncpg.DeadlockDetectedError,
    asyncpg.ExclusionViolationError,
    asyncpg.SerializationError,
)
"""Errors of a transaction that conflicted with a concurrent one, and may succeed if retried."""

BrokenOverlap: TypeAlias = asyncpg.ExclusionViolationError
BrokenKey: TypeAlias = asyncpg.UniqueViolationError
BrokenReference: TypeAlias = asyncpg.ForeignKeyViolationError
BrokenCheck: TypeAlias = asyncpg.CheckViolationError
"""Errors of statements that break a constraint; other databases raise them too."""


class Notice(NamedTuple):
    """One notification: the kind of object that changed, its id, and further words."""

    kind: str
    id: str
    words: tuple[str, ...]


def parse_notice(payload: str) -> Notice:
    """Parse a payload such as ``run <id> <task> <state>``."""
    kind, identifier, *words = (payload + " ").split(" ")
    return Notice(kind, identifier, tuple(filter(None, words)))


class Database(ABC):
    """The database of one node, as the services use it.

    ``generation`` names the history of its data, once it is open: it is made anew when the database
    was restored from a backup, or went back to an earlier state.
    """

    generation: Generation
    fresh: bool
    """True for a while after that, and for a new database: others may know more than it."""
    was_restored = False
    """True for a while after that: it may have forgotten what was done here."""
    marked_at: int | None = None
    """The latest mark of this database (µs), to be told to other nodes; None if it has none."""

    @abstractmethod
    async def open(self) -> None:
        """Connect and prepare.

        :raises DatabaseUnavailable: there is no connection.
        :raises SchemaMismatch: the database has another schema.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release all connections."""

    @abstractmethod
    def connection(self) -> contextlib.AbstractAsyncContextManager[Connection]:
        """Return a connection on which each statement is a transaction of its own."""

    @abstractmethod
    def transaction(self) -> contextlib.AbstractAsyncContextManager[Connection]:
        """Return a connection on which all statements are one transaction."""

    @abstractmethod
    async def listen(self, on_notice: Callable[[Notice], None], clock: Clock) -> None:
        """Pass notifications to ``on_notice`` until cancelled.

        A ``disconnected`` notice means that none arrive for now; ``wake`` means that some may have
        been lost.
        """

    def refused_write(self, _within_s: float) -> str | None:
        """Return what the server said if it had no room for a write lately; None if it had."""
        return None

    async def look(self, seen: int | None = None, *, step: int = 0) -> bool:  # noqa: ARG002
        """Return whether the data went back to an earlier state; if not, raise the mark by a step.

        ``seen`` is a mark that another node has seen; both are in microseconds. A database without
        a mark never goes back.
        """
        return False

    async def settle(self, action: Callable[[Connection], Awaitable[T]]) -> T:
        """Run ``action`` in a transaction, and retry if it conflicts with a concurrent one."""
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(*RETRYABLE_DATABASE_ERRORS):
                async with self.transaction() as connection:
                    return await action(connection)
        async with self.transaction() as connection:
            return await action(connection)


class PostgresDatabase(Database):
    """A pool of connections to this node's Postgres."""

    def __init__(
        self,
        dsn: str,
        *,
        size: int = 10,
        hang_limits: HangLimits | None = None,
        mark: MarkFile | None = None,
        migrate: bool = False,
    ) -> None:
        """Connect to ``dsn`` later, in :meth:`open`, with at most ``size`` connections.

        ``mark`` is where the mark of the database is kept outside of it. With ``migrate`` a
        database with an earlier schema is migrated when it is opened.
        """
        self._dsn = dsn
        self._migrate = migrate
        self._mark = mark
        self._size = size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._full: tuple[float, str] | None = None
        self._interrupted = False
        self._hang_limits = hang_limits or HangLimits()
        self._hangs = HangDetector(self._probe, self._hang_limits)

    async def open(self) -> None:
        """Connect, and set up an empty database; refuse one with another schema."""
        try:
            self._pool = await asyncpg.create_pool(
                self._dsn,
                min_size=1,
                max_size=self._size,
                init=_prepare,
                reset=_nothing_to_reset,
                command_timeout=60,
                server_settings={
                    **schema.connection_settings(),
                    "lock_timeout": f"{self._hang_limits.lock_s}s",
                },
            )
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
            msg = (
                f"no connection to Postgres at {schema.place_of(self._dsn)}: {error}; check --dsn "
                "or PARLEY_DSN, "
                "or leave both out for a private cluster"
            )
            raise DatabaseUnavailable(msg) from error
        try:
            try:
                await self._set_up()
            except asyncpg.UndefinedObjectError:
                # Another database of this server was set up at the same time: the role that it
                # made may be unknown to a transaction that began before, but not to the next one.
                await self._set_up()
            await self.look(await asyncio.to_thread(self._mark.read) if self._mark else None)
        except BaseException:
            await self.close()
            raise

    async def _set_up(self) -> None:
        async with self.transaction() as connection:
            done = await migrating.set_up(connection, migrate=self._migrate)
        for step in done:
            log.info("schema migrated", version=step.version, step=step.title)

    async def look(self, seen: int | None = None, *, step: int = 0) -> bool:
        """Return whether the data went back, and copy the mark, raised by a step, to the file.

        They went back if they are in another place, or if their mark is earlier than the latest one
        that this process has read or written, or than ``seen``, from the file or another node. Then
        they get a new generation, and all leases lose to the new epochs.

        The mark is raised by at most ``step`` (µs), not up to the clock: all other nodes, however
        late they answer, shall see that it is earlier than the one they know.
        """
        async with self.transaction() as connection:
            standing = await _look(connection, self.marked_at, seen, step)
            queries = Queries("node.store", "setup")
            fresh = await connection.fetchval(queries["is_fresh"])
            self.was_restored = await connection.fetchval(queries["was_restored"])
        self.generation, self.marked_at, self.fresh = standing.generation, standing.marked_at, fresh
        if self._mark is not None:
            await asyncio.to_thread(self._mark.write, standing.marked_at)
        return standing.went_back

    async def close(self) -> None:
        """Close all connections."""
        await self._hangs.stop()
        pool, self._pool = self._pool, None
        if pool is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await pool.close()
            pool.terminate()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[PostgresConnection]:
        """Return a connection of the pool; its failures become :class:`DatabaseUnavailable`."""
        pool = self._pool
        if pool is None:
            msg = "the database is not open"
            raise DatabaseUnavailable(msg)
        use = _Use()
        with self._hangs.watch(use.break_off):
            async with self._acquired(pool, use) as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def _acquired(
        self, pool: asyncpg.Pool[asyncpg.Record], use: _Use
    ) -> AsyncIterator[PostgresConnection]:
        try:
            async with asyncio.timeout(_ACQUIRE_S) as use.acquiring:
                connection = await _acquire(pool)
            use.connection = connection
            try:
                yield connection
            except asyncpg.InternalClientError:
                connection.terminate()  # otherwise the pool would lend it out again
                raise
            except AttributeError as error:
                if not use.broken_off:
                    raise
                # asyncpg has no protocol any more between two steps of a statement.
                msg = "the connection was broken off"
                raise asyncpg.InterfaceError(msg) from error
            finally:
                # A connection that breaks while it is released has been taken back by the pool
                # already, which then reports an internal error; its work was done.
                with contextlib.suppress(asyncpg.InternalClientError):
                    await pool.release(connection, timeout=_RELEASE_S)
        except _AWAY as error:
            if isinstance(error, asyncpg.DiskFullError):
                reason = reason_of(error).partition("\n")[0]
                self._full = asyncio.get_running_loop().time(), reason
                msg = (
                    f"nothing was stored, because the disk of the database is full ({reason}); "
                    "make room there, then send the request again"
                )
                raise NoRoom(msg) from error
            reason = reason_of(error)
            if isinstance(error, asyncpg.LockNotAvailableError):
                held_s = self._hang_limits.lock_s
                reason = f"other changes have kept locked for {held_s:g} s what it needs"
            msg = f"the database does not answer: {reason}"
            raise DatabaseUnavailable(msg) from error

    def refused_write(self, within_s: float) -> str | None:
        """Return the error of the last write without room, if it came within these seconds."""
        if self._full is None or asyncio.get_running_loop().time() - self._full[0] > within_s:
            return None
        return self._full[1]

    async def _probe(self) -> None:
        """Return as soon as the server has answered on a new connection, if only by refusing it."""
        try:
            connection = await asyncpg.connect(
                self._dsn, server_settings=schema.connection_settings()
            )
        except TimeoutError:
            raise
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return
        connection.terminate()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresConnection]:
        """Return a connection on which all statements are one transaction."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def listen(self, on_notice: Callable[[Notice], None], clock: Clock) -> None:
        """Pass notifications to ``on_notice`` until cancelled; reconnects by itself.

        A ``wake`` notice follows each new connection, because notices may have been lost, and
        ``disconnected`` follows the loss of the connection.
        """
        pause = 0.5
        while True:
            reason = "it has closed the connection"
            try:
                await self._listen_once(on_notice)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                reason = reason_of(error)
            if not self._interrupted:  # one line for each outage, however often it is asked
                at = schema.place_of(self._dsn)
                log.warning("the database is away", error=reason, database=at)
            self._interrupted = True
            await clock.sleep(pause)

    async def _listen_once(self, on_notice: Callable[[Notice], None]) -> None:
        connection = await asyncpg.connect(self._dsn, server_settings=schema.connection_settings())
        closed = asyncio.Event()
        connection.add_termination_listener(lambda *_: closed.set())
        try:
            await connection.add_listener(
                CHANNEL, lambda _c, _pid, _channel, payload: on_notice(parse_notice(str(payload)))
            )
            on_notice(Notice("wake", "", ()))
            if self._interrupted:
                self._interrupted = False
                log.info("the database is back", database=schema.place_of(self._dsn))
            with self._hangs.waiting(closed.set):
                await closed.wait()
        finally:
            on_notice(Notice("disconnected", "", ()))
            connection.terminate()


class _Use:
    """A use of the pool: a connection, or the wait for one."""

    connection: PostgresConnection | None = None
    acquiring: asyncio.Timeout
    broken_off = False

    def break_off(self) -> None:
        """Let whatever is waited for fail at once."""
        self.broken_off = True
        if self.connection is None:
            self.acquiring.reschedule(asyncio.get_running_loop().time())
            return
        with contextlib.suppress(asyncpg.InterfaceError):  # it has been given back already
            self.connection.terminate()


async def _nothing_to_reset(_: PostgresConnection) -> None:
    """Skip the reset, which costs a round trip: no code changes settings of a connection."""


async def _acquire(
    pool: asyncpg.Pool[asyncpg.Record],
) -> asyncpg.pool.PoolConnectionProxy[asyncpg.Record]:
    """Return a connection of the pool, which may have to make one.

    :raises DatabaseUnavailable: the server lives, and makes none, whatever its reason.
    """
    try:
        return await pool.acquire()
    except _AWAY:
        raise
    except asyncpg.PostgresError as error:
        msg = f"the database takes no connection: {reason_of(error)}"
        raise DatabaseUnavailable(msg) from error


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


class _Standing(NamedTuple):
    generation: Generation
    marked_at: int
    went_back: bool


async def _look(
    connection: PostgresConnection, marked_at: int | None, seen: int | None, step: int
) -> _Standing:
    """Mark the data, with a new generation if they are new, in another place, or went back."""
    queries = Queries("node.store", "setup")
    place = await connection.fetchval(queries["place"])
    row = await connection.fetchrow(queries["generation"])
    if row is None:
        await connection.execute(queries["first_generation"], place, _latest(marked_at, seen))
        return _standing(await connection.fetchrow(queries["generation"]), went_back=False)
    # A mark from the future is not from this database, whoever has seen it.
    believed = seen if seen is not None and seen <= row["now"] + times.MINUTE else None
    known = _latest(marked_at, believed, row["marked_at"])
    if (row["place"], row["marked_at"]) == (place, known):
        if step:
            row = await connection.fetchrow(queries["mark"], step)
        return _standing(row, went_back=False)
    log.warning("the database was restored; its node names what it asks for anew")
    await connection.execute(queries["raise_all_epochs"])
    await connection.execute(queries["doubt_all_nodes"])
    made = await connection.fetchrow(queries["new_generation"], place, known)
    return _standing(made, went_back=True)


def _standing(row: Record | None, *, went_back: bool) -> _Standing:
    assert row is not None  # noqa: S101 - the statements return the one row
    return _Standing(Generation(row["id"]), row["marked_at"], went_back)


def _latest(*instants: int | None) -> int | None:
    return max((instant for instant in instants if instant is not None), default=None)
