"""Leads leave behind only so much here, however often they hold time and take it back."""

from __future__ import annotations

from node.model import times
from node.model.wire.participants import Introduction, Release, RunEnd
from node.model.wire.tasks import Schedule
from node.store import outbox, runs
from tests.support.clocks import START
from tests.support.worlds import (
    ON_ONE_LOOP,
    Site,
    World,
    commit_request,
    exchange_of,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


async def _introduced(world: World) -> tuple[Site, Site, Introduction]:
    lead, host = await world.two()
    task = introduction([host], schedule=Schedule(start=HOUR, repeat=5 * times.MINUTE))
    assert (await host.node.acceptance.consider(lead.identity, task)).accepted
    return lead, host, task


async def test_released_exchanges_leave_little(world: World) -> None:
    """An exchange that is released keeps no answer, and the latest ones of a lead alone stay."""
    lead, host, task = await _introduced(world)
    for epoch in range(1, 8):
        world.clock.advance(times.SECOND)
        request = hold_request(task, [HOUR], epoch=epoch)
        exchange = exchange_of(request)
        assert (await host.node.time_line.hold(exchange, lead.identity, request)).held
        release = Release(task=task.task, lease_epoch=epoch)
        if epoch < 7:
            await host.node.time_line.release(exchange, release, lead.identity)
    kept = await host.rows("SELECT answer, state::text FROM exchange ORDER BY lease_epoch")
    assert [row["answer"] for row in kept[:6]] == [{}] * 6
    assert kept[6]["answer"]["held"]
    async with host.database.transaction() as connection:
        assert await runs.purge_surplus_exchanges(connection, 2, 1000) == 4
    left = await host.rows("SELECT lease_epoch FROM exchange ORDER BY lease_epoch")
    assert [row[0] for row in left] == [5, 6, 7]
    repeated = hold_request(task, [HOUR], epoch=7)
    answer = await host.node.time_line.hold(exchange_of(repeated), lead.identity, repeated)
    assert answer.held == (repeated.runs[0].run,)


async def test_runs_that_are_over_are_kept_up_to_a_number(world: World) -> None:
    """Runs that a lead books and cancels without end are deleted but the latest; others stay."""
    lead, host, task = await _introduced(world)
    starts = [HOUR + number * task.duration for number in range(6)]
    request = hold_request(task, starts)
    exchange = exchange_of(request)
    await host.node.time_line.hold(exchange, lead.identity, request)
    await host.node.time_line.commit(exchange, commit_request(request))
    for run in request.runs[:5]:
        world.clock.advance(times.SECOND)
        end = RunEnd(run=run.run, state="cancelled", reason="because I say so")
        await host.node.termination.apply_run_end(lead.identity, end)
    async with host.database.transaction() as connection:
        assert await runs.purge_surplus(connection, 2, 1000) == 3
        assert await runs.purge_surplus(connection, 2, 1000) == 0
    left = await host.rows("SELECT starts_at FROM run ORDER BY starts_at")
    assert [row[0] for row in left] == starts[3:]
    async with lead.database.transaction() as connection:
        assert await runs.purge_surplus(connection, 0, 1000) == 0


async def test_runs_that_a_task_counts_stay(world: World) -> None:
    """A task with a number of runs cannot have more by leading so many that they are forgotten."""
    lead, host, task = await _introduced(world)
    request = hold_request(task, [HOUR, HOUR + task.duration])
    await host.node.time_line.hold(exchange_of(request), lead.identity, request)
    await host.execute(
        "UPDATE run SET state = 'finished', started_at = starts_at, finished_at = ends_at"
    )
    await host.execute("UPDATE task SET schedule = schedule || '{\"max_runs\": 2}'")
    async with host.database.transaction() as connection:
        assert await runs.purge_surplus(connection, 0, 1000) == 0
    await host.execute("UPDATE task SET state = 'finished', reason = 'over', ended_at = $1", HOUR)
    async with host.database.transaction() as connection:
        assert await runs.purge_surplus(connection, 1, 1000) == 1


async def test_parts_that_their_lead_does_not_take_are_kept_up_to_a_number(world: World) -> None:
    """Messages with parts to one lead are deleted but the latest, and no others."""
    a = await world.site("a")
    async with a.database.transaction() as connection:
        for number in range(4):
            for node in ("x", "y"):
                body = {"run": str(number)}
                await outbox.post(connection, [node], outbox.MessageKind.PART, body, START)
        await outbox.post(connection, ["x"], outbox.MessageKind.TASK_END, {"task": "1"}, START)
        assert await outbox.purge_surplus(connection, 3, 1000) == 2
    left = await a.rows("SELECT node, message ->> 'run' AS run FROM outbox ORDER BY node, id")
    assert [(row["node"], row["run"]) for row in left] == [
        *(("x", run) for run in ("1", "2", "3", None)),
        *(("y", run) for run in ("1", "2", "3")),
    ]
