"""The use that other nodes make of a host is counted where it is booked, and given back."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from node.model import times
from node.model.wire.participants import (
    HoldAnswer,
    HostLimit,
    Introduction,
    Proposal,
    ProposalRequest,
    Release,
)
from node.store import host_limits
from node.store.bookings import HeldTask
from node.store.database import Notice
from node.timetable.booking import TimeLine
from tests.support.clocks import START
from tests.support.limits import NOTHING, limit
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

LENGTH = 3 * times.MINUTE
HOUR = START // times.HOUR * times.HOUR + 5 * times.HOUR
RULES = """
version = 1

[who.all]
others = true

[[rule]]
name = "all"
who = ["all"]
"""


async def _host(world: World, rule: str, leads: str = "b") -> tuple[Site, list[Site]]:
    """Return a host h with one rule for all others, and some leads."""
    sites = [await world.site(name) for name in leads]
    host = await world.site("h")
    await limit(host.node, RULES + rule)
    return host, sites


async def _task(lead: Site, host: Site) -> Introduction:
    task = introduction([host], duration=LENGTH)
    await lead.keep(task, lead)
    await host.keep(task, lead)
    await host.node.limits.apply()
    return task


async def _ask(lead: Site, host: Site, task: Introduction, hours: int = 1) -> Proposal:
    request = ProposalRequest(
        task=task.task,
        lease_epoch=1,
        scheduling_class=task.scheduling_class,
        duration=LENGTH,
        priority=0,
        windows=((HOUR, HOUR + hours * times.HOUR),),
    )
    return await host.node.time_line.propose(lead.identity, request)


async def _hold(lead: Site, host: Site, *starts: int) -> tuple[Introduction, UUID, HoldAnswer]:
    task = await _task(lead, host)
    request = hold_request(task, list(starts))
    exchange = exchange_of(request)
    answered = await host.node.time_line.hold(exchange, lead.identity, request)
    return task, exchange, answered


async def _book(lead: Site, host: Site, *starts: int) -> HoldAnswer:
    task = await _task(lead, host)
    request = hold_request(task, list(starts))
    exchange = exchange_of(request)
    answered = await host.node.time_line.hold(exchange, lead.identity, request)
    await host.node.time_line.commit(exchange, commit_request(request))
    return answered


def _starts(first: int, count: int) -> list[int]:
    return [HOUR + number * LENGTH for number in range(first, first + count)]


async def _used(host: Site) -> dict[str, int]:
    """Return what is used of each quantity."""
    query = "SELECT quantity, sum(used)::bigint FROM limit_used GROUP BY quantity"
    return {row[0]: row[1] for row in await host.rows(query) if row[1]}


async def test_more_than_a_quota_is_not_booked(world: World) -> None:
    """A hold beyond the quota gets its first runs; the others are refused with the limit."""
    host, [b] = await _host(world, 'most.runs = "4/PT1H"')
    answered = await _book(b, host, *_starts(0, 6))
    assert len(answered.held) == 4
    sentence = "limit 'all': 4 runs of 4 runs per hour used, free again from"
    assert all(refusal.reason.startswith(sentence) for refusal in answered.refused)
    [first, _] = answered.refused
    assert isinstance(first.obstacle, HostLimit)
    assert (first.obstacle.rule, first.obstacle.starts_at) == ("all", HOUR)
    assert len((await _book(b, host, *_starts(20, 6))).held) == 4
    assert await _used(host) == {"runs": 8}


async def test_used_up_time_is_not_offered(world: World) -> None:
    """A proposal leaves the hours out in which the quota is used up, and says why."""
    host, [b] = await _host(world, 'most.time = "PT7M/PT1H"')
    task = await _task(b, host)
    assert (await _ask(b, host, task)).free
    await _book(b, host, *_starts(0, 2))
    offered = await _ask(b, host, task)
    assert not offered.free
    end = times.to_the_second(HOUR + times.HOUR)
    why = f"limit 'all': 6 min of 7 min per hour used, free again from {end}"
    assert offered.reason == f"no 3 min free: {why}"
    later = await _ask(b, host, task, hours=2)
    assert later.free == ((HOUR + times.HOUR, HOUR + 2 * times.HOUR),)


async def test_each_lead_has_its_own_quota(world: World) -> None:
    """One lead uses nothing of the quota of another one, and the owner is not limited."""
    host, [b, c] = await _host(world, 'most.runs = "2/PT1H"', "bc")
    assert len((await _book(b, host, *_starts(0, 4))).held) == 2
    assert len((await _book(c, host, *_starts(4, 4))).held) == 2
    own = introduction([host], duration=LENGTH)
    await host.keep(own, host)
    request = hold_request(own, _starts(8, 4))
    answered = await host.node.time_line.hold(exchange_of(request), host.identity, request)
    assert len(answered.held) == 4


async def test_released_runs_are_given_back(world: World) -> None:
    """A hold counts at once, and its release gives everything back."""
    host, [b] = await _host(world, 'most = { runs = "4/PT1H", time = "PT30M/P1D" }')
    task, exchange, answered = await _hold(b, host, *_starts(0, 4))
    assert len(answered.held) == 4
    assert await _used(host) == {"runs": 4, "time": 4 * LENGTH}
    assert not (await _hold(b, host, *_starts(8, 1)))[2].held
    release = Release(task=task.task, lease_epoch=1)
    await host.node.time_line.release(exchange, release, b.identity)
    assert await _used(host) == {}
    assert len((await _book(b, host, *_starts(0, 4))).held) == 4


@pytest.mark.parametrize(
    ("state", "started", "left"),
    [
        ("cancelled", None, {}),
        ("displaced", None, {}),
        ("missed", None, {}),
        ("cancelled", HOUR, {"runs": 1, "time": times.MINUTE}),
        ("finished", HOUR, {"runs": 1, "time": times.MINUTE}),
    ],
)
async def test_what_is_not_used_is_given_back(
    world: World, state: str, started: int | None, left: dict[str, int]
) -> None:
    """A run that never takes place counts no more, and one that ends early by its time."""
    host, [b] = await _host(world, 'most = { runs = "4/PT1H", time = "PT30M/P1D" }')
    await _book(b, host, HOUR)
    await host.execute(
        "UPDATE run SET state = $1, reason = 'so', started_at = $2, finished_at = $3",
        state,
        started,
        HOUR + times.MINUTE if started else None,
    )
    assert await _used(host) == left


async def test_leads_that_book_at_once_get_no_more(world: World) -> None:
    """Two processes that book for one lead at one instant take turns."""
    host, [b] = await _host(world, 'most.runs = "5/PT1H"')
    tasks = [await _task(b, host) for _ in range(12)]
    requests = [hold_request(task, [HOUR + n * LENGTH]) for n, task in enumerate(tasks)]
    first = host.node.time_line
    second = TimeLine(host.node.core, _zero, _zero, Random(1), host.node.limits)
    answers = await asyncio.gather(
        *(
            time_line.hold(exchange_of(request), b.identity, request)
            for time_line, request in zip([first, second] * 6, requests, strict=True)
        )
    )
    assert sum(len(answer.held) for answer in answers) == 5
    assert await _used(host) == {"runs": 5}


def _zero(_task: HeldTask, _tool: str) -> int:
    return 0


async def test_the_database_refuses_what_was_not_asked(world: World) -> None:
    """A statement that inserts a run beyond a quota fails."""
    host, [b] = await _host(world, 'most.runs = "1/PT1H"')
    await _book(b, host, HOUR)
    with pytest.raises(asyncpg.ExclusionViolationError, match="more than the limit all allows"):
        await host.execute(
            "INSERT INTO run (id, task_id, slot, attempt, participant, scheduling_class, priority, "
            "starts_at, ends_at, state, created_at, changed_at) SELECT gen_random_uuid(), task_id, "
            "slot, 9, participant, 'background', 0, starts_at, ends_at, 'booked', created_at, "
            "changed_at FROM run"
        )


@pytest.mark.nightly
async def test_a_rule_admits_so_many_runs_at_once(world: World) -> None:
    """Runs of one lead overlap as often as its rule allows."""
    host, [b] = await _host(world, 'class = ["exclusive"]\nmost.runs_at_once = 1')
    await _book(b, host, HOUR)
    task = await _task(b, host)
    offered = await _ask(b, host, task)
    assert offered.free[0][0] == HOUR + LENGTH
    await host.execute("UPDATE run SET lane = NULL")  # as if it did not occupy the host
    refused = (await _book(b, host, HOUR + times.MINUTE)).refused
    end = times.to_the_second(HOUR + LENGTH)
    assert [it.reason for it in refused] == [
        f"limit 'all': 1 of 1 runs at once, free again from {end}"
    ]
    assert (await _book(b, host, HOUR + LENGTH)).held


async def test_a_rule_has_its_times(world: World) -> None:
    """Outside the times of a rule nothing is offered or booked, and it is told when it opens."""
    hour = HOUR // times.HOUR % 24
    when = f'when = {{ cron = "30 {hour} * * *", for = "PT1H" }}'
    host, [b] = await _host(world, when)
    opens = HOUR + 30 * times.MINUTE
    task = await _task(b, host)
    offered = await _ask(b, host, task, hours=2)
    assert offered.free == ((opens, opens + times.HOUR),)
    answered = await _book(b, host, HOUR, opens, opens + times.HOUR - LENGTH, opens + times.HOUR)
    assert len(answered.held) == 2
    assert answered.refused[0].reason == (
        f"limit 'all': it admits no runs at this time; open again from {times.to_the_second(opens)}"
    )


async def test_changed_quotas_count_what_is_booked(world: World) -> None:
    """A new quota counts the runs that were booked before it; they stay."""
    host, [b] = await _host(world, "")
    await _book(b, host, *_starts(0, 3))
    assert await _used(host) == {}
    await limit(host.node, f'{RULES}most = {{ runs = "4/PT1H", time = "PT1H/P1D" }}')
    assert await _used(host) == {"runs": 3, "time": 3 * LENGTH}
    assert len((await _book(b, host, *_starts(3, 3))).held) == 1
    await limit(host.node, f'{RULES}most.runs = "1/PT1H"')
    assert await _used(host) == {"runs": 4}
    assert not (await _book(b, host, *_starts(8, 1))).held
    await limit(host.node, NOTHING)
    assert await _used(host) == {}


@pytest.mark.nightly
async def test_a_task_takes_its_use_to_another_rule(world: World) -> None:
    """Booked runs count under the rule that admits the task now."""
    rule = 'most.runs = "4/PT1H"\n[[rule]]\nname = "more"\nwho = ["all"]\nmost.runs = "9/PT1H"'
    host, [b] = await _host(world, rule)
    await _book(b, host, *_starts(0, 3))
    await host.execute("UPDATE task SET limit_rule = 'more'")
    rows: list[Any] = await host.rows("SELECT rule, used FROM limit_used ORDER BY rule")
    assert [tuple(row) for row in rows] == [("all", 0), ("more", 3)]


async def test_bytes_are_counted(world: World) -> None:
    """A quota of bytes counts what runs are expected to move."""
    host, [b] = await _host(world, 'most.bytes = "1G/PT1H"')
    task = await _task(b, host)
    await host.execute("UPDATE task SET run_bytes = 400000000")
    host.node.limits._standings.clear()
    request = hold_request(task, _starts(0, 4))
    answered = await host.node.time_line.hold(exchange_of(request), b.identity, request)
    assert len(answered.held) == 2
    assert "800 MB of 1 GB per hour used" in answered.refused[0].reason


async def test_use_of_past_periods_is_deleted(world: World) -> None:
    """Nobody asks for a period any more that is over."""
    host, [b] = await _host(world, 'most.runs = "4/PT1H"')
    await _book(b, host, HOUR)
    world.clock.advance(HOUR + 30 * times.HOUR - world.clock.now())
    await host.node.purger.purge(host.node.clock.now())
    assert await host.rows("SELECT FROM limit_used") == []


async def test_a_limit_that_is_reached_is_told_once_in_its_period(world: World) -> None:
    """However many requests and holds it refuses, one event says so, and the metric does."""
    host, [b, c] = await _host(world, 'most.runs = "2/PT1H"', "bc")
    notices: asyncio.Queue[Notice] = asyncio.Queue()
    listening = asyncio.create_task(host.database.listen(notices.put_nowait, world.clock))
    while (await notices.get()).kind != "wake":
        pass
    await _book(b, host, *_starts(0, 2))
    task = await _task(b, host)
    for _ in range(3):
        assert "2 runs of 2 runs" in str((await _ask(b, host, task)).reason)
        await asyncio.gather(*(_hold(lead, host, *_starts(5, 3)) for lead in (b, c)))
    await host.execute("SELECT pg_notify('parley', 'marker x')")
    told: list[Notice] = []
    while (notice := await notices.get()).kind != "marker":
        told += [notice] if notice.kind == "limit" else []
        host.node.hub.on_notice(notice)
    listening.cancel()
    assert [(it.id, it.words[0]) for it in told] == [("all", "reached")]
    [event] = [
        it
        for it in host.node.hub.events_since(host.node.hub.start_after(0)) or ()
        if it.kind == "limit"
    ]
    assert event.body == {
        "id": "all",
        "state": "reached",
        "begins_at": times.format_instant(HOUR),
        "ends_at": times.format_instant(HOUR + times.HOUR),
    }
    async with host.database.connection() as connection:
        assert await host_limits.reached_limits(connection, world.clock.now()) == set()
        assert await host_limits.reached_limits(connection, HOUR + 1) == {"all"}
