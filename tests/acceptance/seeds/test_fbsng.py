"""Statements of the scheduler of FBSNG, seen over HTTP: a queue is a campaign."""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.outsider import Json, Outsider
from tests.acceptance.seeds.scene import Scene

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("scene", "tidy"),
]

WIDE = {"together": True}


async def _many(scene: Scene, count: int, **document: Json) -> list[Json]:
    return list(await asyncio.gather(*(scene.pooled(**document) for _ in range(count))))


@pytest.mark.nightly
async def test_starts_are_shared_by_price(scene: Scene) -> None:
    """Prices of 3 and 7 give two queues 70 and 30 percent of the starts."""
    await scene.policies("fbsng-dynamic")
    cheap = await scene.campaign("cheap", queue={"price": 3})
    dear = await scene.campaign("dear", queue={"price": 7})
    async with scene.together() as tasks:
        first = await _many(scene, 7, minutes=15, slip=45, campaign=dear)
        second = await _many(scene, 11, minutes=15, slip=45, campaign=cheap)
        tasks += [*first, *second]
    assert await scene.given(12, second, first) in ([8, 4], [9, 3])


@pytest.mark.nightly
async def test_a_gap_holds_lower_queues(scene: Scene, c: Outsider) -> None:
    """While a queue is stuck, others that are its gap below it do not start, though they could."""
    await scene.policies("fbsng-dynamic")
    bulk = await scene.campaign("bulk", queue={"floor": 5, "gap": 1})
    light = await scene.campaign("light", queue={"ceiling": 1})
    await scene.booked(await scene.named(c, priority=9), 1)
    wide = await scene.pooled(3, request=WIDE, campaign=bulk)
    await scene.unseated(wide, "c")
    narrow = await scene.pooled(campaign=light)
    await scene.unseated(narrow, f"{bulk} is stuck")
    assert await scene.given(0, [wide, narrow]) == [0]


@pytest.mark.nightly
async def test_a_wide_task_is_passed_twice(scene: Scene, c: Outsider) -> None:
    """A section with a gap of 2 is passed by two later ones of its queue, and by no third one."""
    await scene.policies("fbsng-dynamic")
    queue = await scene.campaign("queue", queue={"passes": 2})
    await scene.booked(await scene.named(c, priority=9), 1)
    wide = await scene.pooled(3, request=WIDE, campaign=queue)
    await scene.unseated(wide, "c")
    narrow = [await scene.pooled(campaign=queue, minutes=1, slip=5) for _ in range(4)]
    await scene.given(2, narrow)
    late = narrow[-1]
    await scene.unseated(late, "was passed 2 times already, of at most 2")
