"""A task is paused, resumed and edited; the bookings on every node follow despite faults."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.errors import Conflict, InvalidDocument, NotAllowed, RefusedByParticipant
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.tasks import TaskDocument, TaskPatch
from node.store import runs
from node.store.runs import KeptPart
from tests.support.clocks import START
from tests.support.worlds import HOLD_LIFE, ON_ONE_LOOP, Call, Site, World

pytestmark = ON_ONE_LOOP

AB = frozenset("ab")
EVERY = times.HOUR
DAY_OF_RUNS = 24


async def _task(world: World, *names: str, **schedule: Any) -> tuple[list[Site], UUID]:
    """Create and plan an hourly task of these nodes, led by the first of them."""
    sites = [await world.site(name) for name in names or ("a", "b")]
    document = TaskDocument.model_validate(
        {
            "test": {
                "type": "idle",
                "spec": {
                    "duration": "PT1M",
                    "class": "exclusive",
                    "participants": [site.name for site in sites],
                },
            },
            "schedule": {"repeat": "PT1H", "slip": "PT5M", **schedule},
        }
    )
    task, _ = await sites[0].node.admission.create(document, None)
    await sites[0].plan()
    await world.settle()
    return sites, task


def _patch(**changes: Any) -> TaskPatch:
    return TaskPatch.model_validate(changes)


async def _count(site: Site) -> Counter[str]:
    return Counter((await site.states()).values())


async def _scheduled(site: Site) -> set[UUID]:
    return {run for run, state in (await site.states()).items() if state == "scheduled"}


async def _agreed(*sites: Site) -> int:
    """Return the number of scheduled runs, which must be the same on all of these nodes."""
    runs_by_site = [await _scheduled(site) for site in sites]
    assert all(runs == runs_by_site[0] for runs in runs_by_site)
    for site in sites:
        assert not {"held", "set-aside"} & set(await _count(site))
    return len(runs_by_site[0])


async def _task_row(site: Site, task: UUID) -> Any:
    return (await site.rows("SELECT *, state::text AS word FROM task WHERE id = $1", task))[0]


async def _sentences(site: Site, task: UUID) -> list[str]:
    rows = await site.rows("SELECT sentence FROM decision WHERE task_id = $1 ORDER BY id", task)
    return [row[0] for row in rows]


async def test_a_paused_task_frees_its_runs_everywhere(world: World) -> None:
    """A pause frees every future run on all nodes with one message for each participant."""
    (a, b, c), task = await _task(world, "a", "b", "c")
    assert await _agreed(a, b, c) == DAY_OF_RUNS
    world.calls.clear()
    await a.node.editing.pause(task)
    await world.settle()
    assert await _agreed(a, b, c) == 0
    assert sorted(world.calls) == [("a", "b", "introduce"), ("a", "c", "introduce")]
    for site in (a, b, c):
        row = await _task_row(site, task)
        assert (row["word"], row["revision"], row["paused_at"]) == ("paused", 2, START)
    assert "paused on a; 24 runs freed" in await _sentences(a, task)
    assert set(await _count(b)) == {"cancelled"}


@pytest.mark.nightly
async def test_a_paused_task_gets_no_runs(world: World) -> None:
    """A paused task is not planned, however much time passes."""
    (a, b), task = await _task(world)
    await a.node.editing.pause(task)
    await world.pass_time(30 * times.HOUR, times.HOUR)
    assert await _agreed(a, b) == 0
    assert (await _task_row(a, task))["word"] == "paused"


async def test_a_run_about_to_start_goes_on(world: World) -> None:
    """A run that starts within the margin, or has started, is not affected by a pause."""
    (a, b), task = await _task(world)
    world.clock.move_to(START + EVERY + times.SECOND)
    await a.node.editing.pause(task)
    await world.settle()
    assert await _agreed(a, b) == 2


@pytest.mark.nightly
async def test_a_resumed_task_is_planned_from_now_on(world: World) -> None:
    """Slots missed during a pause are reported and not made up for, and do not use up runs."""
    (a, b), task = await _task(world, max_runs=10)
    assert await _agreed(a, b) == 10
    await a.node.editing.pause(task)
    await world.pass_time(5 * times.HOUR, times.HOUR)
    await a.node.editing.resume(task)
    await world.pass_time(10 * times.SECOND)
    assert await _agreed(a, b) == 10
    first = min(r["slot"] for r in await a.rows("SELECT * FROM run WHERE state = 'booked'"))
    assert first == START + 5 * times.HOUR + 2 * times.SECOND
    assert (
        "resumed on a; 5 slots whose time passed meanwhile will not be made up for"
        in await _sentences(a, task)
    )
    assert (await _task_row(b, task))["revision"] == 3


@pytest.mark.nightly
async def test_a_slot_is_never_run_twice(world: World) -> None:
    """A pause and resumption keep the run about to start and book its slot only once."""
    (a, _), task = await _task(world)
    world.clock.move_to(START + EVERY + times.SECOND)
    await a.node.editing.pause(task)
    await a.node.editing.resume(task)
    await world.pass_time(10 * times.SECOND)
    rows = await a.rows("SELECT slot, count(*) FROM run WHERE NOT freed GROUP BY slot")
    assert {row[1] for row in rows} == {1}
    assert len(rows) == DAY_OF_RUNS + 1


@pytest.mark.parametrize("twice", ["pause", "resume"])
async def test_a_repeated_request_changes_nothing(world: World, twice: str) -> None:
    """Pausing a paused task, or resuming an active one, changes nothing."""
    (a, _), task = await _task(world)
    editor = a.node.editing
    if twice == "pause":
        await editor.pause(task)
        await editor.pause(task)
    else:
        await editor.resume(task)
    assert (await _task_row(a, task))["revision"] == (2 if twice == "pause" else 1)


@pytest.mark.nightly
async def test_an_unreachable_participant_learns_when_it_is_back(world: World) -> None:
    """A participant that was away learns of a pause, a resumption and an edit when it is back."""
    (a, b), task = await _task(world)
    world.cut = {AB}
    await a.node.editing.pause(task)
    await world.settle()
    assert (len(await _scheduled(a)), len(await _scheduled(b))) == (0, DAY_OF_RUNS)
    assert len([each for each in await a.outbox_messages() if each[1] == "task-change"]) == 1
    world.cut = set()
    await world.pass_time(times.MINUTE, 10 * times.SECOND)
    assert await _agreed(a, b) == 0
    world.cut = {AB}
    await a.node.editing.resume(task)
    await a.node.editing.edit(task, _patch(schedule={"repeat": "PT30M"}))
    await world.pass_time(times.MINUTE, 10 * times.SECOND)
    assert await _agreed(a, b) == 0
    world.cut = set()
    await world.pass_time(12 * times.MINUTE, times.MINUTE)
    assert await _agreed(a, b) >= 2 * DAY_OF_RUNS - 1
    assert (await _task_row(b, task))["revision"] == 4


async def test_a_late_message_stops_what_has_begun(world: World) -> None:
    """A run that one node has freed and the other has begun is stopped there."""
    (a, b), task = await _task(world)
    world.cut = {AB}
    await a.node.editing.pause(task)
    world.clock.move_to(START + EVERY + 3 * times.SECOND)
    run = (await b.rows("SELECT id FROM run ORDER BY starts_at OFFSET 1 LIMIT 1"))[0][0]
    await b.execute("UPDATE run SET state = 'running' WHERE id = $1", run)
    world.cut = set()
    await world.pass_time(times.MINUTE, 10 * times.SECOND)
    assert await b.state(run) == "cancelled"
    assert "paused on a" in (await b.reason(run) or "")


async def test_new_times_replace_the_old_ones(world: World) -> None:
    """An edited schedule frees the future runs and books those of the new one on all nodes."""
    (a, b), task = await _task(world)
    runs_before = await _scheduled(a)
    await a.node.editing.edit(task, _patch(schedule={"repeat": "PT30M"}))
    await world.pass_time(5 * times.SECOND)
    assert await _agreed(a, b) == 2 * DAY_OF_RUNS
    assert not runs_before & await _scheduled(a)
    assert "edited on a: repeat 1 h → 30 min; 24 runs freed" in await _sentences(a, task)


async def test_a_new_reference_frees_nothing(world: World) -> None:
    """An edit that does not affect runs leaves them as they are on all nodes."""
    (a, b), task = await _task(world)
    runs_before = await _scheduled(b)
    await a.node.campaigns.create(CampaignDocument(name="ops"))
    await a.node.editing.edit(task, _patch(reference={"ticket": 7}, campaign="ops"))
    await world.pass_time(10 * times.SECOND)
    assert await _scheduled(b) == await _scheduled(a) == runs_before
    row = await _task_row(b, task)
    assert (row["reference"], row["campaign"], row["revision"]) == ({"ticket": 7}, "ops", 2)


async def test_another_priority_keeps_the_time(world: World) -> None:
    """Booked runs keep their time and get the new priority on every node."""
    (a, b), task = await _task(world)
    runs_before = await _scheduled(a)
    await a.node.editing.edit(task, _patch(priority=7))
    await world.pass_time(10 * times.SECOND)
    assert await _scheduled(a) == await _scheduled(b) == runs_before
    for site in (a, b):
        assert {row[0] for row in await site.rows("SELECT priority FROM run")} == {7}


@pytest.mark.nightly
async def test_an_earlier_end_frees_the_runs_behind_it(world: World) -> None:
    """An earlier end frees only the runs behind it; a later end books them again."""
    (a, b), task = await _task(world)
    runs_before = await _scheduled(a)
    until = times.format_instant(START + 6 * times.HOUR)
    await a.node.editing.edit(task, _patch(schedule={"until": until}))
    await world.pass_time(10 * times.SECOND)
    assert await _agreed(a, b) == 6
    assert await _scheduled(a) < runs_before
    await a.node.editing.edit(task, _patch(schedule={"until": None}))
    await world.pass_time(10 * times.SECOND)
    assert await _agreed(a, b) == DAY_OF_RUNS


async def test_fewer_runs_free_the_last(world: World) -> None:
    """A smaller number of runs frees those in excess; a larger one is filled up again."""
    (a, b), task = await _task(world, max_runs=8)
    for most in (3, 12):
        await a.node.editing.edit(task, _patch(schedule={"max_runs": most}))
        await world.pass_time(10 * times.SECOND)
        assert await _agreed(a, b) == most


async def test_a_run_under_way_keeps_what_it_was_booked_to_measure(world: World) -> None:
    """A run that stays is launched with the specification of its booking, not the new one."""
    (a, b), task = await _task(world)
    await world.pass_time(times.SECOND)
    await a.node.editing.edit(task, _patch(test={"spec": {"duration": "PT2M"}}))
    await world.pass_time(10 * times.SECOND)
    for site in (a, b):
        rows = await site.rows(
            "SELECT spec ->> 'duration', ends_at - starts_at FROM run WHERE NOT freed ORDER BY 2"
        )
        assert rows[0][0] == "PT1M"
        async with site.database.connection() as connection:
            due = await runs.due_runs(connection, 0, START + times.MINUTE)
        assert [run.spec["duration"] for run in due] == ["PT1M"]
        assert {(row[0], row[1]) for row in rows[1:]} == {(None, rows[1][1])}
        assert rows[1][1] - rows[0][1] == times.MINUTE


@pytest.mark.nightly
async def test_what_a_participant_measured_before_it_heard_of_an_edit_is_kept(world: World) -> None:
    """The part of a run that an edit took back is of the spec with which the run was booked."""
    (a, b), task = await _task(world)
    [row] = await b.rows("SELECT id, starts_at FROM run ORDER BY slot OFFSET 1 LIMIT 1")
    run, start = row["id"], row["starts_at"]
    world.cut = {AB}
    await a.node.editing.edit(task, _patch(test={"spec": {"duration": "PT2M"}}))
    world.clock.move_to(start)
    async with b.database.transaction() as connection:
        assert await runs.begin(connection, run, start)
    ended = start + times.MINUTE
    world.clock.move_to(ended)
    await b.node.collector.keep_own(run, KeptPart(1, "b", {"slept_ms": 6e4}, None, start, ended))
    world.cut = set()
    await world.pass_time(12 * times.MINUTE, times.MINUTE)
    assert await a.state(run) == "cancelled"
    query = "SELECT result, reason FROM part WHERE run_id = $1 AND participant = 1"
    assert [tuple(each) for each in await a.rows(query, run)] == [({"slept_ms": 6e4}, None)]


@pytest.mark.nightly
async def test_a_paused_task_is_edited_for_later(world: World) -> None:
    """A paused task stays paused when edited and is planned by the new terms when resumed."""
    (a, b), task = await _task(world)
    await a.node.editing.pause(task)
    await a.node.editing.edit(task, _patch(schedule={"repeat": "PT2H"}))
    await world.pass_time(10 * times.SECOND)
    assert await _agreed(a, b) == 0
    assert [(await _task_row(site, task))["word"] for site in (a, b)] == ["paused", "paused"]
    await a.node.editing.resume(task)
    await world.pass_time(10 * times.SECOND)
    assert await _agreed(a, b) == DAY_OF_RUNS // 2


async def test_a_refused_edit_changes_nothing(world: World) -> None:
    """An edit that one participant refuses leaves the task unchanged on all nodes."""
    (a, b, c), task = await _task(world, "a", "b", "c")
    c.node.capabilities.tests = {}
    with pytest.raises(RefusedByParticipant, match="c: "):
        await a.node.editing.edit(task, _patch(test={"spec": {"duration": "PT2M"}}))
    await world.settle()
    assert await _agreed(a, b, c) == DAY_OF_RUNS
    for site in (a, b, c):
        row = await _task_row(site, task)
        assert (row["revision"], row["spec"]["duration"], row["word"]) == (1, "PT1M", "active")


async def test_a_change_that_is_refused_later_is_told(world: World) -> None:
    """A participant that was away refuses what was changed; its lead says so until it accepts."""
    (a, b), task = await _task(world)
    world.cut = {AB}
    await a.node.editing.pause(task)
    await a.node.editing.edit(task, _patch(priority=3))
    tests, b.node.capabilities.tests = b.node.capabilities.tests, {}
    world.cut = set()
    await world.pass_time(12 * times.MINUTE, times.MINUTE)

    async def told() -> list[tuple[bool | None, str | None]]:
        [[listed]] = await a.rows("SELECT participants FROM task")
        return [(it["accepted"], it["reason"]) for it in listed]

    own, (accepted, reason) = await told()
    assert (own, accepted) == ((True, None), None)
    assert "there is no test 'idle'" in str(reason)
    rows = [await _task_row(site, task) for site in (a, b)]
    assert [(row["word"], row["revision"]) for row in rows] == [("paused", 3), ("paused", 1)]
    b.node.capabilities.tests = tests
    assert await a.node.editing.tell_again(task, b.identity, 1)
    await world.settle()
    assert await told() == [(True, None), (None, None)]
    assert (await _task_row(b, task))["revision"] == 3


@pytest.mark.nightly
async def test_an_edit_waits_for_a_participant_that_is_away(world: World) -> None:
    """An edit is accepted while a participant is away; its runs wait and name the participant."""
    (a, b), task = await _task(world)
    world.cut = {AB}
    await a.node.editing.edit(task, _patch(schedule={"repeat": "PT30M"}))
    await world.pass_time(10 * times.SECOND)
    assert await _count(a) == {"cancelled": DAY_OF_RUNS, "waiting": 2 * DAY_OF_RUNS}
    reasons = {r[0] for r in await a.rows("SELECT reason FROM run WHERE state = 'waiting'")}
    assert all("b cannot be reached" in reason for reason in reasons)
    world.cut = set()
    await world.pass_time(12 * times.MINUTE, times.MINUTE)
    assert await _agreed(a, b) >= 2 * DAY_OF_RUNS - 1


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"test": {"type": "rtt"}}, "/test/type"),
        ({"test": {"spec": {"participants": ["a", "c"]}}}, "/test/spec/participants"),
        ({"participants": ["a", "c"]}, "/participants"),
        ({"schedule": {"repeat": "PT1S"}}, "/schedule/repeat"),
        ({"schedule": {"until": "2020-01-01T00:00:00Z"}}, "/schedule/until"),
        ({"tools": ["hammer"]}, "/tools/0"),
        ({"test": None}, "/test/type"),
    ],
)
@pytest.mark.mostly_nightly
async def test_a_wrong_field_is_named(world: World, changes: Any, pointer: str) -> None:
    """An edit is validated like a new task; an invalid one changes nothing."""
    (a, _, _), task = await _task(world, "a", "b", "c")
    with pytest.raises(InvalidDocument) as refused:
        await a.node.editing.edit(task, _patch(**changes))
    assert refused.value.faults[0].pointer.startswith(pointer)
    assert (await _task_row(a, task))["revision"] == 1


async def test_a_lost_update_is_refused(world: World) -> None:
    """An edit of an old revision is refused; of two concurrent edits one is accepted."""
    (a, _), task = await _task(world)
    await a.node.editing.pause(task)
    with pytest.raises(Conflict, match="revision 2"):
        await a.node.editing.edit(task, _patch(revision=1, priority=3))
    edits = [a.node.editing.edit(task, _patch(priority=number)) for number in (3, 4)]
    answers = await asyncio.gather(*edits, return_exceptions=True)
    assert [isinstance(answer, Conflict) for answer in answers].count(True) == 1


async def test_only_the_lead_changes_a_task(world: World) -> None:
    """A participant refuses to change a task, and so does the lead of an ended one."""
    (a, b), task = await _task(world)
    with pytest.raises(NotAllowed, match="another node"):
        await b.node.editing.pause(task)
    await a.node.termination.cancel_task(task)
    with pytest.raises(Conflict, match="cancelled"):
        await a.node.editing.resume(task)


Act = Callable[[Site, UUID], Awaitable[object]]

ACTS: dict[str, Act] = {
    "pause": lambda a, task: a.node.editing.pause(task),
    "edit": lambda a, task: a.node.editing.edit(task, _patch(schedule={"repeat": "PT2H"})),
    "cancel": lambda a, task: a.node.termination.cancel_task(task),
}
LEFT = {"pause": 0, "edit": DAY_OF_RUNS // 2, "cancel": 0}
OFTEN = [pytest.param(act, marks=[] if act == "edit" else pytest.mark.nightly) for act in ACTS]
MOMENTS = list(product(("propose", "hold", "commit"), ("a", "b"), ("asked", "answered")))


@pytest.mark.parametrize("act", OFTEN)
@pytest.mark.parametrize(("what", "whom", "phase"), MOMENTS)
@pytest.mark.parametrize("away", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.mostly_nightly
async def test_a_change_in_the_middle_of_planning_holds(
    world: World,
    act: str,
    what: str,
    whom: str,
    phase: str,
    away: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A change at any moment of planning, even with a cut wire, leaves no run of the old terms."""
    a, b = await world.two()
    spec = {"duration": "PT1M", "class": "exclusive", "participants": ["a", "b"]}
    document = {"test": {"type": "idle", "spec": spec}, "schedule": {"repeat": "PT1H"}}
    task, _ = await a.node.admission.create(TaskDocument.model_validate(document), None)

    async def change(call: Call, at: str) -> None:
        if (call, at) == (("a", whom, what), phase):
            world.watch = None
            if away:
                world.cut = {AB}
            await ACTS[act](a, task)

    world.watch = change
    await a.plan()
    assert world.watch is None
    await world.pass_time(12 * times.SECOND, 4 * times.SECOND)
    world.cut = set()
    await world.pass_time(2 * HOLD_LIFE, 10 * times.SECOND)
    if act == "edit" and away:
        await world.pass_time(6 * times.MINUTE, times.MINUTE)
    assert LEFT[act] - 1 <= await _agreed(a, b) <= LEFT[act] + 1
    rows = await a.rows("SELECT slot FROM run WHERE NOT freed AND state NOT IN ('cancelled')")
    assert len({row[0] for row in rows}) == len(rows)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("phase", ["asked", "answered"])
@pytest.mark.mostly_nightly
async def test_a_change_overtakes_an_introduction(world: World, act: str, phase: str) -> None:
    """A participant that is being introduced ends up with the task as its lead has it."""
    a, b = await world.two()
    spec = {"duration": "PT1M", "class": "exclusive", "participants": ["a", "b"]}
    document = {"test": {"type": "idle", "spec": spec}, "schedule": {"repeat": "PT1H"}}
    world.cut = {AB}
    task, _ = await a.node.admission.create(TaskDocument.model_validate(document), None)
    world.cut = set()

    async def change(call: Call, at: str) -> None:
        if (call, at) == (("a", "b", "introduce"), phase):
            world.watch = None
            await ACTS[act](a, task)
            await a.deliver()

    world.watch = change
    await a.plan()
    assert world.watch is None
    await world.pass_time(3 * times.MINUTE, 15 * times.SECOND)
    assert LEFT[act] <= await _agreed(a, b) <= LEFT[act] + 1
    task_at_lead, task_at_participant = await _task_row(a, task), await _task_row(b, task)
    assert (task_at_participant["word"], task_at_participant["revision"]) == (
        task_at_lead["word"],
        task_at_lead["revision"],
    )
    assert task_at_participant["schedule"] == task_at_lead["schedule"]


async def test_changes_of_tasks_take_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes at the same time do not wait for each other's locks in the database."""
    (a, _), task = await _task(world)
    database, under_way, most = a.node.editing._database, 0, 0
    settle = database.settle

    async def counted(work: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await settle(work)
        finally:
            under_way -= 1

    monkeypatch.setattr(database, "settle", counted)
    await asyncio.gather(*(a.node.editing.pause(task) for _ in range(3)))
    assert most == 1
    assert (await _task_row(a, task))["word"] == "paused"
