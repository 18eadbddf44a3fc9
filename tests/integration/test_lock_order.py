"""Transactions of holds, releases, decisions, and introductions lock in one order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

import pytest

from node.model import times
from node.model.host_limits.document import DEFAULT
from node.model.wire.tasks import Schedule
from node.store import bookings, changes, nodes
from node.store import tasks as stored_tasks
from node.store.bookings import ExchangeRuling, Hold
from node.store.database import Connection
from tests.support.booking import HOUR, BookingLead
from tests.support.ended_tasks import ENDED_TASKS
from tests.support.limits import limit
from tests.support.worlds import (
    ON_ONE_LOOP,
    Site,
    World,
    exchange_of,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP


async def _is_blocked(site: Site) -> bool:
    """Return whether a transaction of this database waits for another one."""
    query = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock')"
    )
    return bool((await site.rows(query))[0][0])


async def test_a_release_overtakes_its_hold_while_that_is_under_way(booker: BookingLead) -> None:
    """The release is written though the hold has locked the task, and the hold finds it."""
    task = await booker.task()
    request = hold_request(task, [HOUR])
    exchange, site = exchange_of(request), booker.site
    hold = Hold(exchange, booker.lead.identity, request)
    ruling = ExchangeRuling(exchange, task.task, None, booker.lead.identity)

    async def release() -> None:
        async with site.database.transaction() as connection:
            await bookings.keep_early_releases(connection, [ruling], HOUR)

    async with site.database.transaction() as connection:
        assert await bookings.accept_epochs(connection, [hold])
        releasing = asyncio.create_task(release())
        while not releasing.done() and not await _is_blocked(site):
            pass
        assert await bookings.open_exchanges(connection, [hold], HOUR) == set()
    await releasing


async def test_an_edit_locks_its_lead_before_the_caps(world: World) -> None:
    """An edit that waits for a new task of its lead holds nothing for which that one waits."""
    lead, host = await world.two()
    await limit(host.node, DEFAULT)
    task = introduction([host], schedule=Schedule(start=HOUR), duration=times.MINUTE)
    spec = {"duration": "PT1M", "class": "exclusive", "participants": ["b"]}
    task = task.model_copy(update={"spec": spec, "created_at": HOUR - times.HOUR})
    assert (await host.node.acceptance.consider(lead.identity, task)).accepted
    edit = task.model_copy(update={"revision": 2, "reference": "x"})
    async with host.database.transaction() as connection:
        assert await nodes.lock(connection, lead.identity)
        editing = asyncio.create_task(host.node.acceptance.consider(lead.identity, edit))
        while not editing.done() and not await _is_blocked(host):
            pass
        assert not editing.done()
        await connection.execute("SET LOCAL lock_timeout = '100ms'")
        [row] = await connection.fetch(
            "SELECT count(*) FROM (SELECT FROM limit_use WHERE rule LIKE '% of all others' "
            "FOR UPDATE) AS locked"
        )
        assert row[0] > 0
    assert (await editing).accepted


async def _two_tasks(site: Site) -> list[UUID]:
    """Return two tasks in the order of their names; in the table the first one comes last."""
    await site.execute(ENDED_TASKS, site.identity, HOUR, 2, times.HOUR)
    tasks = [row[0] for row in await site.rows("SELECT task_id FROM planning ORDER BY 1")]
    await site.execute("UPDATE planning SET failures = failures WHERE task_id = $1", tasks[0])
    return tasks


_LOCK = "SELECT FROM planning WHERE task_id = $1 FOR NO KEY UPDATE"


async def test_raised_epochs_lock_the_agenda_as_workers_do(world: World) -> None:
    """A database that was restored waits for the first task, and holds no later one meanwhile."""
    site = await world.site("a")
    tasks = await _two_tasks(site)
    await site.execute("UPDATE generation SET place = 'elsewhere'")
    async with site.database.transaction() as connection:
        await connection.execute(_LOCK, tasks[0])
        looking = asyncio.create_task(site.database.check_mark())
        while not looking.done() and not await _is_blocked(site):
            pass
        await connection.execute("SET LOCAL lock_timeout = '100ms'")
        await connection.execute(_LOCK, tasks[1])
    assert await looking


async def _fence(connection: Connection, tasks: Sequence[UUID]) -> Mapping[UUID, object]:
    return await changes.fence(connection, tasks, HOUR)


@pytest.mark.parametrize(
    "change",
    [pytest.param(stored_tasks.stop_planning, id="end"), pytest.param(_fence, id="edit")],
)
async def test_ends_and_edits_lock_the_agenda_as_workers_do(
    world: World, change: Callable[[Connection, Sequence[UUID]], Awaitable[Mapping[UUID, object]]]
) -> None:
    """A change of two tasks waits for the first, and holds the second not before that."""
    site = await world.site("a")
    tasks = await _two_tasks(site)

    async def change_both() -> Mapping[UUID, object]:
        async with site.database.transaction() as connection:
            return await change(connection, tasks)

    async with site.database.transaction() as connection:
        await connection.execute(_LOCK, tasks[0])
        changing = asyncio.create_task(change_both())
        while not changing.done() and not await _is_blocked(site):
            pass
        await connection.execute("SET LOCAL lock_timeout = '100ms'")
        await connection.execute(_LOCK, tasks[1])
    assert set(await changing) == set(tasks)
