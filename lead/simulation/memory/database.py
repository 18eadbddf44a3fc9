"""A node's database in memory: connections, transactions and notifications as Postgres has them.

Other transactions may run beside a transaction until its first statement that writes or locks; from
there on it has the database to itself. Postgres allows every schedule that results. Whatever ends a
transaction except its commit rolls it back, including a crash of the simulated node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, cast
from uuid import UUID

from lead.simulation.memory.statements import Answer, Statement
from lead.simulation.memory.tables import Tables
from lead.simulation.memory.twins import TWIN_OF
from node.clock import Clock
from node.model.errors import DatabaseUnavailable
from node.model.ids import Generation
from node.store.database import Connection, Database, Notice, Record, parse_notice

Point = Callable[[str], Awaitable[None] | None]
"""A hook called at ``before bookings.book``, ``after bookings.book``, ``before commit`` and ``after
commit``; it may return an awaitable, so that other processes interleave or this one crashes."""


GENERATION = Generation(UUID("00000000-0000-4000-8000-000000000001"))
"""The generation of every simulated database: the same seed gives the same ids."""


class MemoryDatabase(Database):
    """The database of one simulated node; ``tables`` survive a crash like a disk."""

    def __init__(self, point: Point | None = None) -> None:
        """Create a database with empty tables."""
        self.tables = Tables()
        self.generation = GENERATION
        self.fresh = False
        self.point = point
        self._closed = False
        self._alone = asyncio.Lock()
        self._listeners: list[Callable[[Notice], None]] = []

    def survivor(self) -> MemoryDatabase:
        """Return the database for the next start after a crash, with the last committed tables.

        This object is closed: what the dying tasks do to clean up has no effect.
        """
        self.tables.journal.roll_back()
        survivor = MemoryDatabase(self.point)
        survivor.tables, self.tables = self.tables, Tables()
        self._closed = True
        self._listeners.clear()
        return survivor

    async def open(self) -> None:
        """Open the database."""
        self._closed = False

    async def close(self) -> None:
        """Close the database; the tables stay."""
        self._closed = True

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Return a connection on which each statement is a transaction of its own."""
        return _Connection(self)

    def transaction(self) -> AbstractAsyncContextManager[Connection]:
        """Return a connection on which all statements are one transaction."""
        return _Transaction(self)

    async def listen(self, on_notice: Callable[[Notice], None], clock: Clock) -> None:
        """Deliver notifications to ``on_notice`` until cancelled."""
        del clock  # no connection is ever lost here, so there is no pause before a retry
        self._listeners.append(on_notice)
        try:
            on_notice(Notice("wake", "", ()))
            await asyncio.get_running_loop().create_future()
        finally:
            if on_notice in self._listeners:
                self._listeners.remove(on_notice)

    async def at(self, moment: str) -> None:
        """Let the simulation suspend or kill the process at this moment."""
        if self.point is not None and (suspended := self.point(moment)) is not None:
            await suspended

    async def run(self, statement: Statement, args: tuple[Any, ...]) -> Answer:
        """Run a statement as a transaction of its own, once no transaction has the database."""
        async with self._alone:
            return self.run_now(statement, args)

    @property
    def busy(self) -> bool:
        """Return whether a transaction has the database to itself."""
        return self._alone.locked()

    def run_now(self, statement: Statement, args: tuple[Any, ...]) -> Answer:
        """Run a statement without waiting; only while not :attr:`busy`."""
        try:
            answer = statement.twin(self.tables, *args)
        except BaseException:
            self.tables.journal.roll_back()
            raise
        if statement.changes:
            self.finish()
        return answer

    async def begin(self) -> None:
        """Wait until the database is free and take it."""
        await self._alone.acquire()

    def finish(self) -> None:
        """Commit the changes and deliver the notifications."""
        payloads = self.tables.journal.commit()
        if payloads and self._listeners:
            asyncio.get_running_loop().call_soon(self._notify, payloads)

    def end(self) -> None:
        """Release the database."""
        self._alone.release()

    def _notify(self, payloads: list[str]) -> None:
        for on_notice in list(self._listeners):
            for payload in payloads:
                on_notice(parse_notice(payload))

    def check(self) -> None:
        """Raise an error if the database is closed."""
        if self._closed:
            msg = "the database is not open"
            raise DatabaseUnavailable(msg)


class _Connection:
    """A connection whose statements are transactions of their own."""

    __slots__ = ("_database",)

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def __aenter__(self) -> Connection:
        self._database.check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    async def fetch(self, query: str, *args: Any) -> list[Record]:
        statement = TWIN_OF[query]
        return cast("list[Record]", [*map(statement.record, await self._answer(statement, args))])

    async def fetchrow(self, query: str, *args: Any) -> Record | None:
        statement = TWIN_OF[query]
        rows = await self._answer(statement, args)
        return cast("Record", statement.record(rows[0])) if rows else None

    async def fetchval(self, query: str, *args: Any) -> Any:
        rows = await self._answer(TWIN_OF[query], args)
        return rows[0][0] if rows else None

    async def fetchmany(self, query: str, args: Iterable[Sequence[Any]]) -> list[Record]:
        return [row for each in args for row in await self.fetch(query, *each)]

    async def execute(self, query: str, *args: Any) -> None:
        await self._answer(TWIN_OF[query], args)

    async def _answer(self, statement: Statement, args: tuple[Any, ...]) -> Answer:
        database = self._database
        if database.point is None:
            return await self._run(statement, args)
        if (suspended := database.point(statement.before)) is not None:
            await suspended
        answer = await self._run(statement, args)
        if (suspended := database.point(statement.after)) is not None:
            await suspended
        return answer

    async def _run(self, statement: Statement, args: tuple[Any, ...]) -> Answer:
        database = self._database
        if database.busy:
            return await database.run(statement, args)
        return database.run_now(statement, args)


class _Transaction(_Connection):
    """A connection whose statements are one transaction."""

    __slots__ = ("_alone", "_failed")

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self._alone = False
        self._failed = False

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        database = self._database
        try:
            if kind is None:
                await database.at("before commit")
                if self._alone:
                    database.finish()
        finally:
            if self._alone:
                database.tables.journal.roll_back()
                database.end()
        if kind is None:
            await database.at("after commit")

    async def _run(self, statement: Statement, args: tuple[Any, ...]) -> Answer:
        database = self._database
        if self._failed:
            msg = "an earlier statement of this transaction has failed; it can only be rolled back"
            raise RuntimeError(msg)
        if not self._alone:
            if not statement.changes:
                return await super()._run(statement, args)
            await database.begin()
            self._alone = True
        try:
            return statement.twin(database.tables, *args)
        except BaseException:
            self._failed = True
            database.tables.journal.roll_back()
            raise
