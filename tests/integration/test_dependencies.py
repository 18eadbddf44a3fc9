"""Tasks that follow others: each run of the one leads to a run of the other, whatever happens."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from lead.model.reasons import times_follow_runs
from node.model import times
from node.model.errors import InvalidDocument
from node.model.reasons import asked_by_run
from node.model.runstate import RunState
from node.model.wire.plans import Outcome
from node.model.wire.tasks import Dependency, TaskDocument, TaskPatch
from node.store import dependencies, runs
from node.store.database import Connection
from node.store.runs import KeptPart
from tests.support.backups import back_up, restore
from tests.support.clocks import START
from tests.support.pool_worlds import idle, pooled
from tests.support.previews import plan
from tests.support.worlds import ON_ONE_LOOP, Site, World, book_everywhere, introduction

pytestmark = ON_ONE_LOOP

MINUTE = times.MINUTE
TWICE = {"repeat": "PT10M", "max_runs": 2}


def _document(*names: str, **fields: Any) -> TaskDocument:
    duration = fields.pop("duration", "PT1M")
    spec = {"duration": duration, "class": "exclusive", "participants": list(names)}
    return TaskDocument.model_validate({"test": {"type": "idle", "spec": spec}, **fields})


async def _create(lead: Site, *names: str, **fields: Any) -> UUID:
    task, _ = await lead.node.admission.create(_document(*names, **fields), None)
    return task


async def _pair(
    world: World, *, schedule: Any = None, **after: Any
) -> tuple[Site, Site, UUID, UUID]:
    """Create a task of a and b, and one of both that follows it; return the sites and tasks."""
    a, b = await world.two()
    first = await _create(a, "a", "b", schedule=TWICE if schedule is None else schedule)
    then = await _create(a, "a", "b", after={"task": str(first), **after})
    await a.plan()
    await world.settle()
    await _finish(a)
    return a, b, first, then


async def _finish(site: Site) -> None:
    """End what is over, as housekeeping does."""
    await site.node.termination.finish_tasks()
    await site.node.termination.finish_followers()


async def _runs(site: Site, task: UUID) -> list[Any]:
    return await site.rows(
        "SELECT id, slot, attempt, state::text, reason, starts_at, ends_at FROM run"
        " WHERE task_id = $1 ORDER BY slot, attempt",
        task,
    )


async def _states(site: Site, task: UUID) -> list[str]:
    return [row["state"] for row in await _runs(site, task)]


async def _task(site: Site, task: UUID) -> tuple[str, str | None]:
    [row] = await site.rows("SELECT state::text, reason FROM task WHERE id = $1", task)
    return row[0], row[1]


async def _measure(world: World, task: UUID, reason: str | None = None) -> Any:
    """Let the first booked run of a task take place on all nodes; return its row at the lead."""
    lead = world.sites[0]
    run = next(row for row in await _runs(lead, task) if row["state"] == "booked")
    if world.clock.now() < run["starts_at"]:
        world.clock.move_to(run["starts_at"])
    for site in world.sites:
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run["id"], site.clock.now())
    world.clock.move_to(run["ends_at"] - times.SECOND)
    for place, site in enumerate(world.sites):
        result = {"slept_ms": 1.0} if reason is None else None
        part = KeptPart(place, site.name, result, reason, run["starts_at"], site.clock.now())
        await site.node.collector.keep_own(run["id"], part)
    await world.settle()
    return run


async def test_a_run_leads_to_a_run_of_the_task_that_follows(world: World) -> None:
    """After each run of the first task the second one runs once, as soon as there is time."""
    a, b, first, then = await _pair(world)
    assert await _states(a, then) == []
    for number in (1, 2):
        followed = await _measure(world, first)
        await a.plan()
        await world.settle()
        following = (await _runs(a, then))[-1]
        assert (following["state"], following["slot"]) == ("booked", followed["ends_at"])
        assert followed["ends_at"] <= following["starts_at"] <= followed["ends_at"] + 30 * MINUTE
        assert (await _runs(b, then))[-1]["state"] == "booked"
        await _measure(world, then)
        assert await _states(a, then) == ["finished"] * number


async def test_a_task_that_follows_ends_with_the_other(world: World) -> None:
    """The following task finishes after the followed one, once all runs have been followed."""
    a, b, first, then = await _pair(world, schedule={})
    await _measure(world, first)
    await _finish(a)
    assert (await _task(a, first))[0] == "finished"
    await _finish(a)
    assert (await _task(a, then))[0] == "active"
    await a.plan()
    await _measure(world, then)
    await _finish(a)
    await world.settle()
    assert await _task(a, then) == ("finished", f"task {first}, which it follows, is finished")
    assert (await _task(b, then))[0] == "finished"


async def test_a_task_that_follows_a_cancelled_one_is_cancelled(world: World) -> None:
    """All that follows a cancelled task is cancelled at once, everywhere, and says why."""
    a, b, first, then = await _pair(world)
    last = await _create(a, "a", "b", after={"task": str(then)})
    await a.plan()
    await world.settle()
    await a.node.termination.cancel_task(first)
    await world.settle()
    reason = f"task {first}, which it follows, is cancelled: cancelled on a"
    assert await _task(a, then) == ("cancelled", reason)
    assert await _task(b, then) == ("cancelled", reason)
    reason = f"task {then}, which it follows, is cancelled: {reason}"
    assert await _task(a, last) == await _task(b, last) == ("cancelled", reason)


async def test_what_is_due_after_a_cancelled_task_still_runs(world: World) -> None:
    """A run whose turn had come before the followed task was cancelled takes place."""
    a, _, first, then = await _pair(world)
    await _measure(world, first)
    await a.node.termination.cancel_task(first)
    await a.plan()
    await _finish(a)
    await _measure(world, then)
    assert await _states(a, then) == ["finished"]


async def test_a_failed_run_is_not_followed(world: World) -> None:
    """After a run that failed the following run is cancelled from the start, with the reason."""
    a, _, first, then = await _pair(world)
    run = await _measure(world, first, "no sleep")
    [skipped] = await _runs(a, then)
    assert skipped["state"] == "cancelled"
    assert skipped["reason"].startswith(
        f"run {run['id']} of task {first} is failed, and this task follows runs that succeed"
    )
    sentences = await a.rows("SELECT sentence FROM decision WHERE task_id = $1", then)
    assert [row[0] for row in sentences] == [skipped["reason"]]


async def test_a_failed_run_is_followed_if_wanted(world: World) -> None:
    """With the outcome "ended" a run that failed is followed like any other."""
    a, _, first, then = await _pair(world, outcome="ended")
    await _measure(world, first, "no sleep")
    await a.plan()
    assert await _states(a, then) == ["booked"]


async def test_a_late_part_makes_up_for_a_failure(world: World) -> None:
    """If a run that failed succeeds by a late part, the run that was cancelled is tried again."""
    a, b, first, then = await _pair(world)
    [run, *_] = await _runs(a, first)
    world.clock.move_to(run["starts_at"])
    for site in (a, b):
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run["id"], site.clock.now())
    world.cut.add(frozenset("ab"))
    for place, site in enumerate((a, b)):
        part = KeptPart(place, site.name, {"slept_ms": 1.0}, None, run["starts_at"], START + MINUTE)
        await site.node.collector.keep_own(run["id"], part)
    world.clock.move_to(run["ends_at"] + MINUTE)
    await a.node.collector.give_up(a.clock.now())
    assert await _states(a, then) == ["cancelled"]
    world.cut.clear()
    world.clock.advance(MINUTE)
    await world.settle()
    assert (await _runs(a, first))[0]["state"] == "finished"
    await a.plan()
    assert await _states(a, then) == ["cancelled", "booked"]


async def test_a_missed_run_is_not_followed(world: World) -> None:
    """A run that never began leads to no run, also for those that follow every outcome."""
    a, _, first, then = await _pair(world, outcome="ended")
    [run, *_] = await _runs(a, first)
    part = KeptPart(0, "a", None, "the node was down", None, None)
    await a.node.collector.keep_own(run["id"], part, RunState.MISSED)
    [skipped] = await _runs(a, then)
    assert (skipped["state"], "is missed" in skipped["reason"]) == ("cancelled", True)


async def test_a_cancelled_run_is_not_followed(world: World) -> None:
    """A single run that a person cancels is not followed; the next one is."""
    a, _, first, then = await _pair(world)
    [run, *_] = await _runs(a, first)
    await a.node.termination.cancel_run(run["id"])
    assert await _states(a, then) == ["cancelled"]
    await world.settle()
    await _measure(world, first)
    await a.plan()
    assert await _states(a, then) == ["cancelled", "booked"]


async def test_a_run_without_a_time_is_not_followed(world: World) -> None:
    """A run whose window ends before it found time is told of in the task that follows."""
    a, _, first, then = await _pair(world, schedule={"start": "P2D", "slip": "PT1M"})
    world.cut.add(frozenset("ab"))
    world.clock.move_to(START + 3 * times.DAY)
    await a.plan()
    assert await _states(a, first) == ["unplaced"]
    assert await _states(a, then) == ["cancelled"]


async def test_a_following_run_that_finds_no_time_says_so(world: World) -> None:
    """If its participants have no time within the given time, the following run is given up."""
    a, _, first, then = await _pair(world, within="PT2M")
    await _measure(world, first)
    world.cut.add(frozenset("ab"))
    await world.pass_time(5 * MINUTE, 20 * times.SECOND)
    [run, *_] = await _runs(a, then)
    assert run["state"] == "unplaced"
    assert "b" in run["reason"]


async def test_a_lead_that_dies_after_the_run_goes_on_with_what_follows(world: World) -> None:
    """The following run is stored with the end of the followed one, so a new process books it."""
    a, _, first, then = await _pair(world)
    await _measure(world, first)
    assert await _states(a, then) == ["waiting"]
    await world.restart(a)
    await a.plan()
    assert await _states(a, then) == ["booked"]


@pytest.mark.nightly
async def test_a_restored_lead_does_not_run_a_following_run_twice(world: World) -> None:
    """A lead restored to before the followed run ended gives the following run the same id."""
    a, b, first, then = await _pair(world)
    backup = await back_up(a)
    await _measure(world, first)
    await a.plan()
    await _measure(world, then)
    [before] = await _runs(b, then)
    await restore(world, a, backup)
    await world.pass_time(5 * MINUTE, 30 * times.SECOND)
    assert [row["id"] for row in await _runs(b, then)][:1] == [before["id"]]
    assert [row["state"] for row in await _runs(b, then)] == ["finished"]


async def test_a_paused_task_follows_nothing(world: World) -> None:
    """Runs that end while the task is paused are not made up for, and each says so."""
    a, _, first, then = await _pair(world)
    await a.node.editing.pause(then)
    await _measure(world, first)
    [skipped] = await _runs(a, then)
    assert skipped["state"] == "cancelled"
    assert skipped["reason"].startswith("the task was paused when run")
    await a.node.editing.resume(then)
    await _measure(world, first)
    await a.plan()
    assert await _states(a, then) == ["cancelled", "booked"]


@pytest.mark.parametrize("changed", ["pause", "edit"])
@pytest.mark.nightly
async def test_a_following_run_that_was_freed_is_placed_again(world: World, changed: str) -> None:
    """A run that a pause or an edit frees is placed again, if it can still start in time."""
    a, _, first, then = await _pair(world)
    await _measure(world, first)
    if changed == "pause":
        await a.node.editing.pause(then)
        await a.node.editing.resume(then)
    else:
        patch = TaskPatch.model_validate({"after": {"within": "PT2H"}})
        await a.node.editing.edit(then, patch)
    await world.pass_time(10 * times.SECOND)
    assert await _states(a, then) == ["cancelled", "booked"]


async def test_a_plan_follows_what_is_booked(world: World) -> None:
    """A plan places runs after the booked ends, says that these are not known, and is right."""
    a, b = await world.two()
    first = await _create(a, "a", "b", schedule=TWICE)
    document = _document("a", "b", after={"task": str(first), "within": "PT20M"})
    posted = document.model_dump(mode="json", exclude_unset=True)
    nothing = await plan(world, a, posted)
    assert (nothing.outcome, nothing.asked) == (Outcome.LATER, 0)
    assert "none of these is booked within the horizon now" in nothing.sentence
    await a.plan()
    await world.settle()
    ends = [row["ends_at"] for row in await _runs(a, first)]
    planned = await plan(world, a, posted)
    assert [start.slot for start in planned.starts] == ends
    assert planned.sentence.startswith(f"it follows task {first}, so that its times are known only")
    assert "if these end as they are booked now: 2 of 2 runs would be booked" in planned.sentence
    then, _ = await a.node.admission.create(document, None)
    await _measure(world, first)
    await a.plan()
    late = (await _runs(a, then))[0]["starts_at"] - planned.starts[0].starts_at
    assert 0 <= late <= times.SECOND  # a run is not booked less than a margin ahead
    await book_everywhere(
        introduction([a, b], duration=2 * times.HOUR), a, [a, b], [world.clock.now() + 11 * MINUTE]
    )
    full = await plan(world, a, posted)
    assert full.outcome is Outcome.NO_TIME
    assert not full.alternatives
    assert {each.reason for each in full.no_alternatives} == {times_follow_runs()}


async def test_tasks_may_follow_in_a_chain(world: World) -> None:
    """A task may follow one that follows another: the runs come one after the other."""
    a, _, first, then = await _pair(world)
    last = await _create(a, "a", "b", after={"task": str(then)})
    for task in (first, then, last):
        await _measure(world, task)
        await a.plan()
        await world.settle()
    assert await _states(a, last) == ["finished"]


async def test_a_cycle_is_refused_with_its_path(world: World) -> None:
    """An edit by which a task would follow itself is refused, and shows how."""
    a, _, first, then = await _pair(world, schedule={})
    last = await _create(a, "a", "b", after={"task": str(then)})
    for task, path in ((then, [then, last, then]), (first, [first, last, then, first])):
        patch = TaskPatch.model_validate({"after": {"task": str(last)}})
        with pytest.raises(InvalidDocument) as refused:
            await a.node.editing.edit(task, patch)
        [fault] = refused.value.faults
        assert fault.pointer == "/after/task"
        assert " → ".join(map(str, path)) in fault.detail


async def test_two_edits_at_once_make_no_cycle(world: World) -> None:
    """Two edits that only together make a cycle cannot both be made: one is refused."""
    a, _, first, one = await _pair(world)
    other = await _create(a, "a", "b", after={"task": str(first)})
    answers = await asyncio.gather(
        *(
            a.node.editing.edit(task, TaskPatch.model_validate({"after": {"task": str(followed)}}))
            for task, followed in ((one, other), (other, one))
        ),
        return_exceptions=True,
    )
    [refused] = [answer for answer in answers if answer is not None]
    assert isinstance(refused, InvalidDocument)
    assert "would follow itself" in refused.faults[0].detail


async def test_a_run_displaced_too_late_is_not_followed(world: World) -> None:
    """A run that lost its time after it began is not placed again, so it leads to no run."""
    a, _, first, then = await _pair(world, outcome="ended")
    [run, *_] = await _runs(a, first)
    world.clock.move_to(run["starts_at"])
    async with a.database.transaction() as connection:
        assert await runs.begin(connection, run["id"], world.clock.now())
    await a.node.termination.lose_run(run["id"], "the node was taken away")
    [skipped] = await _runs(a, then)
    assert skipped["state"] == "cancelled"
    assert "taken away" in skipped["reason"]


async def test_a_displaced_run_is_followed_when_it_is_placed_again(world: World) -> None:
    """A run that lost its time before it began leads to a run after its next attempt."""
    a, _, first, then = await _pair(world, schedule={"start": "PT1H"})
    [run] = await _runs(a, first)
    await a.node.termination.lose_run(run["id"], "the node was taken away")
    assert await _states(a, then) == []
    await a.plan()
    await world.settle()
    again = await _measure(world, first)
    assert again["attempt"] == 2
    assert await _states(a, then) == ["waiting"]


async def test_what_cannot_be_followed_is_refused(world: World) -> None:
    """Unknown tasks, tasks of other leads, and tasks that are over cannot be followed."""
    a, b = await world.two()
    elsewhere = await _create(b, "a", "b")
    over = await _create(a, "a", "b")
    await a.node.termination.cancel_task(over)
    for task, words in (
        (uuid4(), "there is no task"),
        (elsewhere, "is led by another node"),
        (over, "has ended (cancelled)"),
    ):
        with pytest.raises(InvalidDocument, match="task") as refused:
            await _create(a, "a", "b", after={"task": str(task)})
        [fault] = refused.value.faults
        assert fault.pointer == "/after/task"
        assert words in fault.detail


async def test_pool_tasks_neither_follow_nor_are_followed(world: World) -> None:
    """A pool task, its seats' tasks, and a pool task with "after" are refused with a reason."""
    pool = await pooled(world, [{}, {}])
    lead = pool.lead
    whole = await pool.create(1)
    seat = (await lead.rows("SELECT id FROM task WHERE parent = $1", whole))[0][0]
    first = await _create(lead, "n1")
    for document, pointer in (
        (_document("n1", after={"task": str(whole)}), "/after/task"),
        (_document("n1", after={"task": str(seat)}), "/after/task"),
        (idle(1).model_copy(update={"after": Dependency(task=first)}), "/after"),
    ):
        with pytest.raises(InvalidDocument) as refused:
            await lead.node.admission.create(document, None)
        [fault] = refused.value.faults
        assert fault.pointer == pointer
        assert "pool" in fault.detail


async def test_a_task_that_follows_has_no_times_of_its_own(world: World) -> None:
    """Each field of a schedule beside "after" is refused, and says what to write instead."""
    a, _, first, _ = await _pair(world)
    schedule = {"repeat": "PT1H", "slip": "PT1M", "max_runs": 3}
    with pytest.raises(InvalidDocument) as refused:
        await _create(a, "a", "b", after={"task": str(first)}, schedule=schedule)
    pointers = [fault.pointer for fault in refused.value.faults]
    assert pointers == ["/schedule/repeat", "/schedule/max_runs", "/schedule/slip"]


async def test_a_task_of_its_own_times_becomes_one_that_follows(world: World) -> None:
    """An edit makes a task follow another one, and gives it times of its own again."""
    a, b, first, _ = await _pair(world)
    task = await _create(a, "a", "b", schedule={"start": "PT1H", "repeat": "PT1H", "max_runs": 3})
    await a.plan()
    await world.settle()
    patch = {
        "schedule": dict.fromkeys(("start", "repeat", "max_runs")),
        "after": {"task": str(first)},
    }
    await a.node.editing.edit(task, TaskPatch.model_validate(patch))
    await world.pass_time(4 * times.SECOND)
    assert set(await _states(b, task)) == {"cancelled"}
    assert (await _task(a, task))[0] == "active"
    back = {"schedule": {"repeat": "PT1H", "max_runs": 3}, "after": None}
    await a.node.editing.edit(task, TaskPatch.model_validate(back))
    await world.pass_time(4 * times.SECOND)
    assert (await _states(b, task)).count("booked") == 3


class Asked:
    """A connection whose statements are kept."""

    def __init__(self, connection: Connection) -> None:
        """Pass everything on to a connection."""
        self._connection = connection
        self.statements: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Return a method of the connection, which keeps the statement that it is given."""
        method = getattr(self._connection, name)

        def keep(statement: str, *arguments: Any) -> Any:
            self.statements.append(statement)
            return method(statement, *arguments)

        return keep


STORM = 2_000
FAILURES = {"when": "failed or missed", "within": "PT30M"}


async def test_a_failure_is_measured_while_it_is_there(world: World) -> None:
    """A run that fails asks for a run at once; a good one leaves nothing, not even a reason."""
    a, b, first, then = await _pair(world, **FAILURES)
    failed = await _measure(world, first, "no sleep")
    [waiting] = await _runs(a, then)
    assert (waiting["state"], waiting["slot"]) == ("waiting", failed["ends_at"])
    assert waiting["reason"] == asked_by_run(failed["id"], first, "it is failed")
    await a.plan()
    await world.settle()
    [booked] = await _runs(a, then)
    assert booked["state"] == "booked"
    assert (await _runs(b, then))[0]["state"] == "booked"
    async with a.database.connection() as connection:
        assert await runs.find_askers(connection, [booked["id"]], None) == [
            (booked["id"], failed["id"])
        ]
        [shown] = await runs.find_follow_ups(connection, [failed["id"]], None)
    assert (shown["run_id"], shown["test"]) == (booked["id"], "idle")
    await _measure(world, then)
    await _measure(world, first)
    assert await _states(a, then) == ["finished"]


async def test_only_the_lead_is_told_the_condition(world: World) -> None:
    """Participants, also those of earlier versions, are asked for the runs alone."""
    _, b, _, then = await _pair(world, **FAILURES)
    [row] = await b.rows("SELECT schedule -> 'after' AS after FROM task WHERE id = $1", then)
    assert set(row["after"]) == {"task", "outcome", "within"}


@pytest.mark.nightly
async def test_a_storm_of_failures_is_measured_once_at_a_cost_of_one_query(world: World) -> None:
    """A storm of bad runs that end at once leads to one run, and one query finds it."""
    a, _, first, then = await _pair(world, schedule={"repeat": "PT1M", "max_runs": 1}, **FAILURES)
    await a.rows(
        "INSERT INTO run (id, task_id, slot, attempt, participant, scheduling_class, priority,"
        " starts_at, ends_at, state, reason, created_at, changed_at)"
        " SELECT gen_random_uuid(), $1, at, 1, 0, 'background', 0, at, at + interval '1 s',"
        " 'failed', 'no sleep', at, at"
        " FROM generate_series($2::timestamptz, $2 + $3::interval, interval '1 s') AS at",
        first,
        START - times.DAY,
        (STORM - 1) * times.SECOND,
    )
    ended = [row["id"] for row in await _runs(a, first) if row["state"] == "failed"]
    assert len(ended) == STORM
    async with a.database.transaction() as connection:
        asked = Asked(connection)
        await dependencies.create_followers(cast("Connection", asked), ended, a.clock.now())
    [waiting] = await _runs(a, then)
    assert waiting["slot"] == START - times.DAY + STORM * times.SECOND
    assert len([sql for sql in asked.statements if "judgement_of" in sql]) == 1
    assert len(asked.statements) < 10
    async with a.database.transaction() as connection:
        await dependencies.create_followers(connection, ended, a.clock.now())
    assert await _states(a, then) == ["waiting"]


async def test_at_most_so_many_are_measured_an_hour(world: World) -> None:
    """One task is asked at most per_hour times an hour, and later again."""
    schedule = {"repeat": "PT10M", "max_runs": 9}
    a, _, first, then = await _pair(world, schedule=schedule, per_hour=2, **FAILURES)
    for _ in range(5):
        await _measure(world, first, "no sleep")
        await a.plan()
        if "booked" in await _states(a, then):
            await _measure(world, then)
    assert await _states(a, then) == ["finished"] * 2
    for _ in range(4):
        await _measure(world, first, "no sleep")
    assert len(await _runs(a, then)) == 3


async def test_a_diagnosis_that_finds_no_time_says_why(world: World) -> None:
    """A run that was asked for and finds no time is unplaced, with the reason."""
    a, b, first, then = await _pair(world, when="failed", within="PT1M")
    [run, *_] = await _runs(a, first)
    busy = {"start": times.format_instant(run["ends_at"] + 2 * times.SECOND), "slip": "PT0S"}
    await _create(b, "b", duration="PT9M", schedule=busy)
    await b.plan()
    await _measure(world, first, "no sleep")
    await a.plan()
    assert await _states(a, then) == ["waiting"]
    world.clock.advance(2 * MINUTE)
    await a.plan()
    [unplaced] = await _runs(a, then)
    assert unplaced["state"] == "unplaced"
    assert unplaced["reason"].startswith("b: ")


async def test_a_condition_is_checked_when_it_is_written(world: World) -> None:
    """Unknown names are refused with what was meant, at creation and by an edit."""
    a, _, first, then = await _pair(world)
    for condition, words in (
        ("idle > 5", "did you mean idle_ms?"),
        ("bad", "has no thresholds"),
        ("alert loss", "it has no thresholds"),
    ):
        after = {"task": str(first), "when": condition}
        with pytest.raises(InvalidDocument) as refused:
            await _create(a, "a", "b", after=after)
        with pytest.raises(InvalidDocument) as edit:
            await a.node.editing.edit(then, TaskPatch.model_validate({"after": after}))
        for each in (refused, edit):
            [fault] = each.value.faults
            assert fault.pointer == "/after/when"
            assert words in fault.detail


async def test_a_condition_is_edited(world: World) -> None:
    """A condition is added to a task that follows another one, and taken away again."""
    a, _, first, then = await _pair(world)
    patch = {"after": {"when": "failed", "per_hour": 1}}
    await a.node.editing.edit(then, TaskPatch.model_validate(patch))
    await _measure(world, first)
    assert await _states(a, then) == []
    patch = {"after": {"when": None, "per_hour": None}}
    await a.node.editing.edit(then, TaskPatch.model_validate(patch))
    await _measure(world, first)
    assert await _states(a, then) == ["waiting"]
