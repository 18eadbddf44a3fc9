"""The keeper of a resource dies, is cut off, or meets a lead that does: as with any participant."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise, product
from uuid import UUID

import pytest

from node.model import times
from node.model.errors import ParleyError
from node.model.wire.participants import HoldAnswer, HoldRequest, Introduction, Release
from node.model.wire.tasks import Keeper, Schedule
from tests.support import invariants
from tests.support.clocks import START
from tests.support.limits import RANKED_ALIKE, limit
from tests.support.worlds import (
    EVERY_INSTANT,
    HOLD_LIFE,
    ON_ONE_LOOP,
    Call,
    Site,
    World,
    commit_request,
    exchange_of,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
RUNS = 3
MINUTES = 5
"""The duration of each run."""


async def _keep(keeper: Site, number: int) -> None:
    await limit(keeper.node, f'{RANKED_ALIKE}[[resource]]\nname = "x"\nnumber = {number}\n')


async def _task(
    lead: Site,
    keeper: Site,
    *,
    priority: int = 0,
    amount: int = 1,
    slip: int = 0,
    schedule: Schedule | None = None,
) -> Introduction:
    """Return a task of a lead alone that takes of the keeper's resource, known to both."""
    schedule = schedule or Schedule(
        start=HOUR, repeat=times.HOUR, until=HOUR + RUNS * times.HOUR, slip=slip * times.MINUTE
    )
    listed = introduction([keeper]).participants[0]
    kept = Keeper.model_validate({**listed.model_dump(), "takes": {"x": amount}})
    task = introduction([lead], priority=priority, schedule=schedule)
    task = task.model_copy(update={"keepers": (kept,)})
    await lead.keep(task, lead)
    await keeper.keep(task, lead)
    return task


async def _taken(keeper: Site) -> list[tuple[UUID, int]]:
    rows = await keeper.rows("SELECT task_id, starts_at FROM resource_taken ORDER BY starts_at")
    return [(row[0], row[1]) for row in rows]


@pytest.mark.parametrize(
    ("what", "phase"), list(product(("propose", "hold", "commit"), ("asked", "answered")))
)
@pytest.mark.parametrize("lasting", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.nightly
async def test_a_lead_or_a_wire_that_dies_leaves_nothing_half_done(
    world: World, what: str, phase: str, *, lasting: bool
) -> None:
    """Wherever the lead dies or the wire is cut, lead and keeper soon agree on what is taken."""
    a, k = await world.site("a"), await world.site("k")
    await _keep(k, 1)
    await _task(a, k)

    async def break_off(call: Call, at: str) -> None:
        if (call, at) == (("a", "k", what), phase):
            world.watch = None
            if lasting:
                world.cut.add(frozenset("ak"))
            else:
                raise asyncio.CancelledError

    world.watch = break_off
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy, return_exceptions=True)
    assert world.watch is None
    await world.pass_time(2 * HOLD_LIFE, 4 * times.SECOND)
    world.cut.clear()
    await world.pass_time(2 * times.MINUTE, 4 * times.SECOND)
    assert list((await a.states()).values()) == ["scheduled"] * RUNS
    assert await a.states() == await k.states()
    assert len(await _taken(k)) == RUNS
    assert await invariants.always(k) == []


@pytest.mark.nightly
async def test_nothing_is_booked_while_the_keeper_is_away(world: World) -> None:
    """Without its keeper a task waits, and says for whom; the keeper's other tasks go on."""
    a, b, k = await world.site("a"), await world.site("b"), await world.site("k")
    await _keep(k, 1)
    await _task(a, k)
    other = await _task(b, k)
    world.cut.add(frozenset("ak"))
    await world.pass_time(times.MINUTE, 4 * times.SECOND)
    assert set((await a.states()).values()) == {"waiting"}
    reasons = await a.rows("SELECT DISTINCT reason FROM run")
    assert [row[0].startswith("k cannot be reached") for row in reasons] == [True], reasons
    assert {task for task, _ in await _taken(k)} == {other.task}
    await a.execute("UPDATE task SET state = 'cancelled'")
    assert len(await _taken(k)) == RUNS


@pytest.mark.nightly
async def test_a_keeper_that_stops_and_starts_remembers(world: World) -> None:
    """A hold that the keeper had when it was stopped is committed after it has started again."""
    a, b, k = await world.site("a"), await world.site("b"), await world.site("k")
    await _keep(k, 1)
    await _task(a, k)

    async def stop(call: Call, at: str) -> None:
        if (call, at) == (("a", "k", "hold"), "answered"):
            world.watch = None
            text = k.node.limits._given or ""
            await world.restart(k)
            await limit(k.node, text)

    world.watch = stop
    await world.pass_time(times.MINUTE, 4 * times.SECOND)
    assert list((await k.states()).values()) == ["scheduled"] * RUNS
    await _task(b, k, slip=30)
    await world.pass_time(times.MINUTE, 4 * times.SECOND)
    taken = [at for _, at in await _taken(k)]
    assert len(taken) == 2 * RUNS
    assert all(later - at >= MINUTES * times.MINUTE for at, later in pairwise(taken))
    assert await invariants.always(k) == []


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(it, marks=pytest.mark.nightly) for it in (1, 2))]
)
async def test_two_processes_never_give_more_than_there_is(world: World, seed: int) -> None:
    """Holds, commits, and releases of many leads at two processes of one keeper stay within it."""
    rng, k = random.Random(seed), await world.site("k")
    leads = [await world.site(name) for name in "abcd"]
    number = rng.choice([1, 2, 3])
    await _keep(k, number)
    first = k.node
    text = first.limits._given or ""
    await world.restart(k)
    await limit(k.node, text)
    tasks = [
        (
            lead,
            await _task(
                lead,
                k,
                priority=rng.randrange(4),
                amount=rng.randint(1, number),
                schedule=EVERY_INSTANT,
            ),
        )
        for lead in leads
        for _ in range(5)
    ]

    async def book(lead: Site, task: Introduction, node_number: int, start: int) -> None:
        time_line = (first, k.node)[node_number].time_line
        request: HoldRequest = hold_request(task, [start], displacing=rng.random() < 0.5)
        request = request.model_copy(update={"priority": task.priority})
        exchange = exchange_of(request)
        try:
            answered: HoldAnswer = await time_line.hold(exchange, lead.identity, request)
        except ParleyError as error:
            pytest.fail(error.detail)
        if answered.held and rng.random() < 0.7:
            await time_line.commit(exchange, commit_request(request), lead.identity)
        else:
            release = Release(task=task.task, lease_epoch=request.lease_epoch)
            await time_line.release(exchange, release, lead.identity)

    await asyncio.gather(
        *(
            book(lead, task, rng.randrange(2), HOUR + rng.randrange(4) * 3 * times.MINUTE)
            for lead, task in tasks
        )
    )
    assert await invariants.always(k) == []
    states = {row[0] for row in await k.rows("SELECT DISTINCT state::text FROM run")}
    assert "booked" in states
    assert "set-aside" not in states
