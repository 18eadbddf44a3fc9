"""An edit of a campaign has those of other campaigns planned at once that profit from it."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.wire.campaigns import CampaignDocument, CampaignPatch
from node.model.wire.tasks import TaskDocument
from node.store.database import Notice
from tests.integration.test_campaign_limits import AT, document
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.pool_worlds import pooled
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP

LATER = START + 5 * times.MINUTE


async def _campaign(site: Site, name: str, **settings: Any) -> None:
    created = CampaignDocument.model_validate({"name": name, **settings})
    await site.node.campaigns.create(created)


async def _create(
    world: World, site: Site, campaign: str, kind: str = "exclusive", priority: int = 0
) -> UUID:
    wanted = document("a", campaign=campaign)
    wanted["test"]["spec"]["class"] = kind
    wanted["priority"] = priority
    task, _ = await site.node.admission.create(TaskDocument.model_validate(wanted), None)
    await site.plan()
    await world.settle()
    return task


async def _state(site: Site, task: UUID) -> str:
    rows = await site.rows(
        "SELECT state::text FROM run WHERE task_id = $1 ORDER BY attempt DESC LIMIT 1", task
    )
    return str(rows[0][0])


async def _edit(world: World, site: Site, campaign: str, **changes: Any) -> set[UUID]:
    """Edit a campaign and plan what is due; return the tasks that were put off before."""
    await site.execute("UPDATE planning SET plan_at = $1 WHERE plan_at IS NOT NULL", LATER)
    await site.node.campaigns.edit(campaign, CampaignPatch.model_validate(changes))
    due = await site.rows("SELECT task_id FROM planning WHERE plan_at <= $1", site.clock.now())
    await site.plan()
    await world.settle()
    return {row[0] for row in due}


async def test_a_soft_limit_binds_no_longer_when_the_other_campaign_is_suspended(
    world: World,
) -> None:
    """A run that waits because another campaign wants the node is booked when that one does not."""
    a, _ = await world.two()
    await _campaign(a, "ops", limits={"runs": {"soft": 1, "hard": 3}})
    await _campaign(a, "lab")
    await _create(world, a, "ops", "background-multi")
    assert await _state(a, await _create(world, a, "lab")) == "booked"
    assert await _state(a, await _create(world, a, "lab")) == "waiting"
    waits = await _create(world, a, "ops", "background-multi")
    assert await _state(a, waits) == "waiting"
    await _edit(world, a, "lab", level=0)
    assert await _state(a, waits) == "booked"


@pytest.mark.parametrize("change", [{"preemptee": True}, {"priority": -10}])
async def test_a_preemptor_is_planned_when_another_campaign_may_be_displaced(
    world: World, change: dict[str, Any]
) -> None:
    """Its waiting run has the time of a campaign that becomes a preemptee, or of less priority."""
    a, _ = await world.two()
    await _campaign(a, "research", preemptor=True, priority=3)
    priority = 5 if "priority" in change else 0
    await _campaign(a, "routine", preemptee=bool(priority), priority=priority)
    await _campaign(a, "plain")
    given = await _create(world, a, "routine")
    waits = await _create(world, a, "research")
    plain = await _create(world, a, "plain")
    assert [await _state(a, task) for task in (waits, plain)] == ["waiting", "waiting"]
    woken = await _edit(world, a, "routine", **change)
    assert waits in woken
    assert plain not in woken, "it may displace nothing"
    assert await _state(a, waits) == "booked"
    assert await _state(a, given) != "booked"


async def test_an_urgent_task_is_planned_when_another_campaign_is_urgent_no_longer(
    world: World,
) -> None:
    """Its waiting run displaces one of a campaign that has become like any other."""
    a, _ = await world.two()
    await _campaign(a, "alarm", level="urgent")
    await _campaign(a, "outage", level="urgent")
    given = await _create(world, a, "alarm")
    waits = await _create(world, a, "outage")
    world.clock.advance(20 * times.SECOND)
    assert await _state(a, waits) == "waiting"
    await _edit(world, a, "alarm", level=5)
    assert await _state(a, waits) == "booked"
    assert await _state(a, given) != "booked"


async def test_an_edit_that_is_of_no_use_to_others_plans_none_of_them(world: World) -> None:
    """A higher limit, a new weight, or another contact of a campaign concerns only its own."""
    a, _ = await world.two()
    await _campaign(a, "research", preemptor=True)
    await _campaign(a, "routine", limits={"runs": {"hard": 1}})
    await _create(world, a, "routine")
    waits = await _create(world, a, "research")
    more = {"limits": {"runs": {"hard": 2}}}
    for change in (more, {"weight": 3}, {"contact": "x@example.org"}):
        assert waits not in await _edit(world, a, "routine", **change)


async def test_seats_are_given_when_the_promise_of_another_campaign_is_withdrawn(
    world: World,
) -> None:
    """The notification of the edit has all empty seats tried, and wakes the workers."""
    pool = await pooled(world, [{}, {}], policy={"set": "gridserver-sla"})
    a = pool.lead
    await _campaign(a, "ops", target={"seats": 1}, limits={"nodes": {"hard": 1}})
    await _campaign(a, "lab", target={"seats": 1})
    at = times.format_instant(AT)
    once = {"start": at, "repeat": None, "slip": "PT0S"}
    both = {"together": True}
    await pool.create(2, seat=False, campaign="ops", schedule=once, request=both)
    tasks = [await pool.create(1, seat=False, campaign="lab", schedule=once) for _ in range(2)]
    await pool.seat()
    assert sorted([len(await pool.seats(task)) for task in tasks]) == [0, 1]
    told = [(await pool.told(task))[-1][1] for task in tasks]
    assert any("ops is promised 1 seat and" in sentence for sentence in told), told
    heard, ready = asyncio.Event(), asyncio.Event()

    def hear(notice: Notice) -> None:
        pool.episodes.on_notice(notice)
        if notice.kind == "wake":
            ready.set()
        if notice.kind == "campaign":
            a.workers.on_notice(notice)
            heard.set()

    listening = asyncio.create_task(a.database.listen(hear, a.clock))
    await asyncio.wait_for(ready.wait(), PATIENCE_S)
    await pool.seat()
    await a.execute("UPDATE term SET try_at = $1 WHERE try_at IS NOT NULL", LATER)
    a.workers._woken.clear()
    await a.node.campaigns.edit("ops", CampaignPatch.model_validate({"target": None}))
    await asyncio.wait_for(heard.wait(), PATIENCE_S)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert a.workers._woken.is_set, "named tasks are planned at once, too"
    await pool.seat()
    assert [len(await pool.seats(task)) for task in tasks] == [1, 1]
