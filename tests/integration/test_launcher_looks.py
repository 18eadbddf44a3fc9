"""Looks of a launcher: their times, their findings, and the last deeds of one that stops."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from node.execution import process
from node.execution.launcher import LaunchOutcome
from node.execution.process import RunningProcess
from node.model import times
from node.model.errors import DatabaseUnavailable
from node.model.late_runs import LAUNCH_HORIZON, LOST_RUN_TIMEOUT, START_LATENESS_MAX
from node.model.reasons import (
    booking_unconfirmed,
    restarted_meanwhile,
    stopped_meanwhile,
    track_lost,
)
from node.model.runstate import RunState
from node.runtime.clock import LatchedEvent
from node.store import notices, runs
from node.store.database import Connection, Notice
from node.store.runs import DueRun
from tests.integration.test_launching import waits_for_a_run
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.worlds import (
    DURATION,
    ON_ONE_LOOP,
    Site,
    World,
    book_everywhere,
    hold_everywhere,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
LATER = HOUR + DURATION + 10 * times.SECOND
RUN = str(uuid4())


async def _stopped(looking: asyncio.Task[None]) -> None:
    """Stop a launcher as its service does; it fails at nothing meanwhile."""
    looking.cancel()
    async with asyncio.timeout(PATIENCE_S):
        [end] = await asyncio.gather(looking, return_exceptions=True)
    assert isinstance(end, asyncio.CancelledError)


async def _away(*_: Any) -> None:
    raise DatabaseUnavailable("the server restarts")


@pytest.mark.parametrize(
    ("notice", "looks"),
    [
        (Notice("exchange", RUN, ("committed",)), 2),
        (Notice("changed", RUN, ()), 2),
        (Notice("wake", "", ()), 2),
        (Notice("task", RUN, ("cancelled",)), 2),
        (Notice("task", RUN, ("refused",)), 2),
        (Notice("task", RUN, ("finished",)), 1),
        (Notice("run", RUN, ("task", "running")), 1),
        (Notice("room", "default", ()), 1),
    ],
)
async def test_a_launcher_looks_when_something_changed(
    world: World, monkeypatch: pytest.MonkeyPatch, notice: Notice, looks: int
) -> None:
    """A notice of new or ended runs is followed by a look at once, even if it comes during one."""
    launcher = (await world.site("a")).node.launcher
    launcher.on_notice(notice)  # the first look is for it, too
    looked, waiting = 0, asyncio.Event()

    async def look() -> float:
        nonlocal looked
        looked += 1
        if looked == 1:
            launcher.on_notice(notice)
        return PATIENCE_S

    wait = LatchedEvent.wait

    async def waited(event: LatchedEvent, seconds: float) -> bool:
        if event is launcher._woken and not event.is_set:
            waiting.set()
        return await wait(event, seconds)

    monkeypatch.setattr(launcher, "run_once", look)
    monkeypatch.setattr(LatchedEvent, "wait", waited)
    looking = asyncio.create_task(launcher.run())
    await asyncio.wait_for(waiting.wait(), PATIENCE_S)
    assert looked == looks
    monkeypatch.undo()
    await _stopped(looking)


@pytest.mark.parametrize(
    ("fault", "level"),
    [(DatabaseUnavailable("the server restarts"), "warning"), (KeyError("unforeseen"), "error")],
)
async def test_a_look_that_fails_is_logged_and_followed_by_another(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: Exception, level: str
) -> None:
    """The next look is after the usual pause; only what nobody foresaw is logged as an error."""
    launcher, pauses = (await world.site("a")).node.launcher, list[float]()
    again, wait = asyncio.Event(), LatchedEvent.wait

    async def look() -> float:
        if not pauses:
            return 0.25
        raise fault

    async def waited(event: LatchedEvent, seconds: float) -> bool:
        if event is not launcher._woken:
            return await wait(event, seconds)
        pauses.append(seconds)
        if len(pauses) == 3:
            again.set()
            return await wait(event, PATIENCE_S)
        return False

    monkeypatch.setattr(launcher, "run_once", look)
    monkeypatch.setattr(LatchedEvent, "wait", waited)
    with capture_logs() as lines:
        looking = asyncio.create_task(launcher.run())
        await asyncio.wait_for(again.wait(), PATIENCE_S)
        await _stopped(looking)
    assert pauses == [0.25, 5.0, 5.0]
    told = [(line["event"], line["log_level"], line.get("error")) for line in lines]
    detail = "the server restarts" if level == "warning" else None
    assert told == [("cannot look for runs", level, detail)] * 2


async def _booked(site: Site, *starts: int) -> list[UUID]:
    return await book_everywhere(introduction([site]), site, [site], list(starts))


async def _in_time(*tasks: asyncio.Task[Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("ahead", "pause"),
    [
        (LAUNCH_HORIZON + 3 * times.SECOND, 3.000001),
        (LAUNCH_HORIZON + 4_999_999, 5.0),
        (LAUNCH_HORIZON + times.MINUTE, 5.0),
        (LAUNCH_HORIZON, 1.0),
    ],
)
async def test_the_next_look_is_when_the_next_run_comes_into_view(
    world: World, ahead: int, pause: float
) -> None:
    """The pause ends a microsecond after the next start comes into view, between 1 and 5 s."""
    a = await world.site("a")
    assert await a.node.launcher.run_once() == 5.0
    await _booked(a, HOUR)
    world.clock.move_to(HOUR - ahead)
    assert await a.node.launcher.run_once() == pytest.approx(pause, abs=1e-9)
    assert a.node.launcher._tasks == {}


async def test_the_next_look_is_not_for_what_was_seen(world: World) -> None:
    """A run that waits for its start already does not bring the next look nearer."""
    a = await world.site("a")
    await _booked(a, HOUR, HOUR + DURATION)
    world.clock.move_to(HOUR - LAUNCH_HORIZON // 2)
    launcher = a.node.launcher
    assert await launcher.run_once() == 5.0
    assert await launcher.run_once() == 5.0
    [waiting] = launcher._tasks.values()
    await launcher._stop_all()
    await _in_time(waiting)


async def test_who_waits_for_a_start_looks_at_the_clock_every_second(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that is set meanwhile is noticed, and a run whose start is past then is not begun."""
    a = await world.site("a")
    [run] = await _booked(a, HOUR)
    world.clock.move_to(HOUR - 10 * times.SECOND)
    launcher, waits = a.node.launcher, list[float]()
    original = LatchedEvent.wait

    async def wait(event: LatchedEvent, seconds: float) -> bool:
        if not waits_for_a_run(world, event):
            return await original(event, seconds)
        waits.append(seconds)
        if len(waits) == 3:
            world.clock.step(times.HOUR)
        await world.clock.sleep(0)
        return False

    monkeypatch.setattr(LatchedEvent, "wait", wait)
    await launcher.run_once()
    await _in_time(*launcher._tasks.values())
    assert waits == [1.0, 1.0, 1.0]
    assert await a.state(run) == "scheduled"  # the clock may be set right again


async def test_what_is_only_held_is_not_begun(world: World) -> None:
    """A run begins only when its own exchange is committed, whatever else is."""
    a = await world.site("a")
    await _booked(a, LATER)
    task = introduction([a])
    await a.keep(task, a)
    request = hold_request(task, [HOUR])
    await hold_everywhere(a, [a], request)
    world.clock.move_to(HOUR)
    await a.node.launcher.run_once()
    assert a.node.launcher._tasks == {}
    async with a.database.transaction() as connection:
        assert not await runs.begin(connection, request.runs[0].run, HOUR)


@pytest.mark.parametrize("state", ["cancelled", "displaced", "set-aside"])
async def test_a_run_that_was_taken_back_is_not_waited_for(world: World, state: str) -> None:
    """The next look stops what waits for the start, if nobody was notified."""
    a = await world.site("a")
    [run, other] = await _booked(a, HOUR, HOUR + DURATION)
    world.clock.move_to(HOUR - 10 * times.SECOND)
    launcher = a.node.launcher
    await launcher.run_once()
    [waiting] = launcher._tasks.values()
    await a.execute("UPDATE run SET state = $2, reason = 'gone' WHERE id = $1", run, state)
    await launcher.run_once()
    await _in_time(waiting)
    assert launcher._tasks == {}
    assert (await a.state(run), await a.state(other)) == (state, "scheduled")


async def test_a_run_that_is_measured_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long after its end its part is kept, because the database was away, say."""
    a = await world.site("a")
    [run] = await _booked(a, HOUR)
    world.clock.move_to(HOUR)
    launcher, held, kept = a.node.launcher, asyncio.Event(), asyncio.Event()

    async def measured(*_: Any) -> LaunchOutcome:
        held.set()
        await kept.wait()
        return LaunchOutcome({"slept_ms": 1.0}, None, HOUR)

    monkeypatch.setattr(launcher, "_measure", measured)
    await launcher.run_once()
    [measuring] = launcher._tasks.values()
    await asyncio.wait_for(held.wait(), PATIENCE_S)
    world.clock.move_to(HOUR + DURATION + LOST_RUN_TIMEOUT + 1)
    await launcher.run_once()
    assert await a.state(run) == "running"
    kept.set()
    await _in_time(measuring)
    assert await a.state(run) == "finished"


@pytest.mark.parametrize("step", ["next_start", "lock"])
async def test_a_look_that_fails_forgets_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Runs that the launcher has left are asked for until a look succeeds, and then not again."""
    a = await world.site("a")
    [run] = await _booked(a, HOUR)
    async with a.database.transaction() as connection:
        assert await runs.begin(connection, run, HOUR)
    launcher = a.node.launcher
    launcher._ended.add(run)
    with monkeypatch.context() as patch:
        patch.setattr(runs, step, _away)
        with pytest.raises(DatabaseUnavailable):
            await launcher.run_once()
    assert await a.state(run) == "running"
    await launcher.run_once()
    assert await a.state(run) == "failed"
    assert await a.reason(run) == track_lost().at("a")
    assert launcher._ended == set()


async def test_a_run_that_ends_during_a_look_is_asked_for_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is left while a look asks for those left before is not forgotten."""
    a = await world.site("a")
    [run] = await _booked(a, HOUR)
    async with a.database.transaction() as connection:
        assert await runs.begin(connection, run, HOUR)
    launcher, lost = a.node.launcher, runs.lost_runs

    async def ends(*values: Any) -> list[UUID]:
        found = await lost(*values)
        launcher._ended.add(run)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(runs, "lost_runs", ends)
        await launcher.run_once()
    assert await a.state(run) == "running"
    await launcher.run_once()
    assert await a.state(run) == "failed"


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Notifications that nodes have sent to their own processes."""
    told, notify = list[tuple[object, ...]](), notices.notify

    async def notified(connection: Connection, *words: object) -> None:
        told.append(words)
        await notify(connection, *words)

    monkeypatch.setattr(notices, "notify", notified)
    return told


async def test_a_lead_without_a_part_opens_its_run_at_the_start(
    world: World, heard: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run waits for parts from its start on, and everybody here hears it."""
    a, b = await world.two()
    task = introduction([b])
    [run] = await book_everywhere(task, a, [a, b], [HOUR])
    await a.execute("UPDATE run SET participant = NULL")
    world.clock.move_to(HOUR - times.SECOND)

    original = LatchedEvent.wait

    async def wait(event: LatchedEvent, seconds: float) -> bool:
        if not waits_for_a_run(world, event):
            return await original(event, seconds)
        assert await a.state(run) == "scheduled"
        world.clock.advance(round(seconds * times.SECOND))
        return False

    monkeypatch.setattr(LatchedEvent, "wait", wait)
    await a.node.launcher.run_once()
    await _in_time(*a.node.launcher._tasks.values())
    assert await a.state(run) == "merging"
    assert heard == [("run", run, task.task, "merging")]
    assert world.clock.now() == HOUR


@pytest.mark.parametrize("ahead", [5 * times.SECOND, times.SECOND])
@pytest.mark.parametrize("noticed", ["by its notification", "by its state"])
@pytest.mark.mostly_nightly
async def test_a_lead_without_a_part_does_not_open_a_cancelled_run(
    world: World, heard: list[tuple[object, ...]], ahead: int, noticed: str
) -> None:
    """A run that is cancelled before its start stays as it is, even if nobody has heard of it."""
    a, b = await world.two()
    [run] = await book_everywhere(introduction([b]), a, [a, b], [HOUR])
    await a.execute("UPDATE run SET participant = NULL")
    world.clock.move_to(HOUR - ahead)
    launcher = a.node.launcher
    await launcher.run_once()
    [waiting] = launcher._tasks.values()
    if noticed == "by its state":
        async with a.database.transaction() as connection:
            assert await runs.set_state(
                connection, [run], RunState.CANCELLED, "enough", HOUR - ahead
            )
    else:
        launcher.on_notice(Notice("run", str(run), ("task", "cancelled")))
    before = await a.state(run)
    world.clock.move_to(HOUR)
    await _in_time(waiting)
    assert await a.state(run) == before
    assert heard == []


async def test_a_node_that_stops_ends_what_it_measures(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs end, their parts say why, and what has not begun stays for the next start."""
    a, b = await world.two()
    [run, later] = await book_everywhere(introduction([a, b]), a, [a, b], [HOUR, LATER])
    world.clock.move_to(HOUR)
    launcher, programs = b.node.launcher, list[RunningProcess]()
    recorded, record = asyncio.Event(), launcher._record

    async def measures(due: DueRun, running: RunningProcess, started_at: int) -> None:
        await record(due, running, started_at)
        programs.append(running)
        recorded.set()

    monkeypatch.setattr(launcher, "_record", measures)
    launcher._launch((await _due(b, later)), [])
    looking = asyncio.create_task(launcher.run())
    await asyncio.wait_for(recorded.wait(), PATIENCE_S)
    await _stopped(looking)
    assert [running.ended for running in programs] == [True]
    assert launcher._tasks == {}
    assert (await b.state(run), await b.state(later)) == ("failed", "scheduled")
    assert await b.reason(run) == stopped_meanwhile()
    [(_, _, message)] = await b.outbox_messages()
    assert (message["reason"], message["started_at"]) == (await b.reason(run), HOUR)


async def test_a_node_that_stops_waits_for_nothing_that_does_not_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that does not end holds up the end of its node only for a while."""
    a = await world.site("a")
    await _booked(a, HOUR)
    world.clock.move_to(HOUR)
    launcher, measures, ends = a.node.launcher, asyncio.Event(), asyncio.Event()

    async def measured(*_: Any) -> LaunchOutcome:
        measures.set()
        await ends.wait()
        return LaunchOutcome(None, "over", HOUR)

    monkeypatch.setattr("node.execution.launcher.STOP_TIMEOUT_S", 0.0)
    monkeypatch.setattr(launcher, "_measure", measured)
    looking = asyncio.create_task(launcher.run())
    await asyncio.wait_for(measures.wait(), PATIENCE_S)
    await _stopped(looking)
    [measuring] = launcher._tasks.values()
    ends.set()
    await _in_time(measuring)


async def test_all_who_dropped_a_run_are_named(world: World) -> None:
    """The reason why a run is taken back names each participant that did not confirm it."""
    a = await world.site("a")
    [run] = await _booked(a, HOUR)
    await a.node.launcher._take_back(await _due(a, run), ["b", "c"])
    assert await a.state(run) == "displaced"
    assert await a.reason(run) == booking_unconfirmed(["b", "c"])


async def _due(site: Site, run: UUID) -> DueRun:
    async with site.database.connection() as connection:
        due = await runs.due_runs(connection, 0, times.LATEST - 1)
    return next(each for each in due if each.id == run)


@pytest.mark.parametrize(
    ("is_back", "state", "end"),
    [
        (False, "running", ("failed", "a: the node was restarted during the run")),
        (True, "finished", ("finished", None)),
    ],
)
async def test_a_node_that_stops_does_not_wait_for_its_database(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    is_back: bool,  # noqa: FBT001 - a parameter of the test
    state: str,
    end: tuple[str, str | None],
) -> None:
    """A part is tried to be kept once more, and then left to the next start, which ends its run."""
    a = await world.site("a")
    [run] = await _booked(a, HOUR)
    world.clock.move_to(HOUR)
    launcher, tried = a.node.launcher, asyncio.Event()

    async def measured(*_: Any) -> LaunchOutcome:
        return LaunchOutcome({"slept_ms": 1.0}, None, HOUR)

    async def away(*_: Any) -> None:
        tried.set()
        await _away()

    monkeypatch.setattr(launcher, "_measure", measured)
    with monkeypatch.context() as patch:
        patch.setattr(a.node.collector, "keep_own", away)
        looking = asyncio.create_task(launcher.run())
        await asyncio.wait_for(tried.wait(), PATIENCE_S)
        tried.clear()
        [keeping] = launcher._tasks.values()
        stopping = asyncio.create_task(_stopped(looking))
        while not launcher._stopping:
            await world.clock.sleep(0)
        if is_back:
            patch.undo()
        world.clock.advance(times.SECOND)
        await _in_time(keeping, stopping)
    assert await a.state(run) == state
    await launcher.recover()
    assert (await a.state(run), await a.reason(run)) == end


async def test_a_new_start_ends_the_program_of_the_one_before(world: World) -> None:
    """The recorded process is ended, its run fails, and what was due meanwhile is missed."""
    a, b = await world.two()
    starts = [HOUR, HOUR + 2 * DURATION, HOUR + 20 * times.HOUR]
    [run, overslept, coming] = await book_everywhere(introduction([a, b]), a, [a, b], starts)
    program = await process.start(["sleep", "600"])
    async with b.database.transaction() as connection:
        assert await runs.begin(connection, run, HOUR)
        ticks = program.started_ticks
        await runs.keep_process(connection, run, HOUR, program.pid, ticks)
    world.clock.move_to(LATER + 2 * DURATION)
    await world.restart(b)
    await b.node.launcher.recover()
    await b.node.launcher.run_once()
    assert (await program.wait()).exit_code == -9
    states = [await b.state(each) for each in (run, overslept, coming)]
    assert states == ["failed", "missed", "scheduled"]
    assert await b.reason(run) == restarted_meanwhile()
    assert (await b.reason(overslept) or "").startswith("the node was down at its start")


async def test_a_run_that_is_removed_meanwhile_is_passed_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start goes on with the other runs if one that it found is gone before it is marked."""
    a = await world.site("a")
    [run] = await _booked(a, HOUR)
    interrupted = runs.interrupted_runs

    async def found(connection: Connection) -> list[tuple[UUID, int | None, int | None]]:
        return [(uuid4(), None, None), *await interrupted(connection)]

    monkeypatch.setattr(runs, "interrupted_runs", found)
    async with a.database.transaction() as connection:
        assert await runs.begin(connection, run, HOUR)
    await a.node.launcher.recover()
    assert await a.state(run) == "failed"


async def test_a_new_start_that_is_in_time_misses_nothing(world: World) -> None:
    """A run whose start has just passed is left to the look, which may still begin it."""
    a = await world.site("a")
    [run] = await _booked(a, HOUR)
    world.clock.move_to(HOUR + START_LATENESS_MAX)
    await a.node.launcher.recover()
    assert await a.state(run) == "scheduled"
    world.clock.advance(1)
    await a.node.launcher.run_once()
    assert await a.state(run) == "missed"
