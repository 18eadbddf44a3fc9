"""The database interface, and its Postgres implementation: pool, codecs, schema, notifications.

The port is the named query: a :class:`Database` executes all of them, and delivers notifications.
Instants and durations are passed as ``int`` microseconds: that is Postgres' binary format of
``timestamptz`` and ``interval``, so no datetime is created on the way.

Transactions that conflict are repeated as a whole (:meth:`Database.settle`), so what they do must
have no effect outside of the database. Whatever fails because of the server leaves this module as
:class:`DatabaseUnavailable` (``faults.py``); a server that hangs is left after a bounded time
(``hangs.py``). Notifications are hints: they may be lost with their connection, and ``wake`` and
``disconnected`` tell listeners when they have to look for themselves.

A database may be put back to an earlier state under its node. It therefore has a mark, which rises
while it is used and is kept outside of it, too (``mark.py``, and at other nodes). Data whose mark
is behind, or that stand in another place, get a new generation, by which others know that this node
may have forgotten something.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import asyncpg
import orjson
import structlog

from node.model import times
from node.model.errors import DatabaseDamaged, DatabaseUnavailable, NoRoom, reason_of
from node.model.ids import Generation
from node.runtime.clock import Clock
from node.runtime.threads import aside
from node.store import migrating, schema
from node.store.faults import FAULTS, fault_of
from node.store.hangs import HangDetector, HangLimits
from node.store.mark import HostMarks, MarkFile
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


RETRYABLE_DATABASE_ERRORS = (
    asyncpg.DeadlockDetectedError,
    asyncpg.ExclusionViolationError,
    asyncpg.SerializationError,
)
"""Errors of a transaction that conflicted with a concurrent one, and may succeed if retried."""

BrokenOverlap: TypeAlias = asyncpg.ExclusionViolationError
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
    copy_of: str | None = None
    """The place where the original of this copy goes on; empty: not known yet, None: no copy."""
    was_elsewhere = False
    """True if the data were on another host, and nobody has said that the node is to be here."""
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
        """Return the error of a write for which the server had no room lately, if any."""
        return None

    def damage(self, _within_s: float) -> str | None:
        """Return what the server said of damage lately, and what to do, if it said anything."""
        return None

    async def check_mark(self, seen: int | None = None, *, step: int = 0) -> bool:  # noqa: ARG002
        """Return whether the data went back to an earlier state; if not, raise the mark by a step.

        ``seen`` is a mark that another node has seen; both are in microseconds. A database without
        a mark never goes back.
        """
        return False

    async def stored_marks(self) -> tuple[str | None, int | None]:
        """Return the marks of the host on which the node was served, and the mark of the data.

        None each where none is kept.
        """
        return None, None

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
        host: HostMarks | None = None,
        migrate: bool = False,
    ) -> None:
        """Connect to ``dsn`` later, in :meth:`open`, with at most ``size`` connections.

        ``mark`` is where the mark of the database is kept outside of it, ``host`` the marks of the
        host, from which copied data are told that they are on another one. With ``migrate`` a
        database with an earlier schema is migrated when it is opened.
        """
        self._dsn = dsn
        self._migrate = migrate
        self._mark = mark
        self._host = host
        self._size = size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._full: tuple[float, str] | None = None
        self._damage: tuple[float, str] | None = None
        self._interrupted = False
        self._hang_limits = hang_limits or HangLimits()
        self._hangs = HangDetector(self._probe, self._hang_limits)

    async def open(self) -> None:
        """Connect, and create the schema in an empty database; refuse one with another schema."""
        try:
            self._pool = await asyncpg.create_pool(
                self._dsn,
                min_size=1,
                max_size=self._size,
                init=prepare_connection,
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
            await self.check_mark(
                await aside(self._mark.read, "read the mark") if self._mark else None
            )
        except BaseException:
            await self.close()
            raise

    async def _set_up(self) -> None:
        async with self.transaction() as connection:
            done = await migrating.set_up(connection, migrate=self._migrate)
        for step in done:
            log.info("schema migrated", version=step.version, step=step.title)

    async def check_mark(self, seen: int | None = None, *, step: int = 0) -> bool:
        """Return whether the data went back; write their mark, raised by a step, to the file.

        They went back if they are in another place, or if their mark is earlier than the latest one
        that this process has read or written, or than ``seen``, from the file or another node. Then
        they get a new generation, and all leases lose to the new epochs.

        The mark is raised by at most ``step`` (µs), not up to the clock: all other nodes, however
        late they answer, shall see that it is earlier than the one they know.
        """
        async with self.transaction() as connection:
            standing = await _check_or_begin_generation(
                connection, self._host, self.marked_at, seen, step
            )
        self.generation, self.marked_at = standing.generation, standing.marked_at
        self.fresh, self.was_restored = standing.fresh, standing.was_restored
        self.copy_of = standing.copy_of
        asks = standing.copy_of is not None
        self.was_elsewhere = asks and (self.was_elsewhere or standing.was_elsewhere)
        if self._mark is not None:
            await aside(partial(self._mark.write, standing.marked_at), "write the mark")
        return standing.went_back

    async def stored_marks(self) -> tuple[str | None, int | None]:
        """Return the marks of the host on which the node was served, and the mark of the data."""
        queries = Queries("node.store", "setup")
        async with self.connection() as connection:
            [(host, marked_at)] = await connection.fetch(queries["stored_marks"])
        return host, marked_at

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
            async with self._guarded_connection(pool, use) as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def _guarded_connection(
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
        except FAULTS as error:
            fault = fault_of(error, self._hang_limits.lock_s)
            if fault is None:
                raise
            if isinstance(fault, NoRoom):
                self._full = self._now_s(), reason_of(error).partition("\n")[0]
            if isinstance(fault, DatabaseDamaged):
                self._note_damage(fault.detail)
            raise fault from error

    def refused_write(self, within_s: float) -> str | None:
        """Return the error of the last write without room, if it came within these seconds."""
        return self._recent_answer(self._full, within_s)

    def damage(self, within_s: float) -> str | None:
        """Return the last sentence on damage of the database, if it came within these seconds."""
        return self._recent_answer(self._damage, within_s)

    def _note_damage(self, sentence: str) -> None:
        """Remember a sentence on damage for :meth:`damage`; log it unless it was the last one."""
        if self._damage is None or self._damage[1] != sentence:
            log.error("the database is damaged", error=sentence)
        self._damage = self._now_s(), sentence

    def _recent_answer(self, said: tuple[float, str] | None, within_s: float) -> str | None:
        return None if said is None or self._now_s() - said[0] > within_s else said[1]

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()

    async def _probe(self) -> None:
        """Return once the server has answered on a new connection, even if it refuses it."""
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
            with self._hangs.break_off_if_hanging(closed.set):
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
    except FAULTS:
        raise
    except asyncpg.PostgresError as error:
        msg = f"the database takes no connection: {reason_of(error)}"
        raise DatabaseUnavailable(msg) from error


async def prepare_connection(connection: PostgresConnection) -> None:
    """Set the types of a new connection: instants and durations are microseconds."""
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
    copy_of: str | None
    went_back: bool = False
    was_elsewhere: bool = False
    fresh: bool = True
    was_restored: bool = False


async def _check_or_begin_generation(
    connection: PostgresConnection,
    host: HostMarks | None,
    marked_at: int | None,
    seen: int | None,
    step: int,
) -> _Standing:
    """Mark the data, with a new generation if they are new, in another place, or went back.

    Then it has to be asked whether the node goes on elsewhere, unless the owner has put them here.
    """
    queries = Queries("node.store", "setup")
    place = await connection.fetchval(queries["place"])
    row = await connection.fetchrow(queries["generation"])
    if row is None:
        latest, own = _latest(marked_at, seen), host and str(host)
        await connection.execute(queries["first_generation"], place, latest, own)
        return _standing_of_row(await connection.fetchrow(queries["generation"]))
    # A mark from the future is not from this database, whoever has seen it.
    believed = seen if seen is not None and seen <= row["now"] + times.MINUTE else None
    known = _latest(marked_at, believed, row["marked_at"])
    here = host is None or host.are_those_of(row["host"])
    # A new database's first generation says nothing about who is the node: its disk may be a copy.
    was_restored = row["is_young"] and row["made_at"] > row["first_until"]
    if here and (row["place"], row["marked_at"]) == (place, known):
        if host is not None:
            await connection.execute(queries["keep_host"], str(host))
        marked = await connection.fetchrow(queries["mark"], step) if step else row
        return _standing_of_row(marked)._replace(fresh=row["is_young"], was_restored=was_restored)
    log.warning("the database was restored; its node names what it asks for anew")
    await connection.execute(queries["raise_all_epochs"])
    await connection.execute(queries["doubt_all_nodes"])
    # Whoever was found to be the node, or put here by its owner, hears of later marks after that.
    settled = was_restored and row["copy_of"] is None and here and row["place"] == place
    copy_of = None if settled or not row["place"] else row["copy_of"] or ""
    own = host and str(host)
    made = await connection.fetchrow(queries["new_generation"], place, known, own, copy_of)
    return _standing_of_row(made)._replace(
        went_back=True,
        was_restored=row["now"] > row["first_until"],
        was_elsewhere=not here and copy_of is not None,
    )


def _standing_of_row(row: Record | None) -> _Standing:
    assert row is not None  # noqa: S101 - the statements return the one row
    return _Standing(Generation(row["id"]), row["marked_at"], row["copy_of"])


def _latest(*instants: int | None) -> int | None:
    return max((instant for instant in instants if instant is not None), default=None)
