"""Messages to other nodes arrive in an order in which they can be understood."""

from __future__ import annotations

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
    assert await a.letters() == []
    assert [row[0] for row in await b.rows("SELECT state::text FROM task")] in ([], ["cancelled"])
