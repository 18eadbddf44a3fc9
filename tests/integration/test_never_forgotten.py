"""No task with something left to plan is forgotten, and none is planned endlessly."""

from __future__ import annotations

from typing import Any

import pytest

from lead.store import planning
from node.model import times
from node.model.ids import TaskId, run_id
from node.model.wire.tasks import Schedule
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + 2 * times.HOUR
FOUR = Schedule(start=HOUR, repeat=times.HOUR, until=HOUR + 4 * times.HOUR)


async def test_more_slots_wait_than_a_batch_has(world: World) -> None:
    """Slots beyond a batch are planned after it, even if the schedule has no more."""
    a = await world.site("a", batch=2)
    b = await world.site("b")
    task = introduction([a, b], schedule=FOUR)
    for site in (a, b):
        await site.keep(task, a)
    for _ in range(2):
        await a.plan()
    assert list((await b.states()).values()) == ["scheduled"] * 4
    for run in await a.states():
        await a.node.termination.lose_run(run, "b has lost it")
    await world.pass_time(5 * times.SECOND)
    states = list((await b.states()).values())
    assert (states.count("scheduled"), states.count("held"), len(states)) == (4, 0, 8)


async def test_a_task_that_broke_off_is_not_due_before_its_pause(world: World) -> None:
    """A task that could wait no longer for a silent node is due when its pause is over."""
    a, b = await world.two()
    task = introduction([a, b], schedule=FOUR)
    await a.keep(task, a)
    now = a.clock.now()
    await a.execute(
        "UPDATE planning SET waits_for = $1, waits_until = $2, plan_at = $2", b.identity, now
    )
    before = now + times.DAY
    async with a.database.connection() as connection:
        [claim] = await planning.claim(
            connection,
            planning.LeaseRequest("w", now, now + times.MINUTE),
            before,
            1,
            restricted=[b.identity],
        )
        assert await planning.break_off(
            connection, claim.task, claim.lease_epoch, now + times.SECOND
        )
        due, _ = await planning.next_due_and_slot(connection, before, [b.identity])
        assert due == now + times.SECOND


async def test_who_answers_while_a_task_comes_to_wait_for_it_is_asked_at_once(
    world: World,
) -> None:
    """A task that begins to wait for a node which has just answered is planned at once."""
    a, b = await world.two()
    task = introduction([a, b], schedule=FOUR)
    for site in (a, b):
        await site.keep(task, a)
    world.cut.add(frozenset({"a", "b"}))
    conclude = a.planner._recorder.record

    async def conclude_late(*arguments: Any) -> None:
        """Let another task's request be answered before this decision is stored."""
        a.reachability.record_answer(b.identity)
        await a.planner.apply_reachability_changes()
        await conclude(*arguments)

    a.planner._recorder.record = conclude_late  # type: ignore[assignment, method-assign]
    await a.plan()
    a.planner._recorder.record = conclude  # type: ignore[method-assign]
    world.cut.clear()
    await a.plan()
    assert list((await b.states()).values()) == ["scheduled"] * 4


@pytest.mark.parametrize(
    ("losses", "late"),
    [
        pytest.param(1, 0, id="at once"),
        pytest.param(7, 0, id="after a pause longer than the lease"),
        pytest.param(1, times.MINUTE, id="by a worker whose lease is over"),
    ],
)
@pytest.mark.nightly
async def test_a_run_that_is_lost_while_its_task_is_planned_is_placed_again(
    world: World, losses: int, late: int
) -> None:
    """A worker that has not seen that a slot waits leaves its task on the agenda."""
    a, b = await world.two()
    task = introduction([a, b], schedule=FOUR)
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    lose, slots = a.node.termination.lose_run, [HOUR, HOUR + times.HOUR]
    for attempt in range(1, losses):
        await lose(run_id(TaskId(task.task), slots[0], attempt), "b has lost it")
        await world.pass_time(10 * times.MINUTE, 10 * times.SECOND)
    conclude = a.planner._recorder.record

    async def conclude_late(*arguments: Any) -> None:
        """Lose a run that the worker takes for booked, before its decision is stored."""
        a.planner._recorder.record = conclude  # type: ignore[method-assign]
        world.clock.advance(late)
        await lose(run_id(TaskId(task.task), slots[0], losses), "b has lost it")
        await conclude(*arguments)

    a.planner._recorder.record = conclude_late  # type: ignore[assignment, method-assign]
    await lose(run_id(TaskId(task.task), slots[1], 1), "b has lost it")
    await a.plan()
    assert await a.state(run_id(TaskId(task.task), slots[0], losses)) == "displaced"
    await world.pass_time(10 * times.MINUTE, 10 * times.SECOND)
    assert list((await b.states()).values()).count("scheduled") == 4
