"""The waiter list of refused time: notifies leads when time they were refused becomes free.

The database notifies of every run that gives its time back (``schema.sql``, ``run_freed``). If that
leaves room in a window that was refused, the lead that asked gets one small message and plans the
task at once. If the message is lost, the lead retries after its usual pause.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

import structlog

from node.model.errors import ParleyError
from node.model.refusals import RefusalMemory
from node.model.spans import Span
from node.model.wire.participants import FREED_MAX, FreedTime, Proposal, ProposalRequest
from node.runtime.batching import act_when_woken
from node.store import seats, tasks
from node.store.core import Core
from node.store.database import Notice
from node.store.notices import notify
from node.timetable.booking import TimeLine

log = structlog.get_logger()


class FreedTimeListener(Protocol):
    """A lead that can be notified."""

    async def report_freed_time(self, message: FreedTime) -> None:
        """Report that time for these tasks became free."""
        ...


class FreedTimeNotifier:
    """Remembers the windows that were refused here, and notifies their leads of freed time."""

    def __init__(
        self,
        core: Core,
        time_line: TimeLine,
        lead_of: Callable[[str], FreedTimeListener],
    ) -> None:
        """``lead_of(identity)`` returns the client of another node."""
        self._database = core.database
        self._clock = core.clock
        self._time_line = time_line
        self._identity = core.identity
        self._lead_of = lead_of
        self._refusals = RefusalMemory()
        self._answering = 0
        self._freed: list[Span] = []
        self._woken = asyncio.Event()

    async def propose(self, lead: str, request: ProposalRequest) -> Proposal:
        """Return the time line's proposal, and remember the windows that other runs fill."""
        self._answering += 1
        try:
            if not request.preview:
                await self._time_line.note(lead, request)
            answered = await self._time_line.propose(lead, request)
            if not request.preview:
                indices = sorted({obstacle.window for obstacle in answered.obstacles})
                refused = [request.windows[index] for index in indices]
                self._refusals.remember(lead, request, refused)
        finally:
            self._answering -= 1
        return answered

    def on_notice(self, notice: Notice) -> None:
        """Note which spans became free, while any window is remembered as refused."""
        if notice.kind == "freed" and (self._answering or self._refusals):
            self._freed.append((int(notice.id), int(notice.words[0])))
            self._woken.set()

    async def run(self) -> None:
        """Notify leads until cancelled."""
        complaint = "freed time not reported"
        await act_when_woken(self._woken, self._clock.sleep, self.run_once, complaint)

    async def run_once(self) -> None:
        """Notify the leads whose refused windows have room now."""
        now = self._clock.now()
        freed, self._freed = [(max(start, now), end) for start, end in self._freed if end > now], []
        by_lead: dict[str, list[UUID]] = defaultdict(list)
        for refused in self._refusals.touched_questions(freed):
            answered = await self._time_line.propose(refused.lead, refused.question)
            if answered.free or answered.free_displacing:
                self._refusals.forget(refused.lead, refused.question.task)
                by_lead[refused.lead].append(refused.question.task)
        await asyncio.gather(
            *(self._notify_lead(lead, waiting) for lead, waiting in by_lead.items())
        )

    async def _notify_lead(self, lead: str, waiting: Sequence[UUID]) -> None:
        for first in range(0, len(waiting), FREED_MAX):
            message = FreedTime(tasks=tuple(waiting[first : first + FREED_MAX]))
            if lead == self._identity:
                await self.plan_waiting_slots(lead, message)
                continue
            try:
                await self._lead_of(lead).report_freed_time(message)
            except ParleyError as error:
                log.info("freed time not reported", lead=lead, error=error.detail)

    async def plan_waiting_slots(self, sender: str, message: FreedTime) -> None:
        """Plan the waiting slots of these tasks, led here, now: ``sender`` has time for them."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            for task in await tasks.wake_refused(connection, message.tasks, sender, now):
                await notify(connection, "task", task, "plan")
            for task in await seats.wake(connection, message.tasks, now):
                await notify(connection, "seats", task, "wanted")
