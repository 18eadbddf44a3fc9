"""The owner of a host sets shares for leads, and the host keeps them where time is booked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from node.model import times
from node.model.lead_shares import CLAIM_LIFE
from node.model.wire.participants import (
    AboveShare,
    HoldAnswer,
    Introduction,
    Proposal,
    ProposalRequest,
)
from node.model.wire.tasks import Schedule
from node.store.bookings import HeldTask
from node.timetable.booking import TimeLine
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.limits import share
from tests.support.served_nodes import asker, served
from tests.support.served_pairs import paired
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

LATER = START // times.HOUR * times.HOUR + 5 * times.HOUR
LENGTH = 3 * times.MINUTE
PART = 5
"""The runs of this length in a quarter of an hour."""


async def _host(world: World, **shares: int) -> Site:
    """Return a host h whose owner has given shares to leads, which are made first."""
    for name in ("b", "c", "d"):
        await world.site(name)
    host = await world.site("h")
    others = shares.pop("others", 1)
    await share(host.node, shares, others)
    return host


def _lead(world: World, name: str) -> Site:
    return next(site for site in world.sites if site.name == name)


async def _task(lead: Site, host: Site) -> Introduction:
    task = introduction([host], duration=LENGTH)
    await lead.keep(task, lead)
    await host.keep(task, lead)
    return task


async def _asked(lead: Site, host: Site, task: Introduction | None = None) -> Proposal:
    """Return what the host offers a lead of an hour to come."""
    task = task or await _task(lead, host)
    request = ProposalRequest(
        task=task.task,
        lease_epoch=1,
        scheduling_class=task.scheduling_class,
        duration=LENGTH,
        priority=0,
        windows=((LATER, LATER + times.HOUR),),
    )
    return await host.node.freed_time.propose(lead.identity, request)


async def _booked(lead: Site, host: Site, first: int, count: int) -> HoldAnswer:
    """Book runs one after the other, the first of which has this number in the hour."""
    task = await _task(lead, host)
    request = hold_request(task, [LATER + n * LENGTH for n in range(first, first + count)])
    exchange = exchange_of(request)
    answered = await host.node.time_line.hold(exchange, lead.identity, request)
    await host.node.time_line.commit(exchange, commit_request(request))
    return answered


async def test_a_lead_above_its_share_is_told_when_to_come_again(world: World) -> None:
    """Time is kept for a lead that asked for it, and the other one is told when it is free."""
    host = await _host(world, b=3)
    b, c = _lead(world, "b"), _lead(world, "c")
    assert len((await _booked(c, host, 0, PART)).held) == PART
    assert (await _asked(c, host)).free  # b has not asked for that time
    assert (await _asked(b, host)).free
    refused = await _asked(c, host)
    assert not refused.free
    [obstacle] = refused.obstacles
    assert isinstance(obstacle, AboveShare)
    later = times.to_the_second(START + CLAIM_LIFE)
    why = f"this lead is above its share of 25 % here; later, from {later}"
    assert refused.reason == f"no 3 min free: {why}"
    world.clock.advance(CLAIM_LIFE)
    assert (await _asked(c, host)).free  # b asked some time ago, and not again


async def test_shares_bind_where_runs_are_booked(world: World) -> None:
    """A hold that goes beyond the share gets its first runs, and the others are refused."""
    host = await _host(world, b=3)
    b, c = _lead(world, "b"), _lead(world, "c")
    await _asked(b, host)
    answered = await _booked(c, host, 0, 9)
    assert len(answered.held) == PART
    assert {refusal.reason.split(" here;")[0] for refusal in answered.refused} == {
        "this lead is above its share of 25 %"
    }
    assert all(isinstance(refusal.obstacle, AboveShare) for refusal in answered.refused)
    assert len((await _booked(b, host, 5, 15)).held) == 15


def _zero(_task: HeldTask, _tool: str) -> int:
    return 0


async def test_leads_that_book_at_once_count_each_other(world: World) -> None:
    """Two leads that share one share get no more, also from two processes at one instant."""
    host = await _host(world, b=3)
    b, c, d = (_lead(world, name) for name in "bcd")
    await _asked(b, host)
    tasks = [await _task(lead, host) for lead in (c, d) for _ in range(6)]
    requests = [hold_request(task, [LATER + n * LENGTH]) for n, task in enumerate(tasks)]
    leads = [c] * 6 + [d] * 6
    first = host.node.time_line
    second = TimeLine(host.node.core, _zero, _zero, Random(1), host.node.limits)
    answers = await asyncio.gather(
        *(
            time_line.hold(exchange_of(request), lead.identity, request)
            for time_line, lead, request in zip([first, second] * 6, leads, requests, strict=True)
        )
    )
    assert sum(len(answered.held) for answered in answers) == PART


async def test_the_lead_says_why_its_runs_wait(world: World) -> None:
    """A lead explains a run that waits by its share at the host that refused it."""
    host = await _host(world, b=3)
    b, c = _lead(world, "b"), _lead(world, "c")
    await _asked(b, host)
    await _booked(c, host, 0, PART)
    schedule = Schedule(start=LATER + 6 * LENGTH, slip=10 * times.MINUTE)
    task = introduction([host], duration=LENGTH, schedule=schedule)
    await c.keep(task, c)
    await host.keep(task, c)
    await c.plan()
    [reason] = [row[0] for row in await c.rows("SELECT reason FROM run WHERE state = 'waiting'")]
    assert reason.startswith("h: no 3 min free: this lead is above its share of 25 % here; later")


async def test_without_shares_nothing_is_restricted(world: World) -> None:
    """The first to ask is served while no shares are set, and after they were removed."""
    host = await _host(world)
    b, c = _lead(world, "b"), _lead(world, "c")
    await _asked(b, host)
    assert len((await _booked(c, host, 0, 9)).held) == 9
    await share(host.node, {"b": 3})
    await _asked(b, host)
    assert not (await _asked(c, host)).free
    await share(host.node, {})
    assert (await _asked(c, host)).free


async def test_the_owner_sees_what_each_lead_had(world: World) -> None:
    """The list has each lead with a share, what it had, and all others together."""
    host = await _host(world, b=3, c=0, others=1)
    await _booked(_lead(world, "b"), host, 0, 4)
    await _booked(_lead(world, "d"), host, 4, 2)
    world.clock.advance(5 * times.HOUR + 30 * times.MINUTE)
    await _booked(_lead(world, "c"), host, 15, 1)
    await host.execute("UPDATE run SET state = 'finished' WHERE starts_at < $1", world.clock.now())
    listed = await host.node.lead_shares.all()
    shown = [(it.lead, it.share, it.percent, it.had, it.had_percent, it.booked) for it in listed]
    assert shown == [
        ("b", 3, 75, 4 * LENGTH, 66.7, 0),
        ("others", 1, 25, 2 * LENGTH, 33.3, 0),
        ("c", 0, 0, 0, 0, LENGTH),
    ]


async def test_a_lead_learns_how_full_other_nodes_are(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """Every node tells others with each look how much time it has left, and from when on."""
    async with (
        asker("a", await new_database(), clock, tmp_path / "a") as a,
        served("b", await new_database(), clock, tmp_path / "b") as b,
    ):
        pair = await paired(a, b, clock)
        start = times.format_instant(START + times.HOUR)
        spec = {"duration": "PT10M", "class": "exclusive", "participants": ["b"]}
        document = {"test": {"type": "idle", "spec": spec}, "schedule": {"start": start}}
        await pair.a.ask("POST", "/v1/tasks", document)
        await pair.plan()
        clock.advance(times.HOUR + times.MINUTE)
        await pair.a.node.peer_monitor.run_once()
        _, page = await pair.a.ask("GET", "/v1/nodes")
        told = page["items"][1]
        assert told["name"] == "b"
        assert times.parse_instant(told["busy_until"]) == START + times.HOUR + 10 * times.MINUTE
        assert times.parse_duration(told["shortfall"]) == times.DAY - 9 * times.MINUTE
