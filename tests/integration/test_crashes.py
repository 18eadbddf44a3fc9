"""A lead that dies or is cut off at any message leaves each run on all participants or on none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product
from uuid import UUID

import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import PeerUnreachable
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
"""How long the participants take to answer the proposal: the holds outlive the worker's lease."""


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
    """Twice the life of a hold passes, with everybody at work, and nothing is left half done."""
    await world.pass_time(2 * HOLD_LIFE, 4 * times.SECOND)
    there, here = await a.states(), await b.states()
    assert not {"held", "set-aside"} & {*there.values(), *here.values()}
    agreed = {run for run, state in there.items() if state == "scheduled"}
    assert agreed == {run for run, state in here.items() if state == "scheduled"}


@pytest.mark.parametrize(
    ("what", "whom", "phase"), list(product(CALLS, ("a", "b"), ("asked", "answered")))
)
async def test_a_lead_that_dies_leaves_nothing_half_done(
    world: World, what: str, whom: str, phase: str
) -> None:
    """Wherever the worker dies, after twice the hold's life each run is on all nodes or on none."""
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
@pytest.mark.parametrize("lasting", [False, True])
async def test_a_cut_wire_leaves_nothing_half_done(
    world: World,
    what: str,
    phase: str,
    lasting: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Wherever the wire breaks, for one message or longer than a hold lives, all comes right."""
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
    """Holds on the lead's own node, too, are settled by its own record of the exchange."""
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
async def test_nobody_begins_alone(world: World, before: int) -> None:
    """Who must have dropped a run that it never confirmed is not measured without: it moves on."""
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
    assert await a.reason(first) == "b did not confirm in time that it has this run"
    world.cut = set()
    await world.pass_time(2 * times.MINUTE, 12 * times.SECOND)
    assert sorted((await a.states()).values()) == ["displaced", "scheduled"]
    assert list((await b.states()).values()) == ["scheduled"]


async def test_what_comes_due_together_is_looked_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has not confirmed is asked once, of all runs that start soon; then each goes its way."""
    a, b = await world.two()
    once = Schedule(start=HOUR, slip=0)
    for _ in range(RUNS):
        task = introduction([a, b], scheduling_class=SchedulingClass.BACKGROUND, schedule=once)
        for site in (a, b):
            await site.keep(task, a)
    await a.plan()
    asked: list[list[UUID]] = []
    unconfirmed = runs.unconfirmed

    async def listen(
        connection: Connection, some: Sequence[UUID], now: int
    ) -> dict[UUID, list[str]]:
        asked.append(list(some))
        return await unconfirmed(connection, some, now)

    monkeypatch.setattr(runs, "unconfirmed", listen)
    world.clock.move_to(HOUR - 3 * times.SECOND)
    for _ in range(2):
        await a.node.launcher.run_once()
    assert [sorted(some) for some in asked] == [sorted(await a.states())]
    assert len(asked[0]) == RUNS
