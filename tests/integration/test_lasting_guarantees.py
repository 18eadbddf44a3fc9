"""A term that found no time keeps what it is guaranteed in every later episode of its pool."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.tasks import TaskDocument
from node.store.database import parse_notice
from tests.support.clocks import START
from tests.support.pool_worlds import Pooled, episodes_of, pooled
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP

AT = times.format_instant(START + times.HOUR)
ONCE = {"start": AT, "repeat": None, "slip": "PT0S"}
TOGETHER = {"together": True}


async def _queues(pool: Pooled, **queues: dict[str, Any]) -> None:
    for name, queue in queues.items():
        document = CampaignDocument.model_validate({"name": name, "queue": queue})
        await pool.lead.node.campaigns.create(document)


def _names(node: str) -> TaskDocument:
    """Return a task that names a node and takes all its time from ``AT`` on."""
    return TaskDocument.model_validate(
        {
            "test": {
                "type": "idle",
                "spec": {"duration": "PT1H", "class": "exclusive", "participants": [node]},
            },
            "schedule": {"start": AT, "slip": "PT0S"},
            "priority": 9,
        }
    )


async def _occupied(pool: Pooled, node: str) -> UUID:
    """Book a node for the whole time, by a task that names it."""
    task, _ = await pool.lead.node.admission.create(_names(node), None)
    await pool.lead.plan()
    await pool.world.settle()
    return task


async def _seated(pool: Pooled, *tasks: UUID) -> list[bool]:
    return [bool(await pool.seats(task)) for task in tasks]


async def _sleeps(pool: Pooled, task: UUID) -> None:
    """Let a term sleep in a pause that has grown, as after many tries."""
    again = pool.world.clock.now() + 5 * times.MINUTE
    await pool.lead.execute(
        "UPDATE term SET tries = 9, try_at = $2 WHERE pool_task = $1", task, again
    )


async def _later(pool: Pooled, duration: int) -> None:
    """Let time pass, and give the seats that are due."""
    pool.world.clock.advance(duration)
    await pool.seat()


@pytest.mark.nightly
async def test_a_task_is_passed_no_more_often_than_allowed(world: World) -> None:
    """Later tasks pass a wide one as often as its campaign permits, whenever they come."""
    pool = await pooled(world, [{}, {}, {}, {}, {}], policy={"set": "fbsng-dynamic"})
    await _queues(pool, ops={"passes": 2})
    busy = await _occupied(pool, "n5")
    slips = {**ONCE, "slip": "PT30M"}
    wide = await pool.create(5, request=TOGETHER, schedule=slips, campaign="ops")
    narrow = []
    for _ in range(3):
        await _sleeps(pool, wide)
        await _later(pool, 7 * times.SECOND)
        narrow.append(await pool.create(1, schedule=ONCE, campaign="ops"))
    assert await _seated(pool, wide, *narrow) == [False, True, True, False]
    for _ in range(20):
        await _sleeps(pool, wide)
        await _later(pool, 2 * times.MINUTE)
    assert await _seated(pool, wide, narrow[2]) == [False, False]
    why = (await pool.told(narrow[2]))[-1][1]
    assert "was passed 2 times already, of at most 2" in why
    await pool.lead.node.termination.cancel_task(busy)
    await pool.world.settle()
    for _ in range(4):
        await _later(pool, 2 * times.MINUTE)
    assert await _seated(pool, wide) == [True]


@pytest.mark.nightly
async def test_a_wide_task_is_not_passed_while_a_node_is_away(world: World) -> None:
    """A node that does not answer for some minutes ends no wait for a task that needs it."""
    pool = await pooled(world, [{}, {}, {}, {}], policy={"set": "fbsng-dynamic"})
    await _queues(pool, ops={"passes": 1})
    await _occupied(pool, "n4")
    wide, narrow = await _wide_and_narrow(pool, 4)
    away = "UPDATE node SET unreachable_since = $1, last_error = 'refused' WHERE name = 'n3'"
    await pool.lead.execute(away, world.clock.now())
    for _ in range(5):
        await _later(pool, times.MINUTE)
    assert await _seated(pool, wide, *narrow) == [False, True, False]
    assert f"waits: {wide} {AT} cannot start" in (await pool.told(narrow[1]))[-1][1]
    for _ in range(10):
        await _later(pool, times.MINUTE)
    assert await _seated(pool, wide, *narrow) == [False, True, True]


async def _wide_and_narrow(pool: Pooled, k: int) -> tuple[UUID, list[UUID]]:
    """Create a task of so many nodes at once, then two of one, of which one passes it."""
    wide = await pool.create(k, request=TOGETHER, schedule=ONCE, campaign="ops")
    narrow = []
    for _ in range(2):
        await _later(pool, 7 * times.SECOND)
        narrow.append(await pool.create(1, schedule=ONCE, campaign="ops"))
    assert await _seated(pool, wide, *narrow) == [False, True, False]
    return wide, narrow


@pytest.mark.nightly
async def test_the_end_of_a_wide_task_ends_the_wait_for_it(world: World) -> None:
    """Tasks that waited for another one start at once when that is cancelled, and keep nobody."""
    pool = await pooled(world, [{}, {}, {}, {}], policy={"set": "fbsng-dynamic"})
    await _queues(pool, ops={"passes": 1})
    await _occupied(pool, "n4")
    wide, narrow = await _wide_and_narrow(pool, 4)
    for task in (wide, narrow[1]):
        await _sleeps(pool, task)
    await pool.lead.node.termination.cancel_task(wide)
    pool.lead.lead.freed_room.on_notice(parse_notice(f"task {wide} cancelled"))
    await pool.lead.lead.freed_room.run_once()
    await _later(pool, 7 * times.SECOND)
    assert await _seated(pool, *narrow) == [True, True]


@pytest.mark.nightly
async def test_what_only_waits_keeps_nobody_waiting(world: World) -> None:
    """A task that waited for another one starts with the next ones, and is not in their way."""
    pool = await pooled(world, [{}, {}, {}, {}], policy={"set": "fbsng-dynamic"})
    await _queues(pool, ops={"passes": 1})
    await _occupied(pool, "n4")
    wide, narrow = await _wide_and_narrow(pool, 4)
    await _sleeps(pool, narrow[1])
    await pool.lead.node.termination.cancel_task(wide)
    await _later(pool, 7 * times.SECOND)
    narrow.append(await pool.create(1, schedule=ONCE, campaign="ops"))
    assert await _seated(pool, *narrow) == [True, True, True]


@pytest.mark.nightly
async def test_a_light_queue_waits_while_a_heavy_one_is_stuck(world: World) -> None:
    """The gap holds in later episodes, in which the heavy task itself is not due."""
    pool = await pooled(world, [{}, {}, {}], policy={"set": "fbsng-dynamic"})
    await _queues(pool, bulk={"floor": 5, "gap": 1}, light={"floor": 0, "ceiling": 1})
    busy = await _occupied(pool, "n3")
    heavy = await pool.create(3, request=TOGETHER, schedule=ONCE, campaign="bulk")
    light = []
    for _ in range(3):
        await _sleeps(pool, heavy)
        await _later(pool, 7 * times.SECOND)
        light.append(await pool.create(1, schedule=ONCE, campaign="light"))
    assert await _seated(pool, heavy, *light) == [False] * 4
    pool.episodes = episodes_of(pool.lead)
    for _ in range(10):
        await _sleeps(pool, heavy)
        await _later(pool, times.MINUTE)
    assert await _seated(pool, heavy, *light) == [False] * 4
    assert "bulk is stuck" in (await pool.told(light[0]))[-1][1]
    await pool.lead.node.termination.cancel_task(busy)
    await pool.world.settle()
    for _ in range(6):
        await _later(pool, times.MINUTE)
    assert await _seated(pool, heavy) == [True]


async def _by_itself(pool: Pooled, site: Site, name: str) -> UUID:
    """Let a node book its own whole time, of which the pool's lead does not know."""
    task, _ = await site.node.admission.create(_names(name), None)
    await site.plan()
    await pool.world.settle()
    return task


@pytest.mark.nightly
async def test_a_slot_is_kept_over_episodes(world: World) -> None:
    """Nothing takes the slot of a blocked task, whenever it comes; what ends before it may run."""
    pool = await pooled(world, [{}, {}], policy={"set": "maui-reservations"})
    elsewhere = pool.nodes[1]
    busy = await _by_itself(pool, elsewhere, "n2")
    slips = {**ONCE, "slip": "PT30M"}
    wide = await pool.create(2, request=TOGETHER, schedule=slips, length="PT10M")
    before = {**ONCE, "start": times.format_instant(START + times.HOUR - 5 * times.MINUTE)}
    narrow, short = [], []
    for _ in range(3):
        pool.episodes = episodes_of(pool.lead)
        await _sleeps(pool, wide)
        await _later(pool, 2 * times.MINUTE)
        narrow.append(await pool.create(1, schedule=ONCE, length="PT10M"))
    short.append(await pool.create(1, schedule=before, length="PT5M"))
    assert await _seated(pool, wide, *narrow, *short) == [False] * 4 + [True]
    for task in narrow:
        why = (await pool.told(task))[-1][1]
        slot = f"n1 is reserved for task {wide} from {AT} to 2026-12-01T01:10:00Z"
        assert f"{slot}, and the run would not end before 2026-12-01T01:10:00Z" in why
    await elsewhere.node.termination.cancel_task(busy)
    await pool.world.settle()
    for _ in range(6):
        await _later(pool, 2 * times.MINUTE)
    assert await _seated(pool, wide, *narrow) == [True, False, False, False]
