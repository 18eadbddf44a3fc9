"""Statements of Maui, seen over HTTP: a credential is a campaign."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.acceptance.outsider import Json, Outsider
from tests.acceptance.seeds.scene import Scene
from tests.support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("scene", "tidy"),
]


async def test_a_hard_limit_binds_named_tasks(scene: Scene, b: Outsider, c: Outsider) -> None:
    """A campaign of one run at once has one, on whatever nodes its tasks name."""
    campaign = await scene.campaign("limited", limits={"runs": {"hard": 1}})
    assert await scene.booked(await scene.named(b, campaign=campaign), 1) == [0]
    second = await scene.named(c, campaign=campaign)
    await scene.waits(second, f"{campaign} would have 2 runs at once, of at most 1 (hard)")
    assert await scene.booked(await scene.named(c, slip=20, campaign=campaign), 1) == [10]


async def test_limits_bind_pool_tasks_alike(scene: Scene, b: Outsider) -> None:
    """A run of a pool slips until its campaign has room, and otherwise says when there is some."""
    campaign = await scene.campaign("limited", limits={"runs": {"hard": 1}})
    assert await scene.booked(await scene.named(b, campaign=campaign), 1) == [0]
    assert await scene.booked(await scene.pooled(slip=20, campaign=campaign), 1) == [10]
    until = f"{scene.hour + timedelta(minutes=20):%Y-%m-%dT%H:%M:%SZ}"
    said = f"{campaign} would have 2 runs at once, of at most 1 (hard), until {until}"
    await scene.unseated(await scene.pooled(campaign=campaign), said)


async def test_room_in_a_campaign_is_used_at_once(scene: Scene, b: Outsider, c: Outsider) -> None:
    """A run that waits for room in its campaign is planned when another one is cancelled."""
    campaign = await scene.campaign("limited", limits={"runs": {"hard": 1}})
    first = await scene.named(b, campaign=campaign)
    assert await scene.booked(first, 1) == [0]
    waiting = [
        await scene.named(c, campaign=campaign),
        await scene.pooled(campaign=campaign),
    ]
    await scene.waits(waiting[0], "of at most 1 (hard)")
    await scene.unseated(waiting[1], "of at most 1 (hard)")
    await scene.lead.cancel(first)
    async with asyncio.timeout(PATIENCE_S), scene.lead.changes() as changed:
        while not any([await _is_booked(scene, task) for task in waiting]):
            await changed()


async def _is_booked(scene: Scene, task: Json) -> bool:
    runs = await scene.lead.get(f"/v1/tasks/{task['id']}/runs?state=scheduled")
    return bool(runs["items"])


async def test_a_soft_limit_binds_while_others_wait(scene: Scene, b: Outsider, c: Outsider) -> None:
    """A campaign may exceed its soft limit as long as nobody else waits for the nodes."""
    campaign = await scene.campaign("soft", limits={"runs": {"soft": 1, "hard": 3}})
    light = {"kind": "background-multi", "campaign": campaign}
    for node in (b, c):
        assert await scene.booked(await scene.named(node, **light), 1) == [0]
    assert await scene.booked(await scene.named(b), 1) == [0]
    await scene.waits(await scene.named(b), "busy with an exclusive idle run")
    third = await scene.named(b, **light)
    await scene.waits(third, "of at most 1 (soft)")


async def test_a_reservation_admits_one_campaign(scene: Scene, a: Outsider) -> None:
    """Reserved time is for those on its access list; no priority helps others into it."""
    guest = await scene.campaign("guest")
    reservation = {
        "kind": "demo",
        "name": "conference",
        "duration": "PT1H",
        "schedule": {"start": scene.hour.isoformat()},
        "access": {"campaigns": [guest]},
    }
    made = await a.ask("POST", "/v1/reservations", reservation)
    assert made.status == 201, made
    await scene.waits(await scene.named(a, priority=99), "reserved for demo 'conference'")
    assert await scene.booked(await scene.named(a, campaign=guest), 1) == [0]
    assert (await a.ask("DELETE", f"/v1/reservations/{made.body['id']}")).status < 300


async def test_a_preemptor_displaces_a_preemptee(scene: Scene, b: Outsider, c: Outsider) -> None:
    """A preemptor displaces runs of preemptees of lower priority, and those of nobody else."""
    preemptor = await scene.campaign("research", preemptor=True, priority=10)
    given = await scene.named(b, campaign=await scene.campaign("spare", preemptee=True), priority=5)
    kept = await scene.named(c, campaign=await scene.campaign("plain"), priority=5)
    for task in (given, kept):
        assert await scene.booked(task, 1) == [0]
    refused = await scene.named(c, campaign=preemptor)
    await scene.waits(refused, "c")
    assert await scene.booked(await scene.named(b, campaign=preemptor), 1) == [0]
    await scene.booked(given, 0)
    await scene.booked(kept, 1)


async def test_short_runs_are_backfilled(scene: Scene, b: Outsider) -> None:
    """A blocked wide task has a slot, before which only runs are placed that end in time."""
    await scene.policies("maui-backfill")
    await scene.booked(await scene.named(b, minutes=20, priority=9), 1)
    async with scene.together() as tasks:
        wide = await scene.pooled(3, minutes=20, slip=30, request={"together": True})
        fits = await scene.pooled(minutes=15)
        long = await scene.pooled(minutes=30)
        tasks += [wide, fits, long]
    assert await scene.booked(wide, 1) == [20]
    assert await scene.booked(fits, 1) == [0]
    await scene.unseated(long, "no")
