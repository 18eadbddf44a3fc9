"""A slot that is requested again while its first run continues somewhere is not run twice."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from node.model import times
from node.model.ids import TaskId, repeated_exchange_id, run_id
from node.model.wire.participants import HoldAnswer, HoldRequest, Introduction
from node.model.wire.tasks import Schedule, TaskDocument
from node.store import runs
from tests.support.clocks import START
from tests.support.worlds import (
    ON_ONE_LOOP,
    Site,
    World,
    commit_request,
    exchange_of,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP

AB = frozenset("ab")
SLOT = START + times.HOUR


async def _booked(world: World) -> tuple[Site, Site, Introduction, UUID]:
    """Return two nodes and a task whose first run is booked at b."""
    a, b = await world.two()
    task = introduction([a, b], schedule=Schedule(start=SLOT, slip=times.HOUR))
    await b.node.acceptance.consider(a.identity, task.model_copy(update={"participant": 1}))
    request = hold_request(task, [SLOT])
    exchange = exchange_of(request)
    await b.node.time_line.hold(exchange, a.identity, request)
    await b.node.time_line.commit(exchange, commit_request(request))
    return a, b, task, request.runs[0].run


def _attempt(task: Introduction, starts_at: int, attempt: int, epoch: int = 2) -> HoldRequest:
    """Return a hold of another run of the same slot."""
    request = hold_request(task, [starts_at], epoch=epoch)
    run = run_id(TaskId(task.task), SLOT, attempt)
    other = request.runs[0].model_copy(update={"run": run, "slot": SLOT, "attempt": attempt})
    return request.model_copy(update={"runs": (other,)})


def _second_attempt(task: Introduction, starts_at: int) -> HoldRequest:
    """Return a hold of the second run of the same slot."""
    return _attempt(task, starts_at, 2)


async def _hold(a: Site, b: Site, request: HoldRequest) -> HoldAnswer:
    return await b.node.time_line.hold(exchange_of(request), a.identity, request)


async def test_an_attempt_that_has_not_begun_gives_way(world: World) -> None:
    """An earlier attempt that has not begun is cancelled, and its time is free for the new one."""
    a, b, task, first = await _booked(world)
    request = _second_attempt(task, SLOT)
    answer = await _hold(a, b, request)
    assert answer.held == (request.runs[0].run,)
    assert await b.state(first) == "cancelled"
    assert f"anew, as run {request.runs[0].run}" in (await b.reason(first) or "")


async def test_an_attempt_that_has_begun_refuses_the_next(world: World) -> None:
    """An earlier attempt that has begun refuses the next one."""
    a, b, task, first = await _booked(world)
    world.clock.move_to(SLOT)
    async with b.database.connection() as connection:
        assert await runs.begin(connection, first, SLOT)
    answer = await _hold(a, b, _second_attempt(task, SLOT + times.MINUTE * 10))
    assert answer.held == ()
    assert answer.refused[0].reason.startswith(
        f"this slot has been run here already: run {first} began at 2026-"
    )
    assert await b.state(first) == "running"


async def _booked_attempts(site: Site) -> list[int]:
    rows = await site.rows("SELECT attempt FROM run WHERE state IN ('booked', 'set-aside')")
    return sorted(row[0] for row in rows)


async def test_a_slot_has_one_run_whatever_the_numbers_of_its_attempts(world: World) -> None:
    """Attempts that count down are refused with the run in their way, each at a time of its own."""
    a, b, task, first = await _booked(world)
    held: list[UUID] = []
    for epoch, attempt in enumerate((250, 249, 248, 1, 251), 2):
        request = _attempt(task, SLOT + epoch * times.MINUTE, attempt, epoch)
        answer = await _hold(a, b, request)
        held += answer.held
        assert len(await _booked_attempts(b)) == 1
        if attempt in {249, 248}:
            reason = answer.refused[0].reason
            assert reason.startswith("attempt 250 of this slot is booked here, or has begun: run ")
    assert held == [run_id(TaskId(task.task), SLOT, attempt) for attempt in (250, 251)]
    assert await b.state(first) == "cancelled"


async def test_an_earlier_attempt_of_a_slot_that_was_run_is_refused(world: World) -> None:
    """The slot that a second attempt has run is not run once more under the first one's number."""
    a, b, task, first = await _booked(world)
    second = _second_attempt(task, SLOT)
    assert (await _hold(a, b, second)).held
    await b.node.time_line.commit(exchange_of(second), commit_request(second))
    await b.execute(f"DELETE FROM run WHERE id = '{first}'")
    world.clock.move_to(SLOT)
    async with b.database.connection() as connection:
        assert await runs.begin(connection, second.runs[0].run, SLOT)
    answer = await _hold(a, b, _attempt(task, SLOT + 20 * times.MINUTE, 1, epoch=3))
    assert answer.held == ()
    assert "attempt 2 of this slot is booked here, or has begun" in answer.refused[0].reason


async def test_attempts_that_are_asked_for_at_once_are_one_run(world: World) -> None:
    """One of two attempts of a slot is booked that arrive at once, in the exchanges of a claim."""
    a, b, task, _ = await _booked(world)
    for epoch in range(2, 12):
        first = _attempt(task, SLOT + epoch * times.MINUTE, 3 * epoch, epoch)
        second = _attempt(task, SLOT + (20 + epoch) * times.MINUTE, 3 * epoch - 1, epoch)
        exchange = exchange_of(first)
        answers = await asyncio.gather(
            b.node.time_line.hold(exchange, a.identity, first),
            b.node.time_line.hold(repeated_exchange_id(exchange), a.identity, second),
        )
        assert answers[0].held == (first.runs[0].run,)
        assert await _booked_attempts(b) == [3 * epoch]


@pytest.mark.nightly
async def test_a_slot_paused_behind_a_cut_wire_is_run_once(world: World) -> None:
    """A slot that a participant measured before it learned of a pause is not run again."""
    a, b = await world.two()
    document = {
        "test": {"type": "idle", "spec": {"duration": "PT1M", "participants": ["a", "b"]}},
        "schedule": {"start": times.format_instant(SLOT), "slip": "PT1H"},
    }
    task, _ = await a.node.admission.create(TaskDocument.model_validate(document), None)
    await a.plan()
    await world.settle()
    first = (await b.rows("SELECT id FROM run"))[0][0]
    world.cut = {AB}
    await a.node.editing.pause(task)
    world.clock.move_to(SLOT)
    async with b.database.connection() as connection:
        assert await runs.begin(connection, first, SLOT)
        await runs.keep_process(connection, first, SLOT, 1, 0)
    world.cut = set()
    await a.node.editing.resume(task)
    await world.pass_time(2 * times.HOUR, 5 * times.MINUTE)
    attempts = await b.rows("SELECT id FROM run WHERE started_at IS NOT NULL OR state = 'booked'")
    assert [row[0] for row in attempts] == [first]
    (slot,) = await a.rows("SELECT state::text, reason FROM run WHERE state <> 'cancelled'")
    assert slot[0] == "unplaced"
    assert f"run {first} began" in slot[1]
