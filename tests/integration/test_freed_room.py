"""A run of a limited campaign ends early: what waits for its room is planned at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.wire.campaigns import CampaignDocument, CampaignPatch
from node.model.wire.tasks import TaskDocument, TaskPatch
from node.store.database import Notice
from tests.integration.test_campaign_limits import document
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.pool_worlds import pooled
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP

LATER = START + 5 * times.MINUTE


@contextlib.asynccontextmanager
async def _listening(site: Site) -> AsyncIterator[Callable[[], Awaitable[list[str]]]]:
    """Listen to a site's database; the function returns the campaigns that had room again."""
    ready, marked = asyncio.Event(), asyncio.Event()
    told: list[str] = []

    def heard(notice: Notice) -> None:
        site.lead.freed_room.on_notice(notice)
        if notice.kind == "room":
            told.append(notice.id)
        if notice.kind == "wake":
            ready.set()
        if notice.kind == "mark":
            marked.set()

    async def campaigns() -> list[str]:
        await site.execute("SELECT pg_notify('parley', 'mark here')")
        await asyncio.wait_for(marked.wait(), PATIENCE_S)
        return told

    task = asyncio.create_task(site.database.listen(heard, site.clock))
    await asyncio.wait_for(ready.wait(), PATIENCE_S)
    yield campaigns
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _campaign(site: Site, name: str, **settings: Any) -> None:
    created = CampaignDocument.model_validate({"name": name, **settings})
    await site.node.campaigns.create(created)


async def _create(
    world: World, site: Site, *names: str, kind: str = "background-multi", **options: Any
) -> UUID:
    wanted = document(*names, **options)
    wanted["test"]["spec"]["class"] = kind
    created = TaskDocument.model_validate(wanted)
    task, _ = await site.node.admission.create(created, None)
    await site.plan()
    await world.settle()
    return task


async def _states(site: Site, task: UUID) -> list[str]:
    rows = await site.rows("SELECT state::text FROM run WHERE task_id = $1 ORDER BY slot", task)
    return [row[0] for row in rows]


async def _cancel_run(site: Site, task: UUID) -> None:
    [run] = await site.rows("SELECT id FROM run WHERE task_id = $1", task)
    await site.node.termination.cancel_run(run[0])


async def _cancel_task(site: Site, task: UUID) -> None:
    await site.node.termination.cancel_task(task)


async def _finish(site: Site, task: UUID) -> None:
    for state in ("running", "finished"):
        await site.execute(
            "UPDATE run SET state = $2::run_state, changed_at = $3, finished_at = $3 "
            "WHERE task_id = $1",
            task,
            state,
            START + times.MINUTE,
        )


@pytest.mark.parametrize(
    ("end", "limits"),
    [
        (_cancel_run, {"runs": {"hard": 1}}),
        (_cancel_task, {"seconds": {"hard": 600}}),
        (_finish, {"runs": {"hard": 1}}),
    ],
)
async def test_a_named_task_has_the_room_of_a_run_that_ended_early(
    world: World, end: Callable[[Site, UUID], Awaitable[None]], limits: dict[str, Any]
) -> None:
    """A run that ends in any way before its time gives its room in the campaign to who waits."""
    a, _ = await world.two()
    await _campaign(a, "ops", limits=limits)
    first, second = [await _create(world, a, name) for name in ("a", "b")]
    assert await _states(a, second) == ["waiting"]
    await a.execute("UPDATE planning SET plan_at = $1 WHERE plan_at IS NOT NULL", LATER)
    async with _listening(a) as campaigns:
        await end(a, first)
        await world.settle()
        assert await campaigns() == ["ops"]
        await a.lead.freed_room.run_once()
    await a.plan()
    await world.settle()
    assert await _states(a, second) == ["booked"]


async def _move_task(site: Site, task: UUID) -> None:
    await site.node.editing.edit(task, TaskPatch(campaign="other"))


async def _move_campaign(site: Site, task: UUID) -> None:
    del task
    await site.node.campaigns.edit("left", CampaignPatch(parent="other"))


@pytest.mark.parametrize("move", [_move_task, _move_campaign])
async def test_what_moves_to_another_campaign_leaves_room(
    world: World, move: Callable[[Site, UUID], Awaitable[None]]
) -> None:
    """The runs of a task, or of a child, that moves away count no longer, and who waits is told."""
    a, _ = await world.two()
    await _campaign(a, "all", limits={"runs": {"hard": 1}})
    await _campaign(a, "other")
    for name in ("left", "right"):
        await _campaign(a, name, parent="all")
    first = await _create(world, a, "a", campaign="left")
    second = await _create(world, a, "b", campaign="right")
    assert await _states(a, second) == ["waiting"]
    await a.execute("UPDATE planning SET plan_at = $1 WHERE plan_at IS NOT NULL", LATER)
    async with _listening(a) as campaigns:
        await move(a, first)
        assert await campaigns() == ["all"]
        await a.lead.freed_room.run_once()
    await a.plan()
    await world.settle()
    assert [await _states(a, task) for task in (first, second)] == [["booked"], ["booked"]]


async def test_a_pool_task_that_moves_to_another_campaign_leaves_room(world: World) -> None:
    """A seat that waits for room is given at once when another pool task is moved away."""
    pool = await pooled(world, [{}, {}])
    a = pool.lead
    await _campaign(a, "ops", limits={"runs": {"hard": 1}})
    await _campaign(a, "other")
    once = {"start": times.format_instant(START + 2 * times.HOUR), "repeat": None, "slip": "PT0S"}
    first = await pool.create(1, campaign="ops", schedule=once)
    second = await pool.create(1, campaign="ops", schedule=once)
    assert (len(await pool.seats(first)), await pool.seats(second)) == (1, {})
    async with _listening(a) as campaigns:
        await _move_task(a, first)
        assert "ops" in await campaigns()
        await a.lead.freed_room.run_once()
    await pool.seat()
    assert (len(await pool.seats(first)), len(await pool.seats(second))) == (1, 1)


async def test_room_below_a_parent_is_for_all_below_it(world: World) -> None:
    """The limit of a parent keeps tasks of another child waiting, and they are told."""
    a, _ = await world.two()
    await _campaign(a, "all", limits={"runs": {"hard": 1}})
    for name in ("left", "right"):
        await _campaign(a, name, parent="all", limits={"runs": {"hard": 5}})
    first = await _create(world, a, "a", campaign="left")
    second = await _create(world, a, "b", campaign="right")
    await a.execute("UPDATE planning SET plan_at = $1 WHERE plan_at IS NOT NULL", LATER)
    async with _listening(a) as campaigns:
        await _cancel_task(a, first)
        await world.settle()
        assert await campaigns() == ["all"]
        await a.lead.freed_room.run_once()
    await a.plan()
    assert await _states(a, second) == ["booked"]


async def test_only_what_waits_for_room_is_planned(world: World) -> None:
    """Tasks that wait for time of a busy node, or of other campaigns, are left alone."""
    a, _ = await world.two()
    await _campaign(a, "ops", limits={"runs": {"hard": 3}})
    await _campaign(a, "free")
    await _create(world, a, "b", campaign="free", kind="exclusive")
    first = await _create(world, a, "a")
    for campaign in ("ops", "free"):
        task = await _create(world, a, "b", campaign=campaign, kind="exclusive")
        assert await _states(a, task) == ["waiting"]
    await a.execute("UPDATE planning SET plan_at = $1 WHERE plan_at IS NOT NULL", LATER)
    async with _listening(a) as campaigns:
        await _cancel_task(a, first)
        assert await campaigns() == ["ops"]
        await a.lead.freed_room.run_once()
    plan_at = await a.rows("SELECT DISTINCT plan_at FROM planning WHERE plan_at IS NOT NULL")
    assert [row[0] for row in plan_at] == [LATER]


async def test_unlimited_campaigns_tell_nothing(world: World) -> None:
    """A run of a campaign without limits, or one that ends in time, leaves no room."""
    a, _ = await world.two()
    await _campaign(a, "ops", limits={"runs": {"hard": 3}})
    await _campaign(a, "free")
    unlimited = await _create(world, a, "a", campaign="free")
    limited = await _create(world, a, "a")
    async with _listening(a) as campaigns:
        await _cancel_task(a, unlimited)
        await a.execute(
            "UPDATE run SET state = 'finished', changed_at = ends_at WHERE task_id = $1", limited
        )
        assert await campaigns() == []


async def test_a_pool_task_has_the_room_of_a_run_that_ended_early(world: World) -> None:
    """A term that found no room in its campaign is tried again at once."""
    pool = await pooled(world, [{}, {}])
    await _campaign(pool.lead, "ops", limits={"runs": {"hard": 1}})
    at = times.format_instant(START + 2 * times.HOUR)
    once = {"start": at, "repeat": None, "slip": "PT0S"}
    first = await pool.create(1, schedule=once, campaign="ops")
    second = await pool.create(1, schedule=once, campaign="ops")
    assert [*(await pool.seats(first))[2]] == [1]
    assert await pool.seats(second) == {}
    async with _listening(pool.lead) as campaigns:
        await pool.lead.node.termination.cancel_task(first)
        await world.settle()
        assert await campaigns() == ["ops"]
        await pool.lead.lead.freed_room.run_once()
    await pool.seat()
    assert list(await pool.seats(second)) == [2]


async def test_seats_have_the_time_that_a_run_of_their_own_lead_gave_back(world: World) -> None:
    """A node that the lead's own runs fill is not asked; a cancelled one of these is no secret."""
    pool = await pooled(world, [{}, {}])
    at = times.format_instant(START + 2 * times.HOUR)
    once = {"start": at, "repeat": None, "slip": "PT0S"}
    first = await pool.create(1, schedule=once)
    wide = await pool.create(2, schedule=once, request={"together": True})
    assert await pool.seats(wide) == {}
    async with _listening(pool.lead) as campaigns:
        await pool.lead.node.termination.cancel_task(first)
        await world.settle()
        assert await campaigns() == []
        await pool.lead.lead.freed_room.run_once()
    await pool.seat()
    assert sorted((await pool.seats(wide))[2].values()) == ["n1", "n2"]
