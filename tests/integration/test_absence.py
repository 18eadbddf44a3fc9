"""A lead that was away tells the slots of that time as ranges: rows by tasks, not by slots."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from lead.assembly.lead import Lead
from lead.assembly.with_node import lead_of
from lead.exchange.workers import Workers
from lead.store import planning
from node.model import times
from node.model.gaps import Gap
from node.model.ids import TaskId, run_id
from node.model.principals import Role
from node.model.reasons import windows_over
from node.model.recurrence import SlotRange, nominal_starts
from node.model.scheduling import recurrence_of
from node.model.times import format_instant
from node.model.wire.tasks import Schedule, TaskPatch
from node.store import clock_steps, readiness, runs
from node.store import gaps as gaps_store
from node.store import tasks as tasks_store
from node.store.database import BrokenOverlap
from node.tasks.editing import CHANGE_ACKNOWLEDGEMENT_TIMEOUT
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.pool_worlds import pooled
from tests.support.served_nodes import Asker, asker, give_token, user
from tests.support.worlds import HOLD_LIFE, ON_ONE_LOOP, Call, Site, World, introduction

WEEK = 7 * times.DAY
AWAY = WEEK + 20 * times.MINUTE
SCHEDULES: dict[str, dict[str, Any]] = {
    "every 10 s": {"repeat": "PT10S", "slip": "PT0S"},
    "slips": {"start": format_instant(START), "repeat": "PT1H", "slip": "PT30M"},
    "cron": {"cron": "*/5 * * * *", "timezone": "Europe/Berlin", "slip": "PT0S"},
    "three": {"start": format_instant(START + 2 * times.HOUR), "repeat": "PT1H", "max_runs": 3},
    "over": {
        "start": format_instant(START + 2 * times.HOUR),
        "repeat": "PT1H",
        "until": format_instant(START + times.DAY),
    },
    "once": {"start": format_instant(START + 2 * times.HOUR), "slip": "PT0S"},
}
LATE = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state, reason,
    created_at, changed_at
)
VALUES (
    gen_random_uuid(), $1, $2, 1, 'background', 0, $2, $2::timestamptz + interval '1 second',
    'missed', 'late', $2, $2
)
"""
RECENT = "no lead of this node was heard from 2026-12-01T00:00:00Z to 2026-12-08T00:20:00Z"


@pytest.fixture
async def a(new_database: NewDatabase, tmp_path: Path) -> AsyncIterator[Asker]:
    """A node with a user, on a clock of its own; it plans an hour ahead."""
    clock = ManualClock()
    async with asker("a", await new_database(), clock, tmp_path, horizon=times.HOUR) as client:
        yield client


def _clock(a: Asker) -> ManualClock:
    clock = a.node.clock
    assert isinstance(clock, ManualClock)
    return clock


async def _show_lead(a: Asker | Site) -> None:
    """Write that a lead is there, as each does every ten seconds."""
    node = a.node
    async with node.database.connection() as connection:
        now = node.clock.now()
        await readiness.keep_lead(connection, "worker", now, now - WEEK)


async def _plan(a: Asker, lead: Lead) -> None:
    """Plan until nothing is due."""
    while await a.rows("SELECT FROM planning WHERE plan_at <= $1", a.node.clock.now()):
        await lead.workers.run_once()
        await asyncio.gather(*lead.workers._busy)


async def _create(a: Asker, schedule: dict[str, Any], key: str = "x/a/a") -> UUID:
    document = {
        "test": {"type": "idle", "spec": {"duration": "PT1S", "class": "background"}},
        "schedule": schedule,
        "reference": {"mesh": "lab", "key": key},
    }
    status, task = await a.ask("POST", "/v1/tasks", document)
    assert status == 201, task
    return UUID(task["id"])


async def _told(a: Asker, task: UUID) -> tuple[list[int], list[Any]]:
    """Return the slots with runs that found no time, and the gaps."""
    found = await a.rows("SELECT slot FROM run WHERE task_id = $1 AND state = 'unplaced'", task)
    gaps = await a.rows("SELECT * FROM gap WHERE task_id = $1 ORDER BY first_slot", task)
    return [row[0] for row in found], gaps


async def _away(a: Asker, schedules: dict[str, dict[str, Any]]) -> dict[str, UUID]:
    """Plan tasks, be away for a week, and plan again; return the tasks."""
    lead = lead_of(a.node, owner="worker", rng=random.Random(1))
    await _show_lead(a)
    tasks = {name: await _create(a, each) for name, each in schedules.items()}
    await _plan(a, lead)
    await a.rows("UPDATE run SET state = 'missed', reason = 'late' WHERE state = 'booked'")
    _clock(a).advance(AWAY)
    await _show_lead(a)
    await _plan(a, lead)
    return tasks


async def _slots_of(a: Asker, task: UUID, since: int) -> list[int]:
    """Return the slots of a task after an instant up to now, by its schedule."""
    [(document, created_at)] = await a.rows(
        "SELECT schedule, created_at FROM task WHERE id = $1", task
    )
    recurrence = recurrence_of(Schedule.model_validate(document), created_at)
    return nominal_starts(recurrence, since, _clock(a).now() + 1, 100_000)


@pytest.mark.timeout(60)
@pytest.mark.nightly
async def test_a_week_is_told_by_the_task_and_not_by_the_slot(a: Asker) -> None:
    """Each slot of seven days is told, with a handful of rows for each task."""
    tasks, told = await _away(a, SCHEDULES), 0
    for name, task in tasks.items():
        every = await _slots_of(a, task, START)
        unplaced, gaps = await _told(a, task)
        measured = await a.rows(
            "SELECT slot FROM run WHERE task_id = $1 AND state <> 'unplaced'", task
        )
        inside = [
            slot for gap in gaps for slot in every if gap["first_slot"] <= slot <= gap["last_slot"]
        ]
        assert sum(gap["slots"] for gap in gaps) == len(inside), name
        up_to_now = [row[0] for row in measured if row[0] <= _clock(a).now()]
        assert sorted([*unplaced, *inside, *up_to_now]) == every, name
        assert (len(gaps), len(unplaced)) == ((0, 1) if name == "once" else (1, 0)), name
        assert all(gap["reason"] == RECENT for gap in gaps)
        told += len(inside) + len(unplaced)
    [(unplaced_rows,)] = await a.rows("SELECT count(*) FROM run WHERE state = 'unplaced'")
    [(gap_rows,)] = await a.rows("SELECT count(*) FROM gap")
    [(decisions,)] = await a.rows("SELECT count(*) FROM decision")
    assert told > 60_000
    assert (unplaced_rows, gap_rows) == (1, 5)
    assert decisions <= 3 * len(tasks)


async def test_what_can_still_run_after_a_week_does(a: Asker) -> None:
    """A slot whose window is open is booked, and a number of runs is not used up by a gap."""
    tasks = await _away(a, {name: SCHEDULES[name] for name in ("slips", "three", "over")})
    booked = "SELECT slot FROM run WHERE task_id = $1 AND state = 'booked' ORDER BY slot"
    [(first,), *_] = await a.rows(booked, tasks["slips"])
    assert first == START + WEEK
    for _ in range(6):
        _clock(a).advance(times.HOUR)
        await _plan(a, lead_of(a.node, owner="worker", rng=random.Random(1)))
    assert len(await a.rows(booked, tasks["three"])) == 3
    [(plan_at,)] = await a.rows("SELECT plan_at FROM planning WHERE task_id = $1", tasks["over"])
    assert plan_at is None


HOURLY = {"start": format_instant(START), "repeat": "PT1H", "slip": "PT0S"}
FIRST = START + times.HOUR


async def _one_gap(a: Asker) -> tuple[UUID, Any, str]:
    """Return an hourly task after the absence, its gap, and what is said about that."""
    task = (await _away(a, {"hourly": HOURLY}))["hourly"]
    _, [gap] = await _told(a, task)
    ends = format_instant(gap["first_slot"]), format_instant(gap["last_slot"])
    assert gap["last_slot"] == START + WEEK
    return task, gap, f"{gap['slots']} slots from {ends[0]} to {ends[1]}: {RECENT}"


async def test_people_see_the_range_among_the_runs(a: Asker) -> None:
    """Lists have it as one item, on whatever page it is."""
    task, gap, words = await _one_gap(a)
    status, page = await a.ask("GET", f"/v1/tasks/{task}/runs?state=unplaced")
    [item] = page["items"]
    assert (status, item["slots"], item["reason"]) == (200, gap["slots"], words)
    assert (item["state"], item["attempt"]) == ("unplaced", 0)
    assert item["slot"] == format_instant(gap["first_slot"])
    assert item["last_slot"] == format_instant(gap["last_slot"])
    [(rows,)] = await a.rows("SELECT count(*) FROM run")
    for order in ("asc", "desc"):
        everything, cursor = [], ""
        for _ in range(rows + 1):
            _, page = await a.ask("GET", f"/v1/runs?limit=1&order={order}{cursor}")
            everything += [run["id"] for run in page["items"]]
            cursor = f"&cursor={page['next']}"
        assert len(set(everything)) == len(everything) == rows + 1
        assert item["id"] in everything
    status, shown = await a.ask("GET", f"/v1/runs/{item['id']}")
    assert (status, shown["slots"], shown["parts"]) == (200, gap["slots"], [])
    for state in ("finished", "missed"):
        _, page = await a.ask("GET", f"/v1/runs?state={state}")
        assert item["id"] not in {run["id"] for run in page["items"]}
    _, schedule = await a.ask("GET", f"/v1/schedule?from={format_instant(START + times.DAY)}")
    assert words in {entry["reason"] for entry in schedule["items"]}


async def test_people_may_ask_for_each_slot(a: Asker) -> None:
    """The range explains itself, and each slot in it; others are explained by their runs."""
    task, gap, words = await _one_gap(a)
    inside = quote(format_instant(START + 100 * times.HOUR))
    for path in (f"/v1/runs/{gap['id']}/explain", f"/v1/tasks/{task}/explain?slot={inside}"):
        status, explained = await a.ask("GET", path)
        assert (status, explained["sentence"]) == (200, f"unplaced: {words}")
        assert explained["run"] == str(gap["id"])
        assert f"{gap['slots']} given up from" in explained["decisions"][0]["sentence"]
    await a.rows(LATE, task, FIRST)
    _, explained = await a.ask("GET", f"/v1/tasks/{task}/explain?slot={format_instant(FIRST)}")
    assert explained["sentence"] == "missed: late"
    status, problem = await a.ask("GET", f"/v1/tasks/{task}/explain?slot=2026-12-30T00:00:01Z")
    assert (status, problem["detail"].endswith("no gap then")) == (404, True)


async def test_the_nearest_slot_is_explained(a: Asker) -> None:
    """A time between two slots is that of the nearest; before the task began, there is none."""
    task = await _create(a, HOURLY)
    await a.rows(LATE, task, FIRST)
    for asked in (FIRST + 10 * times.MINUTE, FIRST - 10 * times.SECOND):
        _, told = await a.ask("GET", f"/v1/tasks/{task}/explain?slot={format_instant(asked)}")
        near = f"the slot nearest to {format_instant(asked)} is {format_instant(FIRST)}: missed"
        assert told["sentence"].startswith(near)
    status, problem = await a.ask("GET", f"/v1/tasks/{task}/explain?slot=2026-01-01")
    assert status == 404
    assert "did not exist at 2026-01-01T00:00:00Z: it was created at 2026-12-" in problem["detail"]


async def test_a_slot_is_found_by_its_second(a: Asker) -> None:
    """People see and write whole seconds and minutes of a slot: they mean all of them."""
    task = await _create(a, HOURLY)
    await a.rows(LATE, task, FIRST + 120_000)
    await _tell(a.node.database, [_gap(task, 3, 9)])
    for slot, expected in ((FIRST, "missed: late"), (FIRST + 2 * times.HOUR, "unplaced: 7 slots")):
        _, told = await a.ask("GET", f"/v1/tasks/{task}/explain?slot={format_instant(slot)}")
        assert told["sentence"].startswith(expected)


async def test_counts_have_each_slot_of_a_gap(a: Asker) -> None:
    """The task, the metrics and the view of missed runs count slots."""
    task, gap, _ = await _one_gap(a)
    _, shown = await a.ask("GET", f"/v1/tasks/{task}")
    assert shown["runs"]["unplaced"] == gap["slots"]
    _, explained = await a.ask("GET", f"/v1/tasks/{task}/explain")
    assert f"{gap['slots']} unplaced" in explained["sentence"]
    async with a.session.get(f"{a.node.card.url}/metrics") as response:
        text = await response.text()
    figure = float(gap["slots"])
    assert f'parley_runs{{scheduling_class="background",state="unplaced"}} {figure}' in text
    [(missed,)] = await a.rows("SELECT sum(slots)::bigint FROM run_missed WHERE state = 'unplaced'")
    assert missed == gap["slots"]


async def test_a_mesh_misses_each_slot_of_a_gap(a: Asker) -> None:
    """In any span its slots are due and missing, with the reason."""
    _, gap, _ = await _one_gap(a)
    day = f"from={format_instant(START + times.DAY)}&to={format_instant(START + 2 * times.DAY)}"
    for span, due in ((f"from={format_instant(gap['first_slot'])}", gap["slots"]), (day, 24)):
        _, mesh = await a.ask("GET", f"/v1/meshes/lab?{span}")
        assert (mesh["delivery"]["due"], mesh["delivery"]["delivered"]) == (due, 0)
        [cause] = mesh["delivery"]["causes"]
        assert (cause["state"], cause["count"], cause["example"]) == ("unplaced", due, RECENT)
        assert cause["cause"] == "no lead of this node was heard from … to …"
        _, pairs = await a.ask("GET", f"/v1/meshes/lab/pairs?{span}")
        assert [pair["due"] for pair in pairs["items"]] == [due]


async def test_a_gap_is_seen_by_those_who_may_see_its_task(a: Asker) -> None:
    """A token for own tasks neither lists nor shows the gaps of others."""
    task = await _create(a, {"repeat": "PT1H"})
    await _tell(a.node.database, [_gap(task, 1, 10)])
    [(gap,)] = await a.rows("SELECT id FROM gap")
    await give_token(a.node, "other", "eve", Role.RUN)
    async with user(a, "other") as eve:
        assert (await eve.ask("GET", f"/v1/runs/{gap}"))[0] == 403
        assert (await eve.ask("GET", "/v1/runs"))[1]["items"] == []
    assert (await a.ask("GET", f"/v1/runs/{gap}"))[0] == 200


def _gap(task: UUID, first: int, last: int) -> Gap:
    """Return a gap of hourly slots, counted from the start."""
    at = START + first * times.HOUR, START + last * times.HOUR
    return Gap(task, SlotRange(*at, last - first + 1), windows_over())


async def _tell(database: Any, gaps: list[Gap], now: int = START) -> None:
    async with database.transaction() as connection:
        await gaps_store.keep_gaps(connection, gaps, now)


async def _led(site: Site, **schedule: Any) -> UUID:
    """Let a site lead an hourly task that only it takes part in."""
    made = Schedule(**{"start": START, "repeat": times.HOUR, "slip": 0, **schedule})
    task = introduction([site], schedule=made)
    await site.keep(task, site)
    return task.task


async def _gaps(site: Site, task: UUID) -> list[tuple[int, int, int]]:
    """Return first and last slot of each gap, in hours since the start, and the number of slots."""
    rows = await site.rows(
        "SELECT first_slot, last_slot, slots FROM gap WHERE task_id = $1 ORDER BY first_slot", task
    )
    hours = [(first - START, last - START, slots) for first, last, slots in rows]
    return [(first // times.HOUR, last // times.HOUR, slots) for first, last, slots in hours]


async def _all_planned(site: Site, workers: Workers | None = None) -> None:
    due = "SELECT FROM planning WHERE plan_at <= $1"
    while await site.rows(due, site.clock.now()):
        at_work = workers or site.workers
        await at_work.run_once()
        await asyncio.gather(*at_work._busy)


@ON_ONE_LOOP
async def test_two_gaps_overlap_in_no_database(world: World) -> None:
    """The database refuses a second gap with the same slots; the statement leaves it out."""
    a = await world.site("a")
    task = await _led(a)
    await _tell(a.database, [_gap(task, 1, 10), _gap(task, 5, 20), _gap(task, 11, 12)])
    assert await _gaps(a, task) == [(1, 10, 10), (11, 12, 2)]
    other = await _led(a)
    await _tell(a.database, [_gap(other, 5, 20)])
    with pytest.raises(BrokenOverlap):
        await a.execute(
            "INSERT INTO gap SELECT gen_random_uuid(), task_id, last_slot, "
            "last_slot + interval '1 h', 2, '', told_at FROM gap WHERE task_id = $1",
            other,
        )


@ON_ONE_LOOP
async def test_two_absences_are_two_gaps(world: World) -> None:
    """Gaps next to each other are not merged: each tells its own absence."""
    a = await world.site("a", horizon=times.HOUR)
    task = await _led(a)
    await _all_planned(a)
    for _ in range(2):
        await _show_lead(a)
        world.clock.advance(times.DAY)
        await _show_lead(a)
        await _all_planned(a)
    reasons = await a.rows("SELECT reason FROM gap WHERE task_id = $1 ORDER BY first_slot", task)
    assert len({row[0] for row in reasons}) == 2
    (_, last, _), (first, _, _) = await _gaps(a, task)
    told = {row[0] for row in await a.rows("SELECT slot FROM run WHERE task_id = $1", task)}
    between = {START + hour * times.HOUR for hour in range(last + 1, first)}
    assert between <= told


@ON_ONE_LOOP
async def test_a_lead_that_dies_while_it_catches_up_tells_nothing_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lead that takes over tells once what was not committed."""
    a = await world.site("a", horizon=times.HOUR)
    task = await _led(a)
    world.clock.advance(WEEK)
    with monkeypatch.context() as dying:

        async def die(*_: object) -> None:
            raise asyncio.CancelledError

        dying.setattr(planning, "keep_decisions", die)
        await a.workers.run_once()
        await asyncio.gather(*a.workers._busy, return_exceptions=True)
    assert await _gaps(a, task) == []
    world.clock.advance(times.MINUTE)  # its lease ends
    await _all_planned(a, a.new_workers("another"))
    assert await _gaps(a, task) == [(0, 168, 169)]


@ON_ONE_LOOP
async def test_a_lead_that_lost_its_lease_tells_no_gap(world: World) -> None:
    """Two leads that catch up on one task tell its slots once."""
    a = await world.site("a", horizon=3 * times.HOUR)
    task = await _led(a)
    world.clock.advance(WEEK)
    other, met = a.new_workers("another"), asyncio.Event()

    async def overtake(call: Any, phase: str) -> None:
        if call[2] == "propose" and phase == "asked" and not met.is_set():
            met.set()
            world.clock.advance(a.node.settings.lease + times.SECOND)
            await other.run_once()
            await asyncio.gather(*other._busy)

    world.watch = overtake
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy)
    world.watch = None
    await _all_planned(a)
    assert met.is_set()
    assert await _gaps(a, task) == [(0, 168, 169)]


@ON_ONE_LOOP
@pytest.mark.nightly
async def test_a_slot_that_was_held_when_the_lead_died_is_told_once(world: World) -> None:
    """Its run waits when the hold ends, and tells of it; the gap begins after it."""
    a, b = await world.site("a", horizon=3 * times.HOUR), await world.site("b")
    task = introduction([a, b], schedule=Schedule(start=START, repeat=times.HOUR, slip=0))
    for site in (a, b):
        await site.keep(task, a)

    async def die(call: Call, phase: str) -> None:
        if call[1:] == ("a", "hold") and phase == "answered":
            raise asyncio.CancelledError

    world.watch = die
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy, return_exceptions=True)
    world.watch = None
    held = [row[0] for row in await a.rows("SELECT slot FROM run WHERE task_id = $1", task.task)]
    assert held
    world.clock.advance(WEEK)
    await _all_planned(a, a.new_workers("another"))
    await world.pass_time(2 * HOLD_LIFE)
    rows = await a.rows("SELECT slot FROM run WHERE task_id = $1 AND state = 'unplaced'", task.task)
    inside = [
        hour for first, last, _ in await _gaps(a, task.task) for hour in range(first, last + 1)
    ]
    told = [*inside, *((row[0] - START) // times.HOUR for row in rows)]
    assert sorted(told) == list(range(169))


@ON_ONE_LOOP
async def test_slots_with_runs_are_in_no_gap(world: World) -> None:
    """A task that was edited just before: what was measured splits the gap, what was freed not."""
    a = await world.site("a", horizon=6 * times.HOUR)
    task = await _led(a, slip=5 * times.MINUTE)
    await _all_planned(a)
    await a.execute(
        "UPDATE run SET state = 'finished', started_at = starts_at WHERE slot = $1",
        START + 3 * times.HOUR,
    )
    await a.node.editing.edit(
        task, TaskPatch.model_validate({"test": {"spec": {"duration": "PT2M"}}})
    )
    world.clock.advance(times.DAY)
    await _all_planned(a)
    assert await _gaps(a, task) == [(0, 2, 3), (4, 23, 20)]
    freed = await a.rows("SELECT slot FROM run WHERE freed AND slot > $1", START + 3 * times.HOUR)
    assert freed


@ON_ONE_LOOP
async def test_a_paused_task_has_no_gap(world: World) -> None:
    """Slots in a pause were taken back by somebody; planning goes on after it."""
    a = await world.site("a", horizon=times.HOUR)
    task = await _led(a)
    await _all_planned(a)
    await a.node.editing.pause(task)
    world.clock.advance(WEEK)
    await a.node.editing.resume(task)
    await _all_planned(a)
    assert await _gaps(a, task) == []


@ON_ONE_LOOP
async def test_an_edit_changes_nothing_that_has_passed(world: World) -> None:
    """Slots of an absence are told by the schedule that they had, before another one holds."""
    a = await world.site("a", horizon=times.HOUR)
    task = await _led(a)
    await _all_planned(a)
    booked = await a.rows("SELECT slot FROM run WHERE task_id = $1", task)
    await _show_lead(a)
    world.clock.advance(WEEK + times.MINUTE)
    every = {"schedule": {"repeat": "PT6M"}}
    await a.node.editing.edit(task, TaskPatch.model_validate(every))
    world.clock.advance(CHANGE_ACKNOWLEDGEMENT_TIMEOUT)
    first = (max(row[0] for row in booked) - START) // times.HOUR + 1
    assert await _gaps(a, task) == [(first, 168, 169 - first)]
    [(reason,)] = await a.rows("SELECT reason FROM gap")
    assert reason == RECENT.replace("00:20:00", "00:01:00")
    await _all_planned(a)
    assert len(await _gaps(a, task)) == 1
    runs_of_it = "SELECT count(*), min(slot) FROM run WHERE task_id = $1 AND slot > $2"
    [(count, soonest)] = await a.rows(runs_of_it, task, START + WEEK)
    assert (count > 5, soonest > world.clock.now()) == (True, True)


@ON_ONE_LOOP
@pytest.mark.parametrize(
    "patch", [{"priority": 3}, {"schedule": {"until": "2026-12-15T00:00:00Z"}}]
)
async def test_an_edit_after_an_absence_tells_each_slot_once(
    world: World, patch: dict[str, Any]
) -> None:
    """Passed slots are told by the edit, and not once more by the lead."""
    a = await world.site("a", horizon=times.HOUR)
    task = await _led(a, until=START + times.DAY)
    world.clock.advance(WEEK + times.MINUTE)
    await a.node.editing.edit(task, TaskPatch.model_validate(patch))
    world.clock.advance(CHANGE_ACKNOWLEDGEMENT_TIMEOUT)
    await _all_planned(a)
    assert await _gaps(a, task) == [(0, 23, 24)]
    sentences = await a.rows("SELECT sentence FROM decision WHERE outcome = 'given up'")
    assert [row[0] for row in sentences] == [
        "24 given up from 2026-12-01T00:00:00Z on: the window is over"
    ]


@ON_ONE_LOOP
@pytest.mark.parametrize("patch", [{"schedule": {"slip": "PT1M"}}, {"priority": 3}])
async def test_an_edit_of_a_single_slot_tells_it_once(world: World, patch: dict[str, Any]) -> None:
    """An edit whose slip leaves time has the slot planned, and another one has it told as a gap."""
    a = await world.site("a", horizon=times.HOUR)
    task = await _led(a, repeat=None, slip=10 * times.SECOND)
    world.clock.advance(11 * times.SECOND)
    await a.node.editing.edit(task, TaskPatch.model_validate(patch))
    world.clock.advance(CHANGE_ACKNOWLEDGEMENT_TIMEOUT)
    await _all_planned(a)
    runs = await a.rows("SELECT state::text FROM run WHERE task_id = $1", task)
    reopened = "schedule" in patch
    assert await _gaps(a, task) == ([] if reopened else [(0, 0, 1)])
    assert [row[0] for row in runs] == (["booked"] if reopened else [])


@ON_ONE_LOOP
async def test_a_run_that_waits_in_a_gap_is_ended(world: World) -> None:
    """A slot that was told as a gap, and waits all the same, does not wait for ever."""
    a = await world.site("a", horizon=times.HOUR)
    task = await _led(a, repeat=None)
    await a.execute(
        "INSERT INTO gap (id, task_id, first_slot, last_slot, slots, reason, told_at) "
        "VALUES (gen_random_uuid(), $1, $2, $2, 1, 'over', $2)",
        task,
        START,
    )
    await a.execute(
        "INSERT INTO run (id, task_id, slot, attempt, participant, scheduling_class, priority, "
        "starts_at, ends_at, state, reason, created_at, changed_at) "
        "SELECT $2, id, $3, 1, participant, scheduling_class, 0, $3, $4, 'waiting', "
        "'busy', $3, $3 FROM task WHERE id = $1",
        task,
        run_id(TaskId(task), START, 1),
        START,
        START + times.MINUTE,
    )
    await a.execute("UPDATE planning SET planned_to = $2 WHERE task_id = $1", task, START)
    world.clock.advance(times.HOUR)
    await a.execute("UPDATE planning SET plan_at = $2 WHERE task_id = $1", task, START)
    await a.plan()
    assert await a.rows("SELECT state::text, reason FROM run WHERE task_id = $1", task) == [
        ("unplaced", "busy")
    ]


@ON_ONE_LOOP
async def test_a_slot_that_a_cancel_told_while_a_lead_decided_is_told_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that had claimed the task has no run for the slot: the cancel told it as a gap."""
    a = await world.site("a", horizon=times.HOUR)
    task = await _led(a, repeat=None)
    world.clock.advance(times.MINUTE)
    finish, ends = planning.finish_claims, list[int]()

    async def finish_after_a_cancel(*values: Any) -> Any:
        ends.append(world.clock.now())
        await a.node.termination.cancel_task(task)
        return await finish(*values)

    monkeypatch.setattr(planning, "finish_claims", finish_after_a_cancel)
    await a.workers.run_once()
    await asyncio.gather(*a.workers._busy)
    assert len(ends) == 1
    assert await _gaps(a, task) == [(0, 0, 1)]
    assert await a.rows("SELECT FROM run WHERE task_id = $1", task) == []


@ON_ONE_LOOP
@pytest.mark.parametrize("end", ["pause", "cancel", "refuse"])
async def test_slots_before_an_end_or_a_pause_are_told(world: World, end: str) -> None:
    """Passed slots are told when nobody plans the task any more, or not for now."""
    a = await world.site("a", horizon=times.HOUR)
    task = await _led(a)
    await _all_planned(a)
    world.clock.advance(times.DAY + times.MINUTE)
    if end == "pause":
        await a.node.editing.pause(task)
    elif end == "cancel":
        await a.node.termination.cancel_task(task)
    else:
        await a.node.termination.refuse_task(task, "no more")
    [(first, last, slots)] = await _gaps(a, task)
    told = [row[0] for row in await a.rows("SELECT slot FROM run WHERE task_id = $1", task)]
    assert (last, slots, first) == (24, 25 - len(told), len(told))
    world.clock.advance(times.DAY)
    if end == "pause":
        await a.node.editing.resume(task)
        world.clock.advance(CHANGE_ACKNOWLEDGEMENT_TIMEOUT)
    await _all_planned(a)
    assert len(await _gaps(a, task)) == 1


@ON_ONE_LOOP
async def test_a_task_that_ends_at_once_has_no_gap(world: World) -> None:
    """Its lead was perhaps just planning it: nobody was absent."""
    a = await world.site("a")
    task = await _led(a)
    world.clock.advance(times.SECOND)
    await a.node.termination.cancel_task(task)
    assert await _gaps(a, task) == []


@ON_ONE_LOOP
async def test_a_task_with_all_its_runs_has_no_gap(world: World) -> None:
    """Nothing is missing of a schedule that goes on after the last run that is wanted."""
    a = await world.site("a", horizon=4 * times.HOUR)
    task = await _led(a, max_runs=2)
    await _all_planned(a)
    world.clock.advance(times.DAY)
    await a.node.termination.cancel_task(task)
    assert await _gaps(a, task) == []


@ON_ONE_LOOP
@pytest.mark.parametrize("end", ["edit", "pause", "cancel"])
@pytest.mark.mostly_nightly
async def test_slots_of_a_pool_task_are_told_before_it_changes(world: World, end: str) -> None:
    """The schedule that they had decides, as with other tasks."""
    pool = await pooled(world, [{}, {}])
    task = await pool.create(1, seat=False)
    world.clock.advance(times.DAY + times.MINUTE)
    if end == "edit":
        await pool.edit(task, schedule={"repeat": "PT2H"})
    elif end == "pause":
        await pool.lead.node.editing.pause(task)
    else:
        await pool.lead.node.termination.cancel_task(task)
    told = await _gaps(pool.lead, task)
    assert [(last, slots - last + first) for first, last, slots in told] == [(23, 1)]
    await pool.seat()
    assert await _gaps(pool.lead, task) == told


@ON_ONE_LOOP
async def test_a_task_has_no_gap_from_before_it_was_created(world: World) -> None:
    """A task that follows another one lacks what would have ended since then."""
    a = await world.site("a", horizon=times.HOUR)
    task, then = await _led(a), await _led(a)
    await a.execute(
        "UPDATE task SET created_at = $3, schedule = "
        "jsonb_build_object('after', jsonb_build_object('task', $1::text)) WHERE id = $2",
        str(task), then, START + times.DAY,
    )  # fmt: skip
    await a.execute("UPDATE planning SET plan_at = NULL WHERE task_id = $1", then)
    world.clock.advance(WEEK)
    await _all_planned(a)
    [(first, last, slots)] = await a.rows(
        "SELECT first_slot, last_slot, slots FROM gap WHERE task_id = $1", then
    )
    [duration] = [row[0] for row in await a.rows("SELECT duration FROM task WHERE id = $1", task)]
    assert (first, last) == (START + times.DAY + duration, START + WEEK + duration)
    assert slots == 145


@ON_ONE_LOOP
async def test_a_clock_that_was_ahead_leaves_no_gap(world: World) -> None:
    """Slots that seemed to have passed are planned when they come."""
    a = await world.site("a", horizon=4 * times.HOUR)
    task = await _led(a)
    await _all_planned(a)
    world.clock.advance(WEEK)
    await _all_planned(a)
    [(first, _, slots)] = await _gaps(a, task)
    assert slots > 160
    now = START + times.HOUR
    world.clock.step(now - world.clock.now())
    async with a.database.transaction() as connection:
        await clock_steps.repair(connection, now, a.node.settings.lease)
    assert await _gaps(a, task) == []
    world.clock.advance(first * times.HOUR)
    await _all_planned(a)
    rows = await a.rows("SELECT slot FROM run WHERE task_id = $1 AND state = 'booked'", task)
    assert START + (first + 2) * times.HOUR in {row[0] for row in rows}
    assert await _gaps(a, task) == []


@ON_ONE_LOOP
async def test_followers_have_the_gap_too(world: World) -> None:
    """A task that follows another one has no runs to follow: it tells why, as a range."""
    a = await world.site("a", horizon=times.HOUR)
    task = await _led(a)
    then = await _led(a)
    await a.execute(
        "UPDATE task SET schedule = "
        "jsonb_build_object('after', jsonb_build_object('task', $1::text)) WHERE id = $2",
        str(task),
        then,
    )
    await a.execute("UPDATE planning SET plan_at = NULL WHERE task_id = $1", then)
    world.clock.advance(WEEK)
    await _all_planned(a)
    [(first, last, slots, reason)] = await a.rows(
        "SELECT first_slot, last_slot, slots, reason FROM gap WHERE task_id = $1", then
    )
    [duration] = [row[0] for row in await a.rows("SELECT duration FROM task WHERE id = $1", task)]
    assert (first, last, slots) == (START + duration, START + WEEK + duration, 169)
    assert reason.startswith(f"task {task}, which it follows, has a gap: their windows were over")
    assert await a.rows("SELECT FROM run WHERE task_id = $1", then) == []


@ON_ONE_LOOP
async def test_charges_and_quotas_know_nothing_of_gaps(world: World) -> None:
    """Nobody pays for slots that were never planned."""
    a = await world.site("a", horizon=times.HOUR)
    await _led(a, until=START + times.DAY)
    world.clock.advance(WEEK)
    await _all_planned(a)
    await a.tend()
    assert await a.rows("SELECT FROM charge") == []
    assert [row[0] for row in await a.rows("SELECT state::text FROM task")] == ["finished"]


@ON_ONE_LOOP
async def test_old_gaps_are_deleted(world: World) -> None:
    """Gaps are kept as long as runs that did not take place."""
    a = await world.site("a")
    task = await _led(a)
    await _tell(a.database, [_gap(task, 1, 10), _gap(task, 11, 20)])
    keep = a.node.settings.keep_failed
    world.clock.move_to(START + 15 * times.HOUR + keep)
    await a.node.purger.purge(a.node.clock.now())
    assert await _gaps(a, task) == [(11, 20, 10)]
    await a.node.termination.cancel_task(task)
    async with a.database.transaction() as connection:
        assert await tasks_store.purge(connection, times.LATEST - 1, 10) == 0
        assert await runs.purge_gaps(connection, times.LATEST - 1, 10) == 1
        assert await tasks_store.purge(connection, times.LATEST - 1, 10) == 1


@ON_ONE_LOOP
@pytest.mark.parametrize("choice", ["sticky", "rotating"])
@pytest.mark.nightly
async def test_a_pool_task_tells_its_slots_as_a_gap(world: World, choice: str) -> None:
    """Terms that nobody opened in time are one range, and the next one begins with an open slot."""
    pool = await pooled(world, [{}, {}])
    task = await pool.create(1, seat=False, request={"choice": choice})
    world.clock.advance(WEEK)
    await pool.seat()
    [(first, last, slots)] = await _gaps(pool.lead, task)
    assert (last, slots) == (168, last - first + 1) or (last, slots) == (167, last - first + 1)
    terms = await pool.lead.rows("SELECT starts_at FROM term WHERE pool_task = $1", task)
    assert min(row[0] for row in terms) > START + last * times.HOUR
    assert len(terms) < 30
    assert f"{slots} given up from" in (await pool.told(task))[0][1]


@ON_ONE_LOOP
async def test_a_pool_task_all_of_whose_slots_are_in_a_gap_was_not_placed(world: World) -> None:
    """It ends with the reason of the gap."""
    pool = await pooled(world, [{}, {}])
    task = await pool.create(1, seat=False, schedule={"max_runs": 20})
    world.clock.advance(WEEK)
    await pool.seat()
    await pool.lead.tend()
    [(_, _, slots)] = await _gaps(pool.lead, task)
    [(state, reason)] = await pool.lead.rows(
        "SELECT state::text, reason FROM task WHERE id = $1", task
    )
    assert (slots, state) == (20, "unplaced")
    assert "their windows were over" in reason


@ON_ONE_LOOP
async def test_an_absence_is_from_sign_to_sign(world: World) -> None:
    """Short silences are none, nor is a wrong clock; two leads that return together tell one."""
    a = await world.site("a")
    await _show_lead(a)
    world.clock.advance(20 * times.SECOND)
    await _show_lead(a)
    assert await a.rows("SELECT FROM lead_absence") == []
    world.clock.advance(times.HOUR)
    await _show_lead(a)
    async with a.database.connection() as connection:
        await readiness.keep_lead(connection, "another", world.clock.now(), 0)
    since = START + 20 * times.SECOND
    expected = [(since, since + times.HOUR)]
    assert [tuple(row) for row in await a.rows("SELECT since, until FROM lead_absence")] == expected
    async with a.database.transaction() as connection:
        await clock_steps.repair(connection, START, a.node.settings.lease)
    assert await a.rows("SELECT FROM lead_absence") == []


@ON_ONE_LOOP
async def test_parts_of_a_gap_are_counted_without_its_slots(world: World) -> None:
    """Evenly spaced slots are counted exactly in any span, others add up to the whole."""
    a, rng = await world.site("a"), random.Random(1)
    for _ in range(50):
        step, slots = rng.randint(1, 10**10), rng.randint(1, 200)
        first = START + rng.randint(0, 10**9)
        every = range(first, first + step * slots, step)
        instants = [every[rng.randrange(slots)] + rng.choice((-1, 0, 1)) for _ in range(20)]
        rows = await a.rows(
            "SELECT slots_before(instant, $2, $3, $4) FROM unnest($1::timestamptz []) "
            "WITH ORDINALITY AS given (instant, number) ORDER BY number",
            instants, first, every[-1], slots,
        )  # fmt: skip
        assert [row[0] for row in rows] == [sum(slot < at for slot in every) for at in instants]


@ON_ONE_LOOP
async def test_many_tasks_are_told_in_few_statements(world: World) -> None:
    """The gaps of a thousand tasks are one statement."""
    a = await world.site("a")
    await a.execute(
        "INSERT INTO task "
        "(id, lead, test, spec, scheduling_class, duration, participants, created_at)"
        " SELECT gen_random_uuid(), identity, 'idle', '{}', 'normal', interval '1 s', '[]', $1"
        " FROM node, generate_series(1, 1000) WHERE is_self",
        START,
    )
    tasks = [row[0] for row in await a.rows("SELECT id FROM task")]
    await _tell(a.database, [_gap(task, 1, 1000) for task in tasks])
    [(gaps,)] = await a.rows("SELECT count(*) FROM gap")
    assert gaps == 1000
