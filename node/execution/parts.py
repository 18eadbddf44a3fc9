"""Collection of the parts of a run, which its lead merges once all of them have arrived.

A participant stores its own part and posts it to the lead in one transaction; the outbox repeats
the message until it is acknowledged, so that neither a restart nor an absent lead loses a part. The
lead locks the row of the run before it stores a part: of two parts that arrive at once, the second
one sees the first, and the run is merged once.

* The first part of a participant stays; a repeated message changes nothing.
* No part is taken before the run can have begun, so that a false one cannot take the place of
  the true one.
* A part that is too large, or not of its test, or wrongly signed, is kept as its reason, so that
  the run still ends.
* A run whose parts do not all arrive is merged without them (:meth:`PartCollector.give_up`); a run
  that failed is merged again when a late part arrives.
* A slot whose run was missed, or failed for a reason that may pass, is planned again within its
  window (:mod:`.further_attempts`).

What the parts mean is left to the test (:mod:`.merging`); intervals of long runs are merged before
the run ends (:mod:`.intervals`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import structlog

from node.execution.catalog import Capabilities
from node.execution.further_attempts import make_way, try_again
from node.execution.intervals import Intervals
from node.execution.latest_results import LatestResults
from node.execution.merging import circumstances_of, conclude
from node.execution.part_signing import PartSigner
from node.model import late_runs, times
from node.model.alerts import RunEvidence, path_of, rules_of
from node.model.errors import Conflict, FieldFault, InvalidDocument, NotAllowed
from node.model.intervals import Interval
from node.model.outcome import Judgement, judge
from node.model.reasons import no_part_in_time, part_refused
from node.model.recurrence import Recurrence, interval_after
from node.model.runstate import OVER, RunState
from node.model.samples import samples_of
from node.model.secrets import without_sealed
from node.model.wire.meshes import thresholds_of
from node.model.wire.participants import IntervalsMessage, PartMessage, RunEnd
from node.model.wire.tasks import PARTICIPANTS
from node.plugins.contracts import (
    Metric,
    TrafficReporting,
)
from node.plugins.part_limits import fault_of_part, short_command
from node.runtime import tracing
from node.store import alerts, dependencies, notices, outbox, runs
from node.store.core import Core
from node.store.database import Connection
from node.store.intervals import SignedInterval
from node.store.outbox import OutgoingMessage
from node.store.runs import KeptPart, LockedRun, RunConclusion

log = structlog.get_logger()

_FASTEST_BYTES_PER_S = 125_000_000_000
"""A terabit per second, faster than any link of a host."""


class PartCollector:
    """Stores parts; the last part of a run triggers the merge."""

    def __init__(self, core: Core, capabilities: Capabilities) -> None:
        self._database = core.database
        self._clock = core.clock
        self._capabilities = capabilities
        self._identity = core.identity
        self._clock_limit = core.settings.clock_limit
        self._signer = PartSigner(core)
        self._intervals = Intervals(core, capabilities)
        self.latest = LatestResults()

    async def keep_own(self, run: UUID, part: KeptPart, state: RunState = RunState.FAILED) -> None:
        """Store this node's own part and send it to the lead; ``state`` applies if it failed.

        If a part of it is stored already, this only ends the run, should it still be running.
        """
        await self._database.settle(lambda connection: self._keep_own(connection, run, part, state))

    async def _keep_own(
        self, connection: Connection, run: UUID, part: KeptPart, state: RunState
    ) -> None:
        locked = await runs.lock(connection, run)
        if locked is None:
            return
        part = self._signer.part(locked, self._as_kept(locked, part))
        moved = self._moved_bytes(locked, part) if locked.lead == self._identity else None
        if not await runs.keep_part(connection, run, part, moved):
            if locked.state is not RunState.RUNNING:
                return
            # Its part is stored but has not ended the run; the stored part ends it now.
            stored = await runs.parts(connection, run)
            part = next(each for each in stored if each.participant == part.participant)
            state = RunState.FAILED
        if locked.lead == self._identity:
            if state is RunState.MISSED:
                await self._end_missed(connection, locked, part)
            else:
                await self._merge_if_complete(connection, locked)
        else:
            await self._conclude_own(connection, locked, part, state)
            await self._send(connection, locked, part)

    async def _end_missed(self, connection: Connection, run: LockedRun, part: KeptPart) -> None:
        """End a run led here whose own part was missed, on all participants.

        The others may be measuring, alone and for nothing: a missed run is not merged.
        """
        now = self._clock.now()
        if not await runs.set_state(connection, [run.id], RunState.MISSED, part.reason, now):
            return
        await try_again(connection, run, [part.reason], now)
        await self._alert(connection, run, RunEvidence(Judgement.MISSED, part.reason), now)
        await dependencies.create_followers(connection, [run.id], now)
        await self._notify(connection, run, RunState.MISSED)
        reason = f"{part.name}: {part.reason}"
        end = RunEnd(run=run.id, state=RunState.CANCELLED, reason=reason).model_dump(mode="json")
        others = {each.node for each in run.participants} - {self._identity}
        await outbox.post(connection, sorted(others), outbox.MessageKind.RUN_END, end, now)

    async def send_again(self, lead: str, asked: Sequence[UUID]) -> None:
        """Send this node's parts of these runs to their lead, which says that it has none."""
        if not asked:
            return
        async with self._database.transaction() as connection:
            found = await runs.parts_to_send(connection, lead, asked)
            messages = [_part_message(lead, run, part) for run, part in found.items()]
            await outbox.post_all(connection, messages, self._clock.now())
        if found:
            log.info("parts sent again", lead=lead, parts=len(found))

    async def receive(self, sender: str, message: PartMessage) -> None:
        """Store a participant's part; unknown runs are ignored, other senders refused.

        :raises Conflict: the run has not begun.
        :raises InvalidDocument: its signature is wrong, or it is too large or no part of its test;
            what is stored instead is this reason.
        """
        fault = await self._database.settle(
            lambda connection: self._receive(connection, sender, message)
        )
        if fault is not None:
            raise InvalidDocument([fault])

    async def _receive(
        self, connection: Connection, sender: str, message: PartMessage
    ) -> FieldFault | None:
        """Store a part, or the reason why it is refused; return the reason."""
        locked = await runs.lock(connection, message.run)
        if locked is None or locked.lead != self._identity:
            return None
        place, circumstances = _place_of(locked, sender), None
        measured = message.reason is None or message.result is not None
        self._refuse_premature(locked, measured=measured)
        if message.circumstances is not None:
            circumstances = message.circumstances.model_dump(mode="json")
        part = KeptPart(
            place,
            locked.participants[place].name,
            message.result if message.reason else message.result or {},
            message.reason,
            message.started_at,
            message.finished_at,
            message.command,
            message.output,
            circumstances,
            message.signature,
        )
        fault = None
        if (unsigned := self._signer.fault_of(locked, sender, part)) is not None:
            fault = FieldFault("/signature", unsigned)
            why = part_refused(unsigned)
            part = KeptPart(place, part.name, None, why, part.started_at, part.finished_at)
        elif (bounded := self._as_kept(locked, part)) != part:
            if bounded.reason != part.reason:
                fault = FieldFault("/result", bounded.reason or "")
            part = bounded
        if fault is not None:
            log.warning("part refused", run=str(locked.id), sender=sender, reason=fault.detail)
        if await runs.keep_part(connection, message.run, part, self._moved_bytes(locked, part)):
            await self._merge_if_complete(connection, locked)
        return fault

    def _refuse_premature(self, run: LockedRun, *, measured: bool) -> None:
        """Refuse what no participant can have yet, so that the true part finds no other.

        :raises Conflict: the run has not begun, by the clock and by its state.
        """
        if run.state in {RunState.RUNNING, RunState.MERGING}:
            return
        now = self._clock.now()
        early = late_runs.premature_reason(run.starts_at, now, self._clock_limit, measured=measured)
        if early is not None:
            msg = f"run {run.id}: {early}"
            raise Conflict(msg)

    async def keep_own_intervals(self, run: UUID, batch: Sequence[Interval]) -> None:
        """Store this node's part of some intervals of a run in progress, or send it to the lead.

        :raises InvalidDocument: the run has no such intervals.
        """
        await self._database.settle(
            lambda connection: self._intervals.keep_own(connection, run, batch)
        )

    async def receive_intervals(self, sender: str, message: IntervalsMessage) -> None:
        """Store a participant's part of some intervals; it may be the last that a run waits for.

        :raises Conflict: the run has not begun.
        :raises InvalidDocument: the run has no such intervals, or a signature is wrong.
        """
        await self._database.settle(
            lambda connection: self._receive_intervals(connection, sender, message)
        )

    async def _receive_intervals(
        self, connection: Connection, sender: str, message: IntervalsMessage
    ) -> None:
        locked = await runs.lock(connection, message.run)
        if locked is None or locked.lead != self._identity:
            return
        place = _place_of(locked, sender)
        self._refuse_premature(locked, measured=True)
        batch = [SignedInterval(**vars(each)) for each in message.intervals]
        for at, each in enumerate(batch):
            if (fault := self._signer.interval_fault_of(locked, sender, place, each)) is not None:
                raise InvalidDocument([FieldFault(f"/intervals/{at}/signature", fault)])
        await self._intervals.keep(connection, locked, place, batch)
        if locked.state is RunState.MERGING:
            await self._merge_if_complete(connection, locked)

    async def give_up(self, ended_before: int, ended_after: int | None = None) -> None:
        """Merge runs that ended before this instant without their missing parts.

        Do the same with overdue intervals of runs in progress. Runs that did not end after another
        instant, if it is given, may still get their parts.
        """
        await self._intervals.merge_overdue()
        async with self._database.connection() as connection:
            overdue = await runs.runs_without_parts(connection, ended_before, ended_after)
        for run in overdue:
            async with self._database.transaction() as connection:
                locked = await runs.lock(connection, run)
                if locked is not None:
                    await self._merge(connection, locked, await runs.parts(connection, run))

    def _as_kept(self, run: LockedRun, part: KeptPart) -> KeptPart:
        """Return a part as it is kept; if that is not as its sender signed it, it is unsigned."""
        bounded = replace(part, command=short_command(part.command))
        test, count = self._capabilities.tests.get(run.test), len(run.participants)
        if part.result is not None and test is not None:
            fault = fault_of_part(test, part.participant, count, part.result)
            if fault is not None:
                bounded = replace(bounded, result=None, reason=fault)
        return part if bounded == part else replace(bounded, signature=None)

    def _moved_bytes(self, run: LockedRun, part: KeptPart) -> int | None:
        """Return what a part moved as measured; None if its test does not measure it.

        A participant cannot report more than any link carries in that time.
        """
        try:
            test = self._capabilities.test(run.test)
            if part.result is None or not isinstance(test, TrafficReporting):
                return None
            spec = self._capabilities.spec(test, run.spec)
            moved = test.moved(spec, part.participant, part.result)
        except Exception:
            # A plugin that fails on one part must not keep the part from being stored.
            log.exception("what a part moved is unknown", run=str(run.id))
            return None
        if moved is None:
            return None
        most = _FASTEST_BYTES_PER_S * (run.ends_at - run.starts_at) // times.SECOND
        return min(most, moved.sent_bytes + moved.received_bytes)

    async def _merge_if_complete(self, connection: Connection, run: LockedRun) -> None:
        if run.state in OVER and run.state is not RunState.FAILED:
            return
        parts = await runs.parts(connection, run.id)
        whole = len(parts) == len(run.participants)
        if whole and await self._intervals.is_complete(connection, run, parts):
            await self._merge(connection, run, parts)
        elif run.participant is None or any(p.participant == run.participant for p in parts):
            await runs.set_state(connection, [run.id], RunState.MERGING, None, self._clock.now())
            await self._notify(connection, run, RunState.MERGING)

    async def _merge(
        self, connection: Connection, run: LockedRun, parts: Sequence[KeptPart]
    ) -> None:
        now = self._clock.now()
        if run.state is RunState.BOOKED:
            await runs.set_state(connection, [run.id], RunState.MERGING, None, now)
        measured = await self._intervals.close(connection, run, parts)
        outcome = conclude(self._capabilities, run, parts, measured)
        outcome = replace(outcome, every=_interval_after(run))
        figures: Sequence[Metric] = ()
        if outcome.state is RunState.FINISHED:
            if outcome.result is not None:
                figures = self._capabilities.metrics(run.test, outcome.result)
            outcome = replace(outcome, judged=judge(figures, thresholds_of(run.reference)))
        came_late = run.state is RunState.FAILED and outcome.state is RunState.FINISHED
        if came_late and not await make_way(connection, run, self._identity, now):
            return  # another attempt stands for the slot
        judgement = await runs.conclude(connection, run.id, outcome, now)
        if judgement is not None:
            if outcome.state is RunState.FAILED:
                await try_again(connection, run, _part_reasons(run, parts), now)
            reason = outcome.judged.reason if outcome.judged else outcome.reason
            evidence = RunEvidence(judgement, reason, figures, path_of(outcome.result))
            await self._alert(connection, run, evidence, now)
            await dependencies.create_followers(connection, [run.id], now, {run.id: figures})
        self._keep_latest(run, outcome, judgement, figures, now)
        about = {"task": str(run.task), "test": run.test, "state": str(outcome.state)}
        fault = None if outcome.state is RunState.FINISHED else outcome.reason
        tracing.keep_run(run.id, run.starts_at, fault, about)
        await self._notify(connection, run, outcome.state)

    @staticmethod
    async def _alert(
        connection: Connection, run: LockedRun, evidence: RunEvidence, now: int
    ) -> None:
        """Raise and end alerts by the rules in the reference of the task, if it has any."""
        rules = rules_of(run.reference)
        if rules and not alerts.is_calm(run.alert_memory, rules, evidence):
            await alerts.evaluate(connection, (run.id, run.task), rules, evidence, now)

    def _keep_latest(
        self,
        run: LockedRun,
        outcome: RunConclusion,
        judgement: Judgement | None,
        figures: Sequence[Metric],
        now: int,
    ) -> None:
        document = {
            "task": str(run.task),
            "campaign": run.campaign,
            "reference": run.reference,
            "test": {"type": run.test, "spec": without_sealed(run.spec)},
            "participants": PARTICIPANTS.dump_python(run.participants, mode="json"),
            "succeeded": outcome.state is RunState.FINISHED,
            "outcome": {"judgement": judgement},
            "metrics": [vars(figure) for figure in figures],
        }
        self.latest.keep(run.task, now, samples_of(document), run.repeat or outcome.every)

    async def _conclude_own(
        self, connection: Connection, run: LockedRun, part: KeptPart, state: RunState
    ) -> None:
        """Conclude the run at a participant, where it is over when its own part is."""
        now = self._clock.now()
        if part.reason is None:
            state = RunState.FINISHED
        if run.state is RunState.BOOKED and part.started_at is not None:
            # This process had begun it before older data were put back under it.
            await runs.begin(connection, run.id, part.started_at)
        await runs.set_state(connection, [run.id], state, part.reason, now)
        await self._notify(connection, run, state)

    async def _send(self, connection: Connection, run: LockedRun, part: KeptPart) -> None:
        message = _part_message(run.lead, run.id, part)
        await outbox.post_all(connection, [message], self._clock.now())

    async def _notify(self, connection: Connection, run: LockedRun, state: RunState) -> None:
        await notices.notify(connection, "run", run.id, run.task, state)


def _part_message(lead: str, run: UUID, part: KeptPart) -> OutgoingMessage:
    message = PartMessage(
        run=run,
        result=part.result,
        reason=part.reason,
        started_at=part.started_at,
        finished_at=part.finished_at,
        command=part.command,
        output=part.output,
        circumstances=circumstances_of(part),
        signature=part.signature,
    )
    return OutgoingMessage(lead, outbox.MessageKind.PART, message.model_dump(mode="json"))


def _interval_after(run: LockedRun) -> int | None:
    """Return the interval after a run of a task with a cron schedule (µs)."""
    if run.cron is None:
        return None
    return interval_after(Recurrence(run.slot, cron=run.cron, timezone=run.timezone), run.slot)


def _part_reasons(run: LockedRun, parts: Sequence[KeptPart]) -> list[str | None]:
    """Return the reasons of the parts of a run, those that are missing last."""
    missing = len(run.participants) - len(parts)
    return [part.reason for part in parts] + [no_part_in_time()] * missing


def _place_of(run: LockedRun, sender: str) -> int:
    for place, participant in enumerate(run.participants):
        if participant.node == sender:
            return place
    msg = f"{sender} takes no part in run {run.id}"
    raise NotAllowed(msg)
