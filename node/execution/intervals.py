"""Intervals of long runs at their lead, merged while the run lasts.

An interval is merged as soon as all participants have reported it, or when it is clear that one of
them will not; a part that arrives later still completes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import structlog

from node.execution.catalog import Capabilities
from node.execution.merging import merge_interval, streaming_of
from node.execution.part_signing import PartSigner
from node.model import times
from node.model.errors import FieldFault, InvalidDocument
from node.model.intervals import Interval, Rhythm
from node.model.wire.participants import IntervalsMessage
from node.plugins.part_limits import fault_of_share
from node.store import intervals, notices, outbox, runs
from node.store.core import Core
from node.store.database import Connection
from node.store.intervals import MergedInterval, SignedInterval
from node.store.runs import KeptPart, LockedRun

GRACE = times.MINUTE
"""Time after its end that an interval waits for participants that have not reported it (µs)."""

log = structlog.get_logger()


class Intervals:
    """Stores and merges intervals, within the transaction of the caller, who has locked the run."""

    def __init__(self, core: Core, capabilities: Capabilities) -> None:
        self._database = core.database
        self._clock = core.clock
        self._capabilities = capabilities
        self._identity = core.identity
        self._signer = PartSigner(core)

    async def keep_own(self, connection: Connection, run: UUID, batch: Sequence[Interval]) -> None:
        """Store this node's own part of some intervals, or send it to the lead.

        :raises InvalidDocument: the run has no such intervals.
        """
        locked = await runs.lock(connection, run)
        if locked is None or locked.participant is None:
            return
        kept = [self._gap(locked, locked.participant, each) or each for each in batch]
        signed = self._signer.intervals(locked, locked.participant, kept)
        if locked.lead == self._identity:
            await self.keep(connection, locked, locked.participant, signed)
            return
        shares = [vars(each) for each in signed]
        message = IntervalsMessage.model_validate({"run": run, "intervals": shares})
        body = message.model_dump(mode="json")
        now = self._clock.now()
        await outbox.post(connection, [locked.lead], outbox.MessageKind.INTERVALS, body, now)

    async def keep(
        self,
        connection: Connection,
        run: LockedRun,
        participant: int,
        batch: Sequence[SignedInterval],
    ) -> None:
        """At the lead: store a participant's part of some intervals, and merge complete ones.

        One that is too large, or not one of its test, is a gap with that reason.

        :raises InvalidDocument: the run has no such intervals.
        """
        rhythm = self._rhythm(run)
        numbers = [each.number for each in batch]
        if rhythm is None or max(numbers) >= rhythm.count:
            count = rhythm.count if rhythm else 0
            detail = f"the run has {count} intervals, counted from 0; not {max(numbers)}"
            raise InvalidDocument([FieldFault("/intervals", detail)])
        batch = [self._gap(run, participant, each) or each for each in batch]
        await intervals.keep(connection, run.id, run.starts_at, rhythm, participant, batch)
        await self._merge(connection, run, numbers, await runs.parts(connection, run.id))

    def _gap(self, run: LockedRun, participant: int, share: Interval) -> SignedInterval | None:
        """Return the gap that is kept instead of a share that is too large, or none of its test."""
        test = self._capabilities.tests.get(run.test)
        if share.result is None or test is None:
            return None
        fault = fault_of_share(test, participant, share.result)
        if fault is None:
            return None
        log.warning("share refused", run=str(run.id), interval=share.number, reason=fault)
        return SignedInterval(share.number, None, fault)

    async def is_complete(
        self, connection: Connection, run: LockedRun, parts: Sequence[KeptPart]
    ) -> bool:
        """Return whether all intervals have arrived that the participants' parts announce."""
        rhythm = self._rhythm(run)
        if rhythm is None:
            return True
        for part in parts:
            announced = (part.result or {}).get("intervals", 0)
            count = min(announced, rhythm.count) if isinstance(announced, int) else 0
            if await intervals.count_sent(connection, run.id, part.participant, count) < count:
                return False
        return True

    async def close(
        self, connection: Connection, run: LockedRun, parts: Sequence[KeptPart]
    ) -> list[Interval]:
        """Merge the remaining intervals of a run that is over, including those nobody reported.

        Return all its intervals; none if its test does not stream.
        """
        rhythm = self._rhythm(run)
        if rhythm is None:
            return []
        await intervals.create_first(connection, run.id, run.starts_at, rhythm, rhythm.count)
        await self._merge(connection, run, None, parts, over=True)
        return await intervals.merged_intervals(connection, run.id)

    async def merge_overdue(self) -> None:
        """Merge the intervals whose missing parts did not arrive in time."""
        async with self._database.connection() as connection:
            overdue = await intervals.overdue_intervals(connection, self._clock.now() - GRACE)
        for run, numbers in overdue:
            async with self._database.transaction() as connection:
                locked = await runs.lock(connection, run)
                if locked is not None:
                    parts = await runs.parts(connection, run)
                    await self._merge(connection, locked, numbers, parts, over=True)

    def _rhythm(self, run: LockedRun) -> Rhythm | None:
        streaming = streaming_of(self._capabilities, run)
        return streaming[0].rhythm(streaming[1]) if streaming else None

    async def _merge(
        self,
        connection: Connection,
        run: LockedRun,
        numbers: Sequence[int] | None,
        parts: Sequence[KeptPart],
        *,
        over: bool = False,
    ) -> None:
        """Merge those of the intervals that are complete, or all of them if they are ``over``."""
        streaming = streaming_of(self._capabilities, run)
        reasons = {part.participant: part.reason for part in parts if part.reason is not None}
        merged = []
        for each in await intervals.incomplete_intervals(connection, run.id, numbers):
            missing = [at for at, _ in enumerate(run.participants) if str(at) not in each.parts]
            if over or each.merged or all(at in reasons for at in missing):
                interval, summary = merge_interval(streaming, run, each, reasons)
                merged.append(MergedInterval(interval, summary, complete=not missing))
        if not merged:
            return
        await intervals.merge(connection, run.id, merged, self._clock.now())
        last = merged[-1].interval.number
        await notices.notify(connection, "interval", run.id, run.task, last)
