"""Retries while there is time: pauses, horizons, repeated decisions, and faults."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from lead.model.reasons import beyond_horizons
from node.model import times
from node.model.ids import TaskId, run_id
from node.model.wire.participants import Introduction
from node.model.wire.tasks import Schedule
from tests.support.clocks import START, ManualClock
from tests.support.worlds import (
    DURATION,
    ON_ONE_LOOP,
    Call,
    Site,
    World,
    book_everywhere,
    introduction,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
LATE = START + 9 * times.HOUR


async def _led(lead: Site, participants: tuple[Site, ...], **options: Any) -> Introduction:
    """Create a task that is on its lead's agenda and accepted by its participants."""
    task = introduction(participants, **options)
    for site in {lead, *participants}:
        await site.keep(task, lead)
    return task


async def _agenda(site: Site) -> Any:
    return (await site.rows("SELECT * FROM planning"))[0]


async def _attempts(site: Site, until: int) -> list[int]:
    """Plan a site's one task each time it is due; return the instants."""
    instants = []
    while (due := (await _agenda(site))["plan_at"]) is not None and due <= until:
        site.clock.move_to(due)
        instants.append(due)
        await site.plan()
        await site.deliver()
    return instants


# -- pauses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["no time", "unreachable", "conflict"])
@pytest.mark.nightly
async def test_pauses_grow_while_the_window_lasts(world: World, trouble: str) -> None:
    """Pauses grow up to minutes whatever the obstacle, and the last try is in time."""
    a, b = await world.two()
    task = await _led(a, (a, b), schedule=Schedule(start=HOUR, slip=0))
    if trouble == "no time":
        await book_everywhere(introduction([b], priority=3), b, [b], [HOUR])
    elif trouble == "unreachable":
        world.cut = {frozenset("ab")}
    else:
        world.watch = _snatching(b)
    attempts = await _attempts(a, HOUR)
    gaps = [later - earlier for earlier, later in pairwise(attempts)]
    assert gaps[0] <= 6 * times.SECOND
    assert all(gap <= 5 * times.MINUTE for gap in gaps)
    assert all(gap >= 150 * times.SECOND for gap in gaps[12:-2])
    assert 12 <= len(attempts) <= 40
    assert await a.state(run_id(TaskId(task.task), HOUR, 1)) == "unplaced"


def _snatching(b: Site) -> Any:
    """Let another lead take the time between proposal and hold, and free it soon afterwards."""

    async def snatch(call: Call, phase: str) -> None:
        if call == ("a", "b", "hold") and phase == "asked":
            await book_everywhere(introduction([b]), b, [b], [HOUR])
        if call == ("a", "b", "hold") and phase == "answered":
            await b.execute("DELETE FROM run WHERE state = 'booked'")

    return snatch


# -- horizons and clocks ---------------------------------------------------------------------------


async def test_the_shortest_horizon_counts(world: World) -> None:
    """A participant with a horizon of six hours gets six hours of runs, and the rest in time."""
    a = await world.site("a")
    b = await world.site("b", horizon=6 * times.HOUR)
    task = await _led(
        a,
        (a, b),
        duration=times.MINUTE,
        schedule=Schedule(start=HOUR, repeat=times.HOUR, slip=0),
    )
    await a.plan()
    assert await a.states() == await b.states()
    assert list((await a.states()).values()) == ["scheduled"] * 5
    last = run_id(TaskId(task.task), START + 6 * times.HOUR, 1)
    agenda = await _agenda(a)
    assert agenda["failures"] == 0
    assert START < agenda["plan_at"] <= START + times.HOUR
    proposals = world.count("propose")
    await world.pass_time(times.HOUR, 5 * times.MINUTE)
    assert await b.state(last) == "scheduled"
    assert world.count("propose") <= proposals + 4
    decisions = await a.rows("SELECT outcome FROM decision")
    assert {row[0] for row in decisions} == {"booked"}


async def test_a_single_run_beyond_a_horizon_is_no_failure(world: World) -> None:
    """A run beyond a participant's horizon is planned when it comes within; no slot waits."""
    a = await world.site("a")
    b = await world.site("b", horizon=6 * times.HOUR)
    task = await _led(a, (a, b), schedule=Schedule(start=LATE, slip=0))
    await a.plan()
    assert await a.states() == {}
    [at] = await _attempts(a, LATE)
    assert at == LATE + DURATION - 6 * times.HOUR
    assert await b.state(run_id(TaskId(task.task), LATE, 1)) == "scheduled"


async def test_what_waited_for_a_silent_node_waits_for_its_horizon_then(world: World) -> None:
    """A slot whose node comes back with a short horizon waits for that, without busy polling."""
    a = await world.site("a")
    b = await world.site("b", horizon=6 * times.HOUR)
    task = await _led(a, (a, b), schedule=Schedule(start=LATE, slip=0))
    run = run_id(TaskId(task.task), LATE, 1)
    world.cut = {frozenset("ab")}
    await a.plan()
    world.cut = set()
    assert (await a.reason(run) or "").startswith("b cannot be reached since ")
    attempts = await _attempts(a, LATE)
    assert len(attempts) == 2
    assert attempts[-1] == LATE + DURATION - 6 * times.HOUR
    assert await b.state(run) == "scheduled"


async def test_a_slot_beyond_the_horizon_says_so(world: World) -> None:
    """A waiting slot beyond a participant's horizon has that as its reason."""
    a = await world.site("a")
    b = await world.site("b", horizon=6 * times.HOUR)
    task = await _led(a, (a, b), schedule=Schedule(start=LATE, slip=0))
    world.cut = {frozenset("ab")}
    await a.plan()
    world.cut = set()
    world.clock.move_to((await _agenda(a))["plan_at"])
    await a.plan()
    assert await a.reason(run_id(TaskId(task.task), LATE, 1)) == beyond_horizons()


@pytest.mark.parametrize("off", [-90, 90])
async def test_a_wrong_clock_is_planned_with_once_it_is_right(world: World, off: int) -> None:
    """No run is planned with a clock that is 90 s off; all are once it has been set."""
    a = await world.site("a")
    clock = ManualClock(START + off * times.SECOND)
    b = await world.site("b", clock)
    await _led(a, (a, b), schedule=Schedule(start=HOUR, slip=0))
    await a.plan()
    [(outcome, sentence)] = await a.rows("SELECT outcome, sentence FROM decision")
    way = "ahead of" if off > 0 else "behind"
    assert outcome == "clock"
    assert sentence.startswith(f"the clock of b is 90.0 s {way} this node's (theirs 2026-1")
    assert (await b.states(), world.count("hold")) == ({}, 0)
    world.clock.move_to((await _agenda(a))["plan_at"])
    clock._now = world.clock.now()
    await a.plan()
    assert list((await b.states()).values()) == ["scheduled"]


# -- decisions that repeat -------------------------------------------------------------------------


async def test_equal_decisions_in_a_row_are_one(world: World) -> None:
    """Equal decisions in a row are stored once with count, first and last instant."""
    a, b = await world.two()
    [busy] = await book_everywhere(introduction([b]), b, [b], [HOUR])
    await _led(a, (a, b), schedule=Schedule(start=HOUR, slip=0))
    await a.plan()
    attempts = [START, *await _attempts(a, START + 20 * times.SECOND)]
    await b.node.termination.cancel_run(busy)
    await _attempts(a, HOUR)
    rows = await a.rows("SELECT outcome, times, first_at, decided_at FROM decision ORDER BY id")
    assert len(attempts) > 3
    assert tuple(rows[0]) == ("no time", len(attempts), attempts[0], attempts[-1])
    assert [(row["outcome"], row["times"]) for row in rows[1:]] == [("booked", 1)]


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["propose", "hold"])
@pytest.mark.nightly
async def test_a_fault_is_a_stored_decision_and_a_pause(world: World, what: str) -> None:
    """An unexpected error is stored as a decision, frees the holds, and is followed by a retry."""
    a, b = await world.two()
    task = await _led(a, (a, b), schedule=Schedule(start=HOUR, slip=0))

    async def fail(call: Call, phase: str) -> None:
        if call == ("a", "b", what) and phase == "answered":
            world.watch = None
            raise RuntimeError("unexpected")

    world.watch = fail
    await a.plan()
    [(outcome, sentence)] = await a.rows("SELECT outcome, sentence FROM decision")
    assert outcome == "broken off"
    fault = "a fault of this program: RuntimeError('unexpected')"
    assert sentence == f"planning broke off: {fault}"
    agenda = await _agenda(a)
    assert START < agenda["plan_at"] <= START + times.SECOND
    assert (agenda["failures"], agenda["lease_until"]) == (1, None)
    assert await b.states() == {}
    await world.settle()
    await _attempts(a, START + 10 * times.SECOND)
    assert await b.state(run_id(TaskId(task.task), HOUR, 1)) == "scheduled"


async def test_an_unreadable_task_delays_no_other(world: World) -> None:
    """A task whose stored terms cannot be read says so and waits, while others are planned."""
    a, b = await world.two()
    spoilt = await _led(a, (a, b), schedule=Schedule(start=HOUR))
    other = await _led(a, (a, b), schedule=Schedule(start=HOUR + times.HOUR))
    [(schedule,)] = await a.rows("SELECT schedule FROM task WHERE id = $1", spoilt.task)
    write = "UPDATE task SET schedule = $2 WHERE id = $1"
    await a.execute(write, spoilt.task, {"slip": "no duration"})
    await a.plan()
    assert await b.state(run_id(TaskId(other.task), HOUR + times.HOUR, 1)) == "scheduled"
    query = "SELECT outcome, sentence FROM decision WHERE task_id = $1"
    [(outcome, sentence)] = await a.rows(query, spoilt.task)
    assert outcome == "broken off"
    assert sentence.startswith("planning broke off: a fault of this program: 1 validation error")
    await a.execute(write, spoilt.task, schedule)
    a.clock.advance(times.MINUTE)
    await a.plan()
    await a.deliver()
    assert await b.state(run_id(TaskId(spoilt.task), HOUR, 1)) == "scheduled"


async def test_a_wake_up_while_planning_is_kept(world: World) -> None:
    """A run cancelled while its task is planned makes the task plan again at once."""
    a, b = await world.two()
    schedule = Schedule(start=HOUR, repeat=times.HOUR, slip=0, max_runs=3)
    task = await _led(a, (a, b), schedule=schedule, duration=times.MINUTE)
    await a.plan()
    first = run_id(TaskId(task.task), HOUR, 1)
    second = run_id(TaskId(task.task), HOUR + times.HOUR, 1)
    await a.node.termination.cancel_run(first)

    async def cancel(call: Call, phase: str) -> None:
        if call == ("a", "b", "hold") and phase == "answered":
            world.watch = None
            await a.node.termination.cancel_run(second)

    world.watch = cancel
    await a.plan()
    assert (await _agenda(a))["plan_at"] == START
    await a.plan()
    assert list((await a.states()).values()).count("scheduled") == 3


async def test_a_changed_place_to_plan_from_is_kept(world: World) -> None:
    """A change of the planning state during planning is not overwritten."""
    a, b = await world.two()
    schedule = Schedule(start=HOUR, repeat=times.HOUR, slip=0)
    await _led(a, (a, b), schedule=schedule, duration=times.MINUTE)
    await a.plan()
    await a.execute("UPDATE planning SET plan_at = $1", START + 4 * times.HOUR)

    async def edit(call: Call, phase: str) -> None:
        if call == ("a", "b", "propose") and phase == "answered":
            world.watch = None
            await a.execute("UPDATE planning SET planned_to = NULL, plan_at = $1", START)

    world.watch = edit
    world.clock.advance(4 * times.HOUR)
    await a.plan()
    agenda = await _agenda(a)
    assert (agenda["planned_to"], agenda["plan_at"]) == (None, START)


async def test_a_worker_that_lost_its_lease_keeps_no_answers(world: World) -> None:
    """A worker that lost its lease does not store a participant's answer."""
    a, b = await world.two()
    task = introduction([a, b], accepted=None, schedule=Schedule(start=HOUR, slip=0))
    await a.keep(task, a)

    async def overtake(call: Call, phase: str) -> None:
        if call == ("a", "b", "introduce") and phase == "answered":
            world.watch = None
            await a.execute("UPDATE planning SET lease_epoch = lease_epoch + 1")

    world.watch = overtake
    await a.plan()
    [row] = await a.rows("SELECT participants FROM task")
    assert [p["accepted"] for p in row["participants"]] == [None, None]
    assert world.count("propose") == 0


@pytest.mark.nightly
async def test_more_slots_wait_than_fit_a_batch(world: World) -> None:
    """Waiting slots beyond a batch take turns, with pauses, until all are booked."""
    a = await world.site("a", batch=4)
    b = await world.site("b")
    schedule = Schedule(start=HOUR, repeat=times.HOUR, slip=0, until=HOUR + 10 * times.HOUR)
    task = await _led(a, (a, b), schedule=schedule, duration=times.MINUTE)
    while not await a.rows("SELECT FROM planning WHERE plan_at IS NULL"):
        await a.plan()
    for number in range(10):
        lost = run_id(TaskId(task.task), HOUR + number * times.HOUR, 1)
        await a.node.termination.lose_run(lost, "b does not have it any more")
    await world.settle()
    busy = introduction([b], duration=5 * times.HOUR)
    await book_everywhere(busy, b, [b], [HOUR - times.MINUTE])
    attempts = await _attempts(a, START + 30 * times.SECOND)
    assert len(attempts) < 16
    states = list((await a.states()).values())
    assert (states.count("scheduled"), states.count("waiting")) == (5, 5)
