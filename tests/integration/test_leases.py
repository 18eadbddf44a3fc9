"""The tasks of a lead that is not heard of for a week end at their participants."""

from __future__ import annotations

from lead.assembly.with_node import reconciliation_dependencies
from lead.exchange.reconciliation import Reconciler
from lead.model.reasons import ended_there
from node.model import times
from node.model.ids import TaskId, run_id
from node.model.wire.participants import Introduction
from node.model.wire.tasks import Schedule
from node.store import clock_steps
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, Site, World, introduction

pytestmark = ON_ONE_LOOP

LATER = START + 9 * times.DAY
"""The start of a run that is booked now, for a time after the lease."""

WEEK_AND_MORE = 8 * times.DAY


async def _booked(world: World) -> tuple[Site, Site, Introduction]:
    """Return nodes a and b, and a task that a leads, booked on both."""
    a, b = (
        await world.site("a", horizon=20 * times.DAY),
        await world.site("b", horizon=20 * times.DAY),
    )
    task = introduction([a, b], schedule=Schedule(start=LATER, repeat=times.DAY, max_runs=2))
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    assert list((await b.states()).values()) == ["scheduled"] * 2
    await b.node.leases.write_contacts()
    return a, b, task


async def _end(site: Site) -> int:
    """End the tasks of silent leads, as at a node whose hourly jobs ran all the time."""
    async with site.database.connection() as connection:
        while await clock_steps.judge_age(connection, site.clock.now()) < site.clock.now():
            pass
    return await site.node.leases.run_once()


async def _task(site: Site, task: Introduction) -> tuple[str, str | None]:
    [row] = await site.rows("SELECT state::text, reason FROM task WHERE id = $1", task.task)
    return row[0], row[1]


async def test_a_silent_leads_tasks_end_and_their_time_is_free(world: World) -> None:
    """After a week without a word the task ends here, with a reason, and its runs are freed."""
    a, b, task = await _booked(world)
    world.cut = {frozenset("ab")}
    world.clock.advance(7 * times.DAY)
    assert await _end(b) == 0
    assert (await _task(b, task))[0] == "active"
    world.clock.advance(1)
    assert await _end(b) == 1
    why = (
        "b has not heard of a, which leads it, since 2026-12-01T00:00:00Z: longer than 7 d "
        "(PARLEY_LEAD_LEASE)"
    )
    assert await _task(b, task) == ("refused", why)
    first = run_id(TaskId(task.task), LATER, 1)
    assert list((await b.states()).values()) == ["cancelled"] * 2
    assert await b.reason(first) == f"the task was refused: {why}"
    mine = introduction([b], schedule=Schedule(start=LATER, slip=0))
    await b.keep(mine, b)
    await b.plan()
    assert await b.state(run_id(TaskId(mine.task), LATER, 1)) == "scheduled"
    assert await _end(b) == 0
    assert (await _task(a, task))[0] == "active"


async def test_a_lead_that_comes_back_ends_its_task(world: World) -> None:
    """The lead is told as soon as it answers again, and measures nothing alone."""
    a, b, task = await _booked(world)
    world.cut = {frozenset("ab")}
    world.clock.advance(WEEK_AND_MORE)
    await _end(b)
    await b.deliver()
    world.cut = set()
    world.clock.advance(times.MINUTE)
    await world.settle()
    state, reason = await _task(a, task)
    assert (state, (reason or "").partition(",")[0]) == ("refused", "b has not heard of a")
    assert set((await a.states()).values()) == {"cancelled"}


async def test_a_lead_that_comes_back_learns_it_by_comparing(world: World) -> None:
    """The lead ends its task without the message, too, when it compares its runs."""
    a, b, task = await _booked(world)
    world.clock.advance(WEEK_AND_MORE)
    await _end(b)
    await b.execute("DELETE FROM outbox")
    dependencies = reconciliation_dependencies(a.node)
    reconciler = Reconciler(a.database, a.clock, dependencies, 20 * times.DAY)
    await reconciler.run_once(a.node.peer(b.identity))
    assert await _task(a, task) == ("cancelled", ended_there("refused", "b"))
    assert set((await a.states()).values()) == {"cancelled"}


async def test_a_lead_that_speaks_keeps_its_tasks(world: World) -> None:
    """A request or an answer of the lead now and then is enough, also for a paused task."""
    a, b, task = await _booked(world)
    await a.node.editing.pause(task.task)
    await world.settle()
    for _ in range(3):
        world.clock.advance(6 * times.DAY)
        await b.node.confirmer.run_once()
        await b.node.leases.write_contacts()
        assert await _end(b) == 0
    assert (await _task(b, task))[0] == "paused"
    [row] = await b.rows("SELECT heard_at FROM node WHERE name = 'a'")
    assert row[0] == world.clock.now()


async def test_a_node_that_was_down_for_a_week_listens_first(world: World) -> None:
    """A node that comes back after a week hears its leads before it ends anything."""
    _, b, task = await _booked(world)
    world.clock.advance(WEEK_AND_MORE)
    await world.restart(b)
    assert await _end(b) == 0
    await b.node.confirmer.run_once()
    world.clock.advance(times.HOUR)
    assert await _end(b) == 0
    assert (await _task(b, task))[0] == "active"


async def test_a_clock_set_forward_ends_nothing_at_once(world: World) -> None:
    """A clock that is a month ahead for a while costs no lead its tasks, nor gives it more time."""
    _, b, task = await _booked(world)
    world.clock.advance(times.HOUR)
    world.clock.step(30 * times.DAY)
    b.node.leases.note_contact("ed25519:nobody")
    b.node.leases.note_contact(world.sites[0].identity)
    assert await _end(b) == 0
    await b.node.leases.write_contacts()
    world.clock.advance(times.MINUTE)
    world.clock.step(-30 * times.DAY)
    await b.node.watch_clock()
    assert await _end(b) == 0
    world.clock.advance(times.HOUR)
    assert await _end(b) == 0
    assert (await _task(b, task))[0] == "active"
    world.clock.advance(WEEK_AND_MORE)
    assert await _end(b) == 1


async def test_all_tasks_of_a_silent_lead_end(world: World) -> None:
    """A lead with more tasks than one transaction ends loses all of them; others lose none."""
    a, b, c = await world.three()
    for lead, count in ((a, 203), (c, 2)):
        for _ in range(count):
            await b.keep(introduction([b], schedule=Schedule(start=LATER)), lead)
    world.clock.advance(6 * times.DAY)
    b.node.leases.note_contact(c.identity)
    await b.node.leases.write_contacts()
    world.clock.advance(2 * times.DAY)
    assert await _end(b) == 203
    rows = await b.rows("SELECT lead, count(*) FROM task WHERE state = 'active' GROUP BY lead")
    assert [(row[0], row[1]) for row in rows] == [(c.identity, 2)]
