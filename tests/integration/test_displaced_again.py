"""A displaced run is freed on all nodes, placed again in its window, and names the winner."""

from __future__ import annotations

from typing import Any

import pytest

from node.model import times
from node.model.ids import TaskId, run_id
from node.model.wire.participants import Introduction
from node.model.wire.tasks import Schedule
from tests.support.clocks import START
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


async def _led(lead: Site, participants: tuple[Site, ...], **options: Any) -> Introduction:
    """Create a task that is on its lead's agenda and accepted by its participants."""
    task = introduction(participants, **options)
    for site in {lead, *participants}:
        await site.keep(task, lead)
    return task


async def _displaced(world: World, slip: int, **schedule: Any) -> tuple[Introduction, Introduction]:
    """Displace a run of a, b and c at b by a run of b's own; return both tasks."""
    a, b, c = await world.three()
    low = await _led(a, (a, b, c), schedule=Schedule(start=HOUR, slip=slip, **schedule))
    await a.plan()
    high = await _led(b, (b,), priority=5, schedule=Schedule(start=HOUR, slip=0))
    await b.plan()
    assert await b.state(run_id(TaskId(high.task), HOUR, 1)) == "scheduled"
    return low, high


async def test_the_trace_says_by_whom(world: World) -> None:
    """A displaced run is placed again; only the node where it happened knows the winner."""
    low, high = await _displaced(world, 20 * times.MINUTE)
    a, b, c = world.sites
    await world.settle()
    first, again = (run_id(TaskId(low.task), HOUR, attempt) for attempt in (1, 2))
    assert [await site.state(first) for site in (a, b, c)] == ["displaced"] * 3
    by = "displaced by a run that the owner of the host puts first"
    assert await b.reason(first) == f"{by} (idle of task {high.task})"
    assert await a.reason(first) == await c.reason(first) == by
    assert await a.reason(again) == f"{by}; is being placed again"
    winner = run_id(TaskId(high.task), HOUR, 1)
    for site, known in ((a, None), (b, winner), (c, None)):
        rows = await site.rows("SELECT displaced_by FROM run WHERE id = $1", first)
        assert [row[0] for row in rows] == [known]
    await a.plan()
    assert [await site.state(again) for site in (a, b, c)] == ["scheduled"] * 3
    [row] = await c.rows("SELECT starts_at FROM run WHERE id = $1", again)
    assert row[0] == HOUR + DURATION
    [trace] = [r[0] for r in await a.rows("SELECT trace FROM decision ORDER BY id DESC LIMIT 1")]
    assert trace["before"] == [f"{by}; is being placed again"]


async def test_a_task_does_not_finish_before_its_lost_run_is_placed_again(world: World) -> None:
    """Its lead displaces the only run itself, and hears of it by a message that comes later."""
    a, _, _ = await world.three()
    low = await _led(a, (a,), schedule=Schedule(start=HOUR, slip=20 * times.MINUTE))
    await a.plan()
    await _led(a, (a,), priority=5, schedule=Schedule(start=HOUR, slip=0))
    await a.plan()
    first, again = (run_id(TaskId(low.task), HOUR, attempt) for attempt in (1, 2))
    assert (await a.state(first), await a.state(again)) == ("displaced", None)
    await a.node.termination.finish_tasks()
    await world.settle()
    await a.plan()
    assert await a.state(again) == "scheduled"


@pytest.mark.nightly
async def test_without_room_it_waits_and_says_so(world: World) -> None:
    """A run displaced without slip waits for its only start and ends as unplaced."""
    low, _ = await _displaced(world, 0)
    a, _, c = world.sites
    await world.settle()
    await a.plan()
    again = run_id(TaskId(low.task), HOUR, 2)
    assert await a.state(again) == "waiting"
    assert (await a.reason(again) or "").startswith("b: no 5 min free: busy with")
    await world.pass_time(times.HOUR, 5 * times.MINUTE)
    assert await a.state(again) == "unplaced"
    assert await c.state(again) is None


@pytest.mark.nightly
async def test_it_counts_toward_no_limit(world: World) -> None:
    """A displaced run does not count towards ``max_runs``."""
    low, _ = await _displaced(world, 0, repeat=times.HOUR, max_runs=3, until=HOUR + 10 * times.HOUR)
    a = world.sites[0]
    await world.pass_time(times.HOUR + times.MINUTE, times.MINUTE)
    states = [row[0] for row in await a.rows("SELECT state::text FROM run ORDER BY slot, attempt")]
    assert states[:2] == ["displaced", "unplaced"]
    assert len(states) == 5
    assert set(states[2:]) <= {"booked", "running", "missed", "finished", "merging"}
    del low


@pytest.mark.nightly
async def test_a_lead_that_is_away_learns_of_it_later(world: World) -> None:
    """A lead that was cut off learns of the displacement later and places the run again."""
    a, b, _ = await world.three()
    low = await _led(a, (a, b), schedule=Schedule(start=HOUR, slip=20 * times.MINUTE))
    await a.plan()
    await _led(b, (b,), priority=5, schedule=Schedule(start=HOUR, slip=0))
    world.cut = {frozenset("ab")}
    await b.plan()
    await world.pass_time(times.MINUTE, 5 * times.SECOND)
    first, again = (run_id(TaskId(low.task), HOUR, attempt) for attempt in (1, 2))
    assert (await a.state(first), await b.state(first)) == ("scheduled", "displaced")
    world.cut = set()
    await world.pass_time(2 * times.MINUTE, 5 * times.SECOND)
    assert (await a.state(first), await a.state(again)) == ("displaced", "scheduled")
    assert await b.state(again) == "scheduled"


@pytest.mark.nightly
async def test_hosts_that_displace_each_other_in_a_circle_do_so_ever_less(world: World) -> None:
    """Each host puts its own task first, so that three of one slot never settle: they slow down."""
    a, b, c = await world.three()
    for lead, other in ((a, b), (b, c), (c, a)):
        await _led(lead, (lead, other), schedule=Schedule(start=HOUR, slip=0))
    attempts: list[int] = []
    for _ in range(60):
        for site in world.sites:
            await site.plan()
            await world.settle()
        world.clock.advance(10 * times.SECOND)
        rows = [await site.rows("SELECT DISTINCT id FROM run") for site in world.sites]
        attempts.append(len({row[0] for each in rows for row in each}))
    assert attempts[4] > 10
    assert attempts[-1] - attempts[30] < 10
    states = [state for site in world.sites for state in (await site.states()).values()]
    assert states.count("scheduled") == 2
