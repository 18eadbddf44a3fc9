"""A node that stands still around a start: its run ends with a reason, wherever it stood still."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from node.execution import process
from node.execution.launcher import PREPARATION_TIME
from node.model import times
from node.model.errors import DatabaseUnavailable, PeerUnreachable
from node.model.ids import TaskId, run_id
from node.model.late_runs import LOST_RUN_TIMEOUT
from node.model.reasons import booking_unconfirmed, track_lost
from node.model.wire.participants import Introduction, RunEnd
from node.model.wire.tasks import Schedule
from node.plugins.contracts import Command, PartContext
from node.runtime.clock import LatchedEvent
from node.store import notices, runs
from node.store.database import Connection, Notice
from node.store.runs import KeptPart
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.worlds import (
    DURATION,
    HOLD_LIFE,
    ON_ONE_LOOP,
    Call,
    Site,
    World,
    introduction,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
STOP = 5_500_000
REASON = "could not be started in time: 5.5 s late"

STOPS = [
    "before the look",
    "between the look and the beginning",
    "before the release",
    "in the last moment before the release",
]


@dataclass(frozen=True)
class Programs:
    """The programs that were started, and those of them that were released from being held."""

    started: list[str]
    released: list[str]


@dataclass(frozen=True)
class Booked:
    """A one-off run of nodes a and b, led by a and charged there."""

    a: Site
    b: Site
    task: Introduction
    run: UUID


@pytest.fixture
def programs(world: World, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Record the programs of all nodes, and kill each that is released, so that no test waits."""
    programs = Programs([], [])
    begin, start = process.RunningProcess.begun, process.start

    async def begun(
        running: process.RunningProcess, now: Callable[[], int], timeout_s: float
    ) -> bool:
        if not await begin(running, now, timeout_s):
            return False
        programs.released.append(running._name)
        running.send(signal.SIGKILL)
        return True

    async def started(argv: Any, **options: Any) -> process.RunningProcess:
        if "held" in options:  # a measurement, and not what runs the tools
            programs.started.append(argv[0])
        return await start(argv, **options)

    monkeypatch.setattr(process.RunningProcess, "begun", begun)
    monkeypatch.setattr(process, "start", started)
    return programs


@pytest_asyncio.fixture(loop_scope="session")
async def booked(world: World) -> Booked:
    """Plan the run; time goes on at its start."""
    a, b = await world.two()
    task = introduction([a, b], schedule=Schedule(start=HOUR, slip=0))
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    await world.settle()
    world.clock.move_to(HOUR)
    return Booked(a, b, task, run_id(TaskId(task.task), HOUR, 1))


async def _launch(site: Site) -> None:
    """Launch what is due, and wait until the node has done its part."""
    await site.node.launcher.run_once()
    await asyncio.gather(*site.node.launcher._tasks.values(), return_exceptions=True)


def _after(monkeypatch: pytest.MonkeyPatch, site: Site, step: str, then: Callable[[], Any]) -> None:
    """Do something right after a step of the launcher."""
    done: Callable[..., Awaitable[Any]] = getattr(site.node.launcher, step)

    async def stepped(*values: Any) -> Any:
        outcome = await done(*values)
        if (awaited := then()) is not None:
            await awaited
        return outcome

    monkeypatch.setattr(site.node.launcher, step, stepped)


async def _stand_still(
    monkeypatch: pytest.MonkeyPatch, world: World, site: Site, when: str
) -> None:
    """Launch a node's part; the node stands still meanwhile for 5.5 s."""
    if when == STOPS[0]:
        world.clock.advance(STOP)
    elif when == STOPS[3]:
        wait = site.node.launcher._wait_until

        async def until(instant: int, cancelled: LatchedEvent) -> bool:
            came = await wait(instant, cancelled)
            world.clock.advance(STOP if instant == HOUR else 0)
            return came

        monkeypatch.setattr(site.node.launcher, "_wait_until", until)
    else:
        step = "_take_back_if_dropped" if when == STOPS[1] else "_start"
        _after(monkeypatch, site, step, lambda: world.clock.advance(STOP))
    await _launch(site)


async def _net(site: Site) -> int:
    """Return what the lead has charged and not given back."""
    query = "SELECT weight, starts_at, ends_at FROM charge"
    return sum(row[0] * (row[2] - row[1]) for row in await site.rows(query))


async def _task_state(site: Site, task: UUID) -> str:
    [row] = await site.rows("SELECT state::text FROM task WHERE id = $1", task)
    return str(row[0])


@pytest.mark.parametrize("when", STOPS)
@pytest.mark.mostly_nightly
async def test_a_lead_that_stood_still_ends_the_run_everywhere(
    world: World,
    booked: Booked,
    programs: Programs,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """Nothing is measured here or charged, the other learns it and stops, and the task ends."""
    a, b, run = booked.a, booked.b, booked.run
    async with b.database.transaction() as connection:
        assert await runs.begin(connection, run, HOUR)
    await _stand_still(monkeypatch, world, a, when)
    assert (await a.state(run), await a.reason(run)) == ("missed", REASON)
    assert programs == Programs([] if when == STOPS[0] else ["sleep"], [])
    assert await _net(a) == 0
    await a.tend()
    await world.settle()
    assert (await b.state(run), await b.reason(run)) == ("cancelled", f"a: {REASON}")
    for site in (a, b):
        assert await _task_state(site, booked.task.task) == "finished"


@pytest.mark.parametrize("when", STOPS)
@pytest.mark.mostly_nightly
async def test_a_participant_that_stood_still_fails_the_run(
    world: World,
    booked: Booked,
    programs: Programs,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """It misses the run, and its lead learns why as soon as its own part is done."""
    a, b, run = booked.a, booked.b, booked.run
    async with a.database.transaction() as connection:
        assert await runs.begin(connection, run, HOUR)
    await _stand_still(monkeypatch, world, b, when)
    assert (await b.state(run), await b.reason(run)) == ("missed", REASON)
    assert programs == Programs([] if when == STOPS[0] else ["sleep"], [])
    await world.settle()
    assert await a.state(run) == "running"
    world.clock.move_to(HOUR + DURATION)
    done = KeptPart(0, "a", {"slept_ms": 1.0}, None, HOUR, HOUR + DURATION)
    await a.node.collector.keep_own(run, done)
    assert (await a.state(run), await a.reason(run)) == ("failed", f"b: {REASON}")
    await a.tend()
    await world.settle()
    for site in (a, b):
        assert await _task_state(site, booked.task.task) == "finished"


async def test_a_program_that_waits_itself_is_not_left_to_measure_late(
    world: World, booked: Booked, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is not held, and was started too late, is ended and its run is missed."""
    tool = booked.a.node.capabilities.tools["sleep"]
    command = type(tool).command

    def unheld(self: Any, part: PartContext) -> Command:
        return replace(command(self, part), argv=("true",), waits_itself=True)

    monkeypatch.setattr(type(tool), "command", unheld)
    start = booked.a.node.launcher._start

    async def late(*values: Any) -> process.RunningProcess:
        world.clock.advance(STOP)
        return await start(*values)

    monkeypatch.setattr(booked.a.node.launcher, "_start", late)
    await _launch(booked.a)
    assert programs == Programs(["true"], [])
    assert await booked.a.state(booked.run) == "missed"
    assert await booked.a.reason(booked.run) == REASON


@pytest.mark.parametrize("state", ["cancelled", "displaced"])
async def test_what_was_taken_back_is_not_measured(
    booked: Booked, programs: Programs, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """A run that ends between the last look and its beginning does not begin, nor is it said to."""
    b, run = booked.b, booked.run
    heard, notify = list[object](), notices.notify

    async def notified(connection: Connection, *words: object) -> None:
        heard.append(words)
        await notify(connection, *words)

    monkeypatch.setattr(notices, "notify", notified)
    end = RunEnd(run=run, state=state, reason="a took it back")
    _after(
        monkeypatch,
        b,
        "_take_back_if_dropped",
        lambda: b.node.termination.apply_run_end(booked.a.identity, end),
    )
    await _launch(b)
    assert await b.state(run) == state
    assert heard == [("run", run, booked.task.task, state)]
    assert programs == Programs([], [])
    assert await b.rows("SELECT FROM part") == []


@pytest.mark.parametrize("by", ["notification", "look"])
async def test_what_is_taken_back_meanwhile_is_stopped(
    booked: Booked, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """A program ends as soon as its run was, by the notification or, if that is lost, a look."""
    b, run = booked.b, booked.run
    launcher, measures = b.node.launcher, asyncio.Event()
    _after(monkeypatch, b, "_record", measures.set)
    await launcher.run_once()
    [measuring] = launcher._tasks.values()
    await asyncio.wait_for(measures.wait(), PATIENCE_S)
    end = RunEnd(run=run, state="cancelled", reason="a took it back")
    await b.node.termination.apply_run_end(booked.a.identity, end)
    if by == "notification":
        launcher.on_notice(Notice("run", str(run), (str(booked.task.task), "cancelled")))
    else:
        await launcher.run_once()
    await asyncio.wait_for(measuring, PATIENCE_S)
    assert (await b.state(run), await b.reason(run)) == ("cancelled", "a took it back")
    assert await b.rows("SELECT result, reason FROM part") == [(None, "cancelled")]


@pytest.mark.parametrize(("first", "late"), [("a", 0), ("c", 0), ("c", PREPARATION_TIME - 1)])
async def test_what_a_participant_dropped_after_the_look_does_not_begin(
    world: World, monkeypatch: pytest.MonkeyPatch, programs: Programs, first: str, late: int
) -> None:
    """A hold that runs out between the look and the start is noticed before the run begins."""
    a, b = await world.two()
    c = a if first == "a" else await world.site("c")
    task = introduction([c, b], schedule=Schedule(start=HOUR, slip=0))
    for site in {a, b, c}:
        await site.keep(task, a)

    async def cut(call: Call, _: str) -> None:
        if call[1:] == ("b", "commit"):
            raise PeerUnreachable("the wire was cut")

    world.watch = cut
    world.clock.move_to(HOUR - 2 * HOLD_LIFE - 5 * times.SECOND)
    await a.plan()
    run = run_id(TaskId(task.task), HOUR, 1)
    world.clock.move_to(HOUR - 15 * times.SECOND)

    async def until(instant: int, _: LatchedEvent) -> bool:
        world.clock.move_to(instant + late)
        return True

    monkeypatch.setattr(a.node.launcher, "_wait_until", until)
    async with a.database.connection() as connection:
        assert await runs.unconfirmed_runs(connection, [run], world.clock.now()) == {}
    await _launch(a)
    assert await a.state(run) == "displaced"
    assert await a.reason(run) == booking_unconfirmed(["b"])
    assert programs == Programs([], [])


async def test_what_a_participant_may_still_confirm_begins(
    world: World, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    """A run begins though a participant did not confirm it, if its hold lasts beyond the start."""
    a, b = await world.two()
    task = introduction([a, b], schedule=Schedule(start=HOUR, slip=0))
    for site in (a, b):
        await site.keep(task, a)

    async def cut(call: Call, _: str) -> None:
        if call[1:] == ("b", "commit"):
            raise PeerUnreachable("the wire was cut")

    world.watch = cut
    world.clock.move_to(HOUR - 2 * HOLD_LIFE)
    await a.plan()

    async def until(instant: int, _: LatchedEvent) -> bool:
        world.clock.move_to(instant)
        return True

    monkeypatch.setattr(a.node.launcher, "_wait_until", until)
    world.clock.move_to(HOUR - 15 * times.SECOND)
    await _launch(a)
    assert await a.state(run_id(TaskId(task.task), HOUR, 1)) == "merging"
    assert programs.released == ["sleep"]


async def test_a_lead_without_a_part_waits_for_its_participants_to_confirm(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is opened whose participant confirms it in the last seconds before its start."""
    a, b = await world.two()
    task = introduction([b], schedule=Schedule(start=HOUR, slip=0))
    for site in (a, b):
        await site.keep(task, a)

    async def cut(call: Call, _: str) -> None:
        if call[1:] == ("b", "commit"):
            raise PeerUnreachable("the wire was cut")

    world.watch = cut
    world.clock.move_to(HOUR - 2 * HOLD_LIFE - 5 * times.SECOND)
    await a.plan()
    run = run_id(TaskId(task.task), HOUR, 1)

    async def until(instant: int, _: LatchedEvent) -> bool:
        if instant > world.clock.now() and world.watch is not None:
            world.watch = None
            world.clock.move_to(HOUR - 6 * times.SECOND)
            await world.settle()
        world.clock.move_to(instant)
        return True

    monkeypatch.setattr(a.node.launcher, "_wait_until", until)
    world.clock.move_to(HOUR - 15 * times.SECOND)
    await _launch(a)
    assert (await a.state(run), await b.state(run)) == ("merging", "scheduled")


async def test_what_a_participant_measured_while_its_lead_stood_still_counts(
    world: World,
) -> None:
    """A lead that was away at the start waits for the part of a node that did not confirm."""
    a, b = await world.two()
    task = introduction([b], schedule=Schedule(start=HOUR, slip=0))
    for site in (a, b):
        await site.keep(task, a)

    async def lose_answer(call: Call, phase: str) -> None:
        if call[1:] == ("b", "commit") and phase != "asked":
            raise PeerUnreachable("the wire was cut")

    world.watch = lose_answer
    world.clock.move_to(HOUR - 3 * HOLD_LIFE)
    await a.plan()
    run = run_id(TaskId(task.task), HOUR, 1)
    world.clock.move_to(HOUR)
    await _launch(a)
    assert await a.state(run) == "merging"
    world.watch = None
    part = KeptPart(0, "b", {"slept_ms": 500.0}, None, HOUR, HOUR + times.SECOND)
    await b.node.collector.keep_own(run, part)
    await world.settle()
    assert await a.state(run) == "finished"


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("by", ["restart", "housekeeping"])
async def test_a_run_whose_part_is_stored_does_not_stay_running(
    world: World, booked: Booked, place: int, by: str
) -> None:
    """A run that is running though its part is stored is ended by that part, and the lead told."""
    site, run = (booked.a, booked.b)[place], booked.run
    for each in (booked.a, booked.b):
        async with each.database.transaction() as connection:
            assert await runs.begin(connection, run, HOUR)
            kept = KeptPart(place, site.name, None, REASON, None, None)
            if each is site:
                assert await runs.keep_part(connection, run, kept, None)
    if by == "restart":
        await site.node.launcher.recover()
    else:
        world.clock.move_to(HOUR + DURATION + LOST_RUN_TIMEOUT + 1)
        await site.node.launcher.run_once()
    await world.settle()
    other = KeptPart(1 - place, "ab"[1 - place], {"slept_ms": 1.0}, None, HOUR, HOUR + DURATION)
    await (booked.b if site is booked.a else booked.a).node.collector.keep_own(run, other)
    await world.settle()
    assert await booked.a.state(run) == "failed"
    assert await booked.a.reason(run) == f"{site.name}: {REASON}"
    assert await booked.b.state(run) == ("finished" if place == 0 else "failed")
    await booked.a.tend()
    assert await _task_state(booked.a, booked.task.task) == "finished"


async def test_a_run_whose_beginning_was_not_confirmed_does_not_stay_running(
    booked: Booked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next look ends a run that began in the database, but not for the launcher."""
    b, run = booked.b, booked.run
    transaction = b.database.transaction

    def unanswered() -> AbstractAsyncContextManager[Connection]:
        return _unanswered(transaction())

    monkeypatch.setattr(b.database, "transaction", unanswered)
    with contextlib.suppress(DatabaseUnavailable):  # if the same look comes to end the run
        await _launch(b)
    monkeypatch.undo()
    assert await b.state(run) == "running"
    await _launch(b)
    assert await b.state(run) == "failed"
    assert await b.reason(run) == track_lost()


@asynccontextmanager
async def _unanswered(
    transaction: AbstractAsyncContextManager[Connection],
) -> AsyncIterator[Connection]:
    """A transaction that is committed, which its client never hears."""
    async with transaction as connection:
        yield connection
    msg = "the connection broke"
    raise DatabaseUnavailable(msg)
