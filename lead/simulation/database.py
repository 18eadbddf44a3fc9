"""The databases of simulated nodes: real ones, in which statements take no virtual time.

A statement is sent and its answer read in one step of the world (:mod:`lead.simulation.driver`), so
that what runs is Postgres itself: the SQL of the stores, triggers, constraints, transactions beside
each other. Three things are the world's own, because they depend on time:

* A statement that waits for a lock of another transaction suspends its task. Whenever a transaction
  has ended, each suspended statement gets the chance to go on, in the order in which they came.
* Of transactions that wait for each other the last one is broken off, as deadlocked.
* Notifications are taken from the connection that commits, and delivered to all processes that
  listen: at once, later or never, as the world's :class:`Delivery` says.

A process that dies leaves its transactions open; they are rolled back before anything else happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import Context
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

from lead.simulation.driver import Link, SerializationError
from lead.simulation.server import SQL, NodeStore
from node.model.errors import DatabaseUnavailable
from node.model.ids import Generation
from node.runtime.clock import Clock
from node.store.database import Connection, Database, Notice, Record, parse_notice
from node.store.faults import FAULTS, fault_of

T = TypeVar("T")

Point = Callable[[], Awaitable[None] | None]
"""A hook called before and after each statement and each commit.

It may return an awaitable, so that other processes interleave or this one crashes.
"""

Delivery = Callable[[], int | None]
"""Returns after how many microseconds a process hears of a commit; None: it never does."""

GENERATION = Generation(UUID("00000000-0000-4000-8000-000000000001"))
"""The generation of every simulated database: the same seed gives the same ids."""
_LOCK_S = 5.0
_RECONNECT_S = 0.5
"""Pause before a listener connects again."""


Conflict = Callable[[], bool]
"""Returns whether a transaction that would be tried again fails at its end."""


def _at_once() -> int | None:
    return 0


def _no_conflict() -> bool:
    return False


class SimulatedDatabase(Database):
    """The database of a simulated node, as one of its processes opens it."""

    def __init__(self, store: NodeStore, point: Point | None = None) -> None:
        """Open the database that ``store`` holds."""
        self.store = store
        self.point = point
        self.delivery: Delivery = _at_once
        self.conflict: Conflict = _no_conflict
        self.generation = GENERATION
        self.fresh = False
        self._closed = False
        self._used: dict[_Connection, None] = {}
        self._listeners: list[Callable[[Notice], None]] = []
        self._lost: list[asyncio.Future[None]] = []
        store.users[self] = None

    def sibling(self) -> SimulatedDatabase:
        """Return the same database as another process opens it."""
        other = type(self)(self.store, self.point)
        other.generation, other.fresh = self.generation, self.fresh
        other.delivery, other.conflict = self.delivery, self.conflict
        return other

    def survivor(self) -> SimulatedDatabase:
        """Kill the process that uses this object; return the database for its next start.

        What the dying tasks do to clean up has no effect.
        """
        self._closed = True
        self._listeners.clear()
        self.store.users.pop(self, None)
        self._abandon()
        self.store.let_others_go_on()
        return self.sibling()

    def _abandon(self) -> None:
        used, self._used = self._used, {}
        for connection in used:
            connection.abandon()

    def lose(self) -> None:
        """Lose all connections, those of listeners too."""
        lost, self._lost = self._lost, []
        for each in lost:
            if not each.done():
                each.set_result(None)
        self._abandon()

    def restored_database(self, now: int) -> SimulatedDatabase:
        """Return the database as the next start finds it after its rows were put back."""
        made = self.sibling()
        made.generation, made.fresh = Generation(UUID(int=now)), True
        made.store.write(SQL["raise_epochs"], now)
        return made

    async def settle(self, action: Callable[[Connection], Awaitable[T]]) -> T:
        """Run ``action`` in a transaction; retry if it conflicts, or the world says so."""
        failing = iter([self.conflict()])

        async def act(connection: Connection) -> T:
            result = await action(connection)
            if next(failing, False):
                msg = "could not serialize access due to concurrent update"
                raise SerializationError(msg)
            return result

        return await super().settle(act)

    async def open(self) -> None:
        """Open the database."""
        self._closed = False

    async def close(self) -> None:
        """Close the database."""
        self._closed = True

    def connection(self) -> _Connection:
        """Return a connection on which each statement is a transaction of its own."""
        return _Connection(self)

    def transaction(self) -> _Connection:
        """Return a connection on which all statements are one transaction."""
        return _Transaction(self)

    async def listen(self, on_notice: Callable[[Notice], None], clock: Clock) -> None:
        """Deliver notifications to ``on_notice`` until cancelled; connect again when lost."""
        while True:
            if not self.store.away:
                await self._listen_once(on_notice)
                on_notice(Notice("disconnected", "", ()))
            await clock.sleep(_RECONNECT_S)

    async def _listen_once(self, on_notice: Callable[[Notice], None]) -> None:
        """Deliver notifications until the connection is lost."""
        lost = asyncio.get_running_loop().create_future()
        self._lost.append(lost)
        self._listeners.append(on_notice)
        self.store.listening[self] = None
        try:
            on_notice(Notice("wake", "", ()))
            await lost
        finally:
            if on_notice in self._listeners:
                self._listeners.remove(on_notice)
            if not self._listeners:
                self.store.listening.pop(self, None)

    def deliver_notifications(self, payloads: Sequence[str]) -> None:
        """Deliver the notifications of a commit as :attr:`delivery` says."""
        after = self.delivery()
        if after is None or not self._listeners:
            return
        loop = asyncio.get_running_loop()
        if after:
            loop.call_later(after / 1_000_000, self._notify, payloads, context=Context())
        else:
            loop.call_soon(self._notify, payloads)

    def _notify(self, payloads: Sequence[str]) -> None:
        for on_notice in list(self._listeners):
            for payload in payloads:
                on_notice(parse_notice(payload))

    def take(self, connection: _Connection) -> Link:
        """Return a connection to the server, for one user."""
        if self._closed or self.store.away:
            msg = "the database is away" if self.store.away else "the database is not open"
            raise DatabaseUnavailable(msg)
        self._used[connection] = None
        return self.store.take()

    def give_back(self, connection: _Connection, link: Link) -> None:
        """Take a connection back, on which no transaction is open."""
        if self._used.pop(connection, self) is None:
            self.store.give_back(link)

    async def run(self, link: Link, work: Coroutine[Any, Any, Any], *, ends: bool) -> Any:
        """Execute a method of a connection; ``ends`` says whether it ends a transaction."""
        try:
            try:
                self.store.pass_statement()
            except FAULTS:
                work.close()
                raise
            answer = await self.store.run(link, work, ends=ends)
            self.store.pass_statement()
        except FAULTS as error:
            fault = fault_of(error, _LOCK_S)
            if fault is None:
                raise
            raise fault from error
        return answer


class _Connection:
    """A connection whose statements are transactions of their own."""

    __slots__ = ("_database", "_link")

    def __init__(self, database: SimulatedDatabase) -> None:
        self._database = database
        self._link: Link | None = None

    async def __aenter__(self) -> Connection:
        self._link = self._database.take(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def _release(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._database.give_back(self, link)

    def abandon(self) -> None:
        """Roll back and give the connection back, in the place of a process that has died."""
        link, self._link = self._link, None
        if link is not None:
            store = self._database.store
            store.lose(link)
            if link.connection.is_in_transaction():
                link.run(link.connection.execute("ROLLBACK"))
            store.give_back(link)

    async def fetch(self, query: str, *args: Any) -> list[Record]:
        answer: list[Record] = await self._run(lambda it: it.fetch(query, *args))
        return answer

    async def fetchrow(self, query: str, *args: Any) -> Record | None:
        answer: Record | None = await self._run(lambda it: it.fetchrow(query, *args))
        return answer

    async def fetchval(self, query: str, *args: Any) -> Any:
        return await self._run(lambda it: it.fetchval(query, *args))

    async def fetchmany(self, query: str, args: Iterable[Sequence[Any]]) -> list[Record]:
        answer: list[Record] = await self._run(lambda it: it.fetchmany(query, args))
        return answer

    async def execute(self, query: str, *args: Any) -> object:
        return await self._run(lambda it: it.execute(query, *args))

    async def _run(self, method: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        await self._pass_point()
        answer = await self._answer(method)
        await self._pass_point()
        return answer

    async def _pass_point(self) -> None:
        point = self._database.point
        if point is not None and (suspended := point()) is not None:
            await suspended

    async def _answer(self, method: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        link = self._opened()
        return await self._database.run(link, method(link.connection), ends=True)

    def _opened(self) -> Link:
        if self._link is None:
            msg = "the database is not open"
            raise DatabaseUnavailable(msg)
        return self._link


class _Transaction(_Connection):
    """A connection whose statements are one transaction."""

    __slots__ = ("_begun",)

    def __init__(self, database: SimulatedDatabase) -> None:
        super().__init__(database)
        self._begun = False

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        database = self._database
        try:
            if kind is None:
                await self._pass_point()
                await self._commit()
        finally:
            link = self._link
            if link is not None and link.connection.is_in_transaction():
                link.run(link.connection.execute("ROLLBACK"))
                database.store.let_others_go_on()
            self._release()
        if kind is None:
            await self._pass_point()

    async def _commit(self) -> None:
        link = self._opened()
        if self._begun:
            await self._database.run(link, link.connection.execute("COMMIT"), ends=True)

    async def _answer(self, method: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        link = self._opened()
        if not self._begun:
            link.transport.begin_with_next()
            self._begun = True
        return await self._database.run(link, method(link.connection), ends=False)
