"""Urgent tasks, and those of preemptors, that name their participants displace others."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.plans import Outcome
from node.model.wire.tasks import TaskDocument
from tests.support.clocks import START
from tests.support.previews import plan
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP

AT = START + times.HOUR
DELAY = times.MINUTE


async def _campaign(site: Site, name: str, **settings: Any) -> None:
    created = CampaignDocument.model_validate({"name": name, **settings})
    await site.node.campaigns.create(created)


def _document(campaign: str, *names: str, priority: int = 0) -> dict[str, Any]:
    return {
        "test": {
            "type": "idle",
            "spec": {"duration": "PT10M", "class": "exclusive", "participants": list(names)},
        },
        "schedule": {"start": times.format_instant(AT), "slip": "PT0S"},
        "campaign": campaign,
        "priority": priority,
    }


async def _create(site: Site, campaign: str, *names: str, priority: int = 0) -> UUID:
    """Create and plan a task of one exclusive run at ``AT`` that cannot slip."""
    document = TaskDocument.model_validate(_document(campaign, *names, priority=priority))
    task, _ = await site.node.admission.create(document, None)
    await site.plan()
    await site.world.settle()
    return task


async def _state(site: Site, task: UUID) -> tuple[str, str]:
    """Return the state of the latest run of a task, and why it is so."""
    rows = await site.rows(
        "SELECT state::text, reason FROM run WHERE task_id = $1 ORDER BY attempt DESC LIMIT 1", task
    )
    return rows[0][0], rows[0][1] or ""


async def _waited(world: World) -> None:
    """Let the delay pass after which urgent tasks may displace others."""
    await world.pass_time(DELAY)


@pytest.mark.nightly
async def test_an_urgent_run_displaces_one_of_higher_priority(world: World) -> None:
    """After the delay the run of an urgent campaign has the time, on all participants."""
    a, b = await world.two()
    await _campaign(a, "outage", level="urgent")
    routine = await _create(a, "default", "a", "b", priority=50)
    urgent = await _create(a, "outage", "a", "b")
    state, reason = await _state(a, urgent)
    assert state == "waiting"
    assert "outage is urgent, but has waited 0 of the 10 s" in reason
    await _waited(world)
    for site in (a, b):
        assert (await _state(site, urgent))[0] == "booked"
    rows = await a.rows(
        "SELECT reason FROM run WHERE task_id = $1 AND state = 'displaced'", routine
    )
    assert rows[0][0].endswith(f"puts first, whatever the priorities (idle of task {urgent})")
    await world.pass_time(DELAY)
    assert (await _state(a, urgent))[0] == "booked"


@pytest.mark.nightly
async def test_urgent_runs_do_not_displace_each_other(world: World) -> None:
    """An urgent run gives way to nobody."""
    a, _ = await world.two()
    await _campaign(a, "outage", level="urgent")
    await _campaign(a, "alarm", level="urgent")
    first = await _create(a, "outage", "a", "b")
    second = await _create(a, "alarm", "a", "b")
    await _waited(world)
    assert (await _state(a, first))[0] == "booked"
    assert (await _state(a, second))[0] == "waiting"


@pytest.mark.nightly
async def test_runs_of_other_leads_stay(world: World) -> None:
    """A campaign is urgent at its own lead only; others are displaced by priority."""
    a, b = await world.two()
    await _campaign(a, "outage", level="urgent")
    foreign = await _create(b, "default", "a", "b", priority=50)
    urgent = await _create(a, "outage", "a", "b")
    await _waited(world)
    assert (await _state(b, foreign))[0] == "booked"
    assert (await _state(a, urgent))[0] == "waiting"


@pytest.mark.nightly
async def test_the_budget_limits_what_the_urgent_displace(world: World) -> None:
    """With half of the nodes for urgent runs, a task of all nodes displaces nothing."""
    a = await world.site("a", urgent_percent=50)
    await world.site("b")
    await _campaign(a, "outage", level="urgent")
    both = await _create(a, "default", "a", "b")
    urgent = await _create(a, "outage", "a", "b")
    await _waited(world)
    assert (await _state(a, both))[0] == "booked"
    assert "may displace runs on 1 more of 2 nodes" in (await _state(a, urgent))[1]


async def test_a_preemptor_displaces_preemptees(world: World) -> None:
    """The priority of the campaigns decides, and only preemptees give way."""
    a, _ = await world.two()
    await _campaign(a, "research", preemptor=True, priority=10)
    await _campaign(a, "background", preemptee=True)
    await _campaign(a, "plain")
    given = await _create(a, "background", "a", priority=5)
    kept = await _create(a, "plain", "b", priority=5)
    first = await _create(a, "research", "a")
    second = await _create(a, "research", "b")
    await world.pass_time(4 * times.SECOND)
    assert await _state(a, first) == ("booked", "")
    assert (await _state(a, given))[0] != "booked"
    assert (await _state(a, kept))[0] == "booked"
    assert (await _state(a, second))[0] == "waiting"


@pytest.mark.nightly
async def test_a_plan_tells_what_its_campaign_displaces(world: World) -> None:
    """It names the run that gives way, of higher priority, and posting the task does the same."""
    a, b = await world.two()
    await _campaign(a, "outage", level="urgent")
    routine = await _create(a, "default", "a", "b", priority=50)
    told = await plan(world, a, _document("outage", "a", "b"))
    assert (told.outcome, told.displaced_count) == (Outcome.FOUND, 2)
    assert {(lost.name, lost.task) for lost in told.displaced} == {("a", routine), ("b", routine)}
    assert "1 of them displacing other runs" in told.sentence
    urgent = await _create(a, "outage", "a", "b")
    await _waited(world)
    assert (await _state(b, urgent))[0] == "booked"


async def test_a_plan_tells_why_its_campaign_displaces_nothing(world: World) -> None:
    """The budget of urgent campaigns is part of the reason."""
    a = await world.site("a", urgent_percent=50)
    await world.site("b")
    await _campaign(a, "outage", level="urgent")
    await _create(a, "default", "a", "b")
    told = await plan(world, a, _document("outage", "a", "b"))
    assert told.outcome is Outcome.NO_TIME
    assert "outage is urgent, but has waited 0 of the 10 s" in told.sentence
    assert "may displace runs on 1 more of 2 nodes" in told.sentence
