"""Leases of leads: the tasks of a node end here when it has sent nothing for days.

The time that a lead has booked is its own for as long as it lives. A lead whose host has vanished
can give nothing back, so its tasks must not stay open for ever. A node counts as present when it
sends a signed request or answers one; the confirmation of tasks (``confirmation.py``) asks every
lead every few minutes, also one whose tasks are all paused.

The lead that comes back learns it by the messages of the ends, or when it compares its tasks.
"""

from __future__ import annotations

import structlog

from node.model import times
from node.model.reasons import lead_silent, left_by_outsider
from node.model.taskstate import TaskState
from node.model.wire.participants import TaskEnd
from node.runtime.clock import StepWatcher
from node.store import clock_steps, nodes, outside
from node.store.core import Core
from node.store.nodes import KnownNode
from node.tasks.termination import TaskTerminator

LISTENING_MIN = 30 * times.MINUTE
"""Minimum time for which this process has listened, by a clock that was not set meanwhile, before
it ends anything: a node that was down for a week has received nothing."""

_OUTSIDE_LEFT = times.HOUR
"""A task of a lead from outside with a single run ends so long after it: what it measured may still
be asked for."""
_OUTSIDE_AT_ONCE = 200

log = structlog.get_logger()


class LeadLeases:
    """Notes which nodes send something, and ends the tasks of leads that do not."""

    def __init__(self, core: Core, clock_steps: StepWatcher, termination: TaskTerminator) -> None:
        """``clock_steps`` counts how often this host's clock was set."""
        self._database = core.database
        self._clock = core.clock
        self._clock_steps = clock_steps
        self._steps = clock_steps.count
        self._listening_since = core.clock.monotonic()
        self._lease = core.settings.lead_lease
        self._name = core.settings.name
        self._termination = termination
        self._heard: set[str] = set()

    def note_contact(self, identity: str) -> None:
        """Note that a node has spoken; :meth:`write_contacts` stores it, not each request."""
        self._heard.add(identity)

    def ends_at(self, known: KnownNode) -> int | None:
        """Return when the tasks end that this node leads here if it stays silent; None for self."""
        if known.is_self:
            return None
        last_heard_at = known.added_at if known.heard_at is None else known.heard_at
        return min(last_heard_at, self._clock.now()) + self._lease

    async def write_contacts(self) -> None:
        """Store which nodes have sent something since the last call."""
        present, self._heard = self._heard, set()
        if not present:
            return
        now = self._clock.now()
        try:
            await self._database.settle(
                lambda connection: nodes.note_heard(connection, sorted(present), now)
            )
        except BaseException:
            self._heard |= present
            raise

    async def run_once(self) -> int:
        """End the tasks of leads that have been silent for too long; return how many."""
        if self._listening_for() < LISTENING_MIN or self._clock_steps.doubtful:
            return 0
        await self.write_contacts()
        async with self._database.connection() as connection:
            now = await clock_steps.age_judged_at(connection, self._clock.now())
            silent = await nodes.silent_leads(connection, now - self._lease)
        ended = await self._end_outside_tasks(now)
        for lead, name, last_heard_at in silent:
            why = lead_silent(self._name, name, last_heard_at, self._lease)
            count = await self._termination.end_tasks_of(lead, why)
            log.warning("ended the tasks of a silent lead", lead=name, tasks=count)
            ended += count
        return ended

    async def _end_outside_tasks(self, now: int) -> int:
        """End the tasks that leads from outside have left here; return how many.

        Such a lead does not say when a task is over.
        """
        ended = 0
        while True:
            async with self._database.connection() as connection:
                left = await outside.finished_tasks(
                    connection, now - _OUTSIDE_LEFT, now - self._lease, _OUTSIDE_AT_ONCE
                )
            for task, lead in left:
                end = TaskEnd(task=task, state=TaskState.FINISHED, reason=left_by_outsider())
                await self._termination.apply_task_end(lead, end)
            ended += len(left)
            if len(left) < _OUTSIDE_AT_ONCE:
                return ended

    def _listening_for(self) -> int:
        """Return for how long this process has listened since its clock was set last (µs)."""
        self._clock_steps.look()
        now = self._clock.monotonic()
        if self._clock_steps.count != self._steps:
            self._steps, self._listening_since = self._clock_steps.count, now
        return now - self._listening_since
