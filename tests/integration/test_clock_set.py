"""A host's clock that is set, by mistake or to mend it, takes nothing from anybody."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from structlog.testing import capture_logs

from node.clock import DOUBT
from node.model import times
from node.model.wire.tasks import Schedule
from node.store import outbox
from node.store.database import Notice
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.worlds import (
    HOLD_LIFE,
    ON_ONE_LOOP,
    Site,
    World,
    book_everywhere,
    hold_everywhere,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP

SOON = START + 10 * times.MINUTE


async def _look(site: Site) -> None:
    """Let the launcher look, and begin or mark what it finds."""
    launcher = site.node.launcher
    await launcher.run_once()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*launcher._tasks.values())


async def test_runs_to_come_are_not_missed_by_a_clock_set_forward(world: World) -> None:
    """Runs seem to be over while the clock is an hour ahead, and are still to come afterwards."""
    a, b = await world.two()
    [run] = await book_everywhere(introduction([a, b]), a, [a, b], [SOON])
    world.clock.step(times.HOUR)
    for site in (a, b):
        await _look(site)
        await site.node._overdue()
    world.clock.advance(DOUBT // 2)
    world.clock.step(-times.HOUR)
    for site in (a, b):
        await _look(site)
        await site.node._overdue()
    assert [await site.state(run) for site in (a, b)] == ["scheduled", "scheduled"]


async def test_a_clock_that_stays_forward_is_believed(world: World) -> None:
    """A run that is over by a clock which stays as it was set is missed after a minute."""
    [a] = [await world.site("a")]
    [run] = await book_everywhere(introduction([a]), a, [a], [SOON])
    world.clock.step(times.HOUR)
    await _look(a)
    assert await a.state(run) == "scheduled"
    world.clock.advance(DOUBT)
    await _look(a)
    assert await a.state(run) == "missed"


async def test_a_lead_gives_up_no_slot_while_its_clock_is_in_doubt(world: World) -> None:
    """Workers plan nothing in the minute after a step forward, and everything once it is undone."""
    a = await world.site("a")
    task = introduction([a], schedule=Schedule(start=SOON, slip=0))
    await a.keep(task, a)
    world.clock.step(times.HOUR)
    a.workers._poll_s = 0.01
    running = asyncio.create_task(a.workers.run())
    for _ in range(3):
        await asyncio.wait({running}, timeout=0.02)
    assert await a.states() == {}
    world.clock.step(-times.HOUR)
    async with asyncio.timeout(PATIENCE_S):
        while list((await a.states()).values()) != ["scheduled"]:
            await asyncio.wait({running}, timeout=0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_clock_set_back_and_right_again_stops_no_housekeeping(world: World) -> None:
    """Holds end after their life though the clock was an hour behind for a while."""
    a, b = await world.two()
    task = introduction([a, b])
    await b.keep(task, a)
    await hold_everywhere(a, [b], hold_request(task, [SOON]))
    housekeeper = b.node._housekeeper
    housekeeper.start(b.node._periodic_jobs())
    try:
        world.clock.step(-times.HOUR)
        await _pass(world, 4)
        world.clock.step(times.HOUR)
        world.clock.advance(2 * HOLD_LIFE)
        async with asyncio.timeout(PATIENCE_S):
            while await b.rows("SELECT FROM exchange WHERE state = 'held'"):
                await _pass(world, 1)
    finally:
        await housekeeper.stop()


async def test_a_step_is_told_and_everything_looks_again(world: World) -> None:
    """A step is logged and counted once, and all who wait for an instant are woken."""
    a = await world.site("a")
    heard = list[Notice]()
    a.node.add_notification_listener(heard.append)
    await a.node.watch_clock()
    assert heard == []
    world.clock.step(-times.HOUR)
    with capture_logs() as lines:
        for _ in range(2):
            await a.node.watch_clock()
    assert [notice.kind for notice in heard] == ["wake"]
    assert [(line["event"], line["by_s"]) for line in lines] == [
        ("the clock of this host was set", -3600.0)
    ]


async def test_messages_taken_by_a_clock_that_was_ahead_are_delivered(world: World) -> None:
    """They are due as soon as the clock is right again, or when the node starts after that."""
    a, b = await world.two()
    await a.node.watch_clock()
    for noticed in (a.node.watch_clock, a.node.outbox.recover):
        world.clock.step(times.HOUR)
        await a.node.watch_clock()
        async with a.database.transaction() as connection:
            body = {"task": str(uuid4()), "state": "finished", "reason": "over"}
            kind, now = outbox.MessageKind.TASK_END, world.clock.now()
            await outbox.post(connection, [b.identity], kind, body, now)
            [taken] = await outbox.due(connection, now, now + 30 * times.SECOND, [kind], [])
        world.clock.step(-times.HOUR)
        await noticed()
        async with a.database.transaction() as connection:
            now = world.clock.now()
            assert await outbox.due(connection, now, now, [kind], []) == [taken]
            await outbox.delivered(connection, [taken.id])


async def _pass(world: World, seconds: int) -> None:
    """Let seconds pass, each with time for what is due in it."""
    for _ in range(seconds):
        world.clock.advance(times.SECOND)
        for site in world.sites:
            await site.rows("SELECT 1")
