"""Only the worker with the lease has an effect when two plan the same task."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from lead.store import planning
from node.model import times
from node.model.wire.tasks import Schedule, TaskDocument
from node.store import changes, tasks
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, Call, World, introduction

pytestmark = ON_ONE_LOOP

ONCE = Schedule(start=START + times.HOUR)


async def test_both_conclude_at_the_same_time(world: World) -> None:
    """The one that lost its lease leaves no trace, though both come to conclude together."""
    a, b = await world.two()
    task = introduction([a, b], schedule=ONCE)
    for site in (a, b):
        await site.keep(task, a)
    world.cut.add(frozenset({"a", "b"}))
    recorder = a.planner._recorder
    conclude, both = recorder.record, asyncio.Barrier(2)

    async def together(*concluded: Any) -> None:
        async with both:
            await conclude(*concluded)

    recorder.record = together  # type: ignore[assignment, method-assign]
    await a.workers.run_once()
    await a.execute(
        "UPDATE planning SET lease_epoch = lease_epoch + 1, lease_until = NULL, plan_at = $1",
        a.clock.now(),
    )
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy)
    assert [row[0] for row in await a.rows("SELECT times FROM decision")] == [1]


async def test_an_edit_under_way_is_not_overwritten(world: World) -> None:
    """A worker does not overwrite an edit for which it had to wait."""
    a = await world.site("a")
    task = introduction([a], schedule=ONCE)
    await a.keep(task, a)
    old = task.participants[0].model_copy(update={"node": "old"})
    now = a.clock.now()
    async with a.database.transaction() as connection:
        [claimed] = await planning.claim(
            connection, planning.LeaseRequest("w", now, now + times.MINUTE), now + times.DAY, 1
        )
    async with a.database.transaction() as edit:
        await tasks.lock(edit, task.task)
        await changes.fence(edit, [task.task], now)
        async with a.database.transaction() as connection:
            [(process,)] = await connection.fetch("SELECT pg_backend_pid()")
            stale = replace(claimed, terms=claimed.terms.with_parties([old]))
            learned = asyncio.create_task(planning.set_participants(connection, stale))
            while not await edit.fetchval("SELECT pg_blocking_pids($1)", process):
                pass
            await edit.execute("COMMIT")
            assert not await learned
            await edit.execute("BEGIN")
    found = await a.rows("SELECT participants FROM task")
    assert [participant["node"] for participant in found[0][0]] == [a.identity]


@pytest.mark.parametrize("slip", [0, times.HOUR], ids=["one start", "many starts"])
async def test_a_dead_lead_is_replaced_within_two_leases(world: World, slip: int) -> None:
    """Tasks of a lead that died while it planned them are booked by another in time."""
    # What the dead one held is released when its tasks are taken over: it would expire too late.
    lease = 10 * times.SECOND
    a, b = await world.site("a", lease=lease), await world.site("b")
    assert 2 * lease < a.node.settings.hold_life
    task = introduction([a, b], schedule=ONCE.model_copy(update={"slip": slip}))
    for site in (a, b):
        await site.keep(task, a)

    async def die(call: Call, at: str) -> None:
        if call[2] == "hold" and at == "answered":
            raise asyncio.CancelledError

    world.watch = die
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy, return_exceptions=True)
    world.watch = None
    other, died_at = a.new_workers("other"), a.clock.now()
    while set((await b.states()).values()) != {"scheduled"}:
        world.clock.advance(2 * times.SECOND)
        await other.run_once()
        await asyncio.gather(*other._busy)
        await a.deliver()
        for site in (a, b):
            await site.tend()
        assert a.clock.now() - died_at < 2 * lease
    assert world.count("release") == 2, "each participant is told once"
    assert [row[0] for row in await a.rows("SELECT state::text FROM negotiation ORDER BY 1")] == [
        "aborted",
        "committed",
    ]


async def test_a_task_of_two_nodes_takes_four_round_trips(world: World) -> None:
    """From its posting to its commit, each other node is asked four times."""
    a, b = await world.two()
    spec = {"duration": "PT1M", "participants": ["a", "b"]}
    document = {"test": {"type": "idle", "spec": spec}, "schedule": {"slip": "PT1H"}}
    await a.node.admission.create(TaskDocument.model_validate(document), None)
    await a.plan()
    assert list((await b.states()).values()) == ["scheduled"]
    asked = [what for sender, receiver, what in world.calls if (sender, receiver) == ("a", "b")]
    assert asked == ["introduce", "propose", "hold", "commit"]
