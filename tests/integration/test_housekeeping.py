"""What is not needed any more is deleted, and nothing else."""

from __future__ import annotations

from node.model import times
from node.model.wire.tasks import Schedule
from tests.clocks import START
from tests.worlds import ON_ONE_LOOP, World, book_everywhere, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


async def test_exchanges_and_decisions_do_not_pile_up(world: World) -> None:
    """Exchanges whose runs are gone, and old decisions on them, are deleted with the runs."""
    a, b = await world.site("a"), await world.site("b")
    task = introduction([a, b], schedule=Schedule(start=HOUR, slip=0))
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    for site in (a, b):
        await site.execute("UPDATE run SET state = 'finished'")
        await site.node._purge()
        assert len(await site.rows("SELECT FROM exchange")) == 1
    world.clock.advance(31 * times.DAY)
    for site in (a, b):
        await site.node._purge()
        for table in ("run", "exchange", "negotiation"):
            assert await site.rows(f"SELECT FROM {table}") == []


async def test_runs_are_counted_as_long_as_their_task_goes_on(world: World) -> None:
    """Old runs of a task with max_runs stay while it is planned, else it would run too often."""
    a = await world.site("a")
    task = introduction([a], schedule=Schedule(start=HOUR, repeat=times.DAY, max_runs=40))
    await book_everywhere(task, a, [a], [HOUR])
    await a.execute("UPDATE run SET state = 'finished'")
    world.clock.advance(31 * times.DAY)
    await a.node._purge()
    assert len(await a.rows("SELECT FROM run")) == 1
    await a.node.ending.cancel_task(task.task)
    await a.node._purge()
    assert await a.rows("SELECT FROM run") == []
