"""Lead and participant compare their future runs and repair the differences."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from lead.assembly.with_node import reconciliation_dependencies
from lead.exchange.reconciliation import RECONCILIATION_MIN_AGE, STARTS_SOON, Reconciler
from lead.model.reasons import run_missing_there, run_not_led
from node.model import times
from node.model.ids import TaskId, run_id
from node.model.wire.participants import DIGESTS_MAX, Introduction
from node.model.wire.tasks import Schedule, TaskPatch
from node.store import outbox
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.worlds import DURATION, ON_ONE_LOOP, Call, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


async def _compare(site: Site, other: Site, together: int = DIGESTS_MAX) -> int:
    """Compare what a site leads with another one; return how many differences were found."""
    node = site.node
    dependencies = reconciliation_dependencies(node)
    reconciler = Reconciler(site.database, site.clock, dependencies, times.DAY)
    return (await reconciler.run_once(node.peer(other.identity), together)).found


async def _planned(world: World) -> tuple[Site, Site, Introduction, list[UUID]]:
    a, b = await world.two()
    schedule = Schedule(start=HOUR, repeat=times.HOUR, until=HOUR + 3 * times.HOUR)
    task = introduction([a, b], schedule=schedule)
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    world.clock.advance(5 * times.MINUTE)
    return a, b, task, [run_id(TaskId(task.task), HOUR + n * times.HOUR, 1) for n in range(3)]


async def test_equal_sides_change_nothing(world: World) -> None:
    """A comparison repairs nothing if both nodes have the same runs."""
    a, b, _, runs = await _planned(world)
    assert await _compare(a, b) == 0
    assert await b.states() == dict.fromkeys(runs, "scheduled")


async def test_a_node_that_does_not_answer_delays_no_comparison(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten others are compared at once, however many have swallowed the question."""
    a, _ = await world.two()
    reconciler = a.lead.reconciler
    others = [a.node.peer(a.identity)] * 25
    monkeypatch.setattr(reconciler, "_others", lambda: others)
    asked, all_asked, most = 0, asyncio.Event(), 0

    async def run_once(_: object) -> None:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        if asked == 10:
            all_asked.set()
        await all_asked.wait()
        asked -= 1

    monkeypatch.setattr(reconciler, "run_once", run_once)
    async with asyncio.timeout(PATIENCE_S):
        await reconciler.compare_all()
    assert (asked, most) == (0, 10)


async def test_a_run_only_the_lead_has_is_placed_again(world: World) -> None:
    """A run that only the lead has is freed everywhere and placed again."""
    a, b, task, runs = await _planned(world)
    await b.execute("DELETE FROM run WHERE id = $1", runs[1])
    assert await _compare(a, b) == 1
    await world.pass_time(3 * times.SECOND)
    assert await a.state(runs[1]) == "displaced"
    assert await a.reason(runs[1]) == run_missing_there("b")
    again = run_id(TaskId(task.task), HOUR + times.HOUR, 2)
    assert (await a.state(again), await b.state(again)) == ("scheduled", "scheduled")


async def test_a_run_only_the_participant_has_is_ended(world: World) -> None:
    """A run that only the participant has is ended there."""
    a, b, _, runs = await _planned(world)
    await a.execute("DELETE FROM run WHERE id = $1", runs[2])
    assert await _compare(a, b) == 1
    await world.settle()
    assert await b.state(runs[2]) == "displaced"
    assert await b.reason(runs[2]) == run_not_led()


async def test_a_participant_with_a_new_database_gets_all_again(world: World) -> None:
    """A participant that lost its database gets all tasks and runs again."""
    a, b, task, _ = await _planned(world)
    await b.execute("DELETE FROM task")
    assert await _compare(a, b) == 4  # the task and its three runs
    await world.pass_time(8 * times.SECOND)
    again = [run_id(TaskId(task.task), HOUR + n * times.HOUR, 2) for n in range(3)]
    assert await b.states() == dict.fromkeys(again, "scheduled")


async def test_a_paused_task_is_compared(world: World) -> None:
    """A participant that did not hear that a task was paused is told, and drops its runs."""
    a, b, task, runs = await _planned(world)
    await a.node.editing.pause(task.task)
    await a.execute("DELETE FROM outbox")
    assert await b.states() == dict.fromkeys(runs, "scheduled")
    world.clock.advance(5 * times.MINUTE)
    assert await _compare(a, b) == 4
    await world.settle()
    assert set((await b.states()).values()) == {"displaced"}
    assert [tuple(row) for row in await b.rows("SELECT state::text, revision FROM task")] == [
        ("paused", 2)
    ]
    assert await _compare(a, b) == 0


async def test_a_participant_that_missed_an_edit_is_told_again(world: World) -> None:
    """A participant that has an older revision of a task is told the newer one."""
    a, b, task, _ = await _planned(world)
    await a.node.editing.edit(task.task, TaskPatch.model_validate({"priority": 7}))
    assert await _compare(a, b) == 0  # the message about it is on its way
    await a.execute("DELETE FROM outbox")
    assert await _compare(a, b) == 1
    await world.settle()
    assert [tuple(row) for row in await b.rows("SELECT revision, priority FROM task")] == [(2, 7)]
    assert await _compare(a, b) == 0


async def test_a_task_with_other_terms_is_told_again(world: World) -> None:
    """Both have the same revision and runs, but the participant would measure otherwise."""
    a, b, task, runs = await _planned(world)
    spec = {**task.spec, "duration": "PT2M"}
    await b.execute("UPDATE task SET spec = $1", spec)
    assert await _compare(a, b) == 4  # the task, and its runs, which were booked for the other spec
    await world.pass_time(3 * times.SECOND)
    for site in (a, b):
        assert [tuple(row) for row in await site.rows("SELECT revision, spec FROM task")] == [
            (2, task.spec)
        ]
        states = await site.states()
        assert [states[run] for run in runs] == ["displaced"] * 3
        assert sorted(states.values()) == ["displaced"] * 3 + ["scheduled"] * 3
    world.clock.advance(3 * times.MINUTE)
    assert await _compare(a, b) == 0


async def test_what_only_the_lead_knows_of_a_task_is_no_difference(world: World) -> None:
    """The answers to an introduction, and the tool chosen by them, are not told to participants."""
    a, b = await world.two()
    task = introduction([a, b], schedule=Schedule(start=HOUR), accepted=None)
    await a.keep(task, a)
    await a.plan()
    stored = [str(await site.rows("SELECT participants, tool FROM task")) for site in (a, b)]
    assert stored[0] != stored[1]
    world.clock.advance(5 * times.MINUTE)
    assert await _compare(a, b) == 0


async def test_the_runs_of_a_fresh_decision_are_left_alone(world: World) -> None:
    """For two minutes its message may be on its way; the task is compared meanwhile."""
    a, b, _, runs = await _planned(world)
    await a.execute("UPDATE negotiation SET decided_at = $1", world.clock.now())
    [exchange] = await a.rows("SELECT id FROM negotiation")
    async with a.database.transaction() as connection:
        body = {"exchange": str(exchange[0])}
        later = times.HOUR
        await outbox.post(
            connection, [b.identity], outbox.MessageKind.COMMIT, body, world.clock.now(), later
        )
    await b.execute("DELETE FROM run WHERE id = $1", runs[1])
    await b.execute("UPDATE task SET state = 'paused', paused_at = $1", world.clock.now())
    world.clock.advance(RECONCILIATION_MIN_AGE - 1)
    assert await _compare(a, b) == 1  # that it is paused
    await world.settle()
    assert await _compare(a, b) == 0
    world.clock.advance(1)
    assert await _compare(a, b) == 1
    assert await a.state(runs[1]) == "displaced"


async def test_what_was_acknowledged_a_moment_ago_is_compared(world: World) -> None:
    """A participant that loses a run right after it acknowledged it does not get away with it."""
    a, b, _, runs = await _planned(world)
    await a.execute("UPDATE negotiation SET decided_at = $1", world.clock.now())
    await b.execute("DELETE FROM run WHERE id = $1", runs[1])
    assert await _compare(a, b) == 1
    assert await a.state(runs[1]) == "displaced"


async def test_runs_that_start_soon_are_compared(world: World) -> None:
    """A run that only one side has does not begin there alone, though it starts in seconds."""
    a, b, _, runs = await _planned(world)
    await b.execute("DELETE FROM run WHERE id = $1", runs[0])
    [first] = await a.rows("SELECT starts_at FROM run WHERE id = $1", runs[0])
    world.clock.move_to(first[0] - STARTS_SOON - 1)
    assert await _compare(a, b) == 1
    assert await a.state(runs[0]) == "displaced"


async def test_what_is_being_negotiated_is_left_alone(world: World) -> None:
    """A comparison in the middle of an exchange repairs nothing."""
    a, b = await world.two()
    schedule = Schedule(start=HOUR, repeat=DURATION, until=HOUR + 4 * DURATION, slip=0)
    task = introduction([a, b], schedule=schedule)
    for site in (a, b):
        await site.keep(task, a)
    repaired = []

    async def compare(call: Call, phase: str) -> None:
        if call[2] in {"hold", "commit"}:
            watch, world.watch = world.watch, None
            repaired.append(await _compare(a, b))
            world.watch = watch

    world.watch = compare
    await a.plan()
    assert set(repaired) == {0}
    assert list((await b.states()).values()) == ["scheduled"] * 4


async def test_a_run_that_is_set_aside_is_not_missing(world: World) -> None:
    """A run that is set aside does not count as a difference."""
    a, b, _, runs = await _planned(world)
    for site, run in ((a, runs[1]), (b, runs[2])):
        await site.execute("UPDATE run SET state = 'set-aside' WHERE id = $1", run)
    assert await _compare(a, b) == 0


@pytest.mark.nightly
async def test_every_task_is_compared(world: World) -> None:
    """Tasks that do not fit in one message are compared in several."""
    a, b = await world.two()
    tasks = [introduction([a, b], schedule=Schedule(start=HOUR + n * times.HOUR)) for n in range(5)]
    for task in tasks:
        for site in (a, b):
            await site.keep(task, a)
    await a.plan()
    world.clock.advance(5 * times.MINUTE)
    await b.execute("DELETE FROM run")
    assert await _compare(a, b, together=2) == 5
    await world.pass_time(3 * times.SECOND)
    assert sorted((await b.states()).values()) == ["scheduled"] * 5


async def test_a_run_that_both_have_at_different_times_is_placed_again(world: World) -> None:
    """A run that starts at another time at the participant is freed everywhere and placed again."""
    a, b, task, runs = await _planned(world)
    await b.execute(
        "UPDATE run SET starts_at = starts_at - interval '20 minutes',"
        " ends_at = ends_at - interval '20 minutes' WHERE id = $1",
        runs[1],
    )
    assert await _compare(a, b) == 1
    await world.pass_time(3 * times.SECOND)
    earlier = times.to_the_second(HOUR + 40 * times.MINUTE)
    assert await a.reason(runs[1]) == f"b has it at another time, {earlier}"
    again = run_id(TaskId(task.task), HOUR + times.HOUR, 2)
    assert (await a.state(again), await b.state(again)) == ("scheduled", "scheduled")
    assert await b.state(runs[1]) == "cancelled"
