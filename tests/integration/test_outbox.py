"""Messages to other nodes arrive in an order in which they can be understood."""

from __future__ import annotations

import pytest

from node.model import times
from node.model.wire.tasks import Schedule
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


async def test_the_end_of_a_task_does_not_overtake_its_change(world: World) -> None:
    """A participant that missed a change hears of it before it hears that the task is over."""
    a, b = await world.two()
    task = introduction([a, b], schedule=Schedule(start=HOUR), accepted=None)
    await a.keep(task, a)
    world.cut = {frozenset("ab")}
    await a.node.editing.pause(task.task)
    for _ in range(4):  # the pauses grow
        await world.pass_time(4 * times.SECOND)
    await a.node.termination.cancel_task(task.task)
    world.cut = set()
    await world.pass_time(30 * times.SECOND, 5 * times.SECOND)
    assert await a.outbox_messages() == []
    assert [row[0] for row in await b.rows("SELECT state::text FROM task")] in ([], ["cancelled"])


async def test_messages_behind_one_that_failed_wait_no_longer_than_it(world: World) -> None:
    """A node that was away for a moment hears all that waits for it as soon as it is back."""
    a, b = await world.two()
    tasks = [introduction([a, b], schedule=Schedule(start=HOUR)) for _ in range(5)]
    for task in tasks:
        for site in (a, b):
            await site.keep(task, a)
    world.cut = {frozenset("ab")}
    for task in tasks:
        await a.node.termination.cancel_task(task.task)
    await world.pass_time(2 * times.SECOND)
    assert len(await a.outbox_messages()) == len(tasks)
    world.cut = set()
    await world.pass_time(6 * times.SECOND)
    assert await a.outbox_messages() == []
    states = await b.rows("SELECT DISTINCT state::text FROM task")
    assert [row[0] for row in states] == ["cancelled"]


@pytest.mark.parametrize(("is_away", "longest"), [(False, 30), (True, 300)])
async def test_a_node_that_answers_others_is_tried_again_within_half_a_minute(
    world: World, *, is_away: bool, longest: int
) -> None:
    """Pauses grow to five minutes only for a node that does not answer anything."""
    a, b = await world.two()
    task = introduction([a, b], schedule=Schedule(start=HOUR))
    for site in (a, b):
        await site.keep(task, a)
    world.cut = {frozenset("ab")}
    await a.node.termination.cancel_task(task.task)
    since = a.clock.now() if is_away else None
    await a.execute("UPDATE node SET unreachable_since = $1 WHERE NOT is_self", since)
    await a.execute("UPDATE outbox SET attempts = 12")
    await world.settle()
    [row] = await a.rows("SELECT next_at FROM outbox")
    assert row[0] - a.clock.now() == longest * times.SECOND
