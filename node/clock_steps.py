"""Answers steps of the host's clock: repairs what a clock that was ahead has chosen.

Pauses, leases, holds, and what was seen last are stored with instants of the host's clock. If it
was ahead for a while, these lie as far in the future once it is right again, and would be waited
for. Here this is noticed, in a process that runs and at the start of one that did not, and
everybody who keeps such an instant repairs it: the tables in one transaction, others as listeners.

What a process waits for by itself uses the monotonic clock and needs no repair.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from node.clock import STEP_MIN, StepWatcher
from node.core import Core
from node.model import times
from node.store import clock_steps

log = structlog.get_logger()


class ClockStepHandler:
    """Notices that the clock was set, and repairs what was chosen by one that was ahead."""

    def __init__(self, core: Core) -> None:
        """Watch the clock from now on."""
        self.watcher = StepWatcher(core.clock)
        self._database = core.database
        self._clock = core.clock
        self._lease = core.settings.lease
        self._handled = 0
        self._repaired = 0
        self._listeners: list[Callable[[], None]] = []

    def on_set_back(self, repair: Callable[[], None]) -> None:
        """Call ``repair`` whenever the clock was set back, before all loops look again."""
        self._listeners.append(repair)

    async def look(self) -> bool:
        """Notice a step since the last call, and repair after one back; return whether one was.

        :raises ParleyError: the database cannot be repaired now; the next call tries again.
        """
        self.watcher.look()
        if self.watcher.count == self._handled:
            return False
        set_back = self.watcher.set_back
        if set_back != self._repaired:
            for repair in self._listeners:
                repair()
        await self.note(repair=set_back != self._repaired)
        self._handled, self._repaired = self.watcher.count, set_back
        by_s = self.watcher.last / times.SECOND
        log.warning("the clock of this host was set", by_s=by_s, steps=self._handled)
        return True

    async def note(self, *, repair: bool = False) -> None:
        """Write what the clock says, and repair if a later reading is known.

        Then it was set back while no process was there to notice it. The latest reading is written
        at each start, after each step, and every minute.
        """
        now = self._clock.now()
        async with self._database.transaction() as connection:
            before = await clock_steps.note(connection, now)
            if repair or (before is not None and before > now + STEP_MIN):
                await clock_steps.repair(connection, now, self._lease)
