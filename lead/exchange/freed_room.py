"""Plans at once what waits for room in a campaign, or for time, when a run led here ended early.

The database notifies of such runs (``tell_room`` in ``schema.sql``): of the campaign, if it or one
above it has limits, and of the time, if seats are empty then. Nodes report time that they refused;
but those whose time is known to be taken by the lead's own runs were not asked for seats. A pool
task that found no nodes may have kept others of its pool waiting: these are tried again at once
when it ends, pauses, or is edited. If a notification is lost, what waits is planned after its usual
pause.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from lead.store import episodes, ledger
from node.model.spans import Span, normalise
from node.runtime.batching import act_when_woken
from node.runtime.clock import Clock
from node.store import notices
from node.store.database import Database, Notice

TASKS_MAX = 200
"""Maximum number of tasks that are planned at once: each may ask its participants without success.

The others are planned after their usual pauses."""

_WANTS_LESS = frozenset({"cancelled", "paused", "edited"})
"""Notices of tasks that may not want any more what they wanted."""


class FreedRoom:
    """Wakes what waits for room in campaigns, and seats that wait for time."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._campaigns: set[str] = set()
        self._spans: list[Span] = []
        self._tasks: set[UUID] = set()
        self._woken = asyncio.Event()

    def on_notice(self, notice: Notice) -> None:
        """Note a campaign that has room again, or what is no longer taken or wanted."""
        if notice.kind == "room":
            self._campaigns.add(notice.id)
            self._woken.set()
        if notice.kind == "unbooked":
            self._spans.append((int(notice.id), int(notice.words[0])))
            self._woken.set()
        if notice.kind == "task" and not _WANTS_LESS.isdisjoint(notice.words):
            self._tasks.add(UUID(notice.id))
            self._woken.set()

    async def run(self) -> None:
        """Wake what waits until cancelled."""
        complaint = "freed room not used at once"
        await act_when_woken(self._woken, self._clock.sleep, self.run_once, complaint)

    async def run_once(self) -> None:
        """Make due what waits for the campaigns, the time, and the tasks that were noted."""
        campaigns, self._campaigns = self._campaigns, set()
        spans, self._spans = normalise(self._spans), []
        over, self._tasks = self._tasks, set()
        if not campaigns and not spans and not over:
            return
        now = self._clock.now()
        async with self._database.transaction() as connection:
            tasks = await ledger.wake_tasks(connection, campaigns, now, TASKS_MAX)
            await notices.notify_all(connection, [("task", each, "plan") for each in tasks])
            wanted = await ledger.wake_terms(connection, campaigns, now)
            wanted += await episodes.retry_terms_in(connection, spans, now)
            if over:
                wanted += await episodes.retry_terms_after(connection, over, now)
            await notices.notify_all(connection, [("seats", each, "wanted") for each in wanted])
