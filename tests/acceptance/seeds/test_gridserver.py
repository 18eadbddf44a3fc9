"""Statements of the scheduler of GridServer, seen over HTTP: a session is a campaign."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Outsider
from tests.acceptance.seeds.scene import Scene

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("scene", "tidy"),
]

AT_ONCE = {"near": "P1D"}
"""Gives all hours at once, so that campaigns of other tests have no part in them."""


async def test_shares_follow_weights(scene: Scene) -> None:
    """Campaigns of weights 3 and 1 that want all of a pool have three quarters of it and one."""
    await scene.policies("gridserver-usage", share=AT_ONCE)
    heavy, light = await scene.campaign("heavy", weight=3), await scene.campaign("light")
    async with scene.together() as tasks:
        for campaign in (light, heavy):
            tasks += [await scene.pooled(minutes=15, slip=45, campaign=campaign) for _ in range(12)]
    assert await scene.given(12, tasks[:12], tasks[12:]) == [3, 9]


@pytest.mark.nightly
async def test_an_urgent_campaign_displaces(scene: Scene) -> None:
    """In a full pool an urgent campaign displaces booked runs, up to its part of the nodes."""
    urgency = {"percent": 40, "delay": "PT0S"}
    await scene.policies("gridserver-urgent", preempt={"urgency": urgency}, share=AT_ONCE)
    routine = await scene.pooled(3, campaign=await scene.campaign("routine"), priority=9)
    assert await scene.booked(routine, 3) == [0, 0, 0]
    outage = await scene.campaign("outage", level="urgent")
    first = await scene.pooled(campaign=outage)
    assert await scene.booked(first, 1) == [0]
    await scene.booked(routine, 2)
    second = await scene.pooled(campaign=outage)
    await scene.unseated(second, "urgent")
    await scene.booked(routine, 2)


async def test_promised_seats_are_kept(scene: Scene) -> None:
    """A group has the seats that it was promised, also if another one holds all with short runs."""
    await scene.policies("gridserver-sla-preempt")
    lab = await scene.campaign("lab", target={"seats": 1})
    ops = await scene.campaign("ops", target={"seats": 2})
    short = {"minutes": 5, "every": 10, "runs": 3}
    lent = await scene.pooled(3, campaign=lab, **short, request={"min_k": 1})
    assert await scene.booked(lent, 9) == [0, 0, 0, 10, 10, 10, 20, 20, 20]
    back = await scene.pooled(2, campaign=ops, **short)
    assert await scene.booked(back, 6) == [0, 0, 10, 10, 20, 20]
    assert await scene.booked(lent, 3) == [0, 10, 20]


async def test_what_cannot_be_promised_is_refused(scene: Scene) -> None:
    """A promise of more seats than a pool has is refused when it is made."""
    await scene.policies("gridserver-sla")
    await scene.campaign("ops", target={"seats": 2})
    answer = await scene.lead.ask(
        "POST", "/v1/campaigns", {"name": "too-much", "target": {"seats": 2}}
    )
    assert answer.status == 422, answer
    assert answer.pointers == ["/target/seats"]


@contextlib.asynccontextmanager
async def _pool_of(node: Outsider, name: str, policy: str) -> AsyncIterator[str]:
    """Give a node a pool of itself alone, and take both away again with the tasks that use it."""
    attributes = f"/v1/nodes/{node.name}"
    await node.ask("PATCH", attributes, {"attributes": {"tied": name}})
    document = {"name": name, "match": {"tied": name}, "policy": {"set": policy}}
    assert (await node.ask("POST", "/v1/pools", document)).status == 201
    try:
        yield name
    finally:
        for task in (await node.get("/v1/tasks", state="active", limit=500))["items"]:
            if task["pool"] and task["pool"]["pool"] == name:
                await node.cancel(task)
        assert (await node.ask("DELETE", f"/v1/pools/{name}")).status == 204
        await node.ask("PATCH", attributes, {"attributes": {"tied": None}})


@pytest.mark.needs("ping")
async def test_a_node_is_pardoned(scene: Scene, c: Outsider) -> None:
    """A node whose run failed gets no more runs of that campaign, until it is pardoned."""
    async with _pool_of(c, f"{scene.pool}-c", "gridserver-blacklist") as pool:
        await _fail_and_pardon(scene, c, pool)


async def _fail_and_pardon(scene: Scene, c: Outsider, pool: str) -> None:
    seats = {"participants": {"pool": pool, "k": 1}}
    spec = {"dest": "silent.test", "count": 10, "interval": "PT0.01S", "timeout": "PT0.5S"}
    broken = await c.create("rtt", spec=spec, tools=["ping"], schedule={"max_runs": 1}, **seats)
    path = f"/v1/tasks/{broken['id']}/runs?state=failed"
    await c.until(path, lambda found: len(found["items"]) == 1)
    task = await c.create("idle", **scene.idle(), **seats)
    why = "to forget that: parley node pardon c"
    path = f"/v1/tasks/{task['id']}"
    await c.until(path, lambda found: why in ((found["seats"] or {}).get("reason") or ""))
    assert (await parley(c, "node", "pardon", "c")).code == 0
    await c.until(path, lambda found: found["seats"]["taken"] == 1)
