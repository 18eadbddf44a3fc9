"""Transactions, crashes and notifications of the database in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from lead.simulation.memory import MemoryDatabase
from lead.simulation.memory.rows import NegotiationRow
from lead.store import planning
from node.model.classes import SchedulingClass
from node.model.errors import DatabaseUnavailable
from node.model.task_terms import TaskTerms
from node.model.taskstate import TaskState
from node.model.wire.nodes import NodeCard
from node.model.wire.tasks import Participant, Schedule
from node.store import bookings, nodes, outbox, runs, tasks
from node.store.database import BrokenKey, Connection, Notice
from node.store.outbox import MessageKind
from node.store.tasks import FirstPlanning, Made, StoredTask
from tests.support.clocks import START, ManualClock

TASK = UUID(int=1)


class Crash(BaseException):
    """The crash of the simulated node at this point."""


@pytest.fixture
def database() -> MemoryDatabase:
    """Return an empty database."""
    return MemoryDatabase()


async def keep_task(connection: Connection, priority: int = 0) -> None:
    """Write the task of these tests."""
    task = StoredTask(
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
    assert await tasks.keep(connection, task)


async def fetch_committed(database: MemoryDatabase) -> StoredTask | None:
    """Return the task as other transactions see it."""
    async with database.connection() as connection:
        return await tasks.fetch(connection, TASK)


async def crash_after(
    database: MemoryDatabase, action: Callable[[Connection], Awaitable[None]]
) -> None:
    """Run ``action`` in a transaction that then crashes."""
    async with database.transaction() as connection:
        await action(connection)
        raise Crash


async def test_what_fails_has_not_happened(database: MemoryDatabase) -> None:
    """An exception in a transaction rolls back all its changes."""

    async def both(connection: Connection) -> None:
        await keep_task(connection)
        await tasks.open_planning(connection, {TASK: FirstPlanning(START, START)})

    with pytest.raises(Crash):
        await crash_after(database, both)
    assert await fetch_committed(database) is None


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
    """A crash before the commit leaves no change, one after it leaves all."""

    async def point(passed: str) -> None:
        if passed == moment:
            raise Crash

    database.point = point
    with pytest.raises(Crash):
        async with database.transaction() as connection:
            await keep_task(connection)
    database.point = None
    assert (await fetch_committed(database) is not None) is survives
    async with database.transaction() as connection:
        await keep_task(connection)


async def test_a_statement_of_its_own_is_done_when_it_is_over(database: MemoryDatabase) -> None:
    """A statement outside a transaction is committed at once."""

    async def point(passed: str) -> None:
        if passed == "after tasks.keep_idempotency":
            raise Crash

    database.point = point
    with pytest.raises(Crash):
        async with database.connection() as connection:
            await tasks.keep_idempotency(connection, {"key": Made("digest", TASK)}, START)
    async with database.connection() as connection:
        assert await tasks.find_idempotency(connection, ["key"])


async def test_nobody_sees_what_is_not_committed(database: MemoryDatabase) -> None:
    """A reader waits for the end of a transaction that has written."""
    async with database.transaction() as connection:
        await keep_task(connection)
        reading = asyncio.create_task(fetch_committed(database))
        await ManualClock().sleep(0)
        assert not reading.done()
    task = await reading
    assert task is not None


async def test_two_may_read_before_either_writes(database: MemoryDatabase) -> None:
    """A transaction gets the database for itself with its first write, as in Postgres."""
    reads = []

    async def check_then_write(name: str) -> None:
        async with database.transaction() as connection:
            reads.append((name, await tasks.find_idempotency(connection, ["key"])))
            await ManualClock().sleep(0)
            await tasks.keep_idempotency(connection, {"key": Made(name, TASK)}, START)

    await asyncio.gather(check_then_write("one"), check_then_write("other"))
    assert reads == [("one", {}), ("other", {})]


async def test_after_a_broken_constraint_nothing_more_is_done(database: MemoryDatabase) -> None:
    """A transaction in which a statement failed can only be rolled back."""
    async with database.transaction() as connection:
        await keep_task(connection)
        await tasks.open_planning(connection, {TASK: FirstPlanning(START, START)})
    async with database.transaction() as connection:
        await keep_task(connection, priority=7)
        with pytest.raises(BrokenKey):
            await tasks.open_planning(connection, {TASK: FirstPlanning(START, START)})
        with pytest.raises(RuntimeError, match="rolled back"):
            await tasks.fetch(connection, TASK)
    task = await fetch_committed(database)
    assert task is not None
    assert task.terms.priority == 0


async def test_notifications_come_with_the_commit(database: MemoryDatabase) -> None:
    """Notifications are delivered once each with the commit, and not after a rollback."""
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
    """A change to a fetched document does not change the stored one."""
    async with database.transaction() as connection:
        await keep_task(connection)
    task = await fetch_committed(database)
    assert task is not None
    task.terms.spec["list"].append(2)
    again = await fetch_committed(database)
    assert again is not None
    assert again.terms.spec == {"list": [1]}


async def test_a_closed_database_does_not_answer(database: MemoryDatabase) -> None:
    """A closed database refuses queries and keeps its tables until it is opened again."""
    async with database.transaction() as connection:
        await keep_task(connection)
    await database.close()
    with pytest.raises(DatabaseUnavailable):
        await fetch_committed(database)
    await database.open()
    assert await fetch_committed(database) is not None


async def test_a_query_without_a_twin_is_named(database: MemoryDatabase) -> None:
    """The error for a query without a twin names the query."""
    async with database.connection() as connection:
        with pytest.raises(LookupError, match=r"tasks\.tasks has no twin"):
            await tasks.listed(connection, tasks.TaskFilter(), START)


async def test_only_so_many_are_claimed(database: MemoryDatabase) -> None:
    """A claim takes the tasks with the earliest next runs, up to the requested number."""
    async with database.transaction() as connection:
        for number in range(1, 4):
            task = await _numbered(connection, number)
            await tasks.open_planning(connection, {task: FirstPlanning(START - number, START)})
        claims = await planning.claim(
            connection, planning.LeaseRequest("worker", START, START + 1), START + 1, 2
        )
    assert [claim.task.int for claim in claims] == [3, 2]


async def _numbered(connection: Connection, number: int) -> UUID:
    await keep_task(connection)
    task = await tasks.fetch(connection, TASK)
    assert task is not None
    new_id = UUID(int=number)
    await tasks.keep(connection, StoredTask(**{**vars(task), "id": new_id}))
    return new_id


async def test_an_outbox_is_read_in_portions(database: MemoryDatabase) -> None:
    """At most a hundred messages are taken at once, the earliest due first."""
    async with database.transaction() as connection:
        for number in range(150):
            await outbox.post(connection, ["a"], MessageKind.PART, {}, START - number)
        taken = await outbox.due(connection, START, START + 1, [MessageKind.PART], ())
        following = await outbox.next_due(connection, [MessageKind.PART], ())
    assert min(message.created_at for message in taken) == START - 149
    assert len(taken) == 100
    assert following == START - 49


async def test_two_nodes_never_have_one_name(database: MemoryDatabase) -> None:
    """A node cannot take the name of another one and keeps its own after the attempt."""
    async with database.connection() as connection:
        for name in ("a", "b"):
            await nodes.keep(connection, card(name, name), START)
        with pytest.raises(BrokenKey):
            await nodes.keep(connection, card("b", "a"), START)
        assert [node.name for node in await nodes.listed(connection)] == ["a", "b"]
        assert await nodes.remove(connection, "a")
        assert await nodes.keep(connection, card("b", "a"), START)


def card(identity: str, name: str) -> NodeCard:
    """Return the card of a node of that name."""
    key = f"ed25519:{identity:A<43}"
    return NodeCard(identity=key, name=name, url="http://n", address="n", version="0")


async def test_what_was_rolled_back_is_purged_once(database: MemoryDatabase) -> None:
    """A negotiation is deleted once, although a change of it was rolled back in the meantime."""
    async with database.transaction() as connection:
        await keep_task(connection)
    tables = database.tables
    row = NegotiationRow(UUID(int=2), TASK, 1, [], START, START, "aborted", decided_at=START)
    tables.negotiations.insert(row)
    tables.journal.commit()

    async def change(connection: Connection) -> None:
        del connection
        tables.negotiations.change(row, state="committed")

    with pytest.raises(Crash):
        await crash_after(database, change)
    async with database.transaction() as connection:
        assert await runs.purge_negotiations(connection, START + 1, 10) == 1
