"""Nodes whose databases went back agree with the others again, while time passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.ids import TaskId, run_id
from node.model.wire.tasks import Schedule, TaskPatch
from tests.support.backups import back_up, put_back, restore
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
BOOKED = """
    SELECT run.id, run.task_id, run.starts_at FROM run INNER JOIN task ON run.task_id = task.id
    WHERE run.state = 'booked' ORDER BY run.id
"""
OPEN = """
    SELECT id, state::text, revision, priority FROM task
    WHERE state IN ('active', 'paused') ORDER BY id
"""
BringBack = Callable[[World, Site, str], Awaitable[None]]


async def _posted(world: World, hours: int) -> UUID:
    """Have a lead a task of both with three runs, booked minutes ago; return its id."""
    a, b = world.sites
    first = HOUR + hours * times.HOUR
    schedule = Schedule(
        start=first,
        repeat=20 * times.MINUTE,
        until=first + 41 * times.MINUTE,
        slip=10 * times.MINUTE,
    )
    task = introduction([a, b], schedule=schedule, duration=DURATION)
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    world.clock.advance(3 * times.MINUTE)
    return task.task


async def _move_on(world: World, *, cancelled: UUID, edited: UUID, paused: UUID) -> UUID:
    """Do what happens after a backup; return the task that was posted."""
    a, _ = world.sites
    await a.node.termination.cancel_task(cancelled)
    await a.node.editing.edit(edited, TaskPatch.model_validate({"priority": 7}))
    await a.node.editing.pause(paused)
    await a.node.termination.cancel_run(run_id(TaskId(edited), HOUR + times.HOUR, 1))
    await world.settle()
    await a.plan()
    posted = await _posted(world, 3)
    await world.settle()
    return posted


async def _start(world: World, sites: list[Site]) -> None:
    """Do what nodes do at their start: ask the others, and compare with them."""
    for site in sites:
        await site.node.ask_others()
    for site in sites:
        if site.database.fresh:
            await site.node.comparer.compare_all()
    await world.settle()


async def _rows(site: Site, query: str) -> list[Any]:
    return [tuple(row) for row in await site.rows(query)]


async def _back_up(world: World, who: str) -> dict[str, str]:
    """Back up these nodes, and let minutes pass: each node tells its mark before and after."""
    for site in world.sites:
        await site.execute("UPDATE generation SET made_at = made_at - interval '1 hour'")
        await site.node.confirmer.run_once()
    backups = {site.name: await back_up(site) for site in world.sites if site.name in who}
    for site in world.sites:
        await site.node.mark_database()
        await site.node.confirmer.run_once()
    return backups


async def _led(a: Site) -> dict[UUID, tuple[str, int]]:
    """Return state and priority of the open tasks that the lead has."""
    return {row[0]: (row[1], row[3]) for row in await _rows(a, OPEN)}


@pytest.mark.parametrize("bring_back", [restore, put_back])
@pytest.mark.parametrize(
    "who", [*(pytest.param(it, marks=pytest.mark.nightly) for it in ("a", "b")), "ab"]
)
@pytest.mark.nightly
async def test_both_sides_agree_again(world: World, who: str, bring_back: BringBack) -> None:
    """Both nodes have the same tasks and bookings again, and none of a task that is over."""
    a, b = await world.two()
    cancelled, edited, paused = [await _posted(world, hours) for hours in (0, 1, 2)]
    backups = await _back_up(world, who)
    posted = await _move_on(world, cancelled=cancelled, edited=edited, paused=paused)
    sites = [site for site in world.sites if site.name in who]
    for site in sites:
        await bring_back(world, site, backups[site.name])
    await _start(world, sites)
    # If both go back in their places, nobody is left who knows; the next comparison finds it.
    unnoticed = who == "ab" and bring_back is put_back
    assert [site.database.fresh for site in sites] == [not unnoticed] * len(sites)
    if unnoticed:
        await a.lead.reconciler.compare_all()
    for _ in range(4):
        await world.pass_time(30 * times.SECOND, 10 * times.SECOND)
        assert await _rows(a, BOOKED) == await _rows(b, BOOKED)
    assert await _rows(a, OPEN) == await _rows(b, OPEN)
    led = await _led(a)
    assert (
        led
        == {
            # Of what happened since, the lead knows what the participant could tell: the ends.
            "a": {edited: ("active", 0), paused: ("active", 0)},
            "b": {edited: ("active", 7), paused: ("paused", 0), posted: ("active", 0)},
            "ab": dict.fromkeys((cancelled, edited, paused), ("active", 0)),
        }[who]
    )
    booked = {row[1] for row in await _rows(b, BOOKED)}
    assert booked == {task for task, (state, _) in led.items() if state == "active"}


async def test_who_is_away_when_a_node_comes_back_is_compared_after_that(world: World) -> None:
    """A restored node asks those again that did not answer, sooner than the next comparison."""
    a, b = await world.two()
    cancelled = await _posted(world, 0)
    backups = await _back_up(world, "b")
    await a.node.termination.cancel_task(cancelled)
    await world.settle()
    await restore(world, b, backups["b"])
    world.cut = {frozenset("ab")}
    comparing = asyncio.create_task(b.node.comparer.compare_until_answered())
    failed = world.count("confirm")
    async with asyncio.timeout(PATIENCE_S):
        while world.count("confirm") == failed:
            await asyncio.wait({comparing}, timeout=0.01)
        assert {row[0] for row in await b.rows("SELECT id FROM task WHERE state = 'active'")}
        world.cut = set()
        while not comparing.done():
            world.clock.advance(times.SECOND)
            await asyncio.wait({comparing}, timeout=0.01)
    await comparing
    assert await _rows(b, OPEN) == []
