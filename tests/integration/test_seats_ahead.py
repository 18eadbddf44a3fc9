"""Time more than two hours ahead is reserved for campaigns that ask later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from lead.policy.sets import DEFAULT
from node.model import times
from node.model.wire.campaigns import CampaignDocument
from tests.support.clocks import START
from tests.support.pool_worlds import Pooled, pooled
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

HOURS = 8
A_QUARTER: dict[str, Any] = {
    "request": {"min_k": 1},
    "length": "PT5M",
    "schedule": {
        "start": "2026-12-01T00:00:00Z",
        "repeat": "PT20M",
        "slip": "PT15M",
        "until": "2026-12-01T08:00:00Z",
    },
}
"""A quarter of two nodes for ``HOURS`` hours."""


async def _pool(world: World, policy: str, *names: str) -> Pooled:
    pool = await pooled(world, [{}, {}], policy={"set": policy}, term="PT1H")
    for name in names:
        await _campaign(pool, name)
    return pool


async def _campaign(pool: Pooled, name: str) -> None:
    weight, part = {"red": (3, 0.6), "blue": (1, 0.2)}[name]
    document = {"name": name, "weight": weight, "target": {"seats": None, "share": part}}
    await pool.lead.node.campaigns.create(CampaignDocument.model_validate(document))


async def _ask(pool: Pooled, campaign: str) -> list[UUID]:
    """Create four tasks that could fill the pool, and give them the available seats."""
    tasks = [await pool.create(2, campaign=campaign, seat=False, **A_QUARTER) for _ in range(4)]
    await _give(pool)
    return tasks


async def _give(pool: Pooled) -> None:
    while not await pool.episodes.run_once():
        pass


async def _held(
    pool: Pooled, tasks_by_campaign: Mapping[str, Sequence[UUID]]
) -> dict[str, list[int]]:
    """Return by campaign how many quarters of a node it holds in each hour."""
    quarters = {}
    for campaign, tasks in tasks_by_campaign.items():
        hours: Counter[int] = Counter()
        for task in tasks:
            hours.update({hour: len(nodes) for hour, nodes in (await pool.seats(task)).items()})
        quarters[campaign] = [hours[hour] for hour in range(HOURS)]
    return quarters


@pytest.mark.parametrize("policy", [DEFAULT, "gridserver-usage", "gridserver-sla", "boinc-wrr"])
@pytest.mark.nightly
async def test_who_asks_seconds_later_finds_its_part_of_all_but_two_hours(
    world: World, policy: str
) -> None:
    """Red asks after blue and gets its three quarters of the pool from the third hour on."""
    pool = await _pool(world, policy, "blue", "red")
    tasks_by_campaign = {"blue": await _ask(pool, "blue")}
    assert (await _held(pool, tasks_by_campaign))["blue"][:2] == [8, 8]
    world.clock.advance(7 * times.SECOND)
    tasks_by_campaign["red"] = await _ask(pool, "red")
    for hour in range(1, HOURS):
        world.clock.move_to(START + hour * times.HOUR)
        await _give(pool)
    quarters = await _held(pool, tasks_by_campaign)
    assert [sum(both) for both in zip(*quarters.values(), strict=True)] == [8] * HOURS
    assert min(quarters["red"][2:]) >= 5, "red's part among all campaigns, including the default"
    assert sum(quarters["red"][2:]) >= 0.75 * 8 * (HOURS - 2)


@pytest.mark.parametrize("policy", [DEFAULT, "gridserver-sla"])
@pytest.mark.nightly
async def test_a_campaign_made_later_is_given_back_its_part(world: World, policy: str) -> None:
    """A campaign created later is given back its part, of the near hours too, within minutes."""
    pool = await _pool(world, policy, "blue")
    tasks_by_campaign = {"blue": await _ask(pool, "blue")}
    world.clock.advance(7 * times.SECOND)
    await _campaign(pool, "red")
    tasks_by_campaign["red"] = await _ask(pool, "red")
    for _ in range(10):
        world.clock.advance(30 * times.SECOND)
        await _give(pool)
    quarters = await _held(pool, tasks_by_campaign)
    assert sum(quarters["red"][:2]) >= 0.75 * 8 * 2 - 1, "less what began before"
    assert sum(quarters["red"][2:]) >= 0.6 * 8 * (HOURS - 2)
    # A third of what it has in the second hour reaches into the third one.
    assert sum(quarters["blue"][2:]) + 8 / 3 >= 0.2 * 8 * (HOURS - 2), "blue keeps its own part"
    rows = await pool.lead.rows("SELECT reason FROM seat WHERE lost_at IS NOT NULL")
    assert all("given back to red, which is due" in row[0] for row in rows)
    for hour in range(1, HOURS):
        world.clock.move_to(START + hour * times.HOUR)
        await _give(pool)
    quarters = await _held(pool, tasks_by_campaign)
    assert [sum(both) for both in zip(*quarters.values(), strict=True)] == [8] * HOURS
    assert sum(quarters["red"][2:]) >= 0.75 * 8 * (HOURS - 2)
