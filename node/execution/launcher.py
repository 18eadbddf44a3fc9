"""Launches this node's part of each run at the agreed instant and ends it at the agreed end.

Each run that starts soon has an asyncio task, which prepares it, has the program loaded and held,
watches it, ends it (TERM shortly before the booked end, KILL at it), parses the output, and gives
the part to the collector. The program begins at the instant without this process, by the releaser
(:mod:`.releaser`), so that hundreds that are due at once begin within milliseconds. Notifications
announce new and cancelled runs; a regular look at the table is the safety net.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

import structlog

from node import tracing
from node.capability.catalog import Capabilities
from node.clock import LatchedEvent, StepWatcher
from node.core import Core
from node.execution import leftovers, process
from node.execution.agreement import ParticipantAgreement
from node.execution.forwarder import IntervalForwarder
from node.execution.observer import PartObservation, PartObserver
from node.execution.output_text import output_text, storable_text
from node.execution.parts import PartCollector
from node.execution.process import Confinement, Needs
from node.execution.restores import RestoreWatcher
from node.execution.staggering import StartStaggerer
from node.execution.targets import ForeignTargets
from node.execution.tool_runner import ToolRunner
from node.model import contexts, late_runs, times
from node.model.errors import DatabaseUnavailable, HostError, ParleyError, reason_of
from node.model.late_runs import UnmeasuredEnd
from node.model.outside_leads import is_outside
from node.model.runstate import RunState
from node.model.wire.circumstances import Circumstances
from node.model.wire.tasks import Participant
from node.plugins.contracts import (
    Command,
    Output,
    PartContext,
    Party,
    Result,
    StreamingTest,
    StreamingTool,
    Tool,
)
from node.plugins.reading import BYTES_MAX
from node.store import bookings, runs
from node.store.database import Notice
from node.store.runs import DueRun, KeptPart

LAUNCH_HORIZON = 20 * times.SECOND
"""Time ahead of a run's start at which the launcher creates its task.

At that time it also checks whether a participant has dropped a run that is led here: early enough
for the others to hear of it before they begin. This is far more than ``PREPARATION_TIME`` needs.
"""
REFRESH_S = 5.0
PREPARATION_TIME = 1200 * times.MILLISECOND
"""Time before its start at which a run becomes ``running`` and its program is started and held.

This is the latest time. Every run has a turn of its own (:mod:`.staggering`), so of many runs that
are due together some are prepared earlier. With fewer than forty, all turns are within the start
margin, in which nothing is displaced any more.
"""
TERM_BEFORE_END = 250 * times.MILLISECOND
"""Time before the booked end at which a running program gets TERM; KILL follows at the end."""
STEP_NOTICED_S = 1.0
"""Time after which whoever waits for an instant notices that the host's clock was set."""
STOP_TIMEOUT_S = 10.0
"""Longest time for which a node that is stopped waits until its programs have ended."""
LOOK_UP_TIME = times.SECOND
"""Time after its start for which a part may wait for the address of its target.

This is what tools book for looking up a name.
"""
HOST_SAMPLE_LEAD_TIME = 50 * times.MILLISECOND
"""Time before its start at which a part's host is first sampled.

The sample must not delay the release: for fifty parts that begin together, all samples take 2 ms,
so 50 ms are ample, and still close enough to the start to leave out what happened before it.
"""
BEGUN_TIMEOUT_S = 10.0
"""Longest time after its instant until this process knows whether a program has begun."""
OUTPUT_READ_MAX = BYTES_MAX + 1
"""One byte more than the longest valid output, to tell a flood of output from it."""
OUTPUT_READ_AT_ONCE = 50_000
REASON_LENGTH_MAX = 1000

log = structlog.get_logger()


@dataclass(frozen=True)
class LaunchOutcome:
    """The outcome of one part on this node."""

    result: Result | None
    reason: str | None
    started_at: int | None
    command: tuple[str, ...] | None = None
    output: str | None = None
    state: RunState = RunState.FAILED
    circumstances: Circumstances | None = None


class Launcher:
    """Starts, watches, and ends the parts of runs that this node measures."""

    def __init__(  # noqa: PLR0913 - the services that a run touches, most by name
        self,
        core: Core,
        capabilities: Capabilities,
        collector: PartCollector,
        lose_run: Callable[[UUID, str], Awaitable[None]],
        *,
        context_refusal: Callable[[contexts.Context], str | None],
        targets: ForeignTargets,
        agreement: ParticipantAgreement,
        restores: RestoreWatcher,
        tool_runner: ToolRunner,
        poll_s: float = REFRESH_S,
    ) -> None:
        """Take the services of the node; :meth:`run` does the work.

        ``lose_run(run, reason)`` takes back a run led here, so that its slot is planned again.
        ``context_refusal(context)`` returns why a context cannot be used, None if it can.
        """
        self._context_refusal = context_refusal
        self._targets = targets
        self._agreement = agreement
        self._restores = restores
        self._identity = core.identity
        self._poll_s = poll_s
        self._database = core.database
        self._clock = core.clock
        self._steps = StepWatcher(core.clock)
        self._capabilities = capabilities
        self._collector = collector
        self._lose_run = lose_run
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        self._cancelled: dict[UUID, LatchedEvent] = {}
        self._ended: set[UUID] = set()
        self._turns = StartStaggerer[UUID]()
        self._starting = asyncio.Lock()
        self._woken = LatchedEvent()
        self._stopping = False
        self._tool_runner = tool_runner
        self._observer = PartObserver(core.clock, tool_runner)
        self._instruments = core.instruments

    def on_notice(self, notice: Notice) -> None:
        """Look again after a commit or when a run gets its time back; stop runs that were ended."""
        if notice.kind in {"exchange", "changed", "wake"}:
            self._woken.set()
        elif notice.kind == "run" and notice.words[-1] in {"cancelled", "displaced"}:
            self._stop(UUID(notice.id))
        elif notice.kind == "task" and notice.words[-1] in {"cancelled", "refused"}:
            self._woken.set()

    def _stop(self, run: UUID) -> None:
        cancelled = self._cancelled.get(run)
        if cancelled is not None:
            cancelled.set()

    async def run(self) -> None:
        """Launch runs until cancelled; then end those in progress, marked as stopped."""
        try:
            while True:
                self._woken.clear()  # before the look: a notification during it needs another look
                pause = self._poll_s
                try:
                    pause = await self.run_once()
                except DatabaseUnavailable as error:
                    log.warning("cannot look for runs", error=error.detail)
                except Exception:
                    log.exception("cannot look for runs")
                await self._woken.wait(pause)
        finally:
            await self._stop_all()

    async def run_once(self) -> float:
        """Create a task for each run that starts soon, and mark those that cannot start any more.

        Return the seconds until the next look is due.
        """
        now = self._clock.now()
        async with self._database.connection() as connection:
            due = await runs.due_runs(connection, now + LAUNCH_HORIZON)
        new = [run for run in due if run.id not in self._tasks]
        if any(late_runs.late_start(run.starts_at, now) for run in new):
            # They may have been measured, if the data were put back under this process.
            await self._restores.look()
        async with self._database.connection() as connection:
            # Checked this early so that the other participants, too, hear of it before they begin.
            dropped = await runs.unconfirmed(connection, [it.id for it in new], now) if new else {}
            for run in new:
                self._launch(run, dropped.get(run.id, []))
            taken_back = await runs.taken_back(connection, list(self._tasks))
            ended = self._ended.copy()
            lost = await runs.lost(connection, late_runs.last_lost_end(now), list(ended))
            following = await runs.next_start(connection, now + LAUNCH_HORIZON)
        for gone in taken_back:
            self._stop(gone)
        for run_id in lost:
            if run_id not in self._tasks:
                await self._mark(run_id, late_runs.LOST, self._restores.noticed_at)
        self._ended -= ended
        if following is None:
            return self._poll_s
        return min(self._poll_s, (following - LAUNCH_HORIZON + 1 - now) / times.SECOND)

    def _launch(self, run: DueRun, dropped_by: Sequence[str]) -> None:
        # Registered before the task exists, so that a notification can already cancel the run.
        self._cancelled[run.id] = LatchedEvent()
        # What has begun is not placed again, and who did not confirm may be measuring it.
        if dropped_by and self._clock.now() < run.starts_at:
            work = self._lose(run, dropped_by)
        elif run.participant is not None:
            work = self._execute(run)
        else:
            work = self._await_parts(run)
        task = asyncio.create_task(work, name=f"run {run.id}")
        self._tasks[run.id] = task
        task.add_done_callback(lambda done: self._forget(run.id, done))

    def _forget(self, run: UUID, task: asyncio.Task[None]) -> None:
        """Remove a task that ended; if an error ended it, the next look begins the run again.

        If the run is ``running`` all the same, because its beginning was stored and the answer
        lost, or because its part could not be kept, the next look ends it.
        """
        self._tasks.pop(run, None)
        self._ended.add(run)
        self._cancelled.pop(run, None)
        self._turns.give_back(run)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("not begun", run=str(run), error=reason_of(error))

    async def _stop_all(self) -> None:
        self._stopping = True
        tasks = list(self._tasks.values())
        for cancelled in self._cancelled.values():
            cancelled.set()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_TIMEOUT_S)

    async def _await_parts(self, run: DueRun) -> None:
        """Serve a run that is led here without a part of this node: open it for others' parts."""
        cancelled = self._cancelled[run.id]
        if not await self._until(run.starts_at - PREPARATION_TIME, cancelled):
            return
        if self._clock.now() < run.starts_at and await self._lost(run):
            return
        if await self._until(run.starts_at, cancelled):
            async with self._database.transaction() as connection:
                now = self._clock.now()
                if await runs.move(connection, [run.id], RunState.MERGING, None, now):
                    await bookings.notify(connection, "run", run.id, run.task, RunState.MERGING)

    async def _execute(self, run: DueRun) -> None:
        cancelled = self._cancelled[run.id]
        turn = self._turns.take(run.id, run.starts_at - PREPARATION_TIME)
        if not await self._until(turn, cancelled):
            return
        if (late := late_runs.late_start(run.starts_at, self._clock.now())) is not None:
            if self._steps.doubtful:
                return  # the clock may be set right again: the next look sees the run again
            await self._keep(run, self._late(run, late))
            return
        if await self._lost(run):
            return
        async with self._database.transaction() as connection:
            begun = await runs.begin(connection, run.id, self._clock.now())
            if begun is None:
                return
            await bookings.notify(connection, "run", run.id, run.task, RunState.RUNNING)
        try:
            refusal = await self._agreement.restore_refusal(run) if begun.doubtful else None
            outcome = (
                LaunchOutcome(None, refusal, None)
                if refusal is not None
                else await self._traced(run, cancelled)
            )
        except ParleyError as error:
            outcome = LaunchOutcome(None, error.detail, None)
        except Exception as error:
            log.exception("a plugin failed", run=str(run.id))
            outcome = LaunchOutcome(None, f"the {run.tool} plugin failed: {error!r}", None)
        await self._keep(run, outcome)

    def _late(self, run: DueRun, late: UnmeasuredEnd) -> LaunchOutcome:
        """Return the outcome of a part that is too late, and was never prepared by this process."""
        noticed_at = self._restores.noticed_at
        if noticed_at is not None and run.starts_at < noticed_at:
            late = self._doubted(late_runs.passed_over(noticed_at), run.lead, run.participants)
        return LaunchOutcome(None, late.reason, None, state=late.state)

    def _doubted(
        self, end: UnmeasuredEnd, lead: str, participants: Sequence[Participant]
    ) -> UnmeasuredEnd:
        """Return the end of a part in data that may have forgotten that it was measured."""
        others = {each.node for each in participants} - {self._identity}
        others_tell = lead == self._identity and bool(others)
        return late_runs.doubted(end, others_tell=others_tell)

    async def _lost(self, run: DueRun) -> bool:
        """Return whether a participant dropped this run before its start; if so, take it back.

        A participant that missed the commit drops the run, and the lead may be unable to say so in
        time, because its process may be the one that is gone. So that nobody begins alone, the run
        is taken back and its slot is planned again.
        """
        async with self._database.connection() as connection:
            dropped = await runs.unconfirmed(connection, [run.id], run.starts_at)
        if dropped:
            await self._lose(run, dropped[run.id])
        return bool(dropped)

    async def _lose(self, run: DueRun, dropped_by: Sequence[str]) -> None:
        reason = f"{' and '.join(dropped_by)} did not confirm in time that it has this run"
        await self._lose_run(run.id, reason)

    async def _until(self, instant: int, cancelled: LatchedEvent) -> bool:
        """Wait for an instant; return False if the run was cancelled before it."""
        while (remaining := (instant - self._clock.now()) / times.SECOND) > 0:
            if await cancelled.wait(min(remaining, STEP_NOTICED_S)):
                return False
        return not cancelled.is_set

    async def _traced(self, run: DueRun, cancelled: LatchedEvent) -> LaunchOutcome:
        with tracing.span("measure", trace=tracing.run_trace(run.id), run=str(run.id)) as noted:
            noted |= {"task": str(run.task), "test": run.test}
            outcome = await self._measure(run, cancelled)
            noted["reason"] = outcome.reason or ""
            return outcome

    async def _measure(self, run: DueRun, cancelled: LatchedEvent) -> LaunchOutcome:
        tool = self._capabilities.tools[run.tool or ""]
        outside = is_outside(run.lead)  # then this host only answers the other participants
        parties = run.participants if outside else self._targets.located(run.participants)
        context = self._context(run, parties)
        refusal = self._capabilities.refused(tool, context.spec) or self._context_refused(
            tool, context.context
        )
        if refusal is not None:
            return LaunchOutcome(None, refusal, None)
        test = self._capabilities.tests[run.test]
        if run.lead != self._identity and not outside:
            agreeing = self._agreement.to_ask(run)
            if (refusal := await self._agreement.refusal(run, agreeing)) is not None:
                return LaunchOutcome(None, refusal, None)
            patience = max(run.starts_at - self._clock.now(), 0) + LOOK_UP_TIME
            context = await self._targets.checked(test, tool, context, patience / times.SECOND)
        observation = self._observer.observe(run.id, run.task, test, context)
        try:
            return await self._measured(run, tool, context, observation, cancelled)
        finally:
            observation.end()

    def _context_refused(self, tool: Tool, context: contexts.Context | None) -> str | None:
        """Return why this tool must not measure from this context; None if it may.

        The owner may have withdrawn the context since the introduction, and the lead, which chose
        the tool, may be wrong about what it can be bound to.
        """
        if context is None:
            return None
        unbound = self._capabilities.unbound(tool, context)
        return f"{tool.name} {unbound}" if unbound else self._context_refusal(context)

    async def _measured(
        self,
        run: DueRun,
        tool: Tool,
        context: PartContext,
        observation: PartObservation,
        cancelled: LatchedEvent,
    ) -> LaunchOutcome:
        command = tool.command(context)
        begins = run.starts_at + command.delay
        duration_s = (run.ends_at + command.overtime - run.starts_at) / times.SECOND
        running = await self._start(tool, command, context, duration_s)
        forwarding = asyncio.create_task(self._forward(run, tool, context, running))
        try:
            if command.waits_itself:
                unbegun = _unbegun(begins, running.started_at)
            else:
                unbegun = await self._release(running, begins, observation, cancelled)
            if unbegun is not None:
                return unbegun
            started_at = max(running.started_at - command.delay, run.starts_at)
            if not command.waits_itself:
                self._instruments.start(run.test, running.started_at - begins)
            await self._record(run, running, started_at)
            if command.waits_itself and await self._until(
                begins - HOST_SAMPLE_LEAD_TIME, cancelled
            ):
                observation.begin()
            ended_by = await self._watch(run.ends_at + command.overtime, running, cancelled)
            finished = await running.wait()
            await forwarding
        finally:
            if not running.ended:
                await running.end(0)
            forwarding.cancel()
        observation.end()
        if ended_by == "cancel":
            return self._stopped(started_at)
        output = Output(finished.exit_code, finished.stdout, finished.stderr, ended_by)
        outcome = await _read_aside(tool, context, command, output, started_at)
        if finished.killed is not None:
            why = f"{tool.name} was killed: it {finished.killed}"
            outcome = replace(outcome, result=None, reason=why)
        test, versions = self._capabilities.tests[run.test], self._observer.versions
        circumstances = await observation.circumstances(
            test, tool, outcome.result, versions, finished.worked_ticks
        )
        return replace(outcome, circumstances=circumstances)

    async def _release(
        self,
        running: process.RunningProcess,
        begins: int,
        observation: PartObservation,
        cancelled: LatchedEvent,
    ) -> LaunchOutcome | None:
        """Have a held program begin at its instant; return None, or the outcome if it does not.

        A program is too late if its own preparation took too long, on an overloaded host.
        """
        running.release(self._clock.now, begins, late_runs.latest_start(begins))
        await self._until(begins - HOST_SAMPLE_LEAD_TIME, cancelled)
        observation.begin()
        if not await self._until(begins, cancelled):
            return self._stopped(None)
        if await running.begun(self._clock.now, BEGUN_TIMEOUT_S):
            return None
        if (unbegun := _unbegun(begins, self._clock.now())) is None:
            await running.end(0)  # tells what is known of its end
        return unbegun or LaunchOutcome(None, "its program could not be begun", None)

    async def _start(
        self, tool: Tool, command: Command, context: PartContext, duration_s: float
    ) -> process.RunningProcess:
        needs = Needs(duration_s)
        if (requirement := tool.requirement) is not None:
            spec = context.spec
            needs = Needs(duration_s, requirement.privilege(spec), requirement.congestion(spec))
        async with self._starting:  # one start per loop iteration, so that releases come between
            await self._clock.sleep(0)
        return await process.start(
            command.argv,
            now=self._clock.now,
            stdin=command.stdin,
            output_bytes_max=OUTPUT_READ_MAX,
            streams=command.streams,
            held=not command.waits_itself,
            namespace=None if context.context is None else context.context.namespace,
            confinement=Confinement(self._tool_runner, needs),
        )

    def _context(self, run: DueRun, participants: Sequence[Participant]) -> PartContext:
        test = self._capabilities.tests[run.test]
        spec = self._capabilities.spec(test, run.spec)
        requested = [_context_of(p) for p in participants]
        parties = tuple(
            Party(
                p.name,
                p.address,
                run.data.get(str(place), {}),
                None if context is None else context.device,
            )
            for place, (p, context) in enumerate(zip(participants, requested, strict=True))
        )
        words = test.participants(spec)
        own_addresses = {word: p.address for word, p in zip(words, participants, strict=False)}
        return PartContext(
            spec=spec,
            participant=run.participant or 0,
            parties=parties,
            starts=run.starts_at,
            ends=run.ends_at,
            addresses={
                host: own_addresses.get(host, address) for host, address in run.addresses.items()
            },
            context=requested[run.participant or 0],
        )

    async def _record(self, run: DueRun, running: process.RunningProcess, started_at: int) -> None:
        """Record the process of a run; a database outage must not end the measurement."""
        try:
            async with self._database.connection() as connection:
                await runs.keep_process(
                    connection, run.id, started_at, running.pid, running.started_ticks
                )
        except DatabaseUnavailable as error:
            log.warning("process not recorded", run=str(run.id), error=error.detail)

    async def _forward(
        self, run: DueRun, tool: Tool, context: PartContext, running: process.RunningProcess
    ) -> None:
        """Forward the intervals that the program reports while it runs, if it reports any."""
        test = self._capabilities.tests[run.test]
        if isinstance(test, StreamingTest) and isinstance(tool, StreamingTool):
            read = partial(tool.read_interval, context)
            keep = partial(self._collector.keep_own_intervals, run.id)
            count = test.rhythm(context.spec).count
            await IntervalForwarder(read, keep, count, self._clock).run(running)

    async def _watch(
        self, ends_at: int, running: process.RunningProcess, cancelled: LatchedEvent
    ) -> str:
        """Wait for the end, a cancellation, or the program's exit; return which of them it was."""
        waiting = asyncio.create_task(running.wait())
        remaining = (ends_at - TERM_BEFORE_END - self._clock.now()) / times.SECOND
        stopping = asyncio.create_task(cancelled.wait(remaining))
        done, _ = await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if waiting in done:
            return "itself"
        cut = cancelled.is_set
        await running.end(2.0 if cut else (ends_at - self._clock.now()) / times.SECOND)
        await waiting
        return "cancel" if cut else "end"

    def _stopped(self, started_at: int | None) -> LaunchOutcome:
        reason = "the node was stopped during the run" if self._stopping else "cancelled"
        return LaunchOutcome(None, reason, started_at)

    async def _keep(self, run: DueRun, outcome: LaunchOutcome) -> None:
        circumstances = outcome.circumstances
        part = KeptPart(
            participant=run.participant or 0,
            name=run.participants[run.participant or 0].name,
            result=outcome.result,
            reason=None
            if outcome.reason is None
            else storable_text(outcome.reason)[:REASON_LENGTH_MAX],
            started_at=outcome.started_at,
            finished_at=self._clock.now() if outcome.started_at else None,
            command=outcome.command,
            output=outcome.output,
            circumstances=None if circumstances is None else circumstances.model_dump(mode="json"),
        )
        failed_before = False
        while True:
            try:
                await self._collector.keep_own(run.id, part, outcome.state)
            except DatabaseUnavailable as error:
                # A measured result is not thrown away because Postgres restarts.
                log.warning("part not kept yet", run=str(run.id), error=error.detail)
                if self._stopping:
                    return
                await self._clock.sleep(1.0)
            except Exception:
                log.exception("part cannot be kept", run=str(run.id))
                if failed_before:
                    return
                failed_before = True
                reason = "its result could not be kept; the log of the node has the details"
                part = KeptPart(part.participant, part.name, None, reason, part.started_at, None)
            else:
                return

    async def recover(self) -> None:
        """After a restart, end leftover programs and mark runs that were interrupted or missed."""
        now, noticed_at = self._clock.now(), self._restores.noticed_at
        async with self._database.connection() as connection:
            interrupted = await runs.interrupted(connection)
            overslept = await runs.overslept(connection, late_runs.last_missed_start(now))
        for run, pid, ticks in interrupted:
            if pid is not None and ticks is not None:
                leftovers.kill_recorded(pid, ticks)
            await self._mark(run, late_runs.INTERRUPTED, noticed_at)
        if orphans := leftovers.kill_orphans():
            log.warning("ended programs that a dead service had left running", processes=orphans)
        for run in overslept:
            await self._mark(run, late_runs.overslept(now), noticed_at)

    async def _mark(self, run: UUID, end: UnmeasuredEnd, noticed_at: int | None) -> None:
        """End a run that nothing here measures; ``noticed_at`` is when a restore was noticed."""
        async with self._database.transaction() as connection:
            locked = await runs.lock(connection, run)
        if locked is None or locked.participant is None:
            return
        if noticed_at is not None and locked.starts_at < noticed_at:
            end = self._doubted(end, locked.lead, locked.participants)
        name = locked.participants[locked.participant].name
        part = KeptPart(locked.participant, name, None, end.reason, None, None)
        await self._collector.keep_own(run, part, end.state)


def _unbegun(begins: int, now: int) -> LaunchOutcome | None:
    """Return the outcome of a part that begins now, if that is too late; None if it may begin."""
    late = late_runs.late_start(begins, now)
    return None if late is None else LaunchOutcome(None, late.reason, None, state=late.state)


async def _read_aside(
    tool: Tool, context: PartContext, command: Command, output: Output, started_at: int
) -> LaunchOutcome:
    """Parse the output, in a thread if it is long: that takes seconds, and others must start."""
    if len(output.stdout) + len(output.stderr) <= OUTPUT_READ_AT_ONCE:
        return _read(tool, context, command, output, started_at)
    return await asyncio.to_thread(_read, tool, context, command, output, started_at)


def _read(
    tool: Tool, context: PartContext, command: Command, output: Output, started_at: int
) -> LaunchOutcome:
    text = output_text(replace(output, stdout=b"") if command.foreign_stdout else output)
    try:
        result = tool.read(context, output)
    except HostError as error:
        return LaunchOutcome(None, error.detail, started_at, command.argv, text)
    return LaunchOutcome(result, None, started_at, command.argv, text)


def _context_of(participant: Participant) -> contexts.Context | None:
    return None if participant.context is None else contexts.parse(participant.context)
