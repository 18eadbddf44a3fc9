"""Silent and slow participants cost their lead little, and do not delay other tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lead.exchange.workers import POLL_S
from node.model import times
from node.model.classes import SchedulingClass
from node.model.ids import TaskId, run_id
from node.model.wire.participants import Introduction
from node.model.wire.tasks import Schedule, TaskDocument
from node.store.database import Notice
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, Call, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
SHARE = 12


async def _led(lead: Site, participants: tuple[Site, ...], at: int = HOUR) -> Introduction:
    """Create an accepted task of one short background run on its lead's agenda."""
    schedule = Schedule(start=at, slip=2 * times.HOUR)
    task = introduction(
        participants,
        schedule=schedule,
        duration=times.MINUTE,
        scheduling_class=SchedulingClass.BACKGROUND,
    )
    for site in {lead, *participants}:
        await site.keep(task, lead)
    return task


async def _tasks(lead: Site, participants: tuple[Site, ...], count: int) -> list[Introduction]:
    return [await _led(lead, participants, HOUR + n * times.MINUTE) for n in range(count)]


async def _planned_at(site: Site) -> set[int]:
    return {row[0] for row in await site.rows("SELECT plan_at FROM planning")}


def _requests(world: World, name: str) -> int:
    return sum(call == ("a", name, "propose") for call in world.calls)


async def _states(site: Site, tasks: list[Introduction]) -> list[str | None]:
    return [await site.state(run_id(TaskId(t.task), t.schedule.start or 0, 1)) for t in tasks]


@pytest.mark.nightly
async def test_a_dead_node_with_many_tasks_costs_one_question_now_and_then(world: World) -> None:
    """A silent node is asked by one task after growing pauses; the others wait with the reason."""
    a, b, c = await world.three()
    waiting = await _tasks(a, (a, b), 20)
    world.cut = {frozenset("ab")}
    await a.plan()
    await a.plan()
    assert _requests(world, "b") <= SHARE
    assert set(await _states(a, waiting)) == {"waiting"}
    others = await _tasks(a, (a, c), 3)
    requests_before = _requests(world, "b")
    await a.plan()
    assert set(await _states(a, others)) == {"scheduled"}
    await world.pass_time(10 * times.MINUTE, 5 * times.SECOND)
    assert 5 <= _requests(world, "b") - requests_before <= 11
    [asked_again] = await _planned_at(a) - {None}
    assert 0 < asked_again - world.clock.now() <= 5 * times.MINUTE
    shown = await a.rows("SELECT reason FROM run_known WHERE state = 'waiting'")
    since = "b cannot be reached since 2026-12-01T00:00:00Z: the wire is cut"
    reason = f"{since}; asked again at {times.to_the_second(asked_again)}"
    assert {row[0] for row in shown} == {reason}
    decisions = await a.rows("SELECT count(*) FROM decision WHERE outcome = 'unreachable'")
    assert decisions[0][0] == 20


@pytest.mark.nightly
async def test_all_are_planned_when_the_node_answers_again(world: World) -> None:
    """The first answered request makes every waiting task plan at once."""
    a, b = await world.two()
    waiting = await _tasks(a, (a, b), 20)
    world.cut = {frozenset("ab")}
    await world.pass_time(2 * times.MINUTE, 5 * times.SECOND)
    world.cut = set()
    [asked_again] = await _planned_at(a)
    requests_before = _requests(world, "b")
    world.clock.move_to(asked_again - 1)
    await a.plan()
    assert _requests(world, "b") == requests_before
    world.clock.advance(1)
    await a.plan()
    assert _requests(world, "b") == requests_before + 1
    for _ in range(2):
        await a.plan()
    assert set(await _states(a, waiting)) == {"scheduled"}


@pytest.mark.nightly
async def test_a_node_seen_again_is_asked_at_once(world: World) -> None:
    """The pause ends when the peer monitor sees the node."""
    a, b = await world.two()
    waiting = await _tasks(a, (a, b), 3)
    world.cut = {frozenset("ab")}
    await world.pass_time(2 * times.MINUTE, 5 * times.SECOND)
    world.cut = set()
    a.workers.on_notice(Notice("node", "b", ("reached",)))
    for _ in range(3):
        await a.plan()
    assert set(await _states(a, waiting)) == {"scheduled"}


@pytest.mark.nightly
async def test_a_node_that_a_task_has_talked_to_is_no_longer_away(world: World) -> None:
    """A node that was away is there again once it answers the planner, without another look."""
    a, b = await world.two()
    waiting = await _tasks(a, (a, b), 1)
    away = "SELECT unreachable_since IS NOT NULL AS away FROM node WHERE identity = $1"
    await a.rows("UPDATE node SET unreachable_since = $2 WHERE identity = $1", b.identity, START)
    world.cut = {frozenset("ab")}
    await world.pass_time(2 * times.MINUTE, 5 * times.SECOND)
    assert (await a.rows(away, b.identity))[0]["away"]
    world.cut = set()
    await world.pass_time(3 * times.MINUTE, 5 * times.SECOND)
    assert set(await _states(a, waiting)) == {"scheduled"}
    assert not (await a.rows(away, b.identity))[0]["away"]


async def test_a_node_that_takes_a_new_task_is_no_longer_away(world: World) -> None:
    """A node that answers while a task is created is there again."""
    a, b = await world.two()
    await a.rows("UPDATE node SET unreachable_since = $2 WHERE identity = $1", b.identity, START)
    await a.node.directory.refresh()
    spec = {"duration": "PT1M", "participants": ["a", "b"]}
    document = TaskDocument.model_validate({"test": {"type": "idle", "spec": spec}})
    await a.node.admission.create(document, None)
    assert a.node.directory.by_identity(b.identity).unreachable_since is None


@pytest.mark.nightly
async def test_a_slot_is_given_up_in_time_while_the_node_is_silent(world: World) -> None:
    """A slot is given up at the end of its window while the node is silent."""
    a, b = await world.two()
    task = introduction((a, b), schedule=Schedule(start=HOUR, slip=0), duration=times.MINUTE)
    await a.keep(task, a)
    world.cut = {frozenset("ab")}
    await world.pass_time(times.HOUR + 5 * times.SECOND, times.MINUTE)
    assert await _states(a, [task]) == ["unplaced"]
    reason = await a.reason(run_id(TaskId(task.task), HOUR, 1)) or ""
    assert reason == "b cannot be reached since 2026-12-01T00:01:00Z: the wire is cut"
    world.clock.advance(times.HOUR)
    assert await a.workers.run_once() == POLL_S


@pytest.mark.nightly
async def test_a_slow_node_holds_up_only_its_share_of_the_workers(world: World) -> None:
    """The tasks of the other nodes are planned while one of five nodes is slow to answer."""
    a = await world.site("a", workers=8)
    peers = [await world.site(name) for name in "bcdef"]
    slow = await _tasks(a, (a, peers[0]), 10)
    quick = [task for peer in peers[1:] for task in await _tasks(a, (a, peer), 4)]
    answer = asyncio.Event()
    hanging: list[Call] = []

    async def hang(call: Call, phase: str) -> None:
        if call[:2] == ("a", "b") and phase == "asked" and not answer.is_set():
            hanging.append(call)
            await answer.wait()

    world.watch = hang
    while set(await _states(a, quick)) != {"scheduled"}:
        await a.workers.run_once()
        quick_ones = [w for w, claim in a.workers._busy.items() if not _needs(claim, peers[0])]
        await asyncio.gather(*quick_ones)
    assert len(hanging) == 2
    assert "scheduled" not in await _states(a, slow)
    answer.set()
    for _ in range(10):
        await a.plan()
    assert set(await _states(a, slow)) == {"scheduled"}


async def test_workers_that_a_node_holds_up_are_made_up_for(world: World) -> None:
    """Extra workers start when all others have waited a second for a slow node."""
    a = await world.site("a", workers=4)
    b, c = [await world.site(name) for name in "bc"]
    await _tasks(a, (a, b), 1)
    await a.plan()
    answer = asyncio.Event()

    async def hang(call: Call, phase: str) -> None:
        if call[:2] == ("a", "b") and phase == "asked":
            await answer.wait()

    world.watch = hang
    slow = await _tasks(a, (a, b), 8)
    await a.workers.run_once()
    quick = await _tasks(a, (a, c), 4)
    await a.workers.run_once()
    assert len(a.workers._busy) == 4
    assert set(await _states(a, quick)) == {None}
    world.clock.advance(times.SECOND)
    for _ in quick:
        await a.workers.run_once()
        quick_ones = [w for w, claim in a.workers._busy.items() if not _needs(claim, b)]
        await asyncio.gather(*quick_ones)
    assert set(await _states(a, quick)) == {"scheduled"}
    answer.set()
    for _ in range(4):
        await a.plan()
    assert set(await _states(a, slow)) == {"scheduled"}


def _needs(claim: Any, site: Site) -> bool:
    return site.identity in {p.node for p in claim.terms.participants}
