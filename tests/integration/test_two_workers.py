"""A task that was taken from one worker and is planned by another: only the other one has a say."""

from __future__ import annotations

import asyncio
from typing import Any

from node.model import times
from node.model.wire.tasks import Schedule
from tests.clocks import START
from tests.worlds import ON_ONE_LOOP, World, introduction

pytestmark = ON_ONE_LOOP

ONCE = Schedule(start=START + times.HOUR)


async def test_both_conclude_at_the_same_time(world: World) -> None:
    """The one that lost its lease leaves no trace, though both come to conclude together."""
    a, b = await world.two()
    task = introduction([a, b], schedule=ONCE)
    for site in (a, b):
        await site.keep(task, a)
    world.cut.add(frozenset({"a", "b"}))
    conclusions = a.planner._conclusions
    conclude, both = conclusions.conclude, asyncio.Barrier(2)

    async def together(*concluded: Any) -> None:
        async with both:
            await conclude(*concluded)

    conclusions.conclude = together  # type: ignore[method-assign]
    await a.workers.run_once()
    await a.execute(
        "UPDATE planning SET lease_epoch = lease_epoch + 1, lease_until = NULL, plan_at = $1",
        a.clock.now(),
    )
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy)
    assert [row[0] for row in await a.rows("SELECT times FROM decision")] == [1]
