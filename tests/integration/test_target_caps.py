"""Caps bound what one target gets from a host, whoever asks and however it is written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from node.execution import targets as facts
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import HostError, LimitUsedUp
from node.model.wire.participants import HoldAnswer, Introduction, ProposalRequest
from node.model.wire.tasks import Schedule
from node.plugins import registry
from node.plugins.contracts import PartContext, Party
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
TARGET = "198.51.100.7"
CAPS = """
version = 1

[who.all]
others = true

[[rule]]
name = "all"
who = ["all"]

[[cap]]
name = "targets"
prefix = { v4 = 24, v6 = 48 }
runs = "6/PT1H"
"""
FORMS = [
    TARGET,
    "198.51.100.250",
    "::ffff:198.51.100.7",
    "64:ff9b::c633:6407",
    "2002:c633:6407::1",
    "0xc6336407",
    "3325256711",
    "0306.063.0144.07",
]
"""One target, and others of its network."""


async def _host(world: World, leads: int) -> tuple[Site, list[Site]]:
    sites = [await world.site(f"l{number}") for number in range(leads)]
    host = await world.site("h", listen="192.0.2.1:8642")
    await limit(host.node, CAPS)
    return host, sites


def _introduction(host: Site, dest: str) -> Introduction:
    made = introduction([host])
    return made.model_copy(
        update={
            "test": "rtt",
            "tool": "ping",
            "spec": {"source": "h", "dest": dest, "count": 3},
            "scheduling_class": SchedulingClass.BACKGROUND,
            "duration": 10 * times.SECOND,
            "schedule": Schedule(
                start=HOUR - times.HOUR, repeat=times.MINUTE, slip=50 * times.SECOND
            ),
            "created_at": HOUR - times.HOUR,
        }
    )


async def _hold(lead: Site, host: Site, dest: str, slot: int) -> HoldAnswer:
    task = _introduction(host, dest)
    answer = await host.node.acceptance.consider(lead.identity, task)
    assert answer.accepted, answer
    request = hold_request(task, [slot])
    return await host.node.time_line.hold(exchange_of(request), lead.identity, request)


@pytest.mark.nightly
async def test_fifty_tasks_of_ten_leads_get_no_more(world: World) -> None:
    """Leads that act together, and write one target in many ways, stay within the cap."""
    host, leads = await _host(world, 10)
    answers = await asyncio.gather(
        *(
            _hold(
                leads[number % 10], host, FORMS[number % len(FORMS)], HOUR + number * times.MINUTE
            )
            for number in range(50)
        )
    )
    assert sum(len(answer.held) for answer in answers) == 6
    refused = [refusal for answer in answers for refusal in answer.refused]
    assert refused[0].reason.startswith("limit 'targets': 6 runs of 6 runs per hour used")
    assert (await _hold(leads[0], host, "203.0.113.7", HOUR)).held
    assert (await _hold(leads[0], host, TARGET, HOUR + times.HOUR)).held
    [[used]] = await host.rows(
        "SELECT used FROM limit_used WHERE holder = '198.51.100.0/24' AND begins_at <= $1",
        HOUR,
    )
    assert used == 6


@pytest.mark.nightly
async def test_fifty_tasks_of_ten_leads_do_not_add_up(world: World) -> None:
    """Runs of many leads to one network at one time stay below the rate of the cap."""
    host, leads = await _host(world, 10)
    await limit(host.node, CAPS.replace('runs = "6/PT1H"', "bps = 1_000"))
    holds = (_hold(leads[n % 10], host, FORMS[n % len(FORMS)], HOUR) for n in range(50))
    answers = await asyncio.gather(*holds)
    task = _introduction(host, TARGET)
    assert (await host.node.acceptance.consider(leads[0].identity, task)).accepted
    [[rate]] = await host.rows(
        "SELECT (limit_caps -> 0 ->> 2)::bigint FROM task WHERE id = $1", task.task
    )
    assert 100 < rate < 500
    assert sum(len(answer.held) for answer in answers) == 1_000 // rate
    refused = [refusal for answer in answers for refusal in answer.refused]
    assert refused[0].reason.startswith("limit 'targets': 1 kb/s at one time used, free again")
    assert (await _hold(leads[0], host, "203.0.113.7", HOUR)).held
    assert (await _hold(leads[0], host, TARGET, HOUR + times.MINUTE)).held
    request = ProposalRequest(
        task=task.task,
        lease_epoch=1,
        scheduling_class=task.scheduling_class,
        duration=task.duration,
        priority=0,
        windows=((HOUR, HOUR + 15 * times.SECOND), (HOUR, HOUR + times.MINUTE)),
    )
    offered = await host.node.time_line.propose(leads[0].identity, request)
    assert min(start for start, _ in offered.free) == HOUR + 10 * times.SECOND
    assert [obstacle.window for obstacle in offered.obstacles] == [0]


async def test_a_task_that_sends_more_than_a_cap_allows_is_refused(world: World) -> None:
    """No run of such a task would ever find time: its lead is told so at once."""
    host, [lead] = await _host(world, 1)
    await limit(host.node, CAPS.replace('runs = "6/PT1H"', "bps = 100"))
    for dest in (TARGET, "far.example"):
        answer = await host.node.acceptance.consider(lead.identity, _introduction(host, dest))
        assert answer.limit is not None
        assert (answer.limit.rule, answer.limit.pointer) == ("targets", "/test/spec")
        assert answer.limit.allowed == "at most 100 b/s"


async def test_rates_to_names_are_counted_as_runs_begin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of one address send no more at one time than the address may get."""
    host, [lead] = await _host(world, 1)
    await limit(host.node, CAPS.replace('runs = "6/PT1H"', "bps = 320"))

    def resolved(_host: str, _family: int) -> list[str]:
        return [TARGET]

    monkeypatch.setattr(facts, "_resolve", resolved)
    outcomes = [await _checked(host, f"n{number}.example") for number in range(10)]
    [[rate]] = await host.rows("SELECT DISTINCT bps FROM limit_rate")
    assert outcomes.count(None) == 320 // rate
    says = "limit 'targets': no more than 320 b/s at one time to 198.51.100.0/24"
    assert set(outcomes) == {None, says}
    assert not (await _hold(lead, host, TARGET, HOUR + 30 * times.MINUTE)).held
    assert (await _hold(lead, host, TARGET, HOUR + 32 * times.MINUTE)).held


async def test_no_edit_moves_booked_runs_to_a_full_target(world: World) -> None:
    """Runs booked to many networks cannot be turned to one of them, where a cap has no room."""
    host, [lead] = await _host(world, 1)
    named = [_introduction(host, f"n{number}.example") for number in range(3)]
    for number, each in enumerate(named):
        task = each.model_copy(update={"addresses": _at(each, f"198.51.{number}.7")})
        assert (await host.node.acceptance.consider(lead.identity, task)).accepted
        slots = [HOUR + (5 * number + run) * times.MINUTE for run in range(4)]
        request = hold_request(task, slots).model_copy(update={"tool": "ping"})
        held = await host.node.time_line.hold(exchange_of(request), lead.identity, request)
        assert len(held.held) == 4
    turned = named[1].model_copy(update={"addresses": _at(named[1], "198.51.0.9"), "revision": 2})
    with pytest.raises(LimitUsedUp, match="its booked runs have no room there: limit 'targets'"):
        await host.node.acceptance.consider(lead.identity, turned)
    other_tool = turned.model_copy(update={"tool": "traceroute"})
    with pytest.raises(LimitUsedUp, match="would measure other addresses than they count for"):
        await host.node.acceptance.consider(lead.identity, other_tool)
    elsewhere = turned.model_copy(update={"addresses": _at(named[1], "198.51.9.9")})
    assert (await host.node.acceptance.consider(lead.identity, elsewhere)).accepted
    used = await host.rows("SELECT holder, used FROM limit_used WHERE used > 0 ORDER BY holder")
    assert [tuple(row) for row in used] == [
        ("198.51.0.0/24", 4), ("198.51.2.0/24", 4), ("198.51.9.0/24", 4),
    ]  # fmt: skip


async def test_no_edit_gives_back_what_runs_were_booked_for(world: World) -> None:
    """Runs that keep their spec when their task is given another one stay counted as before."""
    host, [lead] = await _host(world, 1)
    await limit(host.node, CAPS.replace('runs = "6/PT1H"', 'bytes = "1M/PT1H"\nbps = 1_000'))
    task = _introduction(host, TARGET)
    assert (await host.node.acceptance.consider(lead.identity, task)).accepted
    request = hold_request(task, [HOUR, HOUR + times.MINUTE])
    exchange = exchange_of(request)
    assert len((await host.node.time_line.hold(exchange, lead.identity, request)).held) == 2
    await host.node.time_line.commit(exchange, commit_request(request))
    query = "SELECT sum(used)::bigint FROM limit_used"
    [[before]] = await host.rows(query)
    spec = {**task.spec, "count": 1, "dest": "203.0.113.9"}
    small = task.model_copy(update={"spec": spec, "revision": 2})
    assert (await host.node.acceptance.consider(lead.identity, small)).accepted
    assert await host.rows(query) == [(before,)]
    assert len(await host.rows("SELECT FROM limit_rate WHERE starts_at < $1", HOUR + 2)) == 1
    grown = small.model_copy(update={"spec": {**spec, "count": 3, "length": 150}, "revision": 3})
    assert (await host.node.acceptance.consider(lead.identity, grown)).accepted
    await host.execute("UPDATE run SET state = 'cancelled', reason = 'x', changed_at = created_at")
    assert await host.rows(query) == [(before,)]


def _at(task: Introduction, address: str) -> dict[str, str]:
    return {str(task.spec["dest"]): address}


async def test_time_beyond_a_cap_is_not_offered(world: World) -> None:
    """A lead that has not measured the target yet is told that others have used it up."""
    host, [one, other] = await _host(world, 2)
    for number in range(6):
        assert (await _hold(one, host, TARGET, HOUR + number * times.MINUTE)).held
    task = _introduction(host, TARGET)
    assert (await host.node.acceptance.consider(other.identity, task)).accepted
    request = ProposalRequest(
        task=task.task,
        lease_epoch=1,
        scheduling_class=task.scheduling_class,
        duration=task.duration,
        priority=0,
        windows=((HOUR, HOUR + times.HOUR),),
    )
    offered = await host.node.time_line.propose(other.identity, request)
    assert not offered.free
    assert "limit 'targets': 6 runs of 6 runs per hour used" in str(offered.reason)


async def test_names_are_counted_once_their_address_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten names of one address get no more than the address, counted as each run begins."""
    host, [lead] = await _host(world, 1)

    def resolved(_host: str, _family: int) -> list[str]:
        return [TARGET]

    monkeypatch.setattr(facts, "_resolve", resolved)
    for number in range(3):
        assert (await _hold(lead, host, TARGET, HOUR + number * times.MINUTE)).held
    outcomes = [await _checked(host, f"n{number}.example") for number in range(10)]
    assert outcomes[:3] == [None] * 3
    assert set(outcomes[3:]) == {"limit 'targets': no more than 6 runs per hour to 198.51.100.0/24"}


async def _checked(host: Site, dest: str) -> str | None:
    """Return why a part of a run to a name is refused as it begins; None if it is not."""
    test, tool = registry.tests()["rtt"], registry.tools()["ping"]
    document: dict[str, Any] = {"source": "h", "dest": dest, "count": 3}
    context = PartContext(
        spec=test.spec_model.model_validate(document),
        participant=0,
        parties=(Party(name="h", address="192.0.2.1"),),
        starts=HOUR + 30 * times.MINUTE,
        ends=HOUR + 31 * times.MINUTE,
        addresses={dest: dest},
    )
    try:
        await host.node.foreign_targets.checked_part(test, tool, context, (), 5.0)
    except HostError as error:
        return error.detail
    return None
