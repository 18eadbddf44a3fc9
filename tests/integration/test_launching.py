"""A part on its node, from its preparation to what is kept of it, with programs of the test."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from node.execution import process
from node.execution.agreement import Agreement
from node.execution.launcher import (
    HOST_SAMPLE_LEAD_TIME,
    LOOK_UP_TIME,
    OBJECTION_LOOK,
    OUTPUT_READ_AT_ONCE,
    PREPARATION_TIME,
    STEP_NOTICED_S,
    TERM_BEFORE_END,
)
from node.execution.observer import ConcurrentRun, PartObservation
from node.execution.process import RunningProcess
from node.execution.staggering import STAGGER_INTERVAL
from node.model import times
from node.model.classes import SchedulingClass
from node.model.contexts import parse
from node.model.errors import DatabaseUnavailable, HostError, ToolOutputError
from node.model.late_runs import LAUNCH_HORIZON
from node.model.reasons import track_lost
from node.model.targets import Network
from node.model.wire.participants import RunEnd
from node.plugins.contracts import Command, Output, PartContext, Result, Test
from node.plugins.reading import BYTES_MAX
from node.plugins.tools.sleep import SleepTool
from node.runtime.clock import LatchedEvent
from node.store import notices, runs
from node.store.database import Notice
from node.store.runs import KeptPart
from tests.support.clocks import START, ManualClock
from tests.support.patience import PATIENCE_S
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, book_everywhere, introduction
from tests.unit.plugins.records import SPEC, sender_record

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
END = HOUR + DURATION
EVENING = HOUR + 20 * times.HOUR
HERE = "address:127.0.0.9"
ASKING = 100 * times.MILLISECOND
TURN = (HOUR - PREPARATION_TIME) // STAGGER_INTERVAL * STAGGER_INTERVAL

SAID = Command(("sh", "-c", "cat; echo complaint >&2; exit 3"), stdin=b"measured\n")
POLITE = Command(
    ("sh", "-c", "trap 'echo bye; exit 7' TERM; echo here; while :; do sleep 9 & wait; done")
)
DEAF = Command(("sh", "-c", "trap '' TERM; echo here; while :; do sleep 9; done"))


class ScriptedTool(SleepTool):
    """Starts a command of the test in place of ``sleep``, and remembers what it is given."""

    def __init__(self, command: Command) -> None:
        """Take the command."""
        self._command = command
        self.parts: list[PartContext] = []
        self.outputs: list[Output] = []
        self.readers: list[int] = []
        self.command_fault: Exception | None = None
        self.read_fault: Exception | None = None

    def command(self, part: PartContext) -> Command:
        """Return the command, or raise the error of the test."""
        self.parts.append(part)
        if self.command_fault is not None:
            raise self.command_fault
        return self._command

    def read(self, part: PartContext, output: Output) -> Result:  # noqa: ARG002 - the same for all
        """Return a result, or raise the error of the test."""
        self.outputs.append(output)
        self.readers.append(threading.get_ident())
        if self.read_fault is not None:
            raise self.read_fault
        return {"slept_ms": 1.0}


def waits_for_a_run(world: World, event: LatchedEvent) -> bool:
    """Return whether a launcher of this test waits with this event; other loops have theirs."""
    launchers = (site.node.launcher for site in world.sites)
    return any(event is each for launcher in launchers for each in launcher._cancelled.values())


@dataclass
class Stage:
    """The deeds of a launcher by its clock, while time passes as fast as it waits.

    A wait that is not for the next instant, such as that for the end of a program, takes as long as
    the program, or ends at once when ``until_end`` is set and the program has said that it is here.
    """

    clock: ManualClock
    done: list[tuple[str, int]] = field(default_factory=list)
    graces: list[float] = field(default_factory=list)
    running: list[RunningProcess] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)
    told: list[tuple[object, ...]] = field(default_factory=list)
    begun: list[bool] = field(default_factory=list)
    until_end: bool = False
    at: dict[str, Callable[[], Any]] = field(default_factory=dict)

    def note(self, what: str) -> None:
        """Note that something happens now, and do what the test wants to happen with it."""
        self.done.append((what, self.clock.now()))
        if what in self.at:
            self.at[what]()

    def times_of(self, what: str) -> list[int]:
        """Return when something happened."""
        return [at for each, at in self.done if each == what]


@pytest_asyncio.fixture(loop_scope="session")
async def stage(
    world: World, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    """Watch the launchers; nothing that they began is left, and no other run was touched."""
    made = Stage(clock)
    _let_time_pass(made, world, monkeypatch)
    _watch_programs(made, monkeypatch)
    begin, notify = PartObservation.begin, notices.notify

    def observed(observation: PartObservation) -> None:
        made.note("observed")
        begin(observation)

    async def notified(connection: Any, *words: object) -> None:
        made.told.append(words)
        await notify(connection, *words)
        kind, identifier, *others = map(str, words)
        for site in world.sites:
            site.node.launcher.on_notice(Notice(kind, identifier, tuple(others)))

    monkeypatch.setattr(PartObservation, "begin", observed)
    monkeypatch.setattr(notices, "notify", notified)
    yield made
    assert all(running.ended for running in made.running)
    for site in world.sites:
        launcher = site.node.launcher
        assert launcher._tasks == {}
        assert launcher._cancelled == {}
        assert launcher._observer._tracker._current == {}
        others = await site.rows("SELECT * FROM run WHERE starts_at >= $1", EVENING)
        assert all(other["state"] == "booked" for other in others)
        assert all(other["started_at"] is other["process_id"] is None for other in others)


def _let_time_pass(stage: Stage, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = LatchedEvent.wait

    async def passing(event: LatchedEvent, seconds: float) -> bool:
        if not waits_for_a_run(world, event):
            return await wait(event, seconds)
        if seconds > STEP_NOTICED_S:
            assert stage.running, "the clock may be set meanwhile"
            if not stage.until_end:
                return await wait(event, seconds)
            await stage.running[-1].wait_for_output(b"here\n")
        if not event.is_set:
            stage.clock.advance(round(seconds * times.SECOND))
            await stage.clock.sleep(0)
        return event.is_set

    monkeypatch.setattr(LatchedEvent, "wait", passing)


def _watch_programs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    start, begin, end = process.start, RunningProcess.begun, RunningProcess.end

    async def started(argv: Any, **options: Any) -> RunningProcess:
        running = await start(argv, **options)
        if "held" in options:  # a measurement, and not a question for a version
            stage.running.append(running)
            stage.options.append(options)
            stage.note("held" if options["held"] else "started")
        return running

    async def begun(running: RunningProcess, now: Callable[[], int], timeout_s: float) -> bool:
        stage.note("released")
        stage.begun.append(await begin(running, now, timeout_s))
        return stage.begun[-1]

    async def ended(running: RunningProcess, grace_s: float) -> None:
        if running in stage.running:
            stage.note("ended")
            stage.graces.append(grace_s)
        await end(running, grace_s)

    monkeypatch.setattr(process, "start", started)
    monkeypatch.setattr(RunningProcess, "begun", begun)
    monkeypatch.setattr(RunningProcess, "end", ended)


@dataclass(frozen=True)
class Due:
    """A run that is due on a node, and the tool with which it is measured there."""

    site: Site
    run: UUID
    tool: ScriptedTool

    async def look(self) -> None:
        """Let the launcher look, and wait until it has done what it found."""
        launcher = self.site.node.launcher
        await launcher.run_once()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*launcher._tasks.values(), return_exceptions=True)
        await self.site.clock.sleep(0)

    async def part(self) -> KeptPart:
        """Return the part that is kept here."""
        async with self.site.database.connection() as connection:
            [part] = await runs.parts(connection, self.run)
        return part

    async def row(self) -> Any:
        """Return the run as it is stored here."""
        [row] = await self.site.rows("SELECT * FROM run WHERE id = $1", self.run)
        return row


async def _due(world: World, command: Command, *, foreign: bool = False) -> Due:
    """Book a run of node a, or of b and led by a, ten seconds before its start, and another."""
    a = await world.site("a")
    site = await world.site("b") if foreign else a
    tool = ScriptedTool(command)
    site.node.capabilities.tools = {**site.node.capabilities.tools, "sleep": tool}
    participants = [a, site] if foreign else [a]
    starts = [HOUR, EVENING]
    [run, _] = await book_everywhere(introduction(participants), a, participants, starts)
    world.clock.move_to(HOUR - 10 * times.SECOND)
    return Due(site, run, tool)


@pytest.mark.parametrize("delay", [0, 30 * times.MILLISECOND])
async def test_a_program_begins_at_the_instant(world: World, stage: Stage, delay: int) -> None:
    """A held program is prepared in its turn, and released at the instant, with its input."""
    due = await _due(world, Command(SAID.argv, delay=delay, stdin=SAID.stdin))
    await due.look()
    assert stage.done == [
        ("held", TURN),
        ("observed", HOUR + delay - HOST_SAMPLE_LEAD_TIME),
        ("released", HOUR + delay),
    ]
    assert due.tool.outputs == [Output(3, b"measured\n", b"complaint\n", "itself")]
    part = await due.part()
    assert (part.name, part.result, part.reason) == ("a", {"slept_ms": 1.0}, None)
    assert (part.started_at, part.finished_at) == (HOUR, HOUR + delay)
    assert (part.command, part.output) == (SAID.argv, "measured\ncomplaint\n")
    row = await due.row()
    assert (row["state"], row["started_at"]) == ("finished", HOUR)
    [running] = stage.running
    assert (row["process_id"], row["process_ticks"]) == (running.pid, running.started_ticks)
    states = [words[3] for words in stage.told if words[:2] == ("run", due.run)]
    assert states == ["running", "finished"]


async def test_nothing_waits_for_the_end_of_a_part_that_is_over(world: World, stage: Stage) -> None:
    """A program that ends before its booked end leaves no task behind, and nothing to log."""
    due = await _due(world, SAID)
    await due.site.node.tool_runner.rights()
    before = asyncio.all_tasks()
    with capture_logs() as lines:
        await due.look()
    assert asyncio.all_tasks() <= before
    assert lines == []


async def test_a_flood_of_output_is_told_from_the_longest_output(
    world: World, stage: Stage
) -> None:
    """One byte more is kept than a tool reads."""
    due = await _due(world, SAID)
    await due.look()
    assert [options["output_bytes_max"] for options in stage.options] == [BYTES_MAX + 1]


async def test_nothing_of_a_program_outlives_its_part(world: World, stage: Stage) -> None:
    """A child with a session of its own, as daemons have, is ended with its program."""
    stray = "setsid sh -c 'sleep 600 >/dev/null 2>&1 & echo $!'"
    due = await _due(world, Command(("sh", "-c", stray)))
    await due.look()
    [output] = due.tool.outputs
    assert not Path(f"/proc/{int(output.stdout)}/exe").exists()


async def test_what_was_around_a_part_is_kept_with_it(world: World, stage: Stage) -> None:
    """The circumstances name the tool, its version, and what else was measured meanwhile."""
    due = await _due(world, SAID)
    tracker = due.site.node.launcher._observer._tracker
    other = ConcurrentRun(uuid4(), uuid4(), "rtt", SchedulingClass.BACKGROUND, HOUR)
    tracker.enter(other)
    await due.look()
    told = (await due.part()).circumstances
    assert told is not None
    assert told["tool"] == "sleep"
    assert [each["run"] for each in told["neighbours"]] == [str(other.run)]
    assert told["neighbours_count"] == 1
    assert told["tool_version"]
    assert told["observed_ms"] > 0
    assert [each.run for each in tracker.leave(other, HOUR)] == [due.run]


@pytest.mark.parametrize("late", [0, 1_500 * times.MILLISECOND])
async def test_a_program_that_waits_itself_is_started_before(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """Its part starts at the agreed instant, or when it was started if that was later."""
    due = await _due(world, Command(SAID.argv, stdin=SAID.stdin, waits_itself=True))
    prepare = due.site.node.launcher._start

    async def slowly(*values: Any) -> RunningProcess:
        if late:
            world.clock.move_to(HOUR + late)
        return await prepare(*values)

    monkeypatch.setattr(due.site.node.launcher, "_start", slowly)
    await due.look()
    started, begun = (HOUR + late,) * 2 if late else (TURN, HOUR - HOST_SAMPLE_LEAD_TIME)
    assert stage.done == [("started", started), ("observed", begun)]
    assert (await due.part()).started_at == HOUR + late
    assert due.tool.outputs == [Output(3, b"measured\n", b"complaint\n", "itself")]


async def test_a_program_that_waits_itself_is_recorded_and_observed_while_it_runs(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is recorded at once, for a restart to end it, and observed from its start on."""
    due = await _due(world, Command(POLITE.argv, waits_itself=True))
    launcher = due.site.node.launcher
    record = launcher._record

    async def recorded(*values: Any) -> None:
        await record(*values)
        stage.note("recorded")

    monkeypatch.setattr(launcher, "_record", recorded)
    stage.until_end = True
    await due.look()
    assert stage.done == [
        ("started", TURN),
        ("recorded", TURN),
        ("observed", HOUR - HOST_SAMPLE_LEAD_TIME),
        ("ended", END - TERM_BEFORE_END),
    ]


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (POLITE, Output(7, b"here\nbye\n", b"", "end")),
        (DEAF, Output(-9, b"here\n", b"", "end")),
    ],
)
@pytest.mark.parametrize("overtime", [0, 5 * times.SECOND])
@pytest.mark.mostly_nightly
async def test_a_program_is_ended_at_the_booked_end(
    world: World, stage: Stage, command: Command, output: Output, overtime: int
) -> None:
    """It gets TERM shortly before its end and KILL at the end; what it printed is read."""
    due = await _due(world, Command(command.argv, overtime=overtime))
    stage.until_end = True
    await due.look()
    assert stage.times_of("ended") == [END + overtime - TERM_BEFORE_END]
    assert stage.graces == [TERM_BEFORE_END / times.SECOND]
    assert due.tool.outputs == [output]
    part = await due.part()
    assert (part.result, part.output) == ({"slept_ms": 1.0}, output.stdout.decode())
    assert (await due.row())["state"] == "finished"


@pytest.mark.parametrize("when", ["held", "observed"])
async def test_what_is_cancelled_before_its_instant_is_not_released(
    world: World, stage: Stage, when: str
) -> None:
    """The program that was held ready is killed, and its part says that it was cancelled."""
    due = await _due(world, SAID)
    stage.at[when] = lambda: due.site.node.launcher._stop(due.run)
    await due.look()
    assert (stage.times_of("released"), stage.graces) == ([], [0])
    assert (await stage.running[0].wait()).stdout == b""
    part = await due.part()
    assert (part.result, part.reason, part.started_at) == (None, "cancelled", None)
    assert due.tool.outputs == []


async def test_a_clock_set_back_a_little_loses_no_run_that_is_held(
    world: World, stage: Stage
) -> None:
    """A program that is held ready is not ended: it is released at its start by the new clock."""
    due = await _due(world, SAID)
    stage.at["held"] = lambda: _set_back(due, times.SECOND // 2)
    await due.look()
    assert [what for what, _ in stage.done] == ["held", "observed", "released"]
    assert stage.times_of("released") == [HOUR]
    assert (await due.part()).result == {"slept_ms": 1.0}


@pytest.mark.parametrize(
    ("when", "by"),
    [("recorded", 3 * times.SECOND), ("held", LAUNCH_HORIZON)],
)
async def test_what_a_wrong_clock_has_begun_begins_again(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch, when: str, by: int
) -> None:
    """A run that is stopped because its start is to come is looked for at once, and measured."""
    due = await _due(world, POLITE)
    launcher = due.site.node.launcher
    record = launcher._record

    async def recorded(*values: Any) -> None:
        await record(*values)
        stage.note("recorded")

    monkeypatch.setattr(launcher, "_record", recorded)
    stage.at[when] = lambda: _set_back(due, by)
    await due.look()
    assert (await due.row())["state"] == "booked"
    assert launcher._woken.is_set
    del stage.at[when]
    stage.until_end = True
    world.clock.move_to(HOUR - 3 * times.SECOND)
    await due.look()
    assert stage.times_of("recorded")[-1] == HOUR
    assert ((await due.row())["state"], (await due.part()).started_at) == ("finished", HOUR)


def _set_back(due: Due, by: int) -> None:
    """Set the clock back, of which the launcher hears."""
    launcher = due.site.node.launcher
    launcher._woken.clear()
    due.site.clock.step(-by)
    launcher.on_set_back()


async def test_what_is_cancelled_meanwhile_is_ended_and_not_read(
    world: World, stage: Stage
) -> None:
    """A program whose run is cancelled gets TERM, time to tidy up, and is no measurement."""
    due = await _due(world, POLITE, foreign=True)
    launcher, run = due.site.node.launcher, str(due.run)

    async def cancel() -> None:
        await stage.running[0].wait_for_output(b"here\n")
        end = RunEnd(run=due.run, state="cancelled", reason="a took it back")
        await due.site.node.termination.apply_run_end(world.sites[0].identity, end)
        launcher.on_notice(Notice("run", run, (str((await due.row())["task_id"]), "cancelled")))

    cancelling = list[asyncio.Task[None]]()
    stage.at["released"] = lambda: cancelling.append(asyncio.create_task(cancel()))
    await due.look()
    await cancelling[0]
    assert stage.graces == [2.0]
    assert (await stage.running[0].wait()).stdout == b"here\nbye\n"
    assert due.tool.outputs == []
    part = await due.part()
    assert (part.result, part.reason, part.started_at) == (None, "cancelled", HOUR)
    assert (await due.row())["state"] == "cancelled"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (ZeroDivisionError("by zero"), "the sleep plugin failed: ZeroDivisionError('by zero')"),
        (HostError("there is no such device"), "there is no such device"),
    ],
)
async def test_a_tool_that_makes_no_command_fails_the_part(
    world: World, stage: Stage, fault: Exception, reason: str
) -> None:
    """Nothing is started or finished, and the part says why."""
    due = await _due(world, SAID)
    due.tool.command_fault = fault
    await due.look()
    assert stage.running == []
    part = await due.part()
    assert (part.reason, part.started_at, part.finished_at) == (reason, None, None)
    assert (await due.row())["state"] == "failed"


async def test_a_tool_that_cannot_read_fails_the_part(world: World, stage: Stage) -> None:
    """The part keeps what the program printed, its command, and why that is no result."""
    due = await _due(world, SAID)
    due.tool.read_fault = ToolOutputError("nothing was measured")
    await due.look()
    part = await due.part()
    assert (part.result, part.reason) == (None, "nothing was measured")
    assert (part.started_at, part.command) == (HOUR, SAID.argv)
    assert part.output == "measured\ncomplaint\n"
    assert (await due.row())["state"] == "failed"


@pytest.mark.nightly
async def test_a_tool_that_stumbles_over_output_fails_the_part(world: World, stage: Stage) -> None:
    """The part names the error, which is one of the plugin and none of what was measured."""
    due = await _due(world, SAID)
    due.tool.read_fault = ZeroDivisionError("by zero")
    await due.look()
    assert (await due.part()).reason == "the sleep plugin failed: ZeroDivisionError('by zero')"
    assert (await due.row())["state"] == "failed"


async def test_what_a_target_sent_is_not_kept(world: World, stage: Stage) -> None:
    """Only the standard error of a program is kept whose output is that of a target."""
    due = await _due(world, Command(SAID.argv, stdin=SAID.stdin, foreign_stdout=True))
    await due.look()
    assert (await due.part()).output == "complaint\n"


@pytest.mark.parametrize("beyond", [0, 1])
async def test_long_output_is_read_aside(world: World, stage: Stage, beyond: int) -> None:
    """Output that is long to read is read in a thread, so that other runs begin meanwhile."""
    script = f"printf %{OUTPUT_READ_AT_ONCE + beyond - 5}s x; printf %5s x >&2"
    due = await _due(world, Command(("sh", "-c", script)))
    await due.look()
    assert (due.tool.readers == [threading.get_ident()]) == (beyond == 0)
    assert (await due.part()).result == {"slept_ms": 1.0}


async def test_a_tool_that_this_host_lacks_is_not_started(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part fails with what is missing."""
    due = await _due(world, SAID)
    monkeypatch.setattr(due.site.node.capabilities, "refusal", lambda *_: "sleep is not installed")
    await due.look()
    part = await due.part()
    assert (part.result, part.reason, part.started_at) == (None, "sleep is not installed", None)
    assert (stage.running, due.tool.parts) == ([], [])


class _Objection:
    """Stands for what a target has said by DNS, and notes how long a run would wait for it.

    It objects once it was asked more than ``first`` times.
    """

    def __init__(self, first: int = 0) -> None:
        self.patience_s: list[float] = []
        self.first = first

    @staticmethod
    def allowed() -> tuple[Network, ...]:
        """Except nothing."""
        return ()

    async def refusal(self, hosts: list[str], patience_s: float) -> str | None:
        """Object to everything."""
        assert isinstance(hosts, list)
        self.patience_s.append(patience_s)
        if len(self.patience_s) <= self.first:
            return None
        return "example.org has said by DNS that it does not want to be measured"


async def test_a_target_that_objects_is_not_measured(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose target has objected since fails with that, and waits for half of its time."""
    due, objection = await _due(world, SAID), _Objection()
    monkeypatch.setattr(due.site.node.foreign_targets, "opt_outs", objection)
    await due.look()
    part = await due.part()
    assert part.reason == "example.org has said by DNS that it does not want to be measured"
    assert (stage.running, due.tool.parts) == ([], [])
    (patience_s,) = objection.patience_s
    assert 0 < patience_s <= PREPARATION_TIME / times.SECOND / 2


async def test_a_target_that_objects_meanwhile_is_measured_no_longer(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target is asked each minute of a run; once it objects, the program ends, and says why."""
    due, objection = await _due(world, POLITE), _Objection(first=2)
    monkeypatch.setattr(due.site.node.foreign_targets, "opt_outs", objection)
    looking = asyncio.create_task(due.look())
    async with asyncio.timeout(PATIENCE_S):
        while not stage.begun:
            await asyncio.wait({looking}, timeout=0.01)
        while not looking.done():
            world.clock.advance(OBJECTION_LOOK)
            await asyncio.wait({looking}, timeout=0.1)
    part = await due.part()
    assert part.reason == "example.org has said by DNS that it does not want to be measured"
    assert part.started_at == HOUR
    assert objection.patience_s[1:] == [0, 0]


async def _measure_from(due: Due, place: int, context: str) -> None:
    """Let a participant of the task measure from this context."""
    put = "UPDATE task SET participants = jsonb_set(participants, ARRAY[$1, 'context'], $2::jsonb)"
    await due.site.execute(put, str(place), context)


@pytest.mark.parametrize(
    ("binds", "allowed", "reason"),
    [
        ("address", HERE, None),
        ("interface", HERE, "sleep cannot be bound to an address"),
        ("address", "address:127.0.0.8", f"measuring from {HERE} is not allowed here"),
    ],
)
async def test_a_part_measures_from_its_context_or_not_at_all(
    world: World, stage: Stage, binds: str, allowed: str, reason: str | None
) -> None:
    """A context that its owner withdrew, or its tool cannot use, fails a part before its start."""
    due = await _due(world, SAID)
    await _measure_from(due, 0, HERE)
    due.tool.binds = frozenset({binds})
    due.site.node.contexts._allowed = {parse(allowed): None}
    await due.look()
    part = await due.part()
    if reason is None:
        assert (part.result, due.tool.parts[0].context) == ({"slept_ms": 1.0}, parse(HERE))
    else:
        assert (stage.running, due.tool.parts) == ([], [])
        assert (part.reason or "").startswith(reason)


async def test_a_part_knows_who_and_where_the_others_are(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts have the addresses of the cards here, other targets that of the task."""
    due = await _due(world, SAID, foreign=True)
    await _measure_from(due, 1, "interface:lo")
    due.site.node.contexts._allowed = {parse("interface:lo"): "192.0.2.7"}
    given = {"a": "192.0.2.9", "far.example": "198.51.100.7"}
    await due.site.execute("UPDATE task SET addresses = $1", given)
    await due.site.execute("UPDATE exchange SET data = $1", {"0": {"port": 7}, "2": {"port": 8}})
    lead = world.sites[0].node.card
    observer, observed = due.site.node.launcher._observer, list[PartContext]()
    observe = observer.observe

    def observes(run: UUID, task: UUID, test: Test, context: PartContext) -> PartObservation:
        observed.append(context)
        return observe(run, task, test, context)

    monkeypatch.setattr(observer, "observe", observes)
    await due.look()
    [part] = due.tool.parts
    assert observed == [part]
    assert [(party.name, dict(party.data), party.device) for party in part.parties] == [
        ("a", {"port": 7}, None),
        ("b", {}, "lo"),
    ]
    assert (part.participant, part.context) == (1, parse("interface:lo"))
    assert (part.starts, part.ends) == (HOUR, END)
    assert part.addresses == {"a": lead.address, "far.example": "198.51.100.7"}
    assert part.rules is not None
    kept = await due.part()
    assert (kept.participant, kept.name) == (1, "b")


@pytest.mark.parametrize(
    ("lead", "now", "patience"),
    [
        ("a", TURN, [(HOUR + LOOK_UP_TIME - TURN - ASKING) / times.SECOND]),
        ("a", HOUR + 3 * times.SECOND // 2, [1.0]),
        ("b", TURN, []),
    ],
)
async def test_targets_are_looked_up_until_a_second_after_the_start(
    world: World,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    lead: str,
    now: int,
    patience: list[float],
) -> None:
    """Targets of another node's task are, after its participants were asked, or nothing starts."""
    due = await _due(world, SAID, foreign=lead == "a")
    waited = list[float]()

    async def agreed(*_: Any) -> Agreement:
        world.clock.advance(ASKING)
        return Agreement()

    async def checked(
        _: Any, __: Any, context: PartContext, ___: Any, patience_s: float
    ) -> PartContext:
        assert context.rules is None
        waited.append(patience_s)
        raise HostError("it is a loopback address")

    monkeypatch.setattr(due.site.node.agreement, "agreed", agreed)
    monkeypatch.setattr(due.site.node.foreign_targets, "checked_part", checked)
    world.clock.move_to(now)
    await due.look()
    assert waited == patience
    assert len(stage.running) == (0 if patience else 1)
    assert (await due.part()).reason == ("it is a loopback address" if patience else None)


async def test_a_program_is_started_in_the_namespace_of_its_context(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that measures from a namespace starts there, and nowhere else."""
    a = await world.site("a")
    namespaces = list[str | None]()

    async def start(_: Any, *, namespace: str | None, **__: Any) -> RunningProcess:
        namespaces.append(namespace)
        raise HostError("no more is needed")

    monkeypatch.setattr(process, "start", start)
    for context in (None, parse("namespace:far"), parse(HERE)):
        part = PartContext(None, 0, (), HOUR, END, context=context)
        with pytest.raises(HostError):
            await a.node.launcher._start(ScriptedTool(SAID), SAID, part, 1.0)
    assert namespaces == [None, "far", None]


async def test_a_database_that_is_away_ends_no_measurement(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that cannot be recorded measures on, and its part is kept when that is possible."""
    due = await _due(world, SAID)
    keep, faults = due.site.node.collector.keep_own, 2
    waits = list[float]()

    async def away(*_: Any) -> None:
        raise DatabaseUnavailable("the server restarts")

    async def kept(*values: Any) -> None:
        nonlocal faults
        faults -= 1
        if faults >= 0:
            await away()
        await keep(*values)

    async def pause(seconds: float) -> None:
        if seconds:
            waits.append(seconds)

    monkeypatch.setattr(runs, "keep_process", away)
    monkeypatch.setattr(due.site.node.collector, "keep_own", kept)
    monkeypatch.setattr(world.clock, "sleep", pause)
    with capture_logs() as lines:
        await due.look()
    events = [line["event"] for line in lines]
    assert events == ["process not recorded", "part not kept yet", "part not kept yet"]
    assert waits == [1.0, 1.0]
    assert (await due.part()).result == {"slept_ms": 1.0}
    assert (await due.row())["state"] == "finished"


@pytest.mark.nightly
async def test_a_part_that_can_never_be_kept_is_left_to_the_next_look(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher does not try for ever, and the run does not stay in progress."""
    due = await _due(world, SAID)

    async def never(*_: Any) -> None:
        raise ZeroDivisionError("by zero")

    with monkeypatch.context() as patch:
        patch.setattr(due.site.node.collector, "keep_own", never)
        await due.look()
    assert (await due.row())["state"] == "running"
    await due.look()
    assert (await due.row())["state"] == "failed"
    assert (await due.part()).reason == track_lost()


async def test_a_beginning_that_the_database_refuses_is_tried_again(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says why a run did not begin; it begins at the next look, if still in time."""
    due = await _due(world, SAID)

    async def away(*_: Any) -> None:
        raise DatabaseUnavailable("the server restarts")

    with monkeypatch.context() as patch, capture_logs() as lines:
        patch.setattr(runs, "begin", away)
        await due.look()
    told = {"run": str(due.run), "error": "the server restarts", "log_level": "warning"}
    assert lines == [{"event": "not begun", **told}]
    assert await due.site.state(due.run) == "scheduled"
    await due.look()
    assert (await due.part()).result == {"slept_ms": 1.0}
    assert stage.times_of("released") == [HOUR]


async def test_a_run_that_is_cancelled_right_after_the_look_does_not_begin(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notification may come before the launcher has done anything for the run."""
    due = await _due(world, SAID)
    world.clock.move_to(HOUR)
    launcher = due.site.node.launcher
    launch = launcher._launch

    def launched_and_cancelled(*values: Any) -> None:
        launch(*values)
        launcher.on_notice(Notice("run", str(due.run), ("task", "displaced")))

    monkeypatch.setattr(launcher, "_launch", launched_and_cancelled)
    await due.look()
    assert await due.site.state(due.run) == "scheduled"
    assert stage.running == []


async def test_a_test_without_intervals_gets_none(world: World, stage: Stage) -> None:
    """A tool that could report intervals measures a test that has none as any other tool does."""
    due = await _due(world, SAID)

    def never(*_: Any) -> None:
        pytest.fail("there are no intervals")

    due.tool.read_interval = never  # type: ignore[attr-defined]
    await due.look()
    assert (await due.part()).result == {"slept_ms": 1.0}


async def test_intervals_are_forwarded_to_the_last(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intervals that a program has reported are kept before its part, however long that takes."""
    a, b = await world.two()
    multi = SchedulingClass.BACKGROUND_MULTI
    task = introduction([a, b], duration=10 * times.SECOND, scheduling_class=multi)
    spec = {"source": "a", "dest": "b", **SPEC}
    task = task.model_copy(update={"test": "latencybg", "spec": spec, "tool": "stampbg"})
    [run] = await book_everywhere(task, a, [a, b], [HOUR])
    await a.execute("UPDATE run SET tool = 'stampbg'")
    records = "".join(f"\x1e{json.dumps(sender_record(number))}\n" for number in range(3))
    command = Command(("cat",), stdin=records.encode(), streams=True)
    tool = a.node.capabilities.tools["stampbg"]
    monkeypatch.setattr(type(tool), "command", lambda *_: command)
    keep = a.node.collector.keep_own_intervals

    async def slowly(*values: Any) -> None:
        await stage.running[0].wait()
        await keep(*values)

    monkeypatch.setattr(a.node.collector, "keep_own_intervals", slowly)
    world.clock.move_to(HOUR)
    await Due(a, run, ScriptedTool(command)).look()
    rows = await a.rows("SELECT number, parts FROM run_interval ORDER BY number")
    assert [row["number"] for row in rows] == [0, 1, 2]
    assert all(list(row["parts"]) == ["0"] for row in rows)
    assert await a.state(run) == "merging"


async def test_between_two_starts_there_is_time_to_release(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that are to be started at once are started in different turns of the event loop."""
    due = await _due(world, SAID)
    turn, started = 0, list[int]()

    async def turning() -> None:
        nonlocal turn
        while True:
            turn += 1
            await world.clock.sleep(0)

    runner = due.site.node.tool_runner
    start = runner.start

    async def noted(*words: Any, **options: Any) -> Any:
        started.append(turn)
        return await start(*words, **options)

    monkeypatch.setattr(runner, "start", noted)
    ticking = asyncio.create_task(turning())
    part = PartContext(None, 0, (), HOUR, END)
    launcher = due.site.node.launcher
    made = await asyncio.gather(*(launcher._start(due.tool, SAID, part, 1.0) for _ in range(3)))
    ticking.cancel()
    for running in made:
        await running.end(0)
    assert len(set(started)) == 3
