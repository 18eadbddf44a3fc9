"""Refused time becomes free: the lead is notified and plans at once, without polling."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID, uuid4

import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.ids import TaskId, run_id
from node.model.wire.participants import FreedTime, Introduction, Proposal, ProposalRequest
from node.model.wire.tasks import Schedule
from node.store import runs
from node.store.database import Notice
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.worlds import (
    DURATION,
    HOLD_LIFE,
    ON_ONE_LOOP,
    Site,
    World,
    book_everywhere,
    hold_everywhere,
    hold_request,
    introduction,
    release_of,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


@contextlib.asynccontextmanager
async def _listening(
    site: Site, notices: list[Notice] | None = None
) -> AsyncIterator[asyncio.Event]:
    """Listen to a site's database; the event is set by a notification of freed time.

    These notifications are appended to ``notices``.
    """
    ready, freed = asyncio.Event(), asyncio.Event()

    def heard(notice: Notice) -> None:
        site.node.freed_time.on_notice(notice)
        if notice.kind == "wake":
            ready.set()
        if notice.kind == "freed":
            freed.set()
            if notices is not None:
                notices.append(notice)

    task = asyncio.create_task(site.database.listen(heard, site.clock))
    await asyncio.wait_for(ready.wait(), PATIENCE_S)
    yield freed
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _waiting(a: Site, b: Site) -> tuple[Introduction, UUID]:
    """Create a task of a that found no time at b, with its next attempt minutes away."""
    task = introduction([a, b], schedule=Schedule(start=HOUR, slip=0))
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    run = run_id(TaskId(task.task), HOUR, 1)
    assert await a.state(run) == "waiting"
    await a.execute("UPDATE planning SET plan_at = $1", START + 5 * times.MINUTE)
    return task, run


async def _cancel(world: World, b: Site, run: UUID) -> None:
    await b.node.termination.cancel_run(run)


async def _end_task(world: World, b: Site, run: UUID) -> None:
    [row] = await b.rows("SELECT task_id FROM run WHERE id = $1", run)
    await b.node.termination.cancel_task(row[0])


async def _lose(world: World, b: Site, run: UUID) -> None:
    await b.node.termination.lose_run(run, "displaced elsewhere")


@pytest.mark.parametrize("how", [_cancel, _end_task, _lose])
async def test_time_given_back_is_planned_at_once(
    world: World, how: Callable[[World, Site, UUID], Awaitable[None]]
) -> None:
    """A run that frees its time in any way makes a refused lead plan again at once."""
    a, b = await world.two()
    [busy] = await book_everywhere(introduction([b]), b, [b], [HOUR])
    _, run = await _waiting(a, b)
    async with _listening(b) as freed:
        await how(world, b, busy)
        await asyncio.wait_for(freed.wait(), PATIENCE_S)
        await b.node.freed_time.run_once()
    assert world.count("freed") == 1
    assert (await a.rows("SELECT plan_at FROM planning"))[0][0] == START
    await a.plan()
    assert (await a.state(run), await b.state(run)) == ("scheduled", "scheduled")


@pytest.mark.parametrize("expires", [False, True])
async def test_a_dropped_hold_is_time_given_back(
    world: World,
    expires: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A hold that is released, or expires, frees its time for others."""
    a, b = await world.two()
    holding = introduction([b])
    await b.keep(holding, b)
    exchange = await hold_everywhere(b, [b], hold_request(holding, [HOUR]))
    _, run = await _waiting(a, b)
    async with _listening(b) as freed:
        if expires:
            world.clock.advance(HOLD_LIFE)
            await b.node.holds.run_once()
        else:
            await b.node.time_line.release(exchange, release_of(holding))
        await asyncio.wait_for(freed.wait(), PATIENCE_S)
        await b.node.freed_time.run_once()
    await a.plan()
    assert await b.state(run) == "scheduled"


async def test_a_run_that_ends_early_gives_back_the_rest(world: World) -> None:
    """The rest of a run that ends early is freed for others."""
    a, b = await world.two()
    long = introduction([b], duration=2 * times.HOUR)
    [busy] = await book_everywhere(long, b, [b], [HOUR])
    task = introduction([a, b], schedule=Schedule(start=HOUR, slip=times.HOUR))
    for site in (a, b):
        await site.keep(task, a)
    world.clock.move_to(HOUR)
    async with b.database.transaction() as connection:
        assert await runs.begin(connection, busy, HOUR)
    await a.plan()
    run = run_id(TaskId(task.task), HOUR, 1)
    assert await a.state(run) == "waiting"
    async with _listening(b) as freed:
        await b.node.termination.cancel_run(busy)
        await asyncio.wait_for(freed.wait(), PATIENCE_S)
        await b.node.freed_time.run_once()
    await a.plan()
    assert await b.state(run) == "scheduled"


async def test_the_leads_own_node_tells_it_too(world: World) -> None:
    """Time freed on the lead's own node wakes the task without HTTP."""
    a, b = await world.two()
    [busy] = await book_everywhere(introduction([a]), a, [a], [HOUR])
    _, run = await _waiting(a, b)
    async with _listening(a) as freed:
        await a.node.termination.cancel_run(busy)
        await asyncio.wait_for(freed.wait(), PATIENCE_S)
        await a.node.freed_time.run_once()
    await a.plan()
    assert (await a.state(run), world.count("freed")) == ("scheduled", 0)


async def test_only_room_that_is_enough_is_told(world: World) -> None:
    """Freed time outside the window, too short, or reported before, is not reported."""
    a, b = await world.two()
    starts = [HOUR, HOUR + times.MINUTE, HOUR + 2 * DURATION]
    short = [
        (await book_everywhere(introduction([b], duration=times.MINUTE), b, [b], [start]))[0]
        for start in starts
    ]
    _, run = await _waiting(a, b)
    for index in (2, 0):
        await b.node.termination.cancel_run(short[index])
        start = starts[index]
        b.node.freed_time.on_notice(Notice("freed", str(start), (str(start + times.MINUTE),)))
        await b.node.freed_time.run_once()
    assert world.count("freed") == 0
    await b.node.termination.cancel_run(short[1])
    b.node.freed_time.on_notice(Notice("freed", str(starts[1]), (str(starts[1] + times.MINUTE),)))
    await b.node.freed_time.run_once()
    assert world.count("freed") == 1
    await b.node.freed_time.run_once()
    assert world.count("freed") == 1
    await a.plan()
    assert await b.state(run) == "scheduled"


async def test_a_background_run_gives_back_nothing(world: World) -> None:
    """A freed background run is not reported, as it blocks no other run."""
    b = await world.site("b")
    quiet = introduction([b], scheduling_class=SchedulingClass.BACKGROUND)
    [background] = await book_everywhere(quiet, b, [b], [HOUR])
    [exclusive] = await book_everywhere(introduction([b]), b, [b], [HOUR + DURATION])
    notices = list[Notice]()
    async with _listening(b, notices) as freed:
        await b.node.termination.cancel_run(background)
        await b.node.termination.cancel_run(exclusive)
        await asyncio.wait_for(freed.wait(), PATIENCE_S)
    assert notices == [Notice("freed", str(HOUR + DURATION), (str(HOUR + 2 * DURATION),))]


async def test_freed_time_that_nobody_was_refused_is_not_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Freed time is ignored unless it was refused, or may be by a proposal in progress."""
    a, b = await world.two()
    [busy] = await book_everywhere(introduction([b]), b, [b], [HOUR])
    notice = Notice("freed", str(HOUR), (str(HOUR + DURATION),))
    b.node.freed_time.on_notice(notice)
    assert b.node.freed_time._freed == []
    propose = b.node.time_line.propose

    async def answer_slowly(lead: str, request: ProposalRequest) -> Proposal:
        proposal = await propose(lead, request)
        await b.node.termination.cancel_run(busy)
        b.node.freed_time.on_notice(notice)
        return proposal

    with monkeypatch.context() as patch:
        patch.setattr(b.node.time_line, "propose", answer_slowly)
        _, run = await _waiting(a, b)
    await b.node.freed_time.run_once()
    assert world.count("freed") == 1
    await a.plan()
    assert await b.state(run) == "scheduled"


async def test_a_lost_message_costs_only_the_pause(world: World) -> None:
    """A lead that misses the message plans at its next regular attempt."""
    a, b = await world.two()
    [busy] = await book_everywhere(introduction([b]), b, [b], [HOUR])
    _, run = await _waiting(a, b)
    world.cut = {frozenset("ab")}
    await b.node.termination.cancel_run(busy)
    b.node.freed_time.on_notice(Notice("freed", str(HOUR), (str(HOUR + DURATION),)))
    await b.node.freed_time.run_once()
    world.cut = set()
    assert (await a.rows("SELECT plan_at FROM planning"))[0][0] == START + 5 * times.MINUTE
    world.clock.advance(5 * times.MINUTE)
    await a.plan()
    assert await b.state(run) == "scheduled"


async def test_only_participants_wake_a_task(world: World) -> None:
    """A message wakes only tasks of which its sender is a participant."""
    a, b, c = await world.three()
    await book_everywhere(introduction([b]), b, [b], [HOUR])
    task, _ = await _waiting(a, b)
    await a.node.freed_time.plan_waiting_slots(c.identity, FreedTime(tasks=(task.task, uuid4())))
    assert (await a.rows("SELECT plan_at FROM planning"))[0][0] == START + 5 * times.MINUTE
    await a.node.freed_time.plan_waiting_slots(b.identity, FreedTime(tasks=(uuid4(), task.task)))
    assert (await a.rows("SELECT plan_at FROM planning"))[0][0] == START
