"""A pool says which due runs will miss their latest start, as long as that is so."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from node.api.pools import _fetch_pool
from node.model import times
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.plans import PlanRequest
from node.model.wire.pools import PoolPatch
from node.model.wire.reservations import ReservationDocument
from node.model.wire.tasks import TaskDocument
from node.operation.metrics import registry_of
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.pool_worlds import Pooled, episodes_of, idle, pooled
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

TONIGHT = START + 9 * times.HOUR
ONCE = {"start": times.format_instant(TONIGHT), "repeat": None, "slip": "PT5M"}
FIRST = times.to_the_second(TONIGHT + 5 * times.MINUTE)
"""The latest start of these runs."""


async def _pool(world: World, **options: Any) -> Pooled:
    """Return a pool of one node, and a campaign ops."""
    pool = await pooled(world, [{}], **options)
    await pool.lead.node.campaigns.create(CampaignDocument.model_validate({"name": "ops"}))
    return pool


async def _create(pool: Pooled, count: int) -> list[UUID]:
    """Create tasks of ops that all want the node for half an hour at one time tonight."""
    options: dict[str, Any] = {"schedule": ONCE, "length": "PT30M", "campaign": "ops"}
    tasks = [await pool.create(1, seat=False, **options) for _ in range(count)]
    await pool.seat()
    return tasks


async def _sentences(pool: Pooled) -> tuple[str, ...]:
    return (await _fetch_pool(pool.lead.node, "europe")).warnings


def _sentence(count: int) -> str:
    runs, first = ("1 run", "at") if count == 1 else (f"{count} runs", "the first at")
    return f"{runs} of ops will miss the latest start, {first} {FIRST}, as things are"


@pytest.mark.nightly
async def test_a_pool_says_how_many_runs_will_miss_their_start(world: World) -> None:
    """Hours before, in its document, in a sentence, as a metric, and after a restart."""
    pool = await _pool(world)
    await _create(pool, 4)
    await world.restart(pool.lead)
    shown = await _fetch_pool(pool.lead.node, "europe")
    assert [it.model_dump(mode="json") for it in shown.expected_misses] == [
        {"campaign": "ops", "runs": 3, "first_at": FIRST}
    ]
    assert shown.warnings == (_sentence(3),)
    labels = {"pool": "europe", "campaign": "ops"}
    pool.lead.node.settings.state_dir.mkdir()
    registry = await registry_of(pool.lead.node)
    assert registry.get_sample_value("parley_pool_expected_misses", labels) == 3


async def test_a_forecast_ends_when_it_is_no_longer_true(world: World) -> None:
    """Cancelled tasks miss nothing, nor does a run for which time became free, or whose is over."""
    pool = await _pool(world)
    tasks = await _create(pool, 4)
    waiting = [task for task in tasks if not await pool.seats(task)]
    seated = next(task for task in tasks if task not in waiting)
    await pool.lead.node.termination.cancel_task(waiting.pop())
    assert await _sentences(pool) == (_sentence(2),)
    await pool.lead.node.termination.cancel_task(seated)
    await world.settle()
    await pool.changed()
    assert await _sentences(pool) == (_sentence(1),)
    world.clock.advance(9 * times.HOUR + 5 * times.MINUTE)
    assert await _sentences(pool) == ()


async def test_time_taken_by_others_counts(world: World) -> None:
    """A node that another lead has filled leaves no time, though this lead has booked nothing."""
    pool = await _pool(world)
    [n1] = pool.nodes
    other = idle(1, schedule=ONCE, length="PT1H").model_dump(mode="json", exclude_unset=True)
    other["participants"] = ["n1"]
    other["schedule"]["slip"] = "PT0S"
    await n1.node.admission.create(TaskDocument.model_validate(other), None)
    await n1.plan()
    await world.settle()
    await _create(pool, 2)
    assert await _sentences(pool) == (_sentence(2),)


async def test_a_change_is_an_event(world: World) -> None:
    """The first expected miss of a campaign is an event, and so is the end of the last one."""
    pool = await _pool(world)
    hub, ready = pool.lead.node.hub, asyncio.Event()

    def heard(notice: Any) -> None:
        hub.on_notice(notice)
        if notice.kind == "wake":
            ready.set()

    listening = asyncio.create_task(pool.lead.database.listen(heard, world.clock))
    await asyncio.wait_for(ready.wait(), PATIENCE_S)
    place = hub.start_after(None)

    async def states(count: int) -> list[str]:
        while True:
            events = [it.body for it in hub.events_since(place) or () if it.kind == "misses"]
            if len(events) >= count:
                assert {(it["id"], it["campaign"]) for it in events} == {("europe", "ops")}
                return [it["state"] for it in events]
            assert await hub.wait_for_change(PATIENCE_S)

    await _create(pool, 1)
    tasks = await _create(pool, 2)
    await pool.episodes.run_once()
    assert await states(1) == ["expected"]
    # Another process of this lead tells nothing again.
    await episodes_of(pool.lead).run_once()
    for task in tasks:
        await pool.lead.node.termination.cancel_task(task)
    await pool.episodes.run_once()
    assert await states(2) == ["expected", "none"]
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_plan_says_it_too(world: World) -> None:
    """A plan of a task for a full night says that its run would miss its start."""
    pool = await _pool(world)
    await _create(pool, 1)
    document = idle(1, schedule=ONCE, length="PT30M", campaign="ops")
    plan = await pool.lead.node.preview.plan(
        PlanRequest.model_validate(document.model_dump(mode="json", exclude_unset=True)), None
    )
    assert plan.sentence.endswith(
        f"1 of its runs would miss the latest start, the first at {FIRST}"
    )


async def test_reserved_time_is_missed(world: World) -> None:
    """A run whose whole window is reserved for others will not start."""
    pool = await _pool(world)
    await pool.lead.node.campaigns.create(CampaignDocument.model_validate({"name": "guest"}))
    await pool.lead.node.reservations.create(
        ReservationDocument.model_validate(
            {
                "kind": "demo",
                "name": "fair",
                "pool": "europe",
                "duration": "PT6H",
                "schedule": {"start": ONCE["start"]},
                "access": {"campaigns": ["guest"]},
            }
        ),
        None,
    )
    await _create(pool, 2)
    assert _sentence(2) in await _sentences(pool)


async def test_a_set_without_deadlines_expects_nothing(world: World) -> None:
    """Only sets that mind deadlines forecast; a change of the set ends the forecast."""
    pool = await _pool(world)
    await _create(pool, 2)
    assert await _sentences(pool) == (_sentence(1),)
    await pool.lead.node.pools.edit(
        "europe", PoolPatch.model_validate({"policy": {"set": "pscheduler"}})
    )
    await pool.changed()
    assert await _sentences(pool) == ()
