"""A lead that dies or is cut off at any message leaves each run on all participants or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product
from uuid import UUID

import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import PeerUnreachable
from node.model.reasons import booking_unconfirmed
from node.model.wire.participants import Introduction
from node.model.wire.tasks import Schedule
from node.store import runs
from node.store.database import Connection
from tests.support.clocks import START
from tests.support.worlds import HOLD_LIFE, ON_ONE_LOOP, Call, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
RUNS = 4
CALLS = ("propose", "hold", "commit")
THINKING = 2 * times.SECOND
"""Time the participants take to answer the proposal, so that holds outlive the lease."""


async def _task(world: World, scheduling_class: SchedulingClass) -> tuple[Site, Site, Introduction]:
    a, b = await world.two()
    schedule = Schedule(
        start=HOUR, repeat=times.HOUR // 2, until=HOUR + RUNS * times.HOUR // 2, slip=0
    )
    task = introduction([a, b], scheduling_class=scheduling_class, schedule=schedule)
    for site in (a, b):
        await site.keep(task, a)
    return a, b, task


async def _twice_the_life(world: World, a: Site, b: Site) -> None:
    """Let twice the life of a hold pass while all nodes work; check that nothing is half done."""
    await world.pass_time(2 * HOLD_LIFE, 4 * times.SECOND)
    there, here = await a.states(), await b.states()
    assert not {"held", "set-aside"} & {*there.values(), *here.values()}
    agreed = {run for run, state in there.items() if state == "scheduled"}
    assert agreed == {run for run, state in here.items() if state == "scheduled"}


@pytest.mark.parametrize(
    ("what", "whom", "phase"), list(product(CALLS, ("a", "b"), ("asked", "answered")))
)
@pytest.mark.nightly
async def test_a_lead_that_dies_leaves_nothing_half_done(
    world: World, what: str, whom: str, phase: str
) -> None:
    """Wherever the worker dies, after twice a hold's life each run is on all nodes or on none."""
    a, b, _ = await _task(world, SchedulingClass.EXCLUSIVE)

    async def die(call: Call, at: str) -> None:
        if call[2] == "propose" and at == "answered" and call[1] == "b":
            world.clock.advance(THINKING)
        if (call, at) == (("a", whom, what), phase):
            world.watch = None
            raise asyncio.CancelledError

    world.watch = die
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy, return_exceptions=True)
    assert world.watch is None
    await _twice_the_life(world, a, b)
    await world.pass_time(times.MINUTE, 4 * times.SECOND)
    assert list((await a.states()).values()) == ["scheduled"] * RUNS
    assert await a.states() == await b.states()


@pytest.mark.parametrize(("what", "phase"), list(product(CALLS, ("asked", "answered"))))
@pytest.mark.parametrize("lasting", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.nightly
async def test_a_cut_wire_leaves_nothing_half_done(
    world: World,
    what: str,
    phase: str,
    lasting: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A wire that breaks at any message, briefly or for longer than a hold's life, costs no run."""
    a, b, _ = await _task(world, SchedulingClass.NORMAL)

    async def cut(call: Call, at: str) -> None:
        if (call, at) == (("a", "b", what), phase):
            world.watch = None
            if lasting:
                world.cut = {frozenset("ab")}
            raise PeerUnreachable("the wire was cut")

    world.watch = cut
    await a.plan()
    assert world.watch is None
    if lasting:
        await world.pass_time(2 * HOLD_LIFE, 4 * times.SECOND)
        assert "held" not in (await b.states()).values()
        world.cut = set()
        await world.pass_time(2 * times.MINUTE, 12 * times.SECOND)
    await _twice_the_life(world, a, b)
    assert list((await a.states()).values()) == ["scheduled"] * RUNS
    assert await a.states() == await b.states()


async def test_a_node_that_dies_with_the_lead_settles_with_it(world: World) -> None:
    """Holds on the lead's own node are settled by its record of the exchange, too."""
    a, b, _ = await _task(world, SchedulingClass.BACKGROUND)

    async def die(call: Call, at: str) -> None:
        if call[2] == "commit":
            raise asyncio.CancelledError

    world.watch = die
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy, return_exceptions=True)
    world.watch = None
    world.clock.advance(HOLD_LIFE)
    for site in (a, b):
        await site.node.holds.run_once()
    assert list((await a.states()).values()) == ["scheduled"] * RUNS
    assert await a.states() == await b.states()


@pytest.mark.parametrize("before", [15 * times.SECOND, times.SECOND])
@pytest.mark.nightly
async def test_nobody_begins_alone(world: World, before: int) -> None:
    """A run is moved if a participant never confirmed it and must have dropped it by now."""
    a, b = await world.two()
    task = introduction([a, b], schedule=Schedule(start=HOUR, slip=times.HOUR))
    for site in (a, b):
        await site.keep(task, a)

    async def cut(call: Call, at: str) -> None:
        if call[2] == "commit" and call[1] == "b":
            world.cut = {frozenset("ab")}
            raise PeerUnreachable("the wire was cut")

    world.watch = cut
    await a.plan()
    (first,) = await a.states()
    await world.pass_time(2 * HOLD_LIFE, 4 * times.SECOND)
    assert (await a.state(first), await b.state(first)) == ("scheduled", None)
    world.watch = None
    world.clock.move_to(HOUR - before)
    await a.node.launcher.run_once()
    await asyncio.gather(*a.node.launcher._tasks.values())
    assert await a.state(first) == "displaced"
    assert await a.reason(first) == booking_unconfirmed(["b"])
    world.cut = set()
    await world.pass_time(2 * times.MINUTE, 12 * times.SECOND)
    assert sorted((await a.states()).values()) == ["displaced", "scheduled"]
    assert list((await b.states()).values()) == ["scheduled"]


async def test_runs_due_together_are_checked_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The confirmations of all runs that start soon are looked up in one query."""
    a, b = await world.two()
    once = Schedule(start=HOUR, slip=0)
    for _ in range(RUNS):
        task = introduction([a, b], scheduling_class=SchedulingClass.BACKGROUND, schedule=once)
        for site in (a, b):
            await site.keep(task, a)
    await a.plan()
    queries: list[list[UUID]] = []
    unconfirmed = runs.unconfirmed_runs

    async def record(
        connection: Connection, run_ids: Sequence[UUID], now: int
    ) -> dict[UUID, list[str]]:
        queries.append(list(run_ids))
        return await unconfirmed(connection, run_ids, now)

    monkeypatch.setattr(runs, "unconfirmed_runs", record)
    world.clock.move_to(HOUR - 3 * times.SECOND)
    for _ in range(2):
        await a.node.launcher.run_once()
    assert [sorted(run_ids) for run_ids in queries] == [sorted(await a.states())]
    assert len(queries[0]) == RUNS
