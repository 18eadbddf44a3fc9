"""Time that was refused becomes free: the lead is told and plans at once, without a poll."""

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
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


@contextlib.asynccontextmanager
async def _listening(site: Site, told: list[Notice] | None = None) -> AsyncIterator[asyncio.Event]:
    """While a site hears its database; the event is set when freed time was heard of.

    What was heard of it is added to ``told``.
    """
    ready, freed = asyncio.Event(), asyncio.Event()

    def heard(notice: Notice) -> None:
        site.node.freed_time.heard(notice)
        if notice.kind == "wake":
            ready.set()
        if notice.kind == "freed":
            freed.set()
            if told is not None:
                told.append(notice)

    task = asyncio.create_task(site.database.listen(heard, site.clock))
    await asyncio.wait_for(ready.wait(), 10)
    yield freed
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _waiting(a: Site, b: Site) -> tuple[Introduction, UUID]:
    """A task of a that found no time at b, long ago: its next attempt is minutes away."""
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
    """Whichever way a run gives its time back, who was refused it plans again at once."""
    a, b = await world.two()
    [busy] = await book_everywhere(introduction([b]), b, [b], [HOUR])
    _, run = await _waiting(a, b)
    async with _listening(b) as freed:
        await how(world, b, busy)
        await asyncio.wait_for(freed.wait(), 10)
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
    """A hold that is released, or runs out, frees what it kept from others."""
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
            await b.node.time_line.release(exchange, holding.task)
        await asyncio.wait_for(freed.wait(), 10)
        await b.node.freed_time.run_once()
    await a.plan()
    assert await b.state(run) == "scheduled"


async def test_a_run_that_ends_early_gives_back_the_rest(world: World) -> None:
    """What a run has left of its time when it fails is time for who was refused it."""
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
        await asyncio.wait_for(freed.wait(), 10)
        await b.node.freed_time.run_once()
    await a.plan()
    assert await b.state(run) == "scheduled"


async def test_the_leads_own_node_tells_it_too(world: World) -> None:
    """Where the lead's own node had no time the same notification wakes the task, without HTTP."""
    a, b = await world.two()
    [busy] = await book_everywhere(introduction([a]), a, [a], [HOUR])
    _, run = await _waiting(a, b)
    async with _listening(a) as freed:
        await a.node.termination.cancel_run(busy)
        await asyncio.wait_for(freed.wait(), 10)
        await a.node.freed_time.run_once()
    await a.plan()
    assert (await a.state(run), world.count("freed")) == ("scheduled", 0)


async def test_only_room_that_is_enough_is_told(world: World) -> None:
    """Time outside the window, too little of it, or taken again at once, is told to nobody."""
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
        b.node.freed_time.heard(Notice("freed", str(start), (str(start + times.MINUTE),)))
        await b.node.freed_time.run_once()
    assert world.count("freed") == 0
    await b.node.termination.cancel_run(short[1])
    b.node.freed_time.heard(Notice("freed", str(starts[1]), (str(starts[1] + times.MINUTE),)))
    await b.node.freed_time.run_once()
    assert world.count("freed") == 1
    await b.node.freed_time.run_once()
    assert world.count("freed") == 1
    await a.plan()
    assert await b.state(run) == "scheduled"


async def test_a_background_run_gives_back_nothing(world: World) -> None:
    """What is in nobody's way frees no time: nobody is notified; the next exclusive one is."""
    b = await world.site("b")
    quiet = introduction([b], scheduling_class=SchedulingClass.BACKGROUND)
    [background] = await book_everywhere(quiet, b, [b], [HOUR])
    [exclusive] = await book_everywhere(introduction([b]), b, [b], [HOUR + DURATION])
    told = list[Notice]()
    async with _listening(b, told) as freed:
        await b.node.termination.cancel_run(background)
        await b.node.termination.cancel_run(exclusive)
        await asyncio.wait_for(freed.wait(), 10)
    assert told == [Notice("freed", str(HOUR + DURATION), (str(HOUR + 2 * DURATION),))]


async def test_freed_time_that_nobody_was_refused_is_not_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But it is if a question that is just being answered may be refused it."""
    a, b = await world.two()
    [busy] = await book_everywhere(introduction([b]), b, [b], [HOUR])
    notice = Notice("freed", str(HOUR), (str(HOUR + DURATION),))
    b.node.freed_time.heard(notice)
    assert b.node.freed_time._freed == []
    answer = b.node.time_line.propose

    async def answer_slowly(lead: str, request: ProposalRequest) -> Proposal:
        answered = await answer(lead, request)
        await b.node.termination.cancel_run(busy)
        b.node.freed_time.heard(notice)
        return answered

    with monkeypatch.context() as patched:
        patched.setattr(b.node.time_line, "propose", answer_slowly)
        _, run = await _waiting(a, b)
    await b.node.freed_time.run_once()
    assert world.count("freed") == 1
    await a.plan()
    assert await b.state(run) == "scheduled"


async def test_a_lost_message_costs_only_the_pause(world: World) -> None:
    """A lead that cannot be told plans when it would have planned anyway."""
    a, b = await world.two()
    [busy] = await book_everywhere(introduction([b]), b, [b], [HOUR])
    _, run = await _waiting(a, b)
    world.cut = {frozenset("ab")}
    await b.node.termination.cancel_run(busy)
    b.node.freed_time.heard(Notice("freed", str(HOUR), (str(HOUR + DURATION),)))
    await b.node.freed_time.run_once()
    world.cut = set()
    assert (await a.rows("SELECT plan_at FROM planning"))[0][0] == START + 5 * times.MINUTE
    world.clock.advance(5 * times.MINUTE)
    await a.plan()
    assert await b.state(run) == "scheduled"


async def test_only_participants_wake_a_task(world: World) -> None:
    """Another node, or one that names an unknown task, wakes nothing."""
    a, b, c = await world.three()
    await book_everywhere(introduction([b]), b, [b], [HOUR])
    task, _ = await _waiting(a, b)
    await a.node.freed_time.freed(c.identity, FreedTime(tasks=(task.task, uuid4())))
    assert (await a.rows("SELECT plan_at FROM planning"))[0][0] == START + 5 * times.MINUTE
    await a.node.freed_time.freed(b.identity, FreedTime(tasks=(uuid4(), task.task)))
    assert (await a.rows("SELECT plan_at FROM planning"))[0][0] == START
