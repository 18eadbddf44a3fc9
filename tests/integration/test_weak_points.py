"""Weak points of pScheduler in finding and booking time, each with proof that it is gone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.ids import TaskId, run_id
from node.model.wire.participants import Introduction, ProposalRequest
from node.model.wire.tasks import Schedule
from tests.support.booking import HOUR, BookingLead
from tests.support.worlds import (
    DURATION,
    HOLD_LIFE,
    ON_ONE_LOOP,
    Call,
    Site,
    World,
    book_everywhere,
    commit_request,
    exchange_of,
    hold_everywhere,
    hold_request,
    introduction,
    release_of,
)

pytestmark = ON_ONE_LOOP

SLIPPING = Schedule(start=HOUR, slip=6 * DURATION)
EXACT = Schedule(start=HOUR, slip=0)


async def _led(lead: Site, participants: Sequence[Site], **options: Any) -> Introduction:
    """Create a task that is on its lead's agenda and accepted by its participants."""
    task = introduction(participants, **options)
    for site in {lead, *participants}:
        await site.keep(task, lead)
    return task


def _run(task: Introduction, slot: int = HOUR, attempt: int = 1) -> UUID:
    return run_id(TaskId(task.task), slot, attempt)


async def _free(site: Site, start: int = HOUR, duration: int = DURATION) -> bool:
    """Return whether an exclusive run could be booked then without displacing others."""
    request = ProposalRequest(
        task=uuid4(),
        lease_epoch=1,
        scheduling_class=SchedulingClass.EXCLUSIVE,
        duration=duration,
        priority=0,
        windows=((start, start + duration),),
    )
    return bool((await site.node.time_line.propose(site.identity, request)).free)


async def _overlaps(site: Site) -> int:
    """Count the forbidden overlaps of live runs here, independently of the constraint."""
    query = """
        SELECT count(*) FROM run AS one, run AS other
        WHERE one.id < other.id AND one.participant IS NOT NULL AND other.participant IS NOT NULL
            AND one.state IN ('booked', 'running') AND other.state IN ('booked', 'running')
            AND one.starts_at < other.ends_at AND other.starts_at < one.ends_at
            AND 'exclusive' IN (one.scheduling_class, other.scheduling_class)
            AND one.scheduling_class IN ('exclusive', 'normal')
            AND other.scheduling_class IN ('exclusive', 'normal')
    """
    return int((await site.rows(query))[0][0])


# -- proposals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("present", [-1, 0, 1])
@pytest.mark.parametrize("asking", [-1, 0, 1])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.mostly_nightly
async def test_proposals_see_pending_runs(
    booker: BookingLead,
    present: int,
    asking: int,
    committed: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Held and booked runs block their time in proposals, whatever the priorities."""
    task = await booker.task(present)
    if committed:
        await booker.book(task, HOUR)
    else:
        await booker.hold(hold_request(task, [HOUR]))
    assert await booker.free((HOUR, HOUR + DURATION), priority=asking) == []


@pytest.mark.parametrize("displacing", [False, True])
@pytest.mark.nightly
async def test_what_is_proposed_is_what_can_be_booked(
    booker: BookingLead,
    displacing: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A start can be held exactly if it was offered."""
    rng = random.Random(7)
    for _ in range(12):
        kind = rng.choice(list(SchedulingClass))
        task = await booker.task(rng.randrange(-1, 3), kind, rng.randrange(1, 4) * times.MINUTE)
        await booker.hold(hold_request(task, [HOUR + rng.randrange(30) * times.MINUTE]))
    task = await booker.task(1, duration=2 * times.MINUTE)
    request = ProposalRequest(
        task=task.task,
        lease_epoch=1,
        scheduling_class=task.scheduling_class,
        duration=task.duration,
        priority=task.priority,
        windows=((HOUR, HOUR + 34 * times.MINUTE),),
    )
    proposal = await booker.site.node.time_line.propose(booker.lead.identity, request)
    ranges = (proposal.free_displacing or proposal.free) if displacing else proposal.free
    outcomes = set()
    for minute in range(32):
        start = HOUR + minute * times.MINUTE
        offered = any(low <= start and start + task.duration <= high for low, high in ranges)
        hold = hold_request(task, [start], epoch=minute, displacing=displacing)
        answer = await booker.hold(hold)
        assert bool(answer.held) is offered
        outcomes.add(offered)
        await booker.site.node.time_line.release(exchange_of(hold), release_of(hold))
    assert outcomes == {False, True}


async def test_a_long_run_is_not_forgotten_behind_a_short_one(world: World) -> None:
    """A long run blocks its time to its end, even behind a shorter one."""
    a = await world.site("a")
    for length in (6 * DURATION, DURATION):
        normal = introduction([a], scheduling_class=SchedulingClass.NORMAL, duration=length)
        await book_everywhere(normal, a, [a], [HOUR])
    task = await _led(a, [a], schedule=SLIPPING)
    await a.plan()
    [row] = await a.rows("SELECT starts_at FROM run WHERE id = $1", _run(task))
    assert row[0] == HOUR + 6 * DURATION


async def test_all_participants_are_asked_at_once(world: World) -> None:
    """All participants are asked concurrently."""
    sites = await world.three()
    all_called = asyncio.Event()
    callees: dict[str, set[str]] = {"propose": set(), "hold": set(), "commit": set()}

    async def wait_for_all(call: Call, phase: str) -> None:
        if phase == "asked":
            callees[call[2]].add(call[1])
            if len(callees[call[2]]) == len(sites):
                all_called.set()
                all_called.clear()
            else:
                await all_called.wait()

    world.watch = wait_for_all
    task = await _led(sites[0], sites, schedule=EXACT)
    await sites[0].plan()
    for site in sites:
        assert await site.state(_run(task)) == "scheduled"


# -- priorities ------------------------------------------------------------------------------------


async def test_equal_priorities_do_not_kill_each_other(world: World) -> None:
    """A booked task keeps its time against another one of equal priority."""
    a, b = await world.two()
    first = await _led(a, (a, b), priority=5, schedule=EXACT)
    await a.plan()
    second = await _led(b, (b, a), priority=5, schedule=SLIPPING)
    await b.plan()
    for site in (a, b):
        rows = await site.rows("SELECT id, starts_at, state::text FROM run ORDER BY starts_at")
        assert [tuple(row) for row in rows] == [
            (_run(first), HOUR, "booked"),
            (_run(second), HOUR + DURATION, "booked"),
        ]


async def test_the_displaced_is_freed_everywhere_and_placed_again(world: World) -> None:
    """A displaced run is freed on all nodes, and its lead places it again."""
    a, b, c = await world.three()
    low = await _led(a, (a, b), schedule=SLIPPING)
    await a.plan()
    high = await _led(c, (c, b), priority=5, schedule=EXACT)
    await c.plan()
    await world.pass_time(4 * times.SECOND)
    second = _run(low, attempt=2)
    [row] = await a.rows("SELECT starts_at FROM run WHERE id = $1", second)
    assert row[0] == HOUR + DURATION
    assert await _free(a)
    assert [await site.state(second) for site in (a, b)] == ["scheduled"] * 2
    assert [await site.state(_run(low)) for site in (a, b)] == ["displaced"] * 2
    assert [await site.state(_run(high)) for site in (b, c)] == ["scheduled"] * 2
    assert f"idle of task {high.task}, priority 5 over 0" in (await b.reason(_run(low)) or "")
    assert "that another node leads" in (await a.reason(_run(low)) or "")


# -- booking ---------------------------------------------------------------------------------------


@pytest.mark.nightly
async def test_leads_that_want_the_same_time_do_not_share_it(world: World) -> None:
    """Leads that plan at the same instant never get the same time."""
    sites = await world.three()
    tasks = [
        await _led(lead, [lead, *others], schedule=SLIPPING, priority=number % 2)
        for number in range(4)
        for lead in sites
        for others in [[site for site in sites if site is not lead][: 1 + number % 2]]
    ]
    await asyncio.gather(*(site.plan() for site in sites))
    assert [await _overlaps(site) for site in sites] == [0, 0, 0]
    await world.pass_time(3 * HOLD_LIFE, 6 * times.SECOND)
    assert [await _overlaps(site) for site in sites] == [0, 0, 0]
    booked = [{run for run, s in (await x.states()).items() if s == "scheduled"} for x in sites]
    for task in tasks:
        places = {participant.node for participant in task.participants}
        holders = [
            {run for run in runs if run in {_run(task), _run(task, attempt=2)}}
            for site, runs in zip(sites, booked, strict=True)
            if site.identity in places
        ]
        assert all(held == holders[0] for held in holders)
    assert all(booked)


@pytest.mark.parametrize("release_lost", [False, True])
@pytest.mark.nightly
async def test_a_half_failed_post_leaves_no_orphan(
    world: World,
    release_lost: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The time of an exchange that failed half-way becomes free by itself."""
    a, b, c = await world.three()
    task = await _led(a, (a, b, c), schedule=EXACT)

    async def cut(call: Call, phase: str) -> None:
        if call == ("a", "b", "hold") and phase == "answered" and release_lost:
            world.cut = {frozenset("ac"), frozenset("ab")}
        elif call == ("a", "c", "hold") and phase == "asked":
            world.cut = {frozenset("ac")}

    world.watch = cut
    await a.plan()
    assert await a.state(_run(task)) == "waiting"
    if release_lost:
        assert not await _free(b)
        await world.pass_time(2 * HOLD_LIFE, 3 * times.SECOND)
    assert [await _free(site) for site in (a, b, c)] == [True] * 3
    assert await b.states() == await c.states() == {}


async def test_a_lead_that_dies_after_posting_leaves_no_orphan(world: World) -> None:
    """Holds are dropped if their lead dies before its decision."""
    a, b, c = await world.three()
    await _led(a, (b, c), schedule=EXACT)
    holding = set()

    async def die(call: Call, phase: str) -> None:
        if call[2] == "hold" and phase == "answered":
            holding.add(call[1])
        if holding == {"b", "c"}:
            world.watch = None
            world.cut = {frozenset("ab"), frozenset("ac")}
            raise asyncio.CancelledError

    world.watch = die
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy, return_exceptions=True)
    assert not await _free(b)
    for _ in range(20):
        world.clock.advance(2 * HOLD_LIFE // 20)
        for site in (b, c):
            await site.tend()
    assert await _free(b)
    assert await b.states() == await c.states() == {}


@pytest.mark.nightly
async def test_the_success_after_many_conflicts_counts(world: World) -> None:
    """A success after five conflicts is booked."""
    a, b = await world.two()
    task = await _led(a, (a, b), schedule=SLIPPING)
    thefts = 5

    async def steal(call: Call, phase: str) -> None:
        nonlocal thefts
        if call == ("a", "b", "hold") and phase == "asked" and thefts:
            thefts -= 1
            thief = introduction([b])
            await b.keep(thief, b)
            request = hold_request(thief, [HOUR + (4 - thefts) * DURATION])
            exchange = await hold_everywhere(b, [b], request)
            await b.node.time_line.commit(exchange, commit_request(request))

    world.watch = steal
    await a.plan()
    assert await a.state(_run(task)) == "waiting"
    await world.pass_time(times.MINUTE, 2 * times.SECOND)
    assert thefts == 0
    [row] = await b.rows("SELECT starts_at FROM run WHERE id = $1", _run(task))
    assert row[0] == HOUR + 5 * DURATION
    assert await a.state(_run(task)) == "scheduled"


@pytest.mark.parametrize("state", ["cancelled", "missed", "displaced", "failed", "finished"])
async def test_a_run_that_does_not_take_place_blocks_nothing(
    booker: BookingLead, state: str
) -> None:
    """A run that has ended or was cancelled does not block its time."""
    [run] = (await booker.book(await booker.task(), HOUR)).runs
    if state == "cancelled":
        await booker.site.node.termination.cancel_run(run.run)
    else:
        await booker.site.execute(
            "UPDATE run SET state = $2::run_state, reason = 'so' WHERE id = $1", run.run, state
        )
    assert await _free(booker.site)
    [other] = (await booker.book(await booker.task(), HOUR)).runs
    assert await booker.site.state(other.run) == "scheduled"


async def test_less_than_a_second_of_random_slip_is_no_fault(world: World) -> None:
    """A random start in less than a second of slack can be booked."""
    a, b = await world.two()
    schedule = Schedule(start=HOUR, slip=times.SECOND // 2, slip_random=True)
    task = await _led(a, (a, b), schedule=schedule)
    await a.plan()
    assert [await site.state(_run(task)) for site in (a, b)] == ["scheduled"] * 2
