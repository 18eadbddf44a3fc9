"""Caps of groups: nodes that no rule names have no more together than three of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import LimitUsedUp, ParleyError, TooManyRequests
from node.model.host_limits.document import DEFAULT
from node.model.wire.participants import HoldAnswer, Introduction, ProposalRequest
from node.model.wire.tasks import Schedule
from node.store import tasks as stored
from tests.support.clocks import START
from tests.support.limits import limit
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

HOUR = START // times.HOUR * times.HOUR + 5 * times.HOUR
KEYS = 20
MINUTE = times.MINUTE


async def _host(world: World, leads: int, limits: str = DEFAULT) -> tuple[Site, list[Site]]:
    sites = [await world.site(f"l{number}") for number in range(leads)]
    host = await world.site("h", listen="192.0.2.1:8642")
    await limit(host.node, limits)
    return host, sites


def _exclusive(host: Site) -> Introduction:
    """Return a task of a minute each hour, which may slip for most of it."""
    made = introduction([host], duration=MINUTE)
    schedule = Schedule(start=HOUR, repeat=times.HOUR, slip=50 * MINUTE)
    spec = {"duration": "PT1M", "class": "exclusive", "participants": ["h"]}
    return made.model_copy(
        update={"spec": spec, "schedule": schedule, "created_at": HOUR - times.HOUR}
    )


def _background(host: Site, **spec: Any) -> Introduction:
    """Return a task in the background, of a minute each hour."""
    made = introduction([host], scheduling_class=SchedulingClass.BACKGROUND, duration=MINUTE)
    spec = {"duration": "PT1M", "class": "background", "participants": ["h"], **spec}
    schedule = Schedule(start=HOUR, repeat=times.HOUR, slip=MINUTE)
    return made.model_copy(
        update={"spec": spec, "schedule": schedule, "created_at": HOUR - times.HOUR}
    )


async def _booked(
    lead: Site, host: Site, task: Introduction, starts_at: int
) -> HoldAnswer | ParleyError:
    """Hold and commit the first run of a task."""
    request = hold_request(task, [HOUR])
    length = task.duration
    [run] = request.runs
    placed = run.model_copy(update={"starts_at": starts_at, "ends_at": starts_at + length})
    request = request.model_copy(update={"runs": (placed,)})
    exchange = exchange_of(request)
    answer = await host.node.time_line.hold(exchange, lead.identity, request)
    if answer.held:
        await host.node.time_line.commit(exchange, commit_request(request))
    return answer


async def _introduced(
    leads: Sequence[Site], host: Site, count: int, made: Introduction | None = None
) -> list[tuple[Site, Introduction]]:
    tasks = [(leads[n % len(leads)], made or _exclusive(host)) for n in range(count)]
    for lead, task in tasks:
        answer = await host.node.acceptance.consider(lead.identity, task)
        assert answer.accepted, answer
    return tasks


@pytest.mark.nightly
async def test_twenty_keys_have_no_more_than_three(world: World) -> None:
    """Twenty nodes without a rule that book at once have three minutes of an hour."""
    host, leads = await _host(world, KEYS)
    tasks = await _introduced(leads, host, KEYS)
    answers = await asyncio.gather(
        *(
            _booked(lead, host, task, HOUR + 2 * number * MINUTE)
            for number, (lead, task) in enumerate(tasks)
        )
    )
    held = [answer for answer in answers if isinstance(answer, HoldAnswer) and answer.held]
    assert len(held) == 3
    reasons = {it.reason for a in answers if isinstance(a, HoldAnswer) for it in a.refused}
    assert {reason.partition(": ")[0] for reason in reasons} == {
        "limit 'exclusive runs of all others'"
    }
    [row] = await host.rows(
        "SELECT used FROM limit_used WHERE rule = 'exclusive runs of all others' AND used > 0"
    )
    assert row["used"] == 3 * MINUTE


async def test_one_node_leaves_time_to_the_others(world: World) -> None:
    """A node that books all it can does not keep another one from booking in the same hour."""
    host, [greedy, modest] = await _host(world, 2)
    tasks = [*await _introduced([greedy], host, 5), *await _introduced([modest], host, 1)]
    held = []
    for number, (lead, task) in enumerate(tasks):
        answer = await _booked(lead, host, task, HOUR + 2 * number * MINUTE)
        assert isinstance(answer, HoldAnswer)
        held.append(bool(answer.held))
    assert held == [True, False, False, False, False, True]


async def test_what_is_offered_can_be_held(world: World) -> None:
    """A node that has had nothing is offered no time that the others have used up together."""
    host, leads = await _host(world, 4)
    tasks = await _introduced(leads, host, 4)
    for number, (lead, task) in enumerate(tasks[:3]):
        answer = await _booked(lead, host, task, HOUR + 5 * number * MINUTE)
        assert isinstance(answer, HoldAnswer)
        assert answer.held
    last, task = tasks[3]
    request = ProposalRequest(
        task=task.task,
        lease_epoch=1,
        scheduling_class=task.scheduling_class,
        duration=task.duration,
        priority=0,
        windows=((HOUR, HOUR + 50 * MINUTE), (HOUR, HOUR + 90 * MINUTE)),
    )
    offered = await host.node.time_line.propose(last.identity, request)
    assert min(start for start, _ in offered.free) == HOUR + times.HOUR
    [obstacle] = offered.obstacles
    assert obstacle.window == 0
    assert "limit 'exclusive runs of all others': 3 min of 3 min per hour used" in obstacle.why()


async def test_a_node_with_a_rule_of_its_own_has_its_own_time(world: World) -> None:
    """The cap of the others is not about a node that a rule names."""
    named = f'{DEFAULT}\n[who.mine]\nkeys = ["KEY"]\n\n[[rule]]\nname = "mine"\nwho = ["mine"]\n'
    host, leads = await _host(world, 2)
    await limit(host.node, named.replace("KEY", leads[0].identity))
    tasks = await _introduced(leads, host, 8)
    held = [
        (await _booked(lead, host, task, HOUR + 2 * number * MINUTE)).held  # type: ignore[union-attr]
        for number, (lead, task) in enumerate(tasks)
    ]
    assert [bool(runs) for runs in held] == [True, True, True, False] + [True, False] * 2


async def test_the_rates_of_background_runs_add_up(world: World) -> None:
    """Background runs of several nodes at one time move no more than the cap of their group."""
    text = DEFAULT.replace("bps = 10_000_000", "bps = 1_000").replace("runs_at_once = 10, ", "")
    host, leads = await _host(world, 3, text)
    pings = [
        _background(host).model_copy(
            update={
                "test": "rtt",
                "tool": "ping",
                "spec": {"source": "h", "dest": f"198.51.100.{number}", "count": 3},
                "duration": 10 * times.SECOND,
            }
        )
        for number in range(1, 13)
    ]
    held = 0
    reasons: list[str] = []
    for number, task in enumerate(pings):
        lead = leads[number % 3]
        assert (await host.node.acceptance.consider(lead.identity, task)).accepted
        answer = await _booked(lead, host, task, HOUR)
        assert isinstance(answer, HoldAnswer)
        held += len(answer.held)
        reasons += [it.reason for it in answer.refused]
    [[rate]] = await host.rows(
        "SELECT DISTINCT (account ->> 2)::bigint FROM task, jsonb_array_elements(limit_caps) AS "
        "account WHERE account ->> 0 = 'background runs of all others'"
    )
    assert held == 1_000 // rate < len(pings)
    assert reasons[0].startswith("limit 'background runs of all others': 1 kb/s at one time used")


async def test_open_tasks_of_a_group_are_counted_together(world: World) -> None:
    """Nodes of a group that introduce tasks at once have as many as the cap allows."""
    text = DEFAULT.replace("tasks = 300", "tasks = 7", 1)
    host, leads = await _host(world, 4, text)
    answers = await asyncio.gather(
        *(
            host.node.acceptance.consider(leads[number % 4].identity, _exclusive(host))
            for number in range(20)
        ),
        return_exceptions=True,
    )
    refused = [answer for answer in answers if isinstance(answer, LimitUsedUp)]
    assert len(refused) == 13
    assert str(refused[0].detail).startswith("limit 'exclusive runs of all others': the nodes for")
    assert len(await host.rows("SELECT FROM task")) == 7


@pytest.mark.nightly
async def test_edits_count_like_introductions(world: World) -> None:
    """A lead that changes its task again and again is told to wait, and what it frees is freed."""
    host, [lead] = await _host(world, 1)
    [(_, task)] = await _introduced([lead], host, 1)
    edits = [task.model_copy(update={"revision": it, "reference": "x"}) for it in range(2, 80)]
    answers = [
        await asyncio.gather(
            host.node.acceptance.consider(lead.identity, edit), return_exceptions=True
        )
        for edit in edits
    ]
    hurried = [it for [it] in answers if isinstance(it, TooManyRequests)]
    assert "introduces and changes tasks faster" in hurried[0].detail
    changed = len(edits) - len(hurried)
    assert 40 < changed < 60
    [row] = await host.rows("SELECT revision FROM task")
    assert row["revision"] == changed + 1


async def test_ended_tasks_are_kept_up_to_so_many_bytes(world: World) -> None:
    """References of ended tasks go first, the oldest ones, then the tasks; of a group together."""
    host, leads = await _host(world, 2)
    tasks = await _introduced(leads, host, 40)
    await host.execute(
        "UPDATE task SET state = 'finished', reason = 'over', ended_at = created_at, reference = "
        "(SELECT to_jsonb(string_agg(md5(random()::text), '')) FROM generate_series(1, 1800) "
        "WHERE task.id IS NOT NULL)"
    )
    settings = host.node.surplus_purger
    assert len(tasks) == 40
    await settings.run_once()
    assert len(await host.rows("SELECT FROM task WHERE reference IS NOT NULL")) == 40
    async with host.database.transaction() as connection:
        await stored.purge_heavy(connection, 1_000_000, 1000)
    whole = len(await host.rows("SELECT FROM task WHERE reference IS NOT NULL"))
    assert 10 <= whole <= 17
    assert len(await host.rows("SELECT FROM task")) == 40
    async with host.database.transaction() as connection:
        await stored.purge_heavy(connection, 10_000, 1000)
    assert 5 <= len(await host.rows("SELECT FROM task")) < 20
