"""The early end of runs and tasks, on one node and on all others."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest

from node.model import times
from node.model.errors import NotAllowed, NotFound
from node.model.ids import TaskId, run_id
from node.model.runstate import RunState
from node.model.wire.participants import Introduction, RunEnd, TaskEnd
from node.store import runs
from node.store.runs import KeptPart
from tests.support.clocks import START
from tests.support.worlds import (
    DURATION,
    ON_ONE_LOOP,
    Site,
    World,
    book_everywhere,
    commit_request,
    hold_everywhere,
    hold_request,
    introduction,
    release_of,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
LATER = HOUR + times.HOUR


async def _begin(site: Site, run: UUID) -> None:
    site.clock.move_to(HOUR)
    async with site.database.transaction() as connection:
        assert await runs.begin(connection, run, site.clock.now())


async def _waiting(site: Site, task: Introduction, start: int) -> UUID:
    run = run_id(TaskId(task.task), start, 1)
    await site.execute(
        """
        INSERT INTO run (id, task_id, slot, attempt, participant, scheduling_class, priority,
            starts_at, ends_at, state, reason, created_at, changed_at)
        VALUES ($1, $2, $3, 1, 0, 'exclusive', 0, $3, $4, 'waiting', 'b: no time', $3, $3)
        """,
        run,
        task.task,
        start,
        start + task.duration,
    )
    return run


async def _everywhere(world: World, run: UUID) -> list[str | None]:
    return [await site.state(run) for site in world.sites]


# -- cancelling runs -------------------------------------------------------------------------------


async def test_a_waiting_run_is_cancelled(world: World) -> None:
    """A waiting slot can be cancelled."""
    a, b = await world.two()
    task = introduction([a, b])
    await a.keep(task, a)
    run = await _waiting(a, task, HOUR)
    await a.node.termination.cancel_run(run)
    assert await a.state(run) == "cancelled"
    assert await a.reason(run) == "cancelled on a"


async def test_a_scheduled_run_is_cancelled_everywhere(world: World) -> None:
    """A run cancelled at its lead is cancelled on all participants, and its time is free."""
    a, b, c = sites = await world.three()
    run, other = await book_everywhere(introduction(sites), a, sites, [HOUR, LATER])
    await a.node.termination.cancel_run(run)
    await world.settle()
    assert await _everywhere(world, run) == ["cancelled"] * 3
    assert await _everywhere(world, other) == ["scheduled"] * 3
    assert await c.reason(run) == "cancelled on a"
    other_task = introduction([b, c])
    await book_everywhere(other_task, b, [b, c], [HOUR])


async def test_a_cancel_at_a_participant_reaches_all(world: World) -> None:
    """A participant reports a cancellation to the lead, which forwards it to the others."""
    a, b, _ = sites = await world.three()
    [run] = await book_everywhere(introduction(sites), a, sites, [HOUR])
    await b.node.termination.cancel_run(run)
    assert await b.state(run) == "cancelled"
    assert [node for node, _, _ in await b.outbox_messages()] == [a.identity]
    await world.settle()
    assert await _everywhere(world, run) == ["cancelled"] * 3
    assert [call[:2] for call in world.calls if call[2] == "end_run"] == [("b", "a"), ("a", "c")]


async def test_a_running_run_is_cancelled(world: World) -> None:
    """A running run is cancelled at once; its part is stored and changes nothing."""
    a, b, _ = sites = await world.three()
    [run] = await book_everywhere(introduction(sites), a, sites, [HOUR])
    for site in sites:
        await _begin(site, run)
    await b.node.termination.cancel_run(run)
    await world.settle()
    assert await _everywhere(world, run) == ["cancelled"] * 3
    part = KeptPart(0, "a", None, "cancelled", HOUR, HOUR + 1)
    await a.node.collector.keep_own(run, part)
    assert await a.state(run) == "cancelled"


async def test_a_held_run_is_cancelled(world: World) -> None:
    """A run cancelled while it is held stays cancelled when its exchange is committed."""
    a, b = await world.two()
    task = introduction([a, b])
    for site in (a, b):
        await site.keep(task, a)
    request = hold_request(task, [HOUR])
    exchange = await hold_everywhere(a, [a, b], request)
    [run] = [run.run for run in request.runs]
    await a.node.termination.cancel_run(run)
    await world.settle()
    for site in (a, b):
        await site.node.time_line.commit(exchange, commit_request(request))
    assert await _everywhere(world, run) == ["cancelled", "cancelled"]


async def test_a_cancelled_winner_gives_back_what_gave_way(world: World) -> None:
    """Cancelling a held run of higher priority restores the run that it had set aside."""
    a, b = await world.two()
    [low] = await book_everywhere(introduction([a, b]), a, [a, b], [HOUR])
    task = introduction([a, b], priority=5)
    for site in (a, b):
        await site.keep(task, a)
    request = hold_request(task, [HOUR], displacing=True)
    await hold_everywhere(a, [a, b], request)
    await a.node.termination.cancel_run(request.runs[0].run)
    await world.settle()
    assert await _everywhere(world, low) == ["scheduled", "scheduled"]


async def test_a_cancelled_winner_tells_of_what_cannot_come_back(world: World) -> None:
    """A run set aside that lost its time is displaced, and its lead is notified."""
    a, b = await world.two()
    [low] = await book_everywhere(introduction([a, b]), a, [a, b], [HOUR])
    task = introduction([b], priority=5)
    await b.keep(task, b)
    request = hold_request(task, [HOUR], displacing=True)
    await hold_everywhere(b, [b], request)
    # The time of the run has come and passed while the winner held it.
    world.clock.move_to(HOUR)
    await b.node.termination.cancel_run(request.runs[0].run)
    assert await b.state(low) == "displaced"
    assert [(node, body["run"]) for node, _, body in await b.outbox_messages()] == [
        (a.identity, str(low))
    ]


async def test_cancelling_is_idempotent(world: World) -> None:
    """A second cancellation changes nothing and sends no message."""
    a, b, _ = sites = await world.three()
    [run] = await book_everywhere(introduction(sites), a, sites, [HOUR])
    await a.node.termination.cancel_run(run)
    await world.settle()
    calls_before = len(world.calls)
    await a.node.termination.cancel_run(run)
    await b.node.termination.cancel_run(run)
    await b.node.termination.apply_run_end(
        a.identity, RunEnd(run=run, state="cancelled", reason="again")
    )
    await world.settle()
    assert len(world.calls) == calls_before
    assert await b.reason(run) == "cancelled on a"


async def test_an_unknown_run_cannot_be_cancelled(world: World) -> None:
    """Cancelling an unknown run or task fails as not found."""
    a = await world.site("a")
    with pytest.raises(NotFound, match="there is no run"):
        await a.node.termination.cancel_run(uuid4())
    with pytest.raises(NotFound, match="there is no task"):
        await a.node.termination.cancel_task(uuid4())


async def test_a_stranger_ends_nothing(world: World) -> None:
    """Only the lead and the participants of a run can report its end."""
    a, b, c = await world.three()
    task = introduction([a, b])
    [run] = await book_everywhere(task, a, [a, b], [HOUR])
    with pytest.raises(NotAllowed):
        await b.node.termination.apply_run_end(
            c.identity, RunEnd(run=run, state="cancelled", reason="because")
        )
    with pytest.raises(NotAllowed):
        await b.node.termination.apply_task_end(
            c.identity, TaskEnd(task=task.task, state="cancelled", reason="because")
        )
    assert await _everywhere(world, run) == ["scheduled", "scheduled", None]


async def test_a_participant_ends_nothing_at_a_third_node(world: World) -> None:
    """A participant tells the lead that a run or task is over, and the lead alone the others."""
    a, b, c = sites = await world.three()
    task = introduction(sites)
    [run] = await book_everywhere(task, a, sites, [HOUR])
    end = RunEnd(run=run, state="cancelled", reason="because")
    with pytest.raises(NotAllowed, match="which alone can end it here"):
        await c.node.termination.apply_run_end(b.identity, end)
    with pytest.raises(NotAllowed, match="which alone can end it here"):
        await c.node.termination.apply_task_end(
            b.identity, TaskEnd(task=task.task, state="cancelled", reason="because")
        )
    assert await _everywhere(world, run) == ["scheduled"] * 3
    await b.node.termination.cancel_run(run)
    await world.settle()
    assert await _everywhere(world, run) == ["cancelled"] * 3


# -- cancelling tasks ------------------------------------------------------------------------------


async def test_a_cancelled_task_frees_everything(world: World) -> None:
    """Cancelling a task ends all its runs on all participants, and nothing more is planned."""
    a, b, c = sites = await world.three()
    task = introduction(sites)
    first, second = await book_everywhere(task, a, sites, [HOUR, LATER])
    waiting = await _waiting(a, task, LATER + times.HOUR)
    for site in sites:
        await _begin(site, first)
    await a.node.termination.cancel_task(task.task)
    await world.settle()
    for run in (first, second):
        assert await _everywhere(world, run) == ["cancelled"] * 3
    assert await a.state(waiting) == "cancelled"
    assert "the task was cancelled: cancelled on a" in (await c.reason(second) or "")
    assert [row[0] for row in await b.rows("SELECT state::text FROM task")] == ["cancelled"]
    assert await a.rows("SELECT FROM planning WHERE plan_at IS NOT NULL") == []
    await book_everywhere(introduction([b, c]), b, [b, c], [LATER])


async def test_a_participant_withdraws_from_a_task(world: World) -> None:
    """A task cancelled at a participant is refused, and its lead ends it everywhere."""
    a, b, _ = sites = await world.three()
    task = introduction(sites)
    [run] = await book_everywhere(task, a, sites, [HOUR])
    await b.node.termination.cancel_task(task.task)
    await world.settle()
    assert await _everywhere(world, run) == ["cancelled"] * 3
    for site in sites:
        rows = await site.rows("SELECT state::text, reason FROM task")
        assert [tuple(row) for row in rows] == [("refused", "b withdrew from it")]


async def test_a_cancelled_task_gives_back_what_gave_way(world: World) -> None:
    """Cancelling a task restores the runs that its hold had set aside."""
    a, b = await world.two()
    [low] = await book_everywhere(introduction([a, b]), a, [a, b], [HOUR])
    task = introduction([a, b], priority=5)
    for site in (a, b):
        await site.keep(task, a)
    request = hold_request(task, [HOUR], displacing=True)
    exchange = await hold_everywhere(a, [a, b], request)
    await a.node.termination.cancel_task(task.task)
    await world.settle()
    for site in (a, b):
        await site.node.time_line.release(exchange, release_of(task))
    assert await _everywhere(world, low) == ["scheduled", "scheduled"]


@pytest.mark.parametrize(("begun", "state"), [(False, "cancelled"), (True, "running")])
async def test_a_run_still_booked_when_its_task_is_over_does_not_begin(
    world: World, *, begun: bool, state: str
) -> None:
    """A participant that hears of the end of a task before that of its run frees the run."""
    a, b = await world.two()
    task = introduction([a, b])
    [run] = await book_everywhere(task, a, [a, b], [HOUR])
    if begun:
        await _begin(b, run)
    end = TaskEnd(task=task.task, state="finished", reason="its schedule is over")
    await b.node.termination.apply_task_end(a.identity, end)
    assert await b.state(run) == state


async def test_cancelling_a_task_is_idempotent(world: World) -> None:
    """A second cancellation of a task changes nothing and sends no message."""
    a, b, _ = sites = await world.three()
    task = introduction(sites)
    await book_everywhere(task, a, sites, [HOUR])
    await a.node.termination.cancel_task(task.task)
    await world.settle()
    calls_before = len(world.calls)
    await a.node.termination.cancel_task(task.task)
    await b.node.termination.cancel_task(task.task)
    await world.settle()
    assert len(world.calls) == calls_before


async def test_a_task_whose_runs_are_over_is_finished_everywhere(world: World) -> None:
    """A task without planning and open runs is finished, also at its participants."""
    a, _, _ = sites = await world.three()
    task = introduction(sites)
    [run] = await book_everywhere(task, a, sites, [HOUR])
    await a.execute("UPDATE planning SET plan_at = NULL")
    await a.node.termination.finish_tasks()
    assert [row[0] for row in await a.rows("SELECT state::text FROM task")] == ["active"]
    for site in sites:
        await site.execute("UPDATE run SET state = 'finished' WHERE id = $1", run)
    await a.node.termination.finish_tasks()
    await world.settle()
    for site in sites:
        assert [row[0] for row in await site.rows("SELECT state::text FROM task")] == ["finished"]
    assert await _everywhere(world, run) == ["finished"] * 3


# -- displaced runs --------------------------------------------------------------------------------


async def _displace(site: Site) -> None:
    """Displace the site's run by one of higher priority that the site leads itself."""
    task = introduction([site], priority=9)
    await site.keep(task, site)
    request = hold_request(task, [HOUR], displacing=True)
    exchange = await hold_everywhere(site, [site], request)
    await site.node.time_line.commit(exchange, commit_request(request))


async def _planning(site: Site, task: Introduction) -> tuple[int | None, int | None]:
    rows = await site.rows(
        "SELECT plan_at, next_run_at FROM planning WHERE task_id = $1", task.task
    )
    return rows[0][0], rows[0][1]


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_displaced_run_is_freed_everywhere_and_placed_again(
    world: World, place: int
) -> None:
    """A run displaced on any node is displaced on all, and its slot waits."""
    a, _, _ = sites = await world.three()
    task = introduction(sites)
    [run] = await book_everywhere(task, a, sites, [HOUR])
    await a.execute("UPDATE planning SET plan_at = NULL, next_run_at = NULL")
    await _displace(sites[place])
    await world.settle()
    assert await _everywhere(world, run) == ["displaced"] * 3
    following = run_id(TaskId(task.task), HOUR, 2)
    assert await a.state(following) == "waiting"
    why = "of higher priority" if place == 0 else "that the owner of the host puts first"
    assert f"displaced by a run {why}" in (await a.reason(following) or "")
    assert await _planning(a, task) == (START, HOUR)


async def test_a_displacement_heard_twice_makes_one_attempt(world: World) -> None:
    """A repeated message of a displacement leads to only one next attempt."""
    a, b, _ = sites = await world.three()
    task = introduction(sites)
    [run] = await book_everywhere(task, a, sites, [HOUR])
    end = RunEnd(run=run, state="displaced", reason="gave way")
    for _ in range(3):
        await a.node.termination.apply_run_end(b.identity, end)
    await world.settle()
    again = run_id(TaskId(task.task), HOUR, 2)
    assert await a.states() == {run: "displaced", again: "waiting"}


async def test_a_run_displaced_elsewhere_while_it_runs_is_stopped(world: World) -> None:
    """A run that has begun when it is displaced elsewhere is cancelled and not run again."""
    a, b, c = sites = await world.three()
    task = introduction(sites)
    [run] = await book_everywhere(task, a, sites, [HOUR])
    for site in (a, c):
        await _begin(site, run)
    await b.execute("UPDATE run SET state = 'displaced', reason = 'gave way'")
    end = RunEnd(run=run, state="displaced", reason="gave way")
    await a.node.termination.apply_run_end(b.identity, end)
    await world.settle()
    assert await _everywhere(world, run) == ["cancelled", "displaced", "cancelled"]
    assert await a.state(run_id(TaskId(task.task), HOUR, 2)) is None


@pytest.mark.parametrize("begun", [True, False])
async def test_a_run_lost_after_its_start_is_not_run_again(
    world: World,
    begun: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A run lost after its start on some node, or possibly so, is not run again."""
    a, b, c = sites = await world.three()
    task = introduction(sites)
    [run] = await book_everywhere(task, a, sites, [HOUR])
    world.clock.advance(HOUR - world.clock.now())
    for site in (a, c) if begun else (c,):
        await _begin(site, run)
    await b.execute("DELETE FROM run")
    await a.node.termination.lose_run(run, "b had dropped the hold before the commit came")
    await world.settle()
    assert await a.state(run) == ("cancelled" if begun else "displaced")
    assert await c.state(run) == "cancelled"
    assert (await a.reason(run) or "").endswith("; its time had begun, so it is not placed again")
    assert await a.state(run_id(TaskId(task.task), HOUR, 2)) is None


async def test_a_run_a_participant_lost_is_placed_again(world: World) -> None:
    """A run that a participant lost is displaced everywhere and placed again once."""
    a, _, _ = sites = await world.three()
    task = introduction(sites)
    [run] = await book_everywhere(task, a, sites, [HOUR])
    for _ in range(2):
        await a.node.termination.lose_run(run, "b does not have it any more")
    await world.settle()
    assert await _everywhere(world, run) == ["displaced"] * 3
    assert await a.state(run_id(TaskId(task.task), HOUR, 2)) == "waiting"


@pytest.mark.nightly
async def test_messages_and_cancels_at_once_leave_no_dead_lock(world: World) -> None:
    """Concurrent cancellations of a task and its runs, and displacements, cause no deadlock."""
    a, b = await world.two()
    for number in range(5):
        task = introduction([a, b])
        start = HOUR + number * 2 * times.HOUR
        ids = await book_everywhere(task, a, [a, b], [start + n * DURATION for n in range(6)])
        ends = [RunEnd(run=run, state="displaced", reason="gave way") for run in ids]
        await asyncio.gather(
            *(a.node.termination.apply_run_end(b.identity, end) for end in ends),
            *(a.node.termination.cancel_run(run) for run in reversed(ids)),
            a.node.termination.cancel_task(task.task),
        )
        ended_states = {str(RunState.CANCELLED), str(RunState.DISPLACED)}
        rows = await a.rows("SELECT state::text FROM run WHERE task_id = $1", task.task)
        assert {row[0] for row in rows} <= ended_states
