"""People end what policies hold against a task, or against a node."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.errors import NotFound
from node.model.wire.tasks import TaskDocument
from tests.support.clocks import START
from tests.support.pool_worlds import Pooled, pooled
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

AT = times.format_instant(START + 2 * times.HOUR)
ONCE = {"start": AT, "repeat": None, "slip": "PT0S"}


def _defers(**patience: Any) -> dict[str, Any]:
    return {"set": "maui-defer", "overrides": {"feasible": {"patience": patience}}}


async def _occupied(pool: Pooled, node: str) -> UUID:
    """Book a node for the whole time, by a task that names it."""
    document = TaskDocument.model_validate(
        {
            "test": {
                "type": "idle",
                "spec": {"duration": "PT1H", "class": "exclusive", "participants": [node]},
            },
            "schedule": {"start": AT, "slip": "PT0S"},
            "priority": 9,
        }
    )
    task, _ = await pool.lead.node.admission.create(document, None)
    await pool.lead.plan()
    await pool.world.settle()
    return task


async def _told(pool: Pooled, task: UUID) -> str:
    return (await pool.told(task))[-1][1]


async def _held_task(world: World) -> tuple[Pooled, UUID, UUID]:
    """Return a task on hold because its only node was busy at each try, and the busy task."""
    pool = await pooled(world, [{}], policy=_defers(pause="PT1M", deferrals=1))
    busy = await _occupied(pool, "n1")
    task = await pool.create(1, schedule=ONCE)
    for _ in range(4):
        world.clock.advance(5 * times.MINUTE)
        await pool.changed()
    why = "it is on hold (deferrals: 1); to try it now: parley task release"
    assert (await _told(pool, task)).endswith(why)
    return pool, task, busy


async def test_a_deferral_ends_when_it_says(world: World) -> None:
    """The task is tried at that instant, whatever the pause is after so many tries."""
    pool = await pooled(world, [{}], policy=_defers(pause="PT7S", deferrals=9))
    await _occupied(pool, "n1")
    task = await pool.create(1, schedule=ONCE)
    for _ in range(3):
        [[try_at]] = await pool.lead.rows("SELECT try_at FROM term WHERE pool_task = $1", task)
        assert try_at == world.clock.now() + 7 * times.SECOND
        world.clock.advance(7 * times.SECOND)
        await pool.seat()


async def test_a_task_on_hold_is_not_tried(world: World) -> None:
    """Its seats are looked at again when their time is over."""
    pool, task, _ = await _held_task(world)
    [[open_]] = await pool.lead.rows("SELECT try_at = over_at FROM term WHERE pool_task = $1", task)
    assert open_


async def test_a_task_on_hold_is_tried_when_it_is_released(world: World) -> None:
    """Time that becomes free does not end a hold; a release does, at once."""
    pool, task, busy = await _held_task(world)
    await pool.lead.node.termination.cancel_task(busy)
    await world.settle()
    for _ in range(3):
        world.clock.advance(5 * times.MINUTE)
        await pool.changed()
    assert await pool.seats(task) == {}
    await pool.lead.node.editing.release(task)
    await pool.seat()
    assert await pool.seats(task) == {2: {1: "n1"}}
    assert ("released", "released on lead") in await pool.told(task)


async def test_a_task_that_still_finds_no_time_is_deferred_again(world: World) -> None:
    """A release gives no more than another try."""
    pool, task, _ = await _held_task(world)
    await pool.lead.node.editing.release(task)
    await pool.seat()
    assert "busy with an exclusive run" in await _told(pool, task)
    assert await pool.seats(task) == {}


async def test_a_release_of_one_task_leaves_others_on_hold(world: World) -> None:
    """The hold of another task of the pool stays."""
    pool, task, busy = await _held_task(world)
    other = await pool.create(1, schedule=ONCE)
    for _ in range(4):
        world.clock.advance(5 * times.MINUTE)
        await pool.changed()
    assert "is on hold" in await _told(pool, other)
    await pool.lead.node.termination.cancel_task(busy)
    await world.settle()
    await pool.lead.node.editing.release(task)
    await pool.changed()
    assert await pool.seats(task) == {2: {1: "n1"}}
    assert "is on hold" in await _told(pool, other)


async def test_a_pardoned_node_has_runs_again(world: World) -> None:
    """Failed runs keep a campaign from a node until it is pardoned."""
    pool = await pooled(world, [{}], policy={"set": "gridserver-blacklist"})
    first = await pool.create(1, schedule={"repeat": "PT1H"})
    [run] = await pool.lead.rows("SELECT min(id::text) AS id FROM run")
    await pool.lead.execute(
        "UPDATE run SET state = 'failed', reason = 'no', finished_at = $2 WHERE id = $1::uuid",
        UUID(run["id"]),
        world.clock.now(),
    )
    second = await pool.create(1, schedule={**ONCE, "slip": "PT5M"})
    assert "to forget that: parley node pardon n1" in await _told(pool, second)
    world.clock.advance(times.MINUTE)
    await pool.lead.node.pools.pardon("n1")
    await pool.changed()
    assert await pool.seats(second) == {2: {1: "n1"}}
    assert await pool.seats(first)


async def test_only_known_nodes_are_pardoned(world: World) -> None:
    """The name of no node is an error."""
    lead = await world.site("lead")
    with pytest.raises(NotFound, match="no node named zz is known here"):
        await lead.node.pools.pardon("zz")
