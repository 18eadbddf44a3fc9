"""Counting for quotas never makes transactions wait for each other in a circle."""

from __future__ import annotations

import asyncio
from random import Random
from uuid import UUID

import pytest

from node.model import times
from node.model.host_limits.quotas import UseKey
from node.model.wire.participants import HoldRequest
from node.store import database, host_limits
from tests.support.limits import RANKED_ALIKE, limit
from tests.support.worlds import (
    ON_ONE_LOOP,
    Site,
    World,
    exchange_of,
    hold_request,
    introduction,
    release_of,
)

pytestmark = ON_ONE_LOOP

HOUR, MINUTE = times.HOUR, times.MINUTE
RULE = 'most.runs = "40/PT1H"\n[[cap]]\nname = "targets"\nruns = "90/PT1H"\n'
CAPS = [["targets", "192.0.2.7/32"]]
CANCEL = (
    "UPDATE run SET state = 'cancelled', reason = 'x', finished_at = changed_at "
    "WHERE slot = $1 AND task_id = $2"
)


async def _host(world: World) -> tuple[Site, Site]:
    lead, host = await world.two()
    await limit(host.node, RANKED_ALIKE + RULE)
    return lead, host


async def _held(lead: Site, host: Site, starts: list[int]) -> HoldRequest:
    """Hold runs of a new task that has a target."""
    task = introduction([host], duration=MINUTE)
    await lead.keep(task, lead)
    await host.keep(task, lead)
    await host.execute(
        "UPDATE task SET limit_rule = 'known nodes', limit_caps = $1 WHERE id = $2", CAPS, task.task
    )
    request = hold_request(task, starts)
    await host.node.time_line.hold(exchange_of(request), lead.identity, request)
    return request


def _hours(world: World) -> tuple[int, int]:
    """Return the beginnings of two periods."""
    first = world.clock.now() // HOUR * HOUR + 2 * HOUR
    return first, first + HOUR


async def _used(host: Site) -> dict[str, int]:
    rows = await host.rows("SELECT rule, sum(used)::bigint FROM limit_used GROUP BY rule")
    return {row[0]: row[1] for row in rows if row[1]}


async def test_runs_of_two_periods_are_cancelled_in_opposite_order(world: World) -> None:
    """Two transactions give back the same accounts, each in its own order."""
    lead, host = await _host(world)
    early, late = _hours(world)
    one = await _held(lead, host, [early, late])
    other = await _held(lead, host, [early + MINUTE, late + MINUTE])
    assert await _used(host) == {"known nodes": 4, "targets": 4}
    both = asyncio.Barrier(2)

    async def cancel(task: UUID, *slots: int) -> None:
        async with host.database.transaction() as connection:
            await connection.execute(CANCEL, slots[0], task)
            await both.wait()
            await connection.execute(CANCEL, slots[1], task)

    await asyncio.gather(
        cancel(one.task, early, late), cancel(other.task, late + MINUTE, early + MINUTE)
    )
    assert await _used(host) == {}


async def test_runs_are_cancelled_while_a_hold_counts(world: World) -> None:
    """A hold that has locked one account waits for nothing that a cancellation has locked."""
    lead, host = await _host(world)
    early, late = _hours(world)
    held = await _held(lead, host, [early, late])
    async with host.database.connection() as connection:
        account = {("targets", CAPS[0][1])}
        keys = sorted(await host_limits.use_between(connection, account, early, late + 1))
    both = asyncio.Barrier(2)

    async def cancel() -> None:
        async with host.database.transaction() as connection:
            await connection.execute(CANCEL, late, held.task)
            await both.wait()
            await connection.execute(CANCEL, early, held.task)

    async def count() -> dict[UseKey, int]:
        async with host.database.transaction() as connection:
            await host_limits.lock_use(connection, keys[:1])
            await both.wait()
            return await host_limits.lock_use(connection, keys)

    await asyncio.gather(cancel(), count())
    assert list((await count_alone(host, keys)).values()) == [0, 0]
    assert await host.rows("SELECT FROM limit_return WHERE rule = 'targets'") == []


async def count_alone(host: Site, keys: list[UseKey]) -> dict[UseKey, int]:
    """Lock these accounts, and return what is used."""
    async with host.database.transaction() as connection:
        return await host_limits.lock_use(connection, keys)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.nightly
async def test_many_at_once(world: World, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Holds, releases, ends, moves to another rule, and deletions have no deadlock, and add up."""
    monkeypatch.setattr(database, "_ATTEMPTS", 1)
    rng = Random(seed)
    lead, host = await _host(world)
    early, late = _hours(world)

    async def live(number: int) -> None:
        starts = [early + number * MINUTE, late + number * MINUTE]
        request = await _held(lead, host, rng.sample(starts, 2))
        fate = rng.randrange(4)
        if fate == 0:
            await host.node.time_line.release(exchange_of(request), release_of(request))
        elif fate == 1:
            await host.node.termination.cancel_task(request.task)
        elif fate == 2:
            caps = [["targets", f"192.0.2.{number}/32"]]
            await host.execute("UPDATE task SET limit_caps = $2 WHERE id = $1", request.task, caps)
        else:
            await host.execute("UPDATE task SET run_bytes = $2 WHERE id = $1", request.task, number)

    await asyncio.gather(*(live(number) for number in range(30)))
    [[runs]] = await host.rows(
        "SELECT count(*) FROM run WHERE state IN ('booked', 'set-aside', 'running')"
    )
    assert await _used(host) == {"known nodes": runs, "targets": runs}
