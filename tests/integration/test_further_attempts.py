"""A slot whose run came to nothing for a reason that may pass is tried again within its slip."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.host_limits.document import EVERYTHING
from node.model.ids import TaskId, run_id
from node.model.reasons import not_tried_again
from node.model.wire.participants import Introduction
from node.model.wire.tasks import RetryTerms, Schedule, TaskDocument
from node.store import runs
from node.store.runs import KeptPart
from tests.support.clocks import START
from tests.support.limits import limit
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
SLIP = 30 * times.MINUTE
AWAY = 50 * times.SECOND


async def _booked(world: World, **schedule: Any) -> tuple[Site, Site, Introduction]:
    """Return nodes a and b, and a one-off task led by a that both have booked."""
    a, b = await world.two()
    task = introduction([a, b], schedule=Schedule(start=HOUR, slip=SLIP, **schedule))
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    await world.settle()
    return a, b, task


def _attempt(task: Introduction, number: int) -> UUID:
    return run_id(TaskId(task.task), HOUR, number)


async def _miss_at_b(world: World, a: Site, b: Site, run: UUID) -> None:
    """Let a measure its part while b is away over the start; b says so when it is back."""
    world.clock.move_to(HOUR)
    await _begin(a, run)
    part = KeptPart(0, "a", {"slept_ms": 1.0}, None, HOUR, HOUR + times.SECOND)
    world.clock.move_to(HOUR + AWAY)
    await a.node.collector.keep_own(run, part)
    await b.node.launcher.run_once()
    await world.settle()


async def _begin(site: Site, run: UUID) -> None:
    async with site.database.transaction() as connection:
        assert await runs.begin(connection, run, site.clock.now())
        await runs.keep_process(connection, run, site.clock.now(), 1, 1)


async def _measure(world: World, sites: tuple[Site, ...], run: UUID) -> None:
    [[starts_at]] = await sites[0].rows("SELECT starts_at FROM run WHERE id = $1", run)
    world.clock.move_to(starts_at)
    for place, site in enumerate(sites):
        await _begin(site, run)
        part = KeptPart(place, site.name, {"slept_ms": 1.0}, None, starts_at, starts_at + 1)
        await site.node.collector.keep_own(run, part)
    await world.settle()


async def test_a_slot_is_measured_once_the_participant_is_back(world: World) -> None:
    """A participant that was away over the start has the run booked again, after the delay."""
    a, b, task = await _booked(world)
    first, second = _attempt(task, 1), _attempt(task, 2)
    await _miss_at_b(world, a, b, first)
    assert await a.state(first) == "failed"
    missed = await b.reason(first)
    assert await a.reason(second) == (
        f"attempt 1 came to nothing ({missed}), and the slot is tried again"
    )
    world.clock.advance(10 * times.SECOND)
    await a.plan()
    await world.settle()
    assert [await site.state(second) for site in (a, b)] == ["scheduled", "scheduled"]
    [[starts_at]] = await b.rows("SELECT starts_at FROM run WHERE id = $1", second)
    assert HOUR + AWAY + 10 * times.SECOND <= starts_at < HOUR + AWAY + 20 * times.SECOND
    await _measure(world, (a, b), second)
    assert [await site.state(second) for site in (a, b)] == ["finished", "finished"]
    await a.tend()
    assert [row[0] for row in await a.rows("SELECT state::text FROM task")] == ["finished"]


@pytest.mark.parametrize(
    ("retry", "slip"),
    [(RetryTerms(times=0), SLIP), (None, AWAY), (RetryTerms(within=AWAY), SLIP)],
)
async def test_a_slot_is_not_tried_again_beyond_its_terms(
    world: World, retry: RetryTerms | None, slip: int
) -> None:
    """No attempt follows if the task wants none, or its window or theirs is over."""
    a, b = await world.two()
    schedule = Schedule(start=HOUR, slip=slip, retry=retry)
    task = introduction([a, b], schedule=schedule)
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    await world.settle()
    await _miss_at_b(world, a, b, _attempt(task, 1))
    assert await a.state(_attempt(task, 1)) == "failed"
    assert await a.state(_attempt(task, 2)) is None


async def test_a_failure_of_the_tool_is_a_result(world: World) -> None:
    """A run whose tool tells something of the path is not tried again."""
    a, b, task = await _booked(world)
    run = _attempt(task, 1)
    world.clock.move_to(HOUR)
    for place, site in enumerate((a, b)):
        await _begin(site, run)
        part = KeptPart(place, site.name, None, "connection refused", HOUR, HOUR + 1)
        await site.node.collector.keep_own(run, part)
    await world.settle()
    assert await a.state(run) == "failed"
    assert await a.state(_attempt(task, 2)) is None


@pytest.mark.parametrize("under_way", [False, True])
@pytest.mark.nightly
async def test_a_part_that_comes_late_ends_the_attempts_after_it(
    world: World, *, under_way: bool
) -> None:
    """A slot that was measured after all is not measured again, unless that has begun."""
    a, b, task = await _booked(world)
    first, second = _attempt(task, 1), _attempt(task, 2)
    world.cut.add(frozenset("ab"))
    world.clock.move_to(HOUR)
    for place, site in enumerate((a, b)):
        await _begin(site, first)
        part = KeptPart(place, site.name, {"slept_ms": 1.0}, None, HOUR, HOUR + 1)
        await site.node.collector.keep_own(first, part)
    world.clock.move_to(HOUR + DURATION + times.MINUTE)
    await a.tend()
    assert await a.state(first) == "failed"
    assert await a.state(second) == "waiting"
    world.cut.clear()
    world.clock.advance(10 * times.SECOND)
    await a.plan()
    assert await a.state(second) == "scheduled"
    if under_way:
        [[starts_at]] = await a.rows("SELECT starts_at FROM run WHERE id = $1", second)
        world.clock.move_to(starts_at)
        await _begin(a, second)
    await world.settle()
    ended = ["failed", "running"] if under_way else ["finished", "cancelled"]
    assert [await a.state(run) for run in (first, second)] == ended


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.nightly
async def test_one_of_two_attempts_that_come_late_stands(
    world: World, order: tuple[int, int]
) -> None:
    """The second of two attempts whose parts come after they were given up stays failed."""
    a, b, task = await _booked(world)
    attempts = [_attempt(task, 1), _attempt(task, 2)]
    for number, run in enumerate(attempts):
        if number:
            world.clock.advance(10 * times.SECOND)
            await a.plan()
            await world.settle()
        [[starts_at]] = await a.rows("SELECT starts_at FROM run WHERE id = $1", run)
        world.clock.move_to(starts_at)
        await _begin(a, run)
        part = KeptPart(0, "a", {"slept_ms": 1.0}, None, starts_at, starts_at + 1)
        await a.node.collector.keep_own(run, part)
        world.clock.move_to(starts_at + DURATION + times.MINUTE)
        await a.tend()
        assert await a.state(run) == "failed"
    third = _attempt(task, 3)
    assert await a.state(third) == "waiting"
    for run in (attempts[place] for place in order):
        [[starts_at]] = await b.rows("SELECT starts_at FROM run WHERE id = $1", run)
        await b.rows("UPDATE run SET state = 'running', started_at = starts_at WHERE id = $1", run)
        part = KeptPart(1, "b", {"slept_ms": 1.0}, None, starts_at, starts_at + 1)
        await b.node.collector.keep_own(run, part)
        await world.settle()
    states = [await a.state(attempts[place]) for place in order]
    assert [*states, await a.state(third)] == ["finished", "failed", "cancelled"]


@pytest.mark.nightly
async def test_no_attempt_is_booked_beside_one_that_is_under_way(world: World) -> None:
    """A participant that still measures the attempt before refuses the next one."""
    a, b, task = await _booked(world)
    first, second = _attempt(task, 1), _attempt(task, 2)
    world.clock.move_to(HOUR)
    await _begin(b, first)
    world.cut.add(frozenset("ab"))
    world.clock.advance(AWAY)
    await a.node.launcher.run_once()
    assert await a.state(first) == "missed"
    assert await a.state(second) == "waiting"
    world.cut.clear()
    world.clock.advance(10 * times.SECOND)
    await a.plan()
    assert await a.state(second) == "waiting"
    assert (await a.reason(second) or "").startswith(
        f"b: this slot has been run here already: run {first} began at "
    )
    await world.pass_time(times.MINUTE)
    assert await b.state(first) == "cancelled"
    assert [await site.state(second) for site in (a, b)] == ["scheduled", "scheduled"]


@pytest.mark.nightly
async def test_a_slot_counts_once_toward_the_number_of_runs(world: World) -> None:
    """A slot that is tried again takes no run from the task, and leaves none out."""
    a, b, task = await _booked(world, repeat=2 * times.HOUR, max_runs=2)
    first, second = _attempt(task, 1), _attempt(task, 2)
    await _miss_at_b(world, a, b, first)
    world.clock.advance(10 * times.SECOND)
    await a.plan()
    await world.settle()
    assert [await site.state(second) for site in (a, b)] == ["scheduled", "scheduled"]
    later = run_id(TaskId(task.task), HOUR + 2 * times.HOUR, 1)
    assert [await site.state(later) for site in (a, b)] == ["scheduled", "scheduled"]


async def test_an_owner_who_does_not_want_it_has_no_slot_tried_again(world: World) -> None:
    """With retry = false in the rule of its owner, a node refuses the next attempt, and says so."""
    a, b = await world.two()
    await limit(b.node, f"{EVERYTHING}retry = false\n")
    spec = {"duration": "PT1M", "participants": ["a", "b"]}
    schedule = {"start": times.format_instant(HOUR), "slip": "PT30M"}
    document = {"test": {"type": "idle", "spec": spec}, "schedule": schedule}
    task, _ = await a.node.admission.create(TaskDocument.model_validate(document), None)
    await a.plan()
    await world.settle()
    first, second = (run_id(TaskId(task), HOUR, number) for number in (1, 2))
    await _miss_at_b(world, a, b, first)
    assert await a.state(second) == "waiting"
    world.clock.advance(10 * times.SECOND)
    await a.plan()
    await world.settle()
    assert [await site.state(second) for site in (a, b)] == ["waiting", None]
    assert await a.reason(second) == not_tried_again("known nodes").at("b")
    world.clock.move_to(HOUR + SLIP + times.SECOND)
    await a.plan()
    assert await a.state(second) == "unplaced"
