"""Statements of BOINC's client, seen over HTTP: a project is a campaign."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Outsider
from tests.acceptance.seeds.scene import Scene

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("scene", "tidy"),
]


@pytest.mark.parametrize("policy", ["boinc-edf", "campaign-default"])
@pytest.mark.nightly
async def test_short_slips_go_first(scene: Scene, policy: str) -> None:
    """A run that would miss its deadline goes first, also if it begins in five minutes only."""
    soon = replace(scene, hour=datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5))
    await soon.policies(policy)
    async with soon.together() as tasks:
        tasks += [await soon.pooled(minutes=5, slip=30) for _ in range(6)]
        tasks += [await soon.pooled(minutes=5, slip=1) for _ in range(3)]
    assert await soon.given(9, tasks[:6], tasks[6:]) == [6, 3]
    for task in tasks[6:]:
        [start] = await soon.booked(task, 1)
        assert start <= 1


async def test_a_pool_says_which_runs_will_miss_their_start(
    scene: Scene, nodes: list[Outsider]
) -> None:
    """Hours before, a pool says of which campaign how many runs will be late, and takes it back."""
    campaign = await scene.campaign("tonight")
    busy = await scene.named(*nodes, minutes=60, priority=9)
    assert await scene.booked(busy, 1) == [0]
    late = [await scene.pooled(campaign=campaign, slip=5) for _ in range(2)]
    path = f"/v1/pools/{scene.pool}"
    first = (scene.hour + timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    expected = [{"campaign": campaign, "runs": 2, "first_at": first}]
    await scene.lead.until(path, lambda found: found["expected_misses"] == expected)
    shown = await parley(scene.lead, "pool", "show", scene.pool)
    assert f"2 runs of {campaign} will miss the latest start, the first at {first}" in shown.out
    await scene.lead.cancel(busy)
    assert await scene.given(2, late) == [2]
    await scene.lead.until(path, lambda found: found["expected_misses"] == [])


async def test_a_busy_node_is_asked_about_another_time(scene: Scene, nodes: list[Outsider]) -> None:
    """Nodes that have no time at ten past are asked about a quarter to, in the same hour."""
    await scene.policies("boinc-backoff")
    campaign = await scene.campaign("patient")
    busy = await scene.named(*nodes, minutes=40, priority=9)
    assert await scene.booked(busy, 1) == [0]
    full = await scene.pooled(3, campaign=campaign, at=10)
    await scene.unseated(full, "busy")
    later = await scene.pooled(3, campaign=campaign, at=45)
    assert await scene.booked(later, 3) == [45, 45, 45]
