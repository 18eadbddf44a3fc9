"""Transactions, crashes and notifications of the database in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from lead.simulation.memory import MemoryDatabase
from lead.store import planning
from node.model.classes import SchedulingClass
from node.model.errors import DatabaseUnavailable
from node.model.task_terms import TaskTerms
from node.model.taskstate import TaskState
from node.model.wire.nodes import NodeCard
from node.model.wire.tasks import Participant, Schedule
from node.store import bookings, nodes, outbox, tasks
from node.store.database import BrokenKey, Connection, Notice
from node.store.outbox import MessageKind
from node.store.tasks import StoredTask
from tests.support.clocks import START, ManualClock

TASK = UUID(int=1)


class Crash(BaseException):
    """The simulated node dies here."""


@pytest.fixture
def database() -> MemoryDatabase:
    """An empty one."""
    return MemoryDatabase()


async def keep_task(connection: Connection, priority: int = 0) -> None:
    """Write the task of these tests."""
    made = StoredTask(
        id=TASK,
        lead="a",
        state=TaskState.ACTIVE,
        terms=TaskTerms(
            test="idle",
            spec={"list": [1]},
            tools=(),
            scheduling_class=SchedulingClass.NORMAL,
            duration=1,
            priority=priority,
            schedule=Schedule(),
            campaign=None,
            reference=None,
            created_at=START,
            participants=(Participant(node="a", name="a", url=None, address="192.0.2.1"),),
        ),
        participant=0,
    )
    assert await tasks.keep(connection, made)


async def kept(database: MemoryDatabase) -> StoredTask | None:
    """What others see of the task."""
    async with database.connection() as connection:
        return await tasks.fetch(connection, TASK)


async def crash_after(
    database: MemoryDatabase, action: Callable[[Connection], Awaitable[None]]
) -> None:
    """A transaction that does something and dies."""
    async with database.transaction() as connection:
        await action(connection)
        raise Crash


async def test_what_fails_has_not_happened(database: MemoryDatabase) -> None:
    """An exception in a transaction takes back all that it did."""

    async def both(connection: Connection) -> None:
        await keep_task(connection)
        await tasks.open_planning(connection, TASK, START, START)

    with pytest.raises(Crash):
        await crash_after(database, both)
    assert await kept(database) is None


@pytest.mark.parametrize(
    ("moment", "survives"),
    [
        ("before tasks.upsert_task", False),
        ("after tasks.upsert_task", False),
        ("before commit", False),
        ("after commit", True),
    ],
)
async def test_a_crash_at_any_point(
    database: MemoryDatabase, moment: str, *, survives: bool
) -> None:
    """A node that dies before its commit has done nothing; after it, everything."""

    async def point(passed: str) -> None:
        if passed == moment:
            raise Crash

    database.point = point
    with pytest.raises(Crash):
        async with database.transaction() as connection:
            await keep_task(connection)
    database.point = None
    assert (await kept(database) is not None) is survives
    async with database.transaction() as connection:
        await keep_task(connection)


async def test_a_statement_of_its_own_is_done_when_it_is_over(database: MemoryDatabase) -> None:
    """Outside a transaction a crash after a statement does not take it back."""

    async def point(passed: str) -> None:
        if passed == "after nodes.keep_token":
            raise Crash

    database.point = point
    with pytest.raises(Crash):
        async with database.connection() as connection:
            await nodes.keep_token(connection, "digest", "label", START)
    async with database.connection() as connection:
        assert await nodes.has_token(connection, "digest")


async def test_nobody_sees_what_is_not_committed(database: MemoryDatabase) -> None:
    """Who reads while somebody else writes waits for the end of it."""
    async with database.transaction() as connection:
        await keep_task(connection)
        reading = asyncio.create_task(kept(database))
        await ManualClock().sleep(0)
        assert not reading.done()
    found = await reading
    assert found is not None


async def test_two_may_read_before_either_writes(database: MemoryDatabase) -> None:
    """A transaction has the database to itself only from its first change on, as in Postgres."""
    seen = []

    async def check_then_write(name: str) -> None:
        async with database.transaction() as connection:
            seen.append((name, await nodes.has_token(connection, "digest")))
            await ManualClock().sleep(0)
            await nodes.keep_token(connection, "digest", name, START)

    await asyncio.gather(check_then_write("one"), check_then_write("other"))
    assert seen == [("one", False), ("other", False)]


async def test_after_a_broken_constraint_nothing_more_is_done(database: MemoryDatabase) -> None:
    """A transaction in which a statement failed can only be rolled back."""
    async with database.transaction() as connection:
        await keep_task(connection)
        await tasks.open_planning(connection, TASK, START, START)
    async with database.transaction() as connection:
        await keep_task(connection, priority=7)
        with pytest.raises(BrokenKey):
            await tasks.open_planning(connection, TASK, START, START)
        with pytest.raises(RuntimeError, match="rolled back"):
            await tasks.fetch(connection, TASK)
    found = await kept(database)
    assert found is not None
    assert found.terms.priority == 0


async def test_notifications_come_with_the_commit(database: MemoryDatabase) -> None:
    """They are told when the transaction is done, each once, and not at all if it fails."""
    notices: list[Notice] = []
    listening = asyncio.create_task(database.listen(notices.append, ManualClock()))
    await ManualClock().sleep(0)
    with pytest.raises(Crash):
        await crash_after(
            database, lambda connection: bookings.notify(connection, "run", 1, "lost")
        )
    async with database.transaction() as connection:
        await bookings.notify(connection, "run", 2, "booked")
        await bookings.notify(connection, "run", 2, "booked")
        assert notices == [Notice("wake", "", ())]
    await ManualClock().sleep(0)
    assert notices == [Notice("wake", "", ()), Notice("run", "2", ("booked",))]
    listening.cancel()


async def test_a_document_is_its_readers_own(database: MemoryDatabase) -> None:
    """What is read may be changed without a change to what is kept."""
    async with database.transaction() as connection:
        await keep_task(connection)
    found = await kept(database)
    assert found is not None
    found.terms.spec["list"].append(2)
    again = await kept(database)
    assert again is not None
    assert again.terms.spec == {"list": [1]}


async def test_a_closed_database_does_not_answer(database: MemoryDatabase) -> None:
    """Its tables are still there when it is opened again."""
    async with database.transaction() as connection:
        await keep_task(connection)
    await database.close()
    with pytest.raises(DatabaseUnavailable):
        await kept(database)
    await database.open()
    assert await kept(database) is not None


async def test_a_query_without_a_twin_is_named(database: MemoryDatabase) -> None:
    """Nobody has to guess what is missing."""
    async with database.connection() as connection:
        with pytest.raises(LookupError, match=r"tasks\.tasks has no twin"):
            await tasks.listed(connection, tasks.TaskFilter(), START)


async def test_only_so_many_are_claimed(database: MemoryDatabase) -> None:
    """The tasks whose next run comes soonest are claimed first, as many as are wanted."""
    async with database.transaction() as connection:
        for number in range(1, 4):
            made = await _numbered(connection, number)
            await tasks.open_planning(connection, made, START - number, START)
        claims = await planning.claim(
            connection, planning.LeaseRequest("worker", START, START + 1), START + 1, 2
        )
    assert [claimed.task.int for claimed in claims] == [3, 2]


async def _numbered(connection: Connection, number: int) -> UUID:
    await keep_task(connection)
    found = await tasks.fetch(connection, TASK)
    assert found is not None
    made = UUID(int=number)
    await tasks.keep(connection, StoredTask(**{**vars(found), "id": made}))
    return made


async def test_an_outbox_is_read_in_portions(database: MemoryDatabase) -> None:
    """A hundred messages at most are taken at once, those due first."""
    async with database.transaction() as connection:
        for number in range(150):
            await outbox.post(connection, ["a"], MessageKind.PART, {}, START - number)
        taken = await outbox.due(connection, START, START + 1, [MessageKind.PART], ())
        following = await outbox.next_due(connection, [MessageKind.PART], ())
    assert min(message.created_at for message in taken) == START - 149
    assert len(taken) == 100
    assert following == START - 49


async def test_two_nodes_never_have_one_name(database: MemoryDatabase) -> None:
    """A name that is taken is refused, and the node that wanted it keeps its own."""
    async with database.connection() as connection:
        for name in ("a", "b"):
            await nodes.keep(connection, card(name, name), START)
        with pytest.raises(BrokenKey):
            await nodes.keep(connection, card("b", "a"), START)
        assert [known.name for known in await nodes.listed(connection)] == ["a", "b"]
        assert await nodes.remove(connection, "a")
        assert await nodes.keep(connection, card("b", "a"), START)


def card(identity: str, name: str) -> NodeCard:
    """A node of that name."""
    key = f"ed25519:{identity:A<43}"
    return NodeCard(identity=key, name=name, url="http://n", address="n", version="0")
