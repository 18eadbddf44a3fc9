"""Weak points of pScheduler from one run of a task to the next, with proof that they are gone.

Differing horizons are in ``test_retries.py``, nodes that are never compared in
``test_reconciliation.py``, a lead that dies at any message in ``test_crashes.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.ids import TaskId, run_id
from node.model.wire.participants import Introduction
from node.model.wire.tasks import Schedule
from tests.support.clocks import START, ManualClock
from tests.support.limits import RANKED_ALIKE, set_limits
from tests.support.patience import PATIENCE_S
from tests.support.worlds import (
    DURATION,
    HOLD_LIFE,
    ON_ONE_LOOP,
    Call,
    Site,
    World,
    book_everywhere,
    introduction,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


async def _led(lead: Site, participants: Sequence[Site], **options: Any) -> Introduction:
    """Create a task that is on its lead's agenda and accepted by its participants."""
    task = introduction(participants, **options)
    for site in {lead, *participants}:
        await site.keep(task, lead)
    return task


async def _placed(site: Site, task: Introduction) -> list[tuple[int, int]]:
    """Return slot and start of each booked run in order."""
    query = "SELECT slot, starts_at FROM run WHERE task_id = $1 AND state = 'booked' ORDER BY slot"
    return [(row[0], row[1]) for row in await site.rows(query, task.task)]


async def _plan_all(site: Site) -> None:
    """Plan while anything is due, without moving the clock."""
    due = "SELECT FROM planning WHERE plan_at <= $1"
    while await site.rows(due, site.clock.now()):
        await site.plan()


# -- runs that find no time ------------------------------------------------------------------------


@pytest.mark.nightly
async def test_what_found_no_time_uses_up_no_run(world: World) -> None:
    """Slots that find no time do not use up ``max_runs``."""
    a, b = await world.two()
    await book_everywhere(introduction([b], duration=2 * DURATION), b, [b], [HOUR])
    schedule = Schedule(start=HOUR, repeat=DURATION, max_runs=3, slip=0)
    task = await _led(a, (a, b), schedule=schedule)
    await a.plan()
    await world.pass_time(times.HOUR + 3 * DURATION, DURATION // 2)
    states = list((await a.states()).values())
    assert states.count("unplaced") == 2
    assert len(states) == 5
    assert {slot for slot, _ in await _placed(a, task)} <= {
        HOUR + number * DURATION for number in (2, 3, 4)
    }


@pytest.mark.nightly
async def test_time_that_is_freed_later_is_used(world: World) -> None:
    """A waiting slot gets time that is freed later."""
    a, b = await world.two()
    set_limits(b.node, RANKED_ALIKE)
    [blocking] = await book_everywhere(introduction([b]), b, [b], [HOUR])
    task = await _led(a, (a, b), schedule=Schedule(start=HOUR, slip=0))
    await a.plan()
    assert await _placed(a, task) == []
    await b.node.termination.cancel_run(blocking)
    await world.pass_time(6 * times.MINUTE, times.MINUTE)
    assert await _placed(a, task) == await _placed(b, task) == [(HOUR, HOUR)]


# -- how fast, and in what order -------------------------------------------------------------------


@pytest.mark.nightly
async def test_a_day_of_minutes_is_planned_without_waiting(world: World) -> None:
    """The runs of a day are booked while the clock stands still."""
    a, b = await world.two()
    schedule = Schedule(start=START + times.MINUTE, repeat=times.MINUTE, slip=0)
    kind = SchedulingClass.BACKGROUND
    task = await _led(a, (a, b), schedule=schedule, duration=times.SECOND, scheduling_class=kind)
    await _plan_all(a)
    assert a.clock.now() == START
    assert len(await _placed(a, task)) == len(await _placed(b, task)) == 1439
    assert world.count("hold") == 2 * 3


async def test_a_worker_that_is_done_takes_the_next_task_at_once(world: World) -> None:
    """A worker takes the next task at once when it has finished one."""
    a = await world.site("a", workers=1)
    b = await world.site("b")
    for number in range(5):
        await _led(a, (a, b), schedule=Schedule(start=HOUR + number * times.HOUR, slip=0))
    all_committed = asyncio.Event()

    async def count(call: Call, phase: str) -> None:
        if world.count("commit") == 10 and call[2] == "commit" and phase == "answered":
            all_committed.set()

    world.watch = count
    loop = asyncio.create_task(a.workers.run())
    await asyncio.wait_for(all_committed.wait(), PATIENCE_S)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert a.clock.now() == START
    assert list((await b.states()).values()) == ["scheduled"] * 5


async def test_of_tasks_due_at_the_same_time_the_older_goes_first(world: World) -> None:
    """The oldest of the tasks due at the same time gets the time that it wants."""
    a = await world.site("a", workers=1)
    schedule = Schedule(start=HOUR, slip=10 * DURATION)
    tasks = []
    for age in (1, 3, 2):
        task = introduction([a], schedule=schedule)
        task = task.model_copy(update={"created_at": START - age * times.MINUTE})
        await a.keep(task, a)
        tasks.append(task)
    for _ in tasks:
        await a.plan()
    starts = {age: await _placed(a, task) for age, task in zip((1, 3, 2), tasks, strict=True)}
    assert starts == {3 - late: [(HOUR, HOUR + late * DURATION)] for late in range(3)}


# -- the grid --------------------------------------------------------------------------------------


async def test_a_slipped_first_run_does_not_move_the_grid(world: World) -> None:
    """A late first run does not shift the later ones."""
    a, b = await world.two()
    await book_everywhere(introduction([b]), b, [b], [START + 2 * times.SECOND])
    schedule = Schedule(repeat=times.HOUR, slip=10 * times.MINUTE)
    task = await _led(a, (a, b), schedule=schedule, duration=times.MINUTE)
    await a.execute("UPDATE planning SET next_run_at = $1", START + 2 * times.SECOND)
    await a.plan()
    (slot, start), *others = await _placed(a, task)
    assert (slot, start) == (START + 2 * times.SECOND, START + 2 * times.SECOND + DURATION)
    assert others == [(slot + n * times.HOUR, slot + n * times.HOUR) for n in range(1, 24)]


async def test_runs_that_fill_their_interval_skip_none(world: World) -> None:
    """A run that ends at the next point of the grid does not skip that point."""
    a = await world.site("a")
    schedule = Schedule(start=HOUR, repeat=DURATION, until=HOUR + 12 * DURATION)
    task = await _led(a, [a], schedule=schedule)
    await a.plan()
    grid = [HOUR + number * DURATION for number in range(12)]
    assert await _placed(a, task) == [(at, at) for at in grid]


@pytest.mark.parametrize(
    ("schedule", "slots"),
    [
        (
            Schedule(start=HOUR, repeat=40 * times.DAY),
            [HOUR + number * 40 * times.DAY for number in range(4)],
        ),
        (
            Schedule(start=START, cron="0 0 1 */3 *", timezone="UTC"),
            [
                times.parse_instant(f"{day}T00:00:00Z")
                for day in ("2027-01-01", "2027-04-01", "2027-07-01", "2027-10-01")
            ],
        ),
    ],
    ids=["interval", "cron"],
)
@pytest.mark.nightly
async def test_a_repeat_longer_than_runs_are_kept_goes_on(
    world: World, schedule: Schedule, slots: list[int]
) -> None:
    """A task whose interval exceeds the retention of runs goes on."""
    a, b = await world.two()
    task = await _led(a, (a, b), schedule=schedule)
    for slot in slots:
        world.clock.move_to(slot - 2 * times.HOUR)
        for site in (a, b):
            await site.node.purger.purge(world.clock.now())
            assert len(await site.rows("SELECT FROM run")) == 0
        await _plan_all(a)
        assert await _placed(a, task) == await _placed(b, task) == [(slot, slot)]
        for site in (a, b):
            await site.execute("UPDATE run SET state = 'finished'")


# -- nodes that do not agree, or are away ----------------------------------------------------------


async def test_a_participant_that_was_away_learns_of_a_cancel(world: World) -> None:
    """A participant that was away learns of a cancellation when it is back."""
    a, b = await world.two()
    task = await _led(a, (a, b), schedule=Schedule(start=HOUR, slip=0))
    await a.plan()
    world.cut = {frozenset("ab")}
    await a.node.termination.cancel_task(task.task)
    await world.pass_time(10 * times.MINUTE, times.MINUTE)
    assert list((await b.states()).values()) == ["scheduled"]
    world.cut = set()
    await world.pass_time(10 * times.MINUTE, times.MINUTE)
    assert list((await b.states()).values()) == ["cancelled"]
    assert await a.outbox_messages() == []


async def test_a_clock_that_is_off_is_a_reason_and_no_end(world: World) -> None:
    """A run waits while clocks differ, with both times, and is booked once they agree."""
    a = await world.site("a")
    b = await world.site("b", ManualClock(START + 90 * times.SECOND))
    task = await _led(a, (a, b), schedule=Schedule(start=HOUR, slip=0))
    await a.plan()
    run = run_id(TaskId(task.task), HOUR, 1)
    assert "90.0 s ahead" in (await a.reason(run) or "")
    a.clock.advance(90 * times.SECOND)
    await a.plan()
    assert await _placed(a, task) == await _placed(b, task) == [(HOUR, HOUR)]


async def test_a_cancelled_run_makes_room_for_the_next_slot(world: World) -> None:
    """A cancelled run does not use up ``max_runs``, even if a worker died."""
    a, b = await world.two()
    schedule = Schedule(start=HOUR, repeat=times.HOUR, max_runs=1, slip=DURATION)
    task = await _led(a, (a, b), schedule=schedule)

    holding = set()

    async def die(call: Call, phase: str) -> None:
        if call[2] == "hold" and phase == "answered":
            holding.add(call[1])
        if holding == {"a", "b"}:
            world.watch = None
            raise asyncio.CancelledError

    world.watch = die
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy, return_exceptions=True)
    world.clock.advance(HOLD_LIFE)
    await a.tend()
    run = run_id(TaskId(task.task), HOUR, 1)
    assert await a.state(run) == "waiting"
    await a.node.termination.cancel_run(run)
    await world.pass_time(20 * times.SECOND, 4 * times.SECOND)
    assert await a.state(run) == "cancelled"
    assert await _placed(a, task) == await _placed(b, task) == [(HOUR + times.HOUR,) * 2]
