"""Launches this node's part of each run at the agreed instant and ends it at the agreed end.

Each run that starts soon has an asyncio task, which prepares it, has the program loaded and held,
watches it, ends it (TERM shortly before the booked end, KILL at it), parses the output, and gives
the part to the collector. The program begins at the instant without this process, by the releaser
(:mod:`.releaser`), so that hundreds that are due at once begin within milliseconds. Notifications
announce new and cancelled runs; a regular look at the table is the safety net.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from node.execution import leftovers, process
from node.execution.agreement import AGREEMENT_TIME, Agreement, ParticipantAgreement
from node.execution.catalog import Capabilities
from node.execution.forwarder import IntervalForwarder
from node.execution.observer import PartObservation, PartObserver
from node.execution.parts import PartCollector
from node.execution.process import Confinement, Needs
from node.execution.restores import RestoreWatcher
from node.execution.spec_secrets import SpecSecrets
from node.execution.staggering import StartStaggerer
from node.execution.stalls import StallInquiry
from node.execution.targets import ForeignTargets, mere_targets
from node.execution.tool_runner import ToolRunner
from node.execution.versions import Versions
from node.model import contexts, late_runs, times
from node.model.errors import (
    DatabaseUnavailable,
    HostError,
    ParleyError,
    ToolOutputError,
    reason_of,
)
from node.model.late_runs import LAUNCH_HORIZON, UnmeasuredEnd
from node.model.named_secrets import SecretUse
from node.model.outside_leads import is_outside
from node.model.reason import Reason
from node.model.reasons import (
    booking_unconfirmed,
    plugin_failed,
    program_not_begun,
    result_not_kept,
    run_cancelled,
    stopped_meanwhile,
    tool_not_bindable_there,
    tool_was_killed,
)
from node.model.runstate import RunState
from node.model.wire.circumstances import Circumstances
from node.model.wire.participants import OUTPUT_LENGTH_MAX
from node.model.wire.tasks import Participant
from node.plugins.contracts import (
    Command,
    Output,
    PartContext,
    Party,
    Result,
    StreamingTest,
    StreamingTool,
    Targeting,
    Test,
    Tool,
)
from node.plugins.reading import BYTES_MAX
from node.runtime import tracing
from node.runtime.clock import LatchedEvent
from node.runtime.version import agent_of
from node.store import notices, runs
from node.store.core import Core
from node.store.database import Notice
from node.store.runs import DueRun, KeptPart

OUTPUT_END_KEPT = 5_000
"""Length of the end that is kept of long output: a program's reason and totals come last."""


def output_text(output: Output) -> str:
    """Return a program's output as text for Postgres; of long output the beginning and the end."""
    text = storable_text((output.stdout + output.stderr).decode("utf-8", "replace"))
    if len(text) <= OUTPUT_LENGTH_MAX:
        return text
    end = text[-OUTPUT_END_KEPT:]
    gap = f"\n[about {len(text) - OUTPUT_LENGTH_MAX} characters are left out]\n"
    return f"{text[: OUTPUT_LENGTH_MAX - len(end) - len(gap)]}{gap}{end}"


def storable_text(text: str) -> str:
    """Return the text without the characters that Postgres does not accept."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


REFRESH_S = 5.0
LOOK_S_MIN = 1.0
"""Least time between two looks for runs that come into view, which is long before they start."""
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
OBJECTION_LOOK = times.MINUTE
"""Time between two looks, during a run, whether its target objects by now."""
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
        context_refusal: Callable[[contexts.Context], Reason | None],
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
        self._agent = agent_of(core.settings)
        self._agreement = agreement
        self._restores = restores
        self._identity = core.identity
        self._poll_s = poll_s
        self._database = core.database
        self._clock = core.clock
        self._steps = core.steps
        self._capabilities = capabilities
        self._secrets = SpecSecrets(core, capabilities)
        self._collector = collector
        self._lose_run = lose_run
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        self._cancelled: dict[UUID, LatchedEvent] = {}
        self._asking: dict[UUID, asyncio.Task[Agreement]] = {}
        self._ended: set[UUID] = set()
        self._starts: dict[UUID, int] = {}
        self._objections: dict[UUID, Reason] = {}
        self._early: set[UUID] = set()
        self._measuring: set[UUID] = set()
        self._began_at = core.clock.monotonic()
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

    @property
    def versions(self) -> Versions:
        """The versions of the programs on this host."""
        return self._observer.versions

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
        if doubt := self._steps.doubt:
            # What seems due, late, or lost may be yet to come.
            return min(self._poll_s, doubt / times.SECOND)
        now = self._clock.now()
        async with self._database.connection() as connection:
            span = late_runs.last_missed_start(now), now + LAUNCH_HORIZON
            new = await runs.due_runs(connection, *span, list(self._tasks))
            # Checked this early so that the other participants, too, hear of it before they begin.
            dropped = (
                await runs.unconfirmed_runs(connection, [it.id for it in new], now) if new else {}
            )
            for run in new:
                self._launch(run, dropped.get(run.id, []))
            taken_back = await runs.taken_back_runs(connection, list(self._tasks))
            ended = self._ended.copy()
            lost = await runs.lost_runs(connection, late_runs.last_lost_end(now), list(ended))
            following = await runs.next_start(connection, now + LAUNCH_HORIZON)
        for gone in taken_back:
            self._stop(gone)
        for run_id in lost:
            if run_id not in self._tasks:
                await self._end_unmeasured(run_id, late_runs.LOST, self._restores.noticed_at)
        self._ended -= ended
        if await self._mark_overslept(now):
            return 0.0
        if following is None:
            return self._poll_s
        in_view_s = (following - LAUNCH_HORIZON + 1 - now) / times.SECOND
        return min(self._poll_s, max(LOOK_S_MIN, in_view_s))

    async def _mark_overslept(self, now: int) -> bool:
        """End some of the runs whose start has passed without a task; return whether more may be.

        There may be thousands after an absence, and those that are due meanwhile have to begin.
        """
        late = late_runs.last_missed_start(now)
        async with self._database.connection() as connection:
            overslept = await runs.overslept_runs(connection, late, list(self._tasks))
        if not overslept:
            return False
        # They may have been measured, if the data were put back under this process.
        await self._restores.look()
        noticed_at, began = self._restores.noticed_at, self._process_start(now)
        for run, starts_at in overslept:
            if starts_at < began:
                end = late_runs.overslept_end(began)
            elif noticed_at is not None and starts_at < noticed_at:
                end = late_runs.passed_over_end(noticed_at)
            else:
                end = late_runs.late_start(starts_at, now) or late_runs.overslept_end(now)
            await self._end_unmeasured(run, end, noticed_at)
        return True

    def _process_start(self, now: int) -> int:
        """Return when this process began, by the clock as it is now."""
        return now - (self._clock.monotonic() - self._began_at)

    def on_set_back(self) -> None:
        """Stop what a right clock would not have begun, or not have launched yet.

        What else waits for its start reads the clock again, and may have no time for another start.
        """
        now = self._clock.now()
        for run, starts_at in self._starts.items():
            if starts_at > (now if run in self._measuring else now + LAUNCH_HORIZON):
                self._early.add(run)
                self._stop(run)

    def _launch(self, run: DueRun, dropped_by: Sequence[str]) -> None:
        # Registered before the task exists, so that a notification can already cancel the run.
        self._cancelled[run.id] = LatchedEvent()
        if self._is_led_elsewhere(run):
            asking = asyncio.create_task(self._ask(run), name=f"ask {run.id}")
            self._asking[run.id] = asking
        self._starts[run.id] = run.starts_at
        # What has begun is not placed again, and who did not confirm may be measuring it.
        if dropped_by and self._clock.now() < run.starts_at:
            work = self._take_back(run, dropped_by)
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
        self._starts.pop(run, None)
        self._objections.pop(run, None)
        self._measuring.discard(run)
        if run in self._early:
            self._early.remove(run)
            self._woken.set()  # it may begin again at once
        self._turns.give_back(run)
        asking = self._asking.pop(run, None)
        if asking is not None and not asking.cancel() and not asking.cancelled():
            asking.exception()  # it was reported, or the run began to no use
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
        if not await self._wait_until(run.starts_at - PREPARATION_TIME, cancelled):
            return
        if self._clock.now() < run.starts_at and await self._take_back_if_dropped(run):
            return
        if await self._wait_until(run.starts_at, cancelled) and not self._steps.doubtful:
            async with self._database.transaction() as connection:
                now = self._clock.now()
                if await runs.set_state(connection, [run.id], RunState.MERGING, None, now):
                    await notices.notify(connection, "run", run.id, run.task, RunState.MERGING)

    async def _execute(self, run: DueRun) -> None:
        cancelled = self._cancelled[run.id]
        turn = self._turns.take(run.id, run.starts_at - PREPARATION_TIME)
        if not await self._wait_until(turn, cancelled):
            return
        if self._steps.doubtful:
            return  # the clock may be set right again: a later look sees the run again
        if (late := late_runs.late_start(run.starts_at, self._clock.now())) is not None:
            await self._keep(run, self._late_outcome(run, late))
            return
        if await self._take_back_if_dropped(run):
            return
        async with self._database.transaction() as connection:
            begun = await runs.begin(connection, run.id, self._clock.now())
            if begun is None:
                return
            await notices.notify(connection, "run", run.id, run.task, RunState.RUNNING)
        outcome = await self._measure_unless_doubtful(run, cancelled, doubtful=begun.doubtful)
        if run.id in self._early:
            async with self._database.transaction() as connection:
                await runs.set_state(connection, [run.id], RunState.BOOKED, None, self._clock.now())
        else:
            await self._keep(run, outcome)

    async def _measure_unless_doubtful(
        self, run: DueRun, cancelled: LatchedEvent, *, doubtful: bool
    ) -> LaunchOutcome:
        """Measure a run that is ``running``; if the database may be wrong, ask others before."""
        try:
            refusal = await self._agreement.restore_refusal(run) if doubtful else None
            if refusal is not None:
                return LaunchOutcome(None, refusal, None)
            return await self._measure_traced(run, cancelled)
        except ParleyError as error:
            return LaunchOutcome(None, error.detail, None)
        except Exception as error:
            log.exception("a plugin failed", run=str(run.id))
            return LaunchOutcome(None, plugin_failed(run.tool or "", repr(error)), None)

    def _is_led_elsewhere(self, run: DueRun) -> bool:
        """Return whether another node of Parley leads a run; one from outside is only answered."""
        return run.lead != self._identity and not is_outside(run.lead)

    async def _ask(self, run: DueRun) -> Agreement:
        """Ask those to whom a run sends that another node leads, shortly before it is prepared."""
        cancelled = self._cancelled[run.id]
        await self._wait_until(run.starts_at - AGREEMENT_TIME, cancelled)
        return await self._agreement.agreed(run, run.starts_at - PREPARATION_TIME)

    def _late_outcome(self, run: DueRun, late: UnmeasuredEnd) -> LaunchOutcome:
        """Return the outcome of a part that is too late, and was never prepared by this process."""
        noticed_at = self._restores.noticed_at
        if noticed_at is not None and run.starts_at < noticed_at:
            late = self._end_in_doubt(
                late_runs.passed_over_end(noticed_at), run.lead, run.participants
            )
        return LaunchOutcome(None, late.reason, None, state=late.state)

    def _end_in_doubt(
        self, end: UnmeasuredEnd, lead: str, participants: Sequence[Participant]
    ) -> UnmeasuredEnd:
        """Return the end of a part where the data may have forgotten that it was measured."""
        others = {each.node for each in participants} - {self._identity}
        others_tell = lead == self._identity and bool(others)
        return late_runs.end_in_doubt(end, others_tell=others_tell)

    async def _take_back_if_dropped(self, run: DueRun) -> bool:
        """Return whether a participant dropped this run before its start; if so, take it back.

        A participant that missed the commit drops the run, and the lead may be unable to say so in
        time, because its process may be the one that is gone. So that nobody begins alone, the run
        is taken back and its slot is planned again.
        """
        async with self._database.connection() as connection:
            dropped = await runs.unconfirmed_runs(connection, [run.id], run.starts_at)
        if dropped:
            await self._take_back(run, dropped[run.id])
        return bool(dropped)

    async def _take_back(self, run: DueRun, dropped_by: Sequence[str]) -> None:
        await self._lose_run(run.id, booking_unconfirmed(dropped_by))

    async def _wait_until(self, instant: int, cancelled: LatchedEvent) -> bool:
        """Wait for an instant; return False if the run was cancelled before it."""
        while (remaining := (instant - self._clock.now()) / times.SECOND) > 0:
            if await cancelled.wait(min(remaining, STEP_NOTICED_S)):
                return False
        return not cancelled.is_set

    async def _measure_traced(self, run: DueRun, cancelled: LatchedEvent) -> LaunchOutcome:
        with tracing.span("measure", trace=tracing.run_trace(run.id), run=str(run.id)) as noted:
            noted |= {"task": str(run.task), "test": run.test}
            outcome = await self._measure(run, cancelled)
            noted["reason"] = outcome.reason or ""
            return outcome

    async def _measure(self, run: DueRun, cancelled: LatchedEvent) -> LaunchOutcome:
        tool = self._capabilities.tools[run.tool or ""]
        outside = is_outside(run.lead)  # then this host only answers the other participants
        parties = (
            run.participants if outside else self._targets.with_card_addresses(run.participants)
        )
        context = self._context(run, parties)
        refusal = self._capabilities.refusal(tool, context.spec) or self._binding_refusal(
            tool, context.context
        )
        if refusal is not None:
            return LaunchOutcome(None, refusal, None)
        test = self._capabilities.tests[run.test]
        written = context.addresses if run.lead == self._identity else run.addresses
        if self._is_led_elsewhere(run):
            agreement = await self._asking[run.id]
            if agreement.refusal is not None:
                return LaunchOutcome(None, agreement.refusal, None)
            context = replace(context, parties=_with_own_data(context.parties, agreement.data))
            patience = max(run.starts_at - self._clock.now(), 0) + LOOK_UP_TIME
            strangers = self._targets.strangers(run.participants)
            context = await self._targets.checked_part(
                test, tool, context, strangers, patience / times.SECOND
            )
        elif run.bound:
            patience = max(run.starts_at - self._clock.now(), 0) + LOOK_UP_TIME
            context = await self._targets.checked_part_of_user(
                test, tool, context, run.rule, patience / times.SECOND
            )
        context = replace(context, spec=await self._opened_spec(run, test, context.spec, written))
        left_s = (run.starts_at - self._clock.now()) / times.SECOND / 2
        if (reason := await self._objection(run, test, context, left_s)) is not None:
            return LaunchOutcome(None, reason, None)
        observation = self._observer.observe(run.id, run.task, test, context)
        try:
            return await self._run_tool(run, tool, context, observation, cancelled)
        finally:
            observation.end()

    async def _opened_spec(
        self, run: DueRun, test: Test, spec: Any, addresses: Mapping[str, str]
    ) -> Any:
        """Return the spec with its secrets, which nobody but the tool is told.

        ``addresses`` are those of its hosts, before names were looked up.

        :raises HostError: one cannot be had, or is not for this run.
        """
        hosts = mere_targets(test, spec)
        use = SecretUse(
            lead=None if run.lead == self._identity else run.lead,
            targets=[(host, addresses.get(host, host)) for host in hosts],
            port=test.target_port(spec) if isinstance(test, Targeting) else None,
            user=run.user,
        )
        opened = await self._secrets.opened_spec(test, run.spec, use)
        return self._capabilities.spec(test, opened)

    async def _objection(
        self, run: DueRun, test: Test, context: PartContext, patience_s: float
    ) -> Reason | None:
        """Return why a target is not measured that has said no by DNS; None if none has."""
        if self._targets.opt_outs is None or is_outside(run.lead):
            return None
        hosts = self._targets.hosts_to_ask(test, context.spec, context.addresses, run.participants)
        return await self._targets.opt_outs.refusal(hosts, patience_s)

    async def _hear_objections(self, run: DueRun, context: PartContext) -> None:
        """Stop a run whose target says no while it is measured."""
        test = self._capabilities.tests[run.test]
        looks = (run.ends_at - run.starts_at) // OBJECTION_LOOK
        for _ in range(0 if self._targets.opt_outs is None else looks):
            await self._clock.sleep(OBJECTION_LOOK / times.SECOND)
            if (objection := await self._objection(run, test, context, 0)) is not None:
                self._objections[run.id] = objection
                self._stop(run.id)
                return

    def _binding_refusal(self, tool: Tool, context: contexts.Context | None) -> Reason | None:
        """Return why this tool must not measure from this context; None if it may.

        The owner may have withdrawn the context since the introduction, and the lead, which chose
        the tool, may be wrong about what it can be bound to.
        """
        if context is None:
            return None
        unbound = self._capabilities.binding_refusal(tool, context)
        if unbound is not None:
            return tool_not_bindable_there(tool.name, unbound)
        return self._context_refusal(context)

    async def _run_tool(
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
        hearing = asyncio.create_task(self._hear_objections(run, context))
        test, ends_at = self._capabilities.tests[run.test], run.ends_at + command.overtime
        inquiry = StallInquiry(test, context, self._tool_runner, self._clock, ends_at)
        try:
            if command.waits_itself:
                unbegun = _too_late_outcome(begins, running.started_at)
            else:
                unbegun = await self._release(running, begins, observation, cancelled)
            if unbegun is not None:
                return unbegun
            self._measuring.add(run.id)
            started_at = max(running.started_at - command.delay, run.starts_at)
            if not command.waits_itself:
                self._instruments.start(run.test, running.started_at - begins)
            await self._record(run, running, started_at)
            if command.waits_itself and await self._wait_until(
                begins - HOST_SAMPLE_LEAD_TIME, cancelled
            ):
                observation.begin()
            async with inquiry.watching():
                ended_by = await self._watch(ends_at, running, cancelled)
            finished = await running.wait()
            await forwarding
        finally:
            if not running.ended:
                await running.end(0)
            forwarding.cancel()
            hearing.cancel()
        observation.end()
        if ended_by == "cancel":
            await inquiry.close()
            return self._stopped_outcome(started_at, self._objections.get(run.id))
        output = Output(finished.exit_code, finished.stdout, finished.stderr, ended_by)
        outcome = await _read_aside(tool, context, command, output, started_at)
        if finished.killed is not None:
            why = tool_was_killed(tool.name, finished.killed)
            outcome = replace(outcome, result=None, reason=why)
        outcome = await _with_cause(inquiry, outcome, ended_itself=ended_by == "itself")
        circumstances = await observation.circumstances(
            test, tool, outcome.result, self._observer.versions, finished.worked_ticks
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
        await self._wait_until(begins - HOST_SAMPLE_LEAD_TIME, cancelled)
        observation.begin()
        if not await self._wait_until(begins, cancelled):
            return self._stopped_outcome(None)
        if await running.begun(self._clock.now, BEGUN_TIMEOUT_S):
            return None
        if (unbegun := _too_late_outcome(begins, self._clock.now())) is None:
            await running.end(0)  # tells what is known of its end
        return unbegun or LaunchOutcome(None, program_not_begun(), None)

    async def _start(
        self, tool: Tool, command: Command, context: PartContext, duration_s: float
    ) -> process.RunningProcess:
        needs = Needs(duration_s)
        if (requirement := tool.requirement) is not None:
            spec = context.spec
            needs = Needs(
                duration_s,
                requirement.privilege(spec),
                requirement.congestion(spec),
                requirement.connects(spec),
            )
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
            not_asked=self._targets.not_asked,
            agent=self._agent,
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

    def _stopped_outcome(self, started_at: int | None, why: Reason | None = None) -> LaunchOutcome:
        why = why or (stopped_meanwhile() if self._stopping else run_cancelled())
        return LaunchOutcome(None, why, started_at)

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
                why = result_not_kept()
                ended = (part.started_at, part.finished_at)
                part = KeptPart(part.participant, part.name, None, why, *ended)
            else:
                return

    async def recover(self) -> None:
        """After a restart, end leftover programs and the runs that were interrupted."""
        noticed_at = self._restores.noticed_at
        async with self._database.connection() as connection:
            interrupted = await runs.interrupted_runs(connection)
        for run, pid, ticks in interrupted:
            if pid is not None and ticks is not None:
                self._end_recorded(pid, ticks)
            await self._end_unmeasured(run, late_runs.INTERRUPTED, noticed_at)
        self._end_orphans()

    def _end_recorded(self, pid: int, ticks: int) -> None:
        """End the program of an interrupted run, if it lives."""
        leftovers.kill_recorded(pid, ticks)

    def _end_orphans(self) -> None:
        """End programs that no run tells of."""
        if orphans := leftovers.kill_orphans():
            log.warning("ended programs that a dead service had left running", processes=orphans)

    async def _end_unmeasured(self, run: UUID, end: UnmeasuredEnd, noticed_at: int | None) -> None:
        """End a run that nothing here measures; ``noticed_at`` is when a restore was noticed."""
        async with self._database.transaction() as connection:
            locked = await runs.lock(connection, run)
        if locked is None or locked.participant is None:
            return
        if noticed_at is not None and locked.starts_at < noticed_at:
            end = self._end_in_doubt(end, locked.lead, locked.participants)
        name = locked.participants[locked.participant].name
        part = KeptPart(locked.participant, name, None, end.reason, None, None)
        await self._collector.keep_own(run, part, end.state)


def _too_late_outcome(begins: int, now: int) -> LaunchOutcome | None:
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
    except ToolOutputError as error:
        return LaunchOutcome(error.result, error.detail, started_at, command.argv, text)
    except HostError as error:
        return LaunchOutcome(None, error.detail, started_at, command.argv, text)
    return LaunchOutcome(result, None, started_at, command.argv, text)


async def _with_cause(
    inquiry: StallInquiry, outcome: LaunchOutcome, *, ended_itself: bool
) -> LaunchOutcome:
    """Return an outcome with the reason why nothing got through, if the path tells one."""
    cause = await inquiry.reason(outcome.result, ended_itself=ended_itself)
    if cause is None:
        return outcome
    return replace(outcome, reason="; ".join(filter(None, (cause, outcome.reason))))


def _with_own_data(
    parties: Sequence[Party], data: Mapping[int, Mapping[str, Any]]
) -> tuple[Party, ...]:
    """Return the parties with what each node told in its own hold, and nothing that a lead said."""
    return tuple(replace(each, data=data.get(place, {})) for place, each in enumerate(parties))


def _context_of(participant: Participant) -> contexts.Context | None:
    return None if participant.context is None else contexts.parse(participant.context)
