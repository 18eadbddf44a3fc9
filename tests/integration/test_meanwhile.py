"""Events during the planning of a run, between any two messages, are not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from lead.store import planning
from node.model import times
from node.model.errors import PeerUnreachable
from node.model.ids import TaskId, run_id
from node.model.wire.participants import HoldAnswer, HoldRequest, Introduction
from node.model.wire.tasks import Schedule
from tests.support.clocks import START
from tests.support.worlds import (
    DURATION,
    ON_ONE_LOOP,
    Call,
    Site,
    World,
    book_everywhere,
    introduction,
    release_of,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
ONCE = Schedule(start=HOUR, slip=DURATION)


async def _led(lead: Site, *participants: Site) -> tuple[Introduction, UUID]:
    task = introduction(participants, schedule=ONCE)
    for site in {lead, *participants}:
        await site.keep(task, lead)
    return task, run_id(TaskId(task.task), HOUR, 1)


def _when(
    world: World, expected: Call, phase: str, action: Callable[[], Awaitable[object]]
) -> None:
    """Perform an action once, when the call passes."""

    async def watch(call: Call, at: str) -> None:
        if (call, at) == (expected, phase):
            world.watch = None
            await action()

    world.watch = watch


async def test_a_run_cancelled_before_the_decision_is_booked_nowhere(world: World) -> None:
    """A run that a participant cancels before its lead's decision stays cancelled."""
    a, b, c = await world.three()
    _, run = await _led(a, b, c)

    async def cancel() -> None:
        while await b.state(run) is None:  # b and c are asked at once
            pass
        await b.node.termination.cancel_run(run)
        await b.deliver()

    _when(world, ("a", "c", "hold"), "answered", cancel)
    await a.plan()
    await world.pass_time(20 * times.SECOND)
    assert [await site.state(run) for site in (a, b, c)] == ["cancelled"] * 3


async def test_a_waiting_slot_cancelled_while_it_is_booked_stays_so(world: World) -> None:
    """A slot cancelled at its lead between hold and decision is not booked."""
    a, b, c = await world.three()
    _, run = await _led(a, b, c)
    world.cut = {frozenset("ab")}
    await a.plan()
    world.cut = set()
    assert await a.state(run) == "waiting"

    async def cancel() -> None:
        await a.node.termination.cancel_run(run)
        await a.node.outbox.run_once()

    _when(world, ("a", "b", "hold"), "asked", cancel)
    await world.pass_time(20 * times.SECOND)
    assert await a.state(run) == "cancelled"
    assert "scheduled" not in {await site.state(run) for site in (b, c)}


@pytest.mark.nightly
async def test_a_run_cancelled_before_a_late_commit_is_not_booked_again(world: World) -> None:
    """A run cancelled before a late commit is not booked at the participant."""
    a, b, _ = await world.three()
    _, run = await _led(a, a, b)

    async def cut() -> None:
        world.cut = {frozenset("ab")}

    _when(world, ("a", "b", "commit"), "asked", cut)
    await a.plan()
    await world.pass_time(times.MINUTE, 4 * times.SECOND)
    assert (await a.state(run), await b.state(run)) == ("scheduled", None)
    await a.node.termination.cancel_run(run)
    world.cut = set()
    await a.node.outbox.run_once()
    await world.pass_time(5 * times.MINUTE, 30 * times.SECOND)
    assert (await a.state(run), await b.state(run)) == ("cancelled", None)


@pytest.mark.nightly
async def test_a_slot_whose_release_was_held_up_is_planned_again(world: World) -> None:
    """The slot of a lead that dies between its decision and its own release is planned again."""
    a, b, _ = await world.three()
    _, run = await _led(a, a, b)

    other = introduction([b], duration=2 * DURATION)

    async def die() -> None:
        raise asyncio.CancelledError

    async def take() -> None:
        await book_everywhere(other, b, [b], [HOUR])
        _when(world, ("a", "a", "release"), "asked", die)

    _when(world, ("a", "b", "hold"), "asked", take)
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy, return_exceptions=True)
    assert world.watch is None
    await world.pass_time(20 * times.SECOND)
    assert await a.state(run) == "waiting"
    await b.node.termination.cancel_task(other.task)
    await world.pass_time(2 * times.MINUTE, 5 * times.SECOND)
    assert (await a.state(run), await b.state(run)) == ("scheduled", "scheduled")


async def test_an_answer_that_names_no_run_holds_none(world: World) -> None:
    """A run that an answer names neither as held nor as refused is not booked."""
    a, b, _ = await world.three()
    _, run = await _led(a, a, b)

    async def silent(exchange: UUID, lead: str, request: HoldRequest) -> HoldAnswer:
        return HoldAnswer(held=())

    b.node.time_line.hold = silent  # type: ignore[method-assign]
    await a.plan()
    await world.settle()
    assert await a.state(run) == "waiting"
    assert "b: " in (await a.reason(run) or "")


async def test_a_slot_that_comes_to_wait_during_a_cancel_ends_with_its_task(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling a task while its planning stores waiting slots leaves no slot waiting."""
    a, b, _ = await world.three()
    task, run = await _led(a, a, b)
    await book_everywhere(introduction([b], duration=2 * DURATION), b, [b], [HOUR])
    keep, cancelling = planning.keep_unplaced, list[asyncio.Task[None]]()

    async def keep_while_cancelled(*values: Any) -> None:
        await keep(*values)
        cancelling.append(asyncio.create_task(a.node.termination.cancel_task(task.task)))
        blocked = "SELECT FROM pg_locks WHERE NOT granted"
        while not await a.rows(blocked):
            await asyncio.wait(cancelling, timeout=0.01)

    monkeypatch.setattr(planning, "keep_unplaced", keep_while_cancelled)
    await a.plan()
    await asyncio.gather(*cancelling)
    assert await a.state(run) == "cancelled"


@pytest.mark.nightly
async def test_a_slot_dropped_while_its_task_is_planned_anew_is_not_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot released after the next worker has looked for waiting ones is still planned."""
    a, b, _ = await world.three()
    task, run = await _led(a, a, b)
    other = introduction([b], duration=2 * DURATION)
    look = planning.waiting_slots

    async def lose() -> None:
        raise PeerUnreachable("the release is lost")

    async def take() -> None:
        await book_everywhere(other, b, [b], [HOUR])
        _when(world, ("a", "a", "release"), "asked", lose)

    async def look_too_early(*values: Any) -> Any:
        slots = await look(*values)
        for (exchange,) in await a.rows("SELECT id FROM exchange WHERE state = 'held'"):
            await a.node.time_line.release(exchange, release_of(task), a.identity)
        return slots

    _when(world, ("a", "b", "hold"), "asked", take)
    await a.plan()
    assert await a.state(run) == "held"
    world.clock.advance(times.SECOND)
    monkeypatch.setattr(planning, "waiting_slots", look_too_early)
    await a.plan()
    assert await a.state(run) == "waiting"
    await b.node.termination.cancel_task(other.task)
    await world.pass_time(times.MINUTE, 5 * times.SECOND)
    assert (await a.state(run), await b.state(run)) == ("scheduled", "scheduled")
