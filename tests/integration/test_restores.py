"""A node whose database was restored from a backup agrees with the others again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from lead.model.reasons import ended_there
from node.execution import process
from node.model import times
from node.model.errors import HostError
from node.model.ids import TaskId, run_id
from node.model.reasons import no_part_in_time, unknown_to_lead
from node.model.wire.participants import Introduction, IntroductionAnswer
from node.model.wire.tasks import Schedule, TaskDocument, TaskPatch
from node.store import runs
from node.store.database import PostgresDatabase
from node.store.nodes import KnownNode
from node.store.runs import KeptPart
from tests.conftest import NewDatabase
from tests.support.backups import back_up, restore
from tests.support.clocks import START
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
SLOTS = [HOUR + number * times.HOUR for number in range(3)]
SCHEDULE = Schedule(
    start=HOUR, repeat=times.HOUR, until=SLOTS[-1] + times.MINUTE, slip=30 * times.MINUTE
)


async def _starts(site: Site, task: UUID) -> dict[int, int]:
    """Return the starts of the runs of a task that are booked here, by slot."""
    rows = await site.rows(
        "SELECT slot, starts_at FROM run WHERE task_id = $1 AND state = 'booked' ORDER BY slot",
        task,
    )
    return {row[0]: row[1] for row in rows}


async def _generation(site: Site) -> tuple[UUID, Sequence[UUID]]:
    [row] = await site.rows("SELECT id FROM generation")
    return site.database.generation, row[0]


async def test_only_a_restored_database_gets_a_new_generation(world: World) -> None:
    """A database keeps its generation when it is opened again; a restored copy has another."""
    a = await world.site("a")
    backup = await back_up(a)
    before, stored = await _generation(a)
    assert before == stored
    await restore(world, a, backup)
    after, stored = await _generation(a)
    assert after == stored != before


@pytest.mark.nightly
async def test_a_new_database_is_not_taken_for_a_restored_one(new_database: NewDatabase) -> None:
    """Both are fresh, but only one that has been there for a while may have forgotten something."""
    dsn = await new_database(empty=True)
    new = PostgresDatabase(dsn)
    await new.open()
    assert (new.fresh, new.was_restored) == (True, False)
    async with new.connection() as connection:
        await connection.execute("UPDATE schema_version SET applied_at = now() - interval '1 hour'")
        await connection.execute("UPDATE generation SET place = 'elsewhere'")
    await new.check_mark()
    assert (new.fresh, new.was_restored) == (True, True)
    await new.close()


@pytest.mark.nightly
async def test_a_database_of_an_ordinary_account_has_a_generation(
    new_database: NewDatabase,
) -> None:
    """An account without any privilege on the server can find out where its database is."""
    dsn = await new_database(empty=True)
    owner = PostgresDatabase(dsn)
    await owner.open()
    async with owner.connection() as connection:
        await connection.execute("SET ROLE parley_reader")
        place = await connection.fetchval("SELECT system_identifier FROM pg_control_system()")
    await owner.close()
    assert place


@pytest.mark.nightly
async def test_a_lead_restored_books_at_the_times_of_its_participant(world: World) -> None:
    """A lead that books slots again after a restore has them at the same times as the others."""
    a, b = await world.two()
    task, other = introduction([a, b], schedule=SCHEDULE), introduction([a], schedule=SCHEDULE)
    for site in (a, b):
        await site.keep(task, a)
    backup = await back_up(a)
    await a.plan()
    assert await _starts(b, task.task) == dict(zip(SLOTS, SLOTS, strict=True))
    await restore(world, a, backup)
    await a.keep(other, a)
    await a.execute(
        "UPDATE planning SET plan_at = plan_at + interval '1 second' WHERE task_id = $1", task.task
    )
    await a.plan()
    await world.pass_time(10 * times.SECOND)
    later = dict(zip(SLOTS, [slot + DURATION for slot in SLOTS], strict=True))
    assert await _starts(a, other.task) == dict(zip(SLOTS, SLOTS, strict=True))
    assert await _starts(a, task.task) == later
    assert await _starts(b, task.task) == later


@pytest.mark.nightly
async def test_runs_that_a_restored_lead_took_for_over_before_their_start_are_placed_again(
    world: World,
) -> None:
    """A lead that was restored while its clock was ahead waits for parts; nobody measures alone."""
    a, b = await world.two()
    task = introduction([a, b], schedule=SCHEDULE)
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    await a.execute("UPDATE schema_version SET applied_at = now() - interval '1 hour'")
    backup = await back_up(a)
    world.clock.step(2 * times.HOUR + times.MINUTE)
    await restore(world, a, backup)
    await a.node.launcher.run_once()
    world.clock.step(-2 * times.HOUR - times.MINUTE)
    first, second = (run_id(TaskId(task.task), slot, 1) for slot in SLOTS[:2])
    assert await a.state(first) == await a.state(second) == "merging"
    world.clock.advance(5 * times.MINUTE)
    await a.lead.reconciler.compare_all()
    await world.pass_time(5 * times.SECOND)
    assert [await b.state(run) for run in (first, second)] == ["cancelled"] * 2
    reason = "its lead took it for over before its start: its clock was ahead"
    assert await a.reason(first) == await a.reason(second) == reason
    assert await _starts(a, task.task) == await _starts(b, task.task)
    assert list(await _starts(b, task.task)) == SLOTS


@pytest.mark.nightly
async def test_a_slot_that_was_run_before_the_restore_is_not_run_again(world: World) -> None:
    """A participant refuses a slot that it has measured, though its lead does not remember it."""
    a, b = await world.two()
    task = introduction([a, b], schedule=SCHEDULE)
    for site in (a, b):
        await site.keep(task, a)
    backup = await back_up(a)
    await a.plan()
    first = run_id(TaskId(task.task), SLOTS[0], 1)
    await b.execute(
        "UPDATE run SET state = 'finished', started_at = starts_at WHERE id = $1", first
    )
    await restore(world, a, backup)
    await a.plan()
    await world.pass_time(5 * times.SECOND)
    assert await b.state(first) == "finished"
    assert await a.state(first) == "waiting"
    assert "has been run here already" in str(await a.reason(first))
    assert list(await _starts(a, task.task)) == SLOTS[1:]


@pytest.mark.parametrize("booked", [False, True])
@pytest.mark.nightly
async def test_a_cancelled_run_is_not_placed_again_by_a_restored_lead(
    world: World, *, booked: bool
) -> None:
    """A participant refuses a slot whose run was cancelled, and no other slot of the task."""
    a, b = await world.two()
    task = introduction([a, b], schedule=SCHEDULE)
    for site in (a, b):
        await site.keep(task, a)
    if booked:  # before the backup; else the restored lead has to plan the slot anew
        await a.plan()
    backup = await back_up(a)
    if not booked:
        await a.plan()
    world.clock.advance(5 * times.MINUTE)
    first = run_id(TaskId(task.task), SLOTS[0], 1)
    await b.node.termination.cancel_run(first)
    await world.settle()
    assert await a.state(first) == "cancelled"
    await restore(world, a, backup)
    await _compare(a, b)
    await a.plan()
    await world.pass_time(6 * times.SECOND)
    waiting = run_id(TaskId(task.task), SLOTS[0], 2 if booked else 1)
    why = "the run of this slot was cancelled, before its lead's database was restored: cancelled"
    assert await a.state(waiting) == "waiting"
    assert f"{why} on b" in str(await a.reason(waiting))
    assert await b.state(first) == "cancelled"
    for site in (a, b):
        assert list(await _starts(site, task.task)) == SLOTS[1:]
    await world.pass_time(2 * times.HOUR, 10 * times.MINUTE)
    assert await a.state(waiting) == "unplaced"
    assert f"{why} on b" in str(await a.reason(waiting))


async def test_a_lead_restored_is_not_taken_for_a_worker_that_lost_its_lease(world: World) -> None:
    """A lead whose epochs went back books: a restored database counts above all it has given."""
    a, b = await world.two()
    task = introduction([a, b], schedule=SCHEDULE)
    for site in (a, b):
        await site.keep(task, a)
    backup = await back_up(a)
    await a.plan()
    await b.execute("UPDATE task SET lease_epoch = 40")
    await restore(world, a, backup)
    await a.plan()
    assert list(await _starts(b, task.task)) == SLOTS
    assert await _starts(a, task.task) == await _starts(b, task.task)


async def _confirm(site: Site) -> int:
    return await site.node.confirmer.run_once()


async def _compare(site: Site, other: Site) -> int:
    """Compare in both directions; return how many differences were found."""
    compared = await site.node.comparer.compare(other.identity)
    return compared.led_here.found + compared.led_there.found


async def _booked(world: World) -> tuple[Site, Site, UUID]:
    a, b = await world.two()
    task = introduction([a, b], schedule=SCHEDULE)
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    world.clock.advance(5 * times.MINUTE)
    return a, b, task.task


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record which programs would be started, and start none."""
    started: list[str] = []

    async def start(argv: Sequence[str], **_: object) -> None:
        started.append(argv[0])
        raise HostError("not started, this is a test")

    monkeypatch.setattr(process, "start", start)
    return started


async def _begin(site: Site, slot: int) -> None:
    """Let a node's launcher begin, or not, what starts in this slot."""
    site.clock.move_to(slot)
    await site.node.launcher.run_once()
    await asyncio.gather(*site.node.launcher._tasks.values())


@pytest.mark.nightly
async def test_a_restored_node_measures_no_run_that_its_silent_lead_may_have_cancelled(
    world: World, started: list[str]
) -> None:
    """A run that is known from a backup alone does not begin while its lead cannot be asked."""
    a, b, task = await _booked(world)
    backup = await back_up(b)
    await a.node.termination.cancel_task(task)
    await world.settle()
    await restore(world, b, backup)
    world.cut = {frozenset("ab")}
    await _begin(b, SLOTS[0])
    run = run_id(TaskId(task), SLOTS[0], 1)
    why = "; this node knows the run from the backup from which its database was restored, and"
    [part] = await b.rows("SELECT reason FROM part WHERE run_id = $1", run)
    assert part["reason"].startswith("a cannot be reached: ")
    assert why in part["reason"]
    assert started == []


@pytest.mark.nightly
async def test_a_restored_lead_measures_no_run_that_it_may_have_cancelled(
    world: World, started: list[str]
) -> None:
    """A lead that has forgotten the end of its task asks its participants about each run."""
    a, b, task = await _booked(world)
    backup = await back_up(a)
    await a.node.termination.cancel_task(task)
    await world.settle()
    await restore(world, a, backup)
    await _begin(a, SLOTS[0])
    run = run_id(TaskId(task), SLOTS[0], 1)
    [part] = await a.rows("SELECT reason FROM part WHERE run_id = $1", run)
    assert part["reason"].startswith("b does not have this run, which this node knows from the")
    assert started == []
    assert await b.state(run) == "cancelled"


@pytest.mark.nightly
async def test_a_restored_node_measures_what_another_says_is_booked(
    world: World, started: list[str]
) -> None:
    """A run that stands begins, though the nodes have not compared all that they have."""
    a, b, _ = await _booked(world)
    for site in (b, a):
        await restore(world, site, await back_up(site))
    for site in (b, a):
        await _begin(site, SLOTS[0])
    assert len(started) == 2


@pytest.mark.nightly
async def test_nodes_that_have_compared_ask_nothing_before_their_runs(
    world: World, started: list[str]
) -> None:
    """Once a restored node has compared with the others, its runs begin whoever is away."""
    _, b, _ = await _booked(world)
    await restore(world, b, await back_up(b))
    await b.node.comparer.compare_until_answered()
    world.cut = {frozenset("ab")}
    await _begin(b, SLOTS[0])
    assert len(started) == 1


async def _state(site: Site, task: UUID) -> tuple[str, str | None]:
    [row] = await site.rows("SELECT state::text, reason FROM task WHERE id = $1", task)
    return row[0], row[1]


@pytest.mark.nightly
async def test_a_participant_restored_ends_what_was_cancelled_since(world: World) -> None:
    """A participant that goes on from a backup asks, and ends the tasks that are over by then."""
    a, b, task = await _booked(world)
    backup = await back_up(b)
    await a.node.termination.cancel_task(task)
    await world.settle()
    assert (await _state(b, task))[0] == "cancelled"
    await restore(world, b, backup)
    assert (await _state(b, task))[0] == "active"
    assert await _confirm(b) == 1
    state, reason = await _state(b, task)
    assert (state, reason) == ("cancelled", "the task is cancelled at its lead: cancelled on a")
    assert set((await b.states()).values()) == {"cancelled"}


async def test_a_participant_restored_at_once_ends_what_was_cancelled_since(world: World) -> None:
    """The age of a task does not matter: one that was created a moment ago ends as well."""
    a, b = await world.two()
    task = introduction([a, b], schedule=SCHEDULE)
    for site in (a, b):
        await site.keep(task, a)
    backup = await back_up(b)
    await a.node.termination.cancel_task(task.task)
    await world.settle()
    await restore(world, b, backup)
    assert await _confirm(b) == 1
    assert (await _state(b, task.task))[0] == "cancelled"


async def test_a_task_that_its_restored_lead_forgot_ends_at_the_participant(world: World) -> None:
    """A task that was posted after the backup of its lead does not go on without it."""
    a, b = await world.two()
    backup = await back_up(a)
    task = introduction([a, b], schedule=SCHEDULE)
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    await restore(world, a, backup)
    assert await _confirm(b) == 1
    assert await _state(b, task.task) == ("cancelled", unknown_to_lead())
    assert set((await b.states()).values()) == {"cancelled"}


async def test_a_task_that_is_being_created_is_not_ended(world: World) -> None:
    """A participant that asks about a task before its lead has stored it keeps the task."""
    a, b = await world.two()
    asked, introduce = [], a.node.admission._introduce

    async def introduced(node: KnownNode, told: Introduction) -> IntroductionAnswer:
        answer = await introduce(node, told)
        asked.append(await _confirm(b))
        return answer

    a.node.admission._introduce = introduced
    document = {"test": {"type": "idle", "spec": {}}, "participants": ["a", "b"]}
    task, _ = await a.node.admission.create(TaskDocument.model_validate(document), None)
    assert asked == [0, 0]
    assert (await _state(b, task))[0] == "active"


@pytest.mark.nightly
async def test_a_result_that_its_restored_lead_forgot_is_sent_again(world: World) -> None:
    """A run that was measured after the backup of its lead has its result there again."""
    a, b = await world.two()
    task = introduction([b], schedule=SCHEDULE)
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    backup = await back_up(a)
    await world.settle()
    world.clock.move_to(SLOTS[0])
    run = run_id(TaskId(task.task), SLOTS[0], 1)
    async with b.database.transaction() as connection:
        assert await runs.begin(connection, run, SLOTS[0])
    measured = {"slept_ms": 1.0}
    part = KeptPart(0, "b", measured, None, SLOTS[0], SLOTS[0] + DURATION, ("sleep", "1"))
    await b.node.collector.keep_own(run, part)
    await world.settle()
    assert await a.state(run) == "finished"
    await restore(world, a, backup)
    await a.execute("UPDATE run SET state = 'merging' WHERE id = $1", run)  # as its launcher does
    world.clock.advance(10 * times.MINUTE)
    await a.tend()
    assert (await a.state(run), await a.reason(run)) == ("failed", no_part_in_time().at("b"))
    await _compare(a, b)
    await world.settle()
    assert await a.state(run) == "finished"
    assert await a.rows("SELECT result FROM part WHERE run_id = $1", run) == [(measured,)]
    assert await _compare(a, b) == 0
    await world.settle()
    assert await b.rows("SELECT count(*) FROM outbox") == [(0,)]


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.nightly
async def test_a_task_cancelled_before_its_lead_was_restored_stays_cancelled(
    world: World, *, paused: bool
) -> None:
    """A lead that takes a task for open, which it has cancelled before, learns it and ends it."""
    a, _, task = await _booked(world)
    if paused:
        await a.node.editing.pause(task)
        await world.settle()
    backup = await back_up(a)
    await a.node.termination.cancel_task(task)
    await world.settle()
    await restore(world, a, backup)
    await a.lead.reconciler.compare_all()
    state, reason = await _state(a, task)
    assert (state, reason) == ("cancelled", ended_there("cancelled", "b"))
    assert set((await a.states()).values()) == {"cancelled"}


@pytest.mark.nightly
async def test_a_lead_that_tries_its_task_again_and_again_learns_that_it_is_over(
    world: World,
) -> None:
    """Attempts to plan a task, each refused because it is over there, put off no comparison."""
    a, b = await world.two()
    task = introduction([a, b], schedule=SCHEDULE)
    for site in (a, b):
        await site.keep(task, a)
    backup = await back_up(a)
    await a.node.termination.cancel_task(task.task)
    await world.settle()
    await restore(world, a, backup)
    await world.pass_time(2 * times.SECOND, times.SECOND // 4)
    [(attempts, latest)] = await a.rows("SELECT count(*), max(decided_at) FROM negotiation")
    assert attempts > 1
    assert latest > world.clock.now() - times.MINUTE
    await a.lead.reconciler.compare_all()
    state, reason = await _state(a, task.task)
    assert (state, reason) == ("cancelled", ended_there("cancelled", "b"))


@pytest.mark.nightly
async def test_a_lead_restored_to_before_the_first_answer_is_heard(world: World) -> None:
    """A participant that had not accepted the task at the backup, and was told changes since."""
    a, b = await world.two()
    task = introduction([a, b], schedule=SCHEDULE, accepted=None)
    await a.keep(task, a)
    backup = await back_up(a)
    await a.plan()
    for priority in (3, 5):
        patch = TaskPatch.model_validate({"priority": priority})
        await a.node.editing.edit(task.task, patch)
        await world.settle()
    await restore(world, a, backup)
    await a.plan()
    assert "3 is known here" in str(await a.reason(run_id(TaskId(task.task), SLOTS[0], 1)))
    assert await _compare(a, b) == 4  # the task, and the runs that were booked since
    await world.pass_time(6 * times.SECOND)
    for site in (a, b):
        assert [tuple(row) for row in await site.rows("SELECT revision, priority FROM task")] == [
            (4, 0)
        ]
    for site in (a, b):
        assert list(await _starts(site, task.task)) == SLOTS


@pytest.mark.nightly
async def test_an_edit_that_its_restored_lead_forgot_does_not_shut_it_out(world: World) -> None:
    """A participant that knows a newer revision is told the task as its lead has it."""
    a, b, task = await _booked(world)
    backup = await back_up(a)
    await a.node.termination.cancel_run(run_id(TaskId(task), SLOTS[2], 1))
    await a.execute("UPDATE task SET revision = 3, priority = 5")
    await world.settle()
    await b.execute("UPDATE task SET revision = 3, priority = 5")
    await restore(world, a, backup)
    assert await _compare(b, a) == 2  # the revision, and the cancelled run
    await world.settle()
    for site in (a, b):
        assert [tuple(row) for row in await site.rows("SELECT revision, priority FROM task")] == [
            (4, 0)
        ]


@pytest.mark.nightly
async def test_a_lead_goes_on_above_the_epochs_that_others_know(world: World) -> None:
    """A lead that was restored under a clock of tomorrow, and again under a right one, books."""
    a, b = await world.two()
    task = introduction([a, b], schedule=SCHEDULE)
    for site in (a, b):
        await site.keep(task, a)
    backup = await back_up(a)
    [[tomorrow]] = await a.rows(
        "UPDATE planning SET lease_epoch = extract(EPOCH FROM now() + interval '1 day') * 1000000"
        " RETURNING lease_epoch"
    )
    await a.plan()
    assert await _starts(b, task.task) == dict(zip(SLOTS, SLOTS, strict=True))
    await restore(world, a, backup)
    await a.execute("UPDATE planning SET plan_at = least(plan_at, $1)", world.clock.now())
    await a.plan()
    run = run_id(TaskId(task.task), SLOTS[0], 1)
    assert await a.state(run) == "waiting"
    assert "has been superseded by epoch" in (await a.reason(run) or "")
    await world.pass_time(10 * times.SECOND)
    booked = await _starts(a, task.task)
    assert sorted(booked) == SLOTS
    assert await _starts(b, task.task) == booked
    [[adopted]] = await a.rows("SELECT lease_epoch FROM planning")
    assert tomorrow + 1 < adopted < tomorrow + 100
