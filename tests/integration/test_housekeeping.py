"""Housekeeping deletes what is not needed any more, and nothing else."""

from __future__ import annotations

from uuid import UUID

import pytest

from lead.store import episodes
from node.model import times
from node.model.errors import PeerUnreachable
from node.model.wire.participants import TaskEnd
from node.model.wire.tasks import Schedule
from node.store import outbox, seats
from node.store.database import Record
from tests.support.clocks import START
from tests.support.pool_worlds import Pooled, pooled
from tests.support.worlds import ON_ONE_LOOP, Call, World, book_everywhere, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


async def test_exchanges_and_decisions_do_not_pile_up(world: World) -> None:
    """Exchanges and decisions are deleted with their old runs."""
    a, b = await world.site("a"), await world.site("b")
    task = introduction([a, b], schedule=Schedule(start=HOUR, slip=0))
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    for site in (a, b):
        await site.execute("UPDATE run SET state = 'finished'")
        await site.node.purger.purge(site.node.clock.now())
        assert len(await site.rows("SELECT FROM exchange")) == 1
    world.clock.advance(31 * times.DAY)
    for site in (a, b):
        await site.node.purger.purge(site.node.clock.now())
        for table in ("run", "exchange", "negotiation"):
            assert await site.rows(f"SELECT FROM {table}") == []


async def test_a_commit_on_its_way_keeps_its_negotiation(world: World) -> None:
    """A negotiation is kept until all participants have acknowledged the commit it holds."""
    a, b = await world.two()
    task = introduction([a, b], schedule=Schedule(start=HOUR, slip=0))
    for site in (a, b):
        await site.keep(task, a)

    async def lose(call: Call, phase: str) -> None:
        if call[2] == "commit":
            raise PeerUnreachable("b cannot be reached")

    world.watch = lose
    await a.plan()
    assert {kind for _, kind, _ in await a.outbox_messages()} == {"commit"}
    world.clock.advance(2 * times.DAY)
    await _purge(world)
    assert len(await a.rows("SELECT FROM negotiation")) == 1
    world.watch = None
    await world.settle()
    assert await a.outbox_messages() == []
    await _purge(world)
    assert await a.rows("SELECT FROM negotiation") == []


async def test_runs_are_counted_as_long_as_their_task_goes_on(world: World) -> None:
    """Old runs of an active task with ``max_runs`` are kept, as they count."""
    a = await world.site("a")
    task = introduction([a], schedule=Schedule(start=HOUR, repeat=times.DAY, max_runs=40))
    await book_everywhere(task, a, [a], [HOUR])
    await a.execute("UPDATE run SET state = 'finished'")
    world.clock.advance(31 * times.DAY)
    await a.node.purger.purge(a.node.clock.now())
    assert len(await a.rows("SELECT FROM run")) == 1
    await a.node.termination.cancel_task(task.task)
    await a.node.purger.purge(a.node.clock.now())
    assert await a.rows("SELECT FROM run") == []


@pytest.mark.nightly
async def test_terms_are_forgotten_but_who_measured_is_not(world: World) -> None:
    """Old terms are deleted with seats and tasks, except the last one of each node."""
    pool = await pooled(world, [{}, {}, {}])
    task = await pool.create(2)
    await _all_ended(pool)
    choice = await _choice(pool, task)
    world.clock.advance(29 * times.DAY)
    await _purge(world)
    assert list(await pool.seats(task)) == [0, 6, 12], "the terms can still be viewed"
    world.clock.advance(3 * times.DAY)
    await _purge(world)
    assert list(await pool.seats(task)) == [12]
    assert await _choice(pool, task) == choice
    assert len(await pool.lead.rows("SELECT FROM task WHERE parent = $1", task)) == 2
    listed = await _seats_listed(pool, task)
    assert [seat["lost_at"] for seat in listed] == [None, None], "no seat appears to be empty"
    await pool.lead.node.termination.cancel_task(task)
    await _purge(world)
    assert await pool.lead.rows("SELECT FROM term") == []
    assert [row[0] for row in await pool.lead.rows("SELECT id FROM task")] == [task]


@pytest.mark.nightly
async def test_terms_with_runs_are_not_forgotten(world: World) -> None:
    """A term is kept while one of its runs exists or one of its seats has not ended."""
    pool = await pooled(world, [{}, {}])
    task = await pool.create(2)
    await _all_ended(pool)
    await pool.lead.execute(
        "UPDATE run SET state = 'failed', reason = 'x' WHERE task_id = "
        "(SELECT task_id FROM seat ORDER BY term, place LIMIT 1)"
    )
    world.clock.advance(32 * times.DAY)
    await _purge(world)
    assert {term: len(held) for term, held in (await pool.seats(task)).items()} == {0: 2, 12: 2}
    assert (await pool.states(pool.lead, task)) == {"failed": 6}
    world.clock.advance(60 * times.DAY)
    await _purge(world)
    assert list(await pool.seats(task)) == [12]


@pytest.mark.nightly
async def test_who_had_a_seat_before_is_kept_until_another_has_measured(world: World) -> None:
    """The previous holder of a seat is kept while the current one may still lose it."""
    pool = await pooled(world, [{}, {}])
    task = await pool.create(1)
    await _all_ended(pool)
    await pool.lead.execute(
        "UPDATE task SET state = 'active' WHERE id = "
        "(SELECT task_id FROM seat ORDER BY term DESC LIMIT 1)"
    )
    world.clock.advance(32 * times.DAY)
    await _purge(world)
    assert list(await pool.seats(task)) == [6, 12]


async def test_ended_tasks_are_forgotten(world: World) -> None:
    """Old tasks are deleted on all nodes, unless a message about them is pending."""
    a, b = await world.site("a"), await world.site("b")
    first, second = (introduction([a, b], schedule=Schedule(start=HOUR)) for _ in range(2))
    for task in (first, second):
        for site in (a, b):
            await site.keep(task, a)
    await b.node.termination.cancel_task(first.task)
    await a.node.termination.cancel_task(second.task)
    await world.settle()
    assert await b.rows("SELECT FROM task WHERE state = 'active'") == []
    async with b.database.transaction() as connection:
        end = TaskEnd(task=first.task, state="refused", reason="x").model_dump(mode="json")
        await outbox.post(connection, ["a"], outbox.MessageKind.TASK_END, end, world.clock.now())
    world.clock.advance(89 * times.DAY)
    await _purge(world)
    assert [len(await site.rows("SELECT FROM task")) for site in (a, b)] == [2, 2]
    await b.execute("UPDATE outbox SET created_at = $1", world.clock.now())
    world.clock.advance(2 * times.DAY)
    await _purge(world)
    assert [row[0] for row in await b.rows("SELECT id FROM task")] == [first.task]
    assert await a.rows("SELECT FROM task") == await a.rows("SELECT FROM planning") == []
    world.clock.advance(90 * times.DAY)
    await _purge(world)
    assert await b.rows("SELECT FROM outbox") == [], "messages are not sent for ever"
    await _purge(world)
    assert await b.rows("SELECT FROM task") == []


async def _all_ended(pool: Pooled) -> None:
    """Finish all booked runs of all seats."""
    for site in pool.world.sites:
        await site.execute("UPDATE run SET state = 'finished'")
    await pool.lead.execute(
        "UPDATE planning SET plan_at = NULL FROM seat WHERE planning.task_id = seat.task_id"
    )
    await pool.lead.node.termination.finish_tasks()
    await pool.world.settle()


async def _purge(world: World) -> None:
    for site in world.sites:
        await site.node.purger.purge(site.node.clock.now())


async def _choice(pool: Pooled, task: UUID) -> tuple[object, object]:
    """Return what guides the choice of nodes: last holders, and last use of each node."""
    async with pool.lead.database.connection() as connection:
        holders = await episodes.last_holders(connection, [task])
        return holders, await episodes.last_use_by_node(connection, [task])


async def _seats_listed(pool: Pooled, task: UUID) -> list[Record]:
    async with pool.lead.database.connection() as connection:
        return await seats.find_all(connection, task, START)
