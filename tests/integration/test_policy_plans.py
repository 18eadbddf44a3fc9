"""Plans of other policies for a pool: what they say is what is booked, and nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from lead.pool.policy_preview import PolicyPreviewer
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.policy_plans import PolicyForecast, PolicyPlan, PolicyPlanRequest
from tests.support.pool_worlds import Pooled, bounds_of, pooled, seat_dependencies_of
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

CROWDED: dict[str, Any] = {
    "schedule": {"start": "2026-12-01T01:00:00Z", "max_runs": 1, "slip": "PT48M"},
    "length": "PT12M",
}
"""A run of which a node has room for five in the hour in which it is wanted."""


async def plan(pool: Pooled, policy: Mapping[str, Any], **options: Any) -> PolicyPlan:
    """Return what these policies would do to a pool."""
    node = pool.lead.node
    previewer = PolicyPreviewer(
        node.database, node.clock, bounds_of(pool.lead), seat_dependencies_of(pool.lead)
    )
    request = PolicyPlanRequest.model_validate({"policy": policy, **options})
    return await previewer.plan(await node.pools.check_policy("europe", request.policy), request)


async def crowd(
    world: World, policy: Mapping[str, Any], *, seat: bool = False
) -> tuple[Pooled, dict[str, list[UUID]]]:
    """Create a pool of two nodes, and two campaigns that each want eight of its ten runs."""
    pool = await pooled(world, [{}, {}], policy=policy)
    for name, settings in (("old", {"weight": 1}), ("new", {"weight": 4})):
        document = CampaignDocument.model_validate({"name": name, **settings})
        await pool.lead.node.campaigns.create(document)
        world.clock.advance(1_000_000)
    tasks: dict[str, list[UUID]] = {"old": [], "new": []}
    for number in range(16):
        name = ("old", "new")[number % 2]
        tasks[name].append(await pool.create(1, campaign=name, seat=False, **CROWDED))
    if seat:
        await pool.seat()
    return pool, tasks


async def booked(pool: Pooled, tasks: Mapping[str, list[UUID]]) -> Counter[str]:
    """Return the number of booked runs by campaign."""
    found: Counter[str] = Counter()
    for name, several in tasks.items():
        for task in several:
            found[name] += (await pool.states(pool.lead, task))["scheduled"]
    return found


def runs(forecast: PolicyForecast) -> Counter[str]:
    """Return the number of runs by campaign."""
    return Counter({it.campaign: it.runs for it in forecast.campaigns})


@pytest.mark.parametrize("chosen", ["in-order", "shares"])
@pytest.mark.nightly
async def test_what_a_plan_says_is_what_is_booked(world: World, chosen: str) -> None:
    """Before and after a change each campaign gets what the plan of that change had said."""
    pool, tasks = await crowd(world, {"set": "pscheduler"})
    said = await plan(pool, {"set": chosen})
    assert runs(said.before).total() == runs(said.after).total() == 10
    assert {it.missed for it in said.after.campaigns} != {0}
    assert (said.booked, said.notes) == (0, ())
    assert await booked(pool, tasks) == Counter()
    revision = (await pool.lead.node.pools.find("europe")).revision
    assert revision == 1
    await pool.lead.rows(
        "UPDATE pool SET policy_set = $1, revision = revision + 1 RETURNING 1", chosen
    )
    await pool.changed()
    assert await booked(pool, tasks) == runs(said.after)


@pytest.mark.nightly
async def test_booked_runs_are_given_back_as_shares_say(world: World) -> None:
    """A plan tells of runs that are booked and would change hands; it changes none itself."""
    pool, tasks = await crowd(world, {"set": "in-order"}, seat=True)
    had = await booked(pool, tasks)
    assert had == Counter(old=8, new=2)
    said = await plan(pool, {"set": "shares"})
    assert said.booked == 10
    assert runs(said.before) == had
    assert runs(said.after) == Counter(new=8, old=2)
    anew = await plan(pool, {"set": "shares"}, anew=True)
    assert runs(anew.before) == had
    assert runs(anew.after)["new"] > runs(anew.after)["old"]
    assert await booked(pool, tasks) == had
