"""Answers steps of the host's clock, and doubts one that may be ahead.

Pauses, leases, holds, and what was seen last are stored with instants of the host's clock. If it
was ahead for a while, these lie as far in the future once it is right again, and would be waited
for. And what had been over by it is still to come. Here this is noticed, in a process that runs and
at the start of one that did not, and everybody who keeps such an instant repairs it: the tables in
one transaction, others as listeners. What a process waits for by itself uses the monotonic clock
and needs no repair.

Better than repair is to do nothing by a clock that is wrong
(:class:`node.runtime.clock.StepWatcher`). The database knows the last reading that was believed
(``generation.believed_at``, a minute old at most), and how much later it is by now as long as the
host has not booted since. A process whose first reading is far from that begins its work only once
the clock is confirmed: by the kernel, by another node that answers with its key, or by another
process of this node that believes it. Nor is anything repaired before by a clock that is far
behind: by it what failed this morning was over before its start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from node.model import times
from node.model.errors import NotReady
from node.model.times import duration_text, to_the_second
from node.runtime.clock import ABSENCE_MAX, STEP_MIN
from node.store import clock_steps
from node.store.core import Core

ASK_S = 5
"""Time between two questions to the other nodes for the time."""

log = structlog.get_logger()

AskTime = Callable[[], Awaitable[bool]]
"""Asks other nodes; returns whether one of them has the time of this clock."""


class ClockStepHandler:
    """Notices that the clock was set, repairs what one that was ahead has chosen, and doubts it."""

    def __init__(self, core: Core, ask_time: AskTime) -> None:
        """Watch the clock from now on; ``ask_time`` is called while it is in doubt."""
        self.watcher = core.steps
        self._ask_time = ask_time
        self._ask_at = core.clock.monotonic()
        self._database = core.database
        self._clock = core.clock
        self._lease = core.settings.lease
        self._doubted = False
        self._handled = 0
        self._repaired = 0
        self._listeners: list[Callable[[], None]] = []

    def on_set_back(self, repair: Callable[[], None]) -> None:
        """Call ``repair`` whenever the clock was set back, before all loops look again."""
        self._listeners.append(repair)

    async def begin(self) -> None:
        """Doubt the clock if the database knows better, and repair what it does not know yet.

        For the start of a process.
        """
        async with self._database.connection() as connection:
            known = await clock_steps.latest_known_reading(connection, self._clock.uptime())
        self.watcher.begin(known)
        self._doubted = self.watcher.doubtful
        if (why := self.why_waiting) is not None:
            log.warning("nothing is begun yet", reason=why)
        await self.note()

    @property
    def why_waiting(self) -> str | None:
        """Return the sentence on why this process has not begun its work; None if it has."""
        if not self.watcher.newborn:
            return None
        now, behind = self._clock.now(), self.watcher.behind
        whole = (behind or self.watcher.ahead) // times.SECOND * times.SECOND
        left = max(times.SECOND, self.watcher.doubt // times.SECOND * times.SECOND)
        return (
            f"this host's clock says {to_the_second(now)}, {duration_text(whole)} "
            f"{'before' if behind else 'after'} the last time that is known here, and is not "
            "synchronised: nothing is begun or given up before it is, or another node confirms "
            f"it, or {duration_text(left)} have passed (PARLEY_CLOCK_DOUBT)"
        )

    def require_begun(self) -> None:
        """Check that this process has begun its work.

        :raises NotReady: its clock is in doubt.
        """
        if (why := self.why_waiting) is not None:
            raise NotReady(why)

    async def wait_until_believed(self) -> None:
        """Return once this process may begin its work, while :meth:`check_for_steps` is called."""
        while self.watcher.newborn:
            await self._clock.sleep(0.5)

    async def check_for_steps(self) -> bool:
        """Notice a step since the last call, and repair after one back.

        One far back is repaired once the clock is believed. Ask others for the time while it is in
        doubt. Return whether everything has to be looked at again: after a step, and when a clock
        is believed that was not.

        :raises ParleyError: the database cannot be repaired now; the next call tries again.
        """
        self.watcher.look()
        if max(self.watcher.ahead, self.watcher.behind) > ABSENCE_MAX:
            await self._believe_confirmed_clock()
        believed = self._doubted and not self.watcher.doubtful
        if self.watcher.count == self._handled and not believed:
            self._doubted = self.watcher.doubtful
            return False
        set_back = self._repaired if self.watcher.behind else self.watcher.set_back
        if set_back != self._repaired:
            for repair in self._listeners:
                repair()
        await self.note(repair=set_back != self._repaired)
        self._doubted, self._repaired = self.watcher.doubtful, set_back
        if self.watcher.count == self._handled:
            log.info("the clock of this host is believed")
            return True
        self._handled = self.watcher.count
        by_s = self.watcher.last / times.SECOND
        log.warning("the clock of this host was set", by_s=by_s, steps=self._handled)
        return True

    async def _believe_confirmed_clock(self) -> None:
        """Trust the clock if another process of this node does, or another node has its time."""
        async with self._database.connection() as connection:
            believed_at = await clock_steps.believed_at(connection)
        if believed_at is not None and abs(self._clock.now() - believed_at) <= ABSENCE_MAX:
            self.watcher.confirm()
        elif self._clock.monotonic() >= self._ask_at:
            self._ask_at = self._clock.monotonic() + ASK_S * times.SECOND
            if await self._ask_time():
                self.watcher.confirm()

    async def note(self, *, repair: bool = False) -> None:
        """Write what the clock says, and repair if a later reading is known.

        Then it was set back while no process was there to notice it. The latest reading is written
        at each start, after each step, and every minute; none that may be far behind.
        """
        if self.watcher.behind:
            return
        now = self._clock.now()
        async with self._database.transaction() as connection:
            before = await clock_steps.note_reading(
                connection, now, self._clock.uptime(), in_doubt=self.watcher.doubtful
            )
            if repair or (before is not None and before > now + STEP_MIN):
                back = await clock_steps.repair(connection, now, self._lease)
                if back:
                    log.warning("runs were over by a wrong clock, and are booked again", runs=back)
