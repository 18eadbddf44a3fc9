"""Statements of pScheduler's run scheduling, seen over HTTP."""

from __future__ import annotations

import pytest

from tests.acceptance.outsider import Outsider
from tests.acceptance.seeds.scene import Scene

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("scene", "tidy"),
]


async def test_a_run_slips_behind_another(scene: Scene, b: Outsider, c: Outsider) -> None:
    """A run whose ideal time is taken on one participant begins within its slip, on all of them."""
    await scene.booked(await scene.named(b), 1)
    task = await scene.named(b, c, slip=15)
    assert await scene.booked(task, 1) == [10]


async def test_the_second_attempt_preempts(scene: Scene, b: Outsider) -> None:
    """A higher priority displaces nothing where it finds time without, and otherwise does."""
    low = await scene.named(b)
    slipping = await scene.named(b, slip=15, priority=9)
    assert await scene.booked(slipping, 1) == [10]
    assert await scene.booked(low, 1) == [0]
    equal = await scene.named(b)
    await scene.waits(equal, "busy with an exclusive idle run of priority 0")
    higher = await scene.named(b, priority=1)
    assert await scene.booked(higher, 1) == [0]
    await scene.booked(low, 0)


async def test_runs_up_to_the_maximum(scene: Scene, b: Outsider, c: Outsider) -> None:
    """All runs up to the maximum are booked at once, each at a random start within its slip."""
    random = {"slip_random": True}
    task = await scene.named(b, c, minutes=1, every=20, runs=6, slip=15, schedule=random)
    starts = await scene.booked(task, 6)
    slips = [start - 20 * number for number, start in enumerate(starts)]
    assert all(0 <= slip <= 15 for slip in slips)
    assert len(set(slips)) > 1


async def test_without_time_offers_are_made(scene: Scene, b: Outsider, c: Outsider) -> None:
    """Without time common to all a task is refused, if it is to be, with offers that have time."""
    await scene.booked(await scene.named(b, minutes=20), 1)
    document = scene.idle()
    document["test"] = {"type": "idle", "spec": document.pop("spec")}
    document["participants"] = [b.name, c.name]
    refusal = await scene.lead.ask("POST", "/v1/tasks?if_time=true", document)
    assert (refusal.status, refusal.body["type"].rpartition("/")[2]) == (409, "no-time")
    assert "b: no 10 min free" in refusal.body["detail"]
    offer = refusal.body["offers"][0]["document"]
    answer = await scene.lead.ask("POST", "/v1/tasks?if_time=true", offer)
    assert answer.status == 201, answer
    assert await scene.booked(answer.body, 1) == [20]
