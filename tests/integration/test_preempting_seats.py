"""Seats for which runs give way: only those that the pool's policies name, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.tasks import TaskDocument
from tests.support.pool_worlds import Pooled, pooled
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

ONCE = {"start": "2026-12-01T01:00:00Z", "max_runs": 1}
MOST_OF_IT: dict[str, Any] = {"schedule": ONCE, "length": "PT50M"}
"""A run that leaves no time for another one in its hour, with a slip of five minutes."""


async def _pool(
    world: World, nodes: int, policy: Mapping[str, Any], **campaigns: Mapping[str, Any]
) -> Pooled:
    """Create a pool of nodes with these policies, and these campaigns."""
    pool = await pooled(world, [{}] * nodes, policy=policy)
    for name, settings in campaigns.items():
        document = CampaignDocument.model_validate({"name": name, **settings})
        await pool.lead.node.campaigns.create(document)
    return pool


async def _named(pool: Pooled, node: str, **options: Any) -> UUID:
    """Create and plan a task of a run as long as those of the pool, on one node."""
    spec = {"duration": MOST_OF_IT["length"], "class": "exclusive", "participants": [node]}
    document = TaskDocument.model_validate(
        {"test": {"type": "idle", "spec": spec}, "schedule": ONCE, **options}
    )
    task, _ = await pool.lead.node.admission.create(document, None)
    await pool.lead.plan()
    await pool.lead.world.settle()
    return task


async def _booked(pool: Pooled, task: UUID) -> int:
    return (await pool.states(pool.lead, task))["scheduled"]


async def _priorities(pool: Pooled, task: UUID) -> list[int]:
    rows = await pool.lead.rows("SELECT priority FROM task WHERE parent = $1", task)
    return [row[0] for row in rows]


@pytest.mark.parametrize(("of_campaign", "of_task"), [(0, 3), (3, 0)])
@pytest.mark.nightly
async def test_only_a_preemptee_gives_way_to_a_preemptor(
    world: World, of_campaign: int, of_task: int
) -> None:
    """A preemptor displaces a preemptee of lower priority of task and campaign, and nobody else."""
    hot: Mapping[str, Any] = {"preemptor": True, "priority": of_campaign}
    flags: dict[str, Mapping[str, Any]] = {"hot": hot, "bulk": {"preemptee": True}}
    pool = await _pool(world, 2, {"set": "maui-preempt"}, ops={}, **flags)
    on: list[dict[str, Any]] = [
        {"request": {"match": {"name": name}}, **MOST_OF_IT} for name in ("n1", "n2")
    ]
    bulk = await pool.create(1, campaign="bulk", **on[0])
    ops = await pool.create(1, campaign="ops", **on[1])
    task = await pool.create(2, campaign="hot", priority=of_task, **MOST_OF_IT)
    assert await pool.seats(task) == {1: {1: "n1"}}
    assert await _booked(pool, task) == await _booked(pool, ops) == 1
    states = await pool.states(pool.lead, bulk)
    assert (states["displaced"], states["scheduled"]) == (1, 0)
    sentence = (await pool.told(task))[-1][1]
    assert "1 run may be displaced; 1 is empty: n2: no 50 min free: busy with an" in sentence


async def test_urgent_seats_displace_up_to_their_budget(world: World) -> None:
    """Urgent runs displace a third of three nodes whatever the priorities, and then no more."""
    urgency = {"percent": 34, "delay": "PT10S"}
    policy = {"set": "gridserver-urgent", "overrides": {"preempt": {"urgency": urgency}}}
    pool = await _pool(world, 3, policy, outage={"level": "urgent"}, bulk={})
    bulk = await pool.create(3, campaign="bulk", priority=5, **MOST_OF_IT)
    assert await _booked(pool, bulk) == 3
    outage = await pool.create(3, campaign="outage", seat=False, **MOST_OF_IT)
    world.clock.advance(times.SECOND)
    more = await pool.create(1, campaign="outage", seat=False, **MOST_OF_IT)
    world.clock.advance(15 * times.SECOND)
    await pool.seat()
    assert len((await pool.seats(outage))[1]) == await _booked(pool, outage) == 1
    assert await _priorities(pool, outage) == [6]
    assert await _booked(pool, bulk) == 2
    assert await pool.seats(more) == {}
    sentences = [sentence for _, sentence in await pool.told(more)]
    assert "1 of 3 seats are urgent already; the budget is 34 %" in sentences[-1]


async def test_the_urgent_displace_as_soon_as_their_delay_is_over(world: World) -> None:
    """Urgent seats that were tried too early are tried again once they may displace runs."""
    policy = {"overrides": {"preempt": {"urgency": {"percent": 50, "delay": "PT10S"}}}}
    pool = await _pool(
        world, 2, {"set": "gridserver-urgent"} | policy, outage={"level": "urgent"}, bulk={}
    )
    bulk = await pool.create(2, campaign="bulk", **MOST_OF_IT)
    outage = await pool.create(1, campaign="outage", **MOST_OF_IT)
    assert "has waited 0 of the 10 s before it may displace" in (await pool.told(outage))[-1][1]
    world.clock.advance(10 * times.SECOND)
    await pool.seat()
    assert (await _booked(pool, outage), await _booked(pool, bulk)) == (1, 1)


async def test_what_was_lent_is_taken_back(world: World) -> None:
    """A campaign with a promise for half of the pool gets one of two lent nodes back."""
    promise: Mapping[str, Any] = {"target": {"seats": 1, "share": None}}
    pool = await _pool(world, 2, {"set": "gridserver-sla-preempt"}, lab=promise, bulk=promise)
    bulk = await pool.create(2, campaign="bulk", priority=5, **MOST_OF_IT)
    assert await _booked(pool, bulk) == 2
    tasks = [await pool.create(1, campaign="lab", **MOST_OF_IT) for _ in range(2)]
    assert [await _booked(pool, task) for task in tasks] == [1, 0]
    assert await _priorities(pool, tasks[0]) == [6]
    assert await _booked(pool, bulk) == 1


async def test_what_was_lent_to_many_runs_is_taken_back(world: World) -> None:
    """A promised seat is taken back for a term of many runs, each of which displaces others."""
    promise: Mapping[str, Any] = {"target": {"seats": 1, "share": None}}
    pool = await _pool(world, 2, {"set": "gridserver-sla-preempt"}, lab=promise, bulk=promise)
    often: dict[str, Any] = {
        "schedule": {"start": "2026-12-01T01:00:00Z", "repeat": "PT10M", "max_runs": 6, "slip": 0},
        "length": "PT9M",
    }
    bulk = await pool.create(2, campaign="bulk", **often)
    assert await _booked(pool, bulk) == 12
    lab = await pool.create(2, campaign="lab", request={"min_k": 1}, **often)
    assert (await _booked(pool, lab), await _booked(pool, bulk)) == (6, 6)
    sentence = (await pool.told(lab))[0][1]
    refusal = (
        "6 runs would have to give way to it; that is allowed for 1 of its seats at most, and 1"
    )
    assert refusal in sentence


async def test_promised_seats_are_taken_back_from_named_tasks(world: World) -> None:
    """A task that names its nodes gives them back, whatever its priority, unless it is urgent."""
    promise: Mapping[str, Any] = {"target": {"seats": 1, "share": None}}
    outage: Mapping[str, Any] = {"level": "urgent"}
    pool = await _pool(
        world, 2, {"set": "gridserver-sla-preempt"}, lab=promise, plain={}, outage=outage
    )
    plain = await _named(pool, "n1", campaign="plain", priority=50)
    urgent = await _named(pool, "n2", campaign="outage")
    lab = await pool.create(1, campaign="lab", **MOST_OF_IT)
    assert await pool.seats(lab) == {1: {1: "n1"}}
    assert await _booked(pool, lab) == 1
    states = "SELECT DISTINCT state::text FROM run WHERE task_id = $1 ORDER BY 1"
    assert "displaced" in [row[0] for row in await pool.lead.rows(states, plain)]
    assert [row[0] for row in await pool.lead.rows(states, urgent)] == ["booked"]


async def test_a_budget_of_less_than_a_seat_says_so(world: World) -> None:
    """A budget of less than one seat displaces nothing, and the needed budget is named."""
    pool = await _pool(world, 3, {"set": "gridserver-urgent"}, outage={"level": "urgent"}, bulk={})
    await pool.create(3, campaign="bulk", **MOST_OF_IT)
    outage = await pool.create(1, campaign="outage", seat=False, **MOST_OF_IT)
    world.clock.advance(15 * times.SECOND)
    await pool.seat()
    sentence = (await pool.told(outage))[-1][1]
    assert "10 % of 3 seats is less than one, so outage displaces nothing" in sentence
    assert """(parley pool edit … --override 'preempt.urgency={"percent": 34}')""" in sentence


async def test_nothing_gives_way_where_policies_say_never(world: World) -> None:
    """A seat of a higher priority displaces nothing if the policies never do."""
    pool = await _pool(world, 1, {"set": "fbsng-dynamic"})
    full = await pool.create(1, schedule=ONCE, length="PT50M")
    world.clock.advance(5 * times.SECOND)  # the pool's next episode starts after this pause
    task = await pool.create(1, priority=9, schedule={**ONCE, "max_runs": 2})
    assert await pool.seats(task) == {1: {1: "n1"}}
    assert await _booked(pool, full) == 1
    assert (await pool.states(pool.lead, task)) == {"waiting": 1, "scheduled": 1}
