"""A node's database in memory: connections, transactions and notifications as Postgres has them.

A transaction may be read beside others until its first statement that writes or locks; from there
on it has the database to itself. Every schedule that comes about is one that Postgres allows, too.
Whatever ends a transaction but its commit takes back what it did, a crash of the simulated node
included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, cast

from lead.simulation.memory.statements import Answer, Statement
from lead.simulation.memory.tables import Tables
from lead.simulation.memory.twins import TWIN_OF
from node.clock import Clock
from node.model.errors import DatabaseUnavailable
from node.store.database import Connection, Database, Notice, Record, parse_notice

Point = Callable[[str], Awaitable[None] | None]
"""Asked at ``before bookings.book``, ``after bookings.book``, ``before commit`` and ``after
commit``: where another process may come in between, and where this one may crash; then it gives
something to wait for."""


class MemoryDatabase(Database):
    """The database of one simulated node; ``tables`` outlive a crash, as on a disk."""

    def __init__(self, point: Point | None = None) -> None:
        """Empty tables."""
        self.tables = Tables()
        self.point = point
        self._closed = False
        self._alone = asyncio.Lock()
        self._listeners: list[Callable[[Notice], None]] = []

    def survivor(self) -> MemoryDatabase:
        """What is left after a crash: the tables as of the last commit, for the next start.

        Whoever still has this one finds it closed; what runs in it to tidy up is lost.
        """
        self.tables.journal.roll_back()
        left = MemoryDatabase(self.point)
        left.tables, self.tables = self.tables, Tables()
        self._closed = True
        self._listeners.clear()
        return left

    async def open(self) -> None:
        """Answer from now on."""
        self._closed = False

    async def close(self) -> None:
        """Answer no more; the tables stay."""
        self._closed = True

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Each statement is a transaction of its own."""
        return _Connection(self)

    def transaction(self) -> AbstractAsyncContextManager[Connection]:
        """One transaction: all of it or nothing."""
        return _Transaction(self)

    async def listen(self, heard: Callable[[Notice], None], clock: Clock) -> None:
        """Hear notifications until cancelled."""
        del clock  # none is ever lost here, so nothing is tried again after a while
        self._listeners.append(heard)
        try:
            heard(Notice("wake", "", ()))
            await asyncio.get_running_loop().create_future()
        finally:
            if heard in self._listeners:
                self._listeners.remove(heard)

    async def at(self, moment: str) -> None:
        """Let the simulation do its worst."""
        if self.point is not None and (between := self.point(moment)) is not None:
            await between

    async def run(self, statement: Statement, args: tuple[Any, ...]) -> Answer:
        """One statement that is a transaction of its own, when nobody has the database alone."""
        async with self._alone:
            return self.run_now(statement, args)

    @property
    def busy(self) -> bool:
        """Whether a transaction has it to itself."""
        return self._alone.locked()

    def run_now(self, statement: Statement, args: tuple[Any, ...]) -> Answer:
        """The same at once, where it is not :attr:`busy`."""
        try:
            answered = statement.twin(self.tables, *args)
        except BaseException:
            self.tables.journal.roll_back()
            raise
        if statement.changes:
            self.finish()
        return answered

    async def begin(self) -> None:
        """Have the database to oneself."""
        await self._alone.acquire()

    def finish(self) -> None:
        """Commit: what was done stays, and is told."""
        told = self.tables.journal.commit()
        if told and self._listeners:
            asyncio.get_running_loop().call_soon(self._tell, told)

    def end(self) -> None:
        """Let others in."""
        self._alone.release()

    def _tell(self, told: list[str]) -> None:
        for heard in list(self._listeners):
            for payload in told:
                heard(parse_notice(payload))

    def check(self) -> None:
        """Raise if it is not open."""
        if self._closed:
            msg = "the database is not open"
            raise DatabaseUnavailable(msg)


class _Connection:
    """Statements, each a transaction of its own."""

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
        found = await self._answer(statement, args)
        return cast("Record", statement.record(found[0])) if found else None

    async def fetchval(self, query: str, *args: Any) -> Any:
        found = await self._answer(TWIN_OF[query], args)
        return found[0][0] if found else None

    async def execute(self, query: str, *args: Any) -> None:
        await self._answer(TWIN_OF[query], args)

    async def _answer(self, statement: Statement, args: tuple[Any, ...]) -> Answer:
        database = self._database
        if database.point is None:
            return await self._run(statement, args)
        if (between := database.point(statement.before)) is not None:
            await between
        answered = await self._run(statement, args)
        if (between := database.point(statement.after)) is not None:
            await between
        return answered

    async def _run(self, statement: Statement, args: tuple[Any, ...]) -> Answer:
        database = self._database
        if database.busy:
            return await database.run(statement, args)
        return database.run_now(statement, args)


class _Transaction(_Connection):
    """Statements of one transaction."""

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
            msg = "an earlier statement of this transaction has failed: it can only be rolled back"
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
