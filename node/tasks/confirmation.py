"""Confirmation: a participant asks the leads about the tasks that it takes for open.

The protocol tells participants when a task ends. Lost and restored databases do not know it: the
task is over, or was never known, at one side alone. A node asks at intervals, after its database
was restored, and when a node is added; it ends the tasks that their lead no longer has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import UUID

import structlog

from node.core import Core
from node.model import times
from node.model.errors import ParleyError
from node.model.taskstate import TaskState, why_over
from node.model.wire.participants import (
    CONFIRMED_MAX,
    ConfirmationAnswer,
    ConfirmationRequest,
    TaskEnd,
)
from node.peers.directory import Directory
from node.store import bookings, tasks
from node.tasks.editing import TaskEditor
from node.tasks.termination import TaskTerminator

MIN_AGE = 2 * times.MINUTE
"""Younger tasks are not asked about: their lead introduces a task before it stores it."""

log = structlog.get_logger()


class Confirming(Protocol):
    """Another node that can be asked about its tasks."""

    async def confirm(self, request: ConfirmationRequest) -> ConfirmationAnswer:
        """Return which of these tasks of its own are over."""
        ...


class TaskConfirmer:
    """Ends the tasks here that their leads do not have, and tells others about tasks led here."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        termination: TaskTerminator,
        editing: TaskEditor,
        peer: Callable[[str], Confirming],
    ) -> None:
        """``peer(identity)`` returns the client of a known node."""
        self._database = core.database
        self._clock = core.clock
        self._identity = core.identity
        self._directory = directory
        self._termination = termination
        self._editing = editing
        self._peer = peer
        self._told: set[str] = set()

    async def run_once(self) -> int:
        """Ask every node that leads open tasks here; return how many tasks were ended.

        After the database was restored, ask every known node, so that they compare their runs too.
        """
        others = [known.identity for known in self._directory.all if not known.is_self]
        return sum(await asyncio.gather(*(self._ask(each) for each in others)))

    async def _ask(self, lead: str) -> int:
        """Ask one node about its tasks; return how many were ended here."""
        before = self._clock.now() - MIN_AGE
        restored = self._database.fresh and lead not in self._told
        async with self._database.connection() as connection:
            asked = list((await tasks.open_of(connection, lead, before)).items())
        ended = 0
        pages = range(0, max(len(asked), int(restored)), CONFIRMED_MAX)
        try:
            for first in pages:
                page = dict(asked[first : first + CONFIRMED_MAX])
                request = ConfirmationRequest(tasks=page, restored=restored)
                answered = await self._peer(lead).confirm(request)
                ended += await self._end(lead, page, answered)
        except ParleyError as error:
            log.info("tasks not confirmed", lead=lead, error=error.detail)
        else:
            self._told.add(lead)
        return ended

    async def _end(self, lead: str, asked: Mapping[UUID, int], answered: ConfirmationAnswer) -> int:
        over = {task: why for task, why in answered.over.items() if task in asked}
        for task, why in sorted(over.items()):
            end = TaskEnd(task=task, state=TaskState.CANCELLED, reason=why)
            await self._termination.heard_task(lead, end)
        if over:
            log.warning("ended tasks that their lead does not have", lead=lead, tasks=len(over))
        return len(over)

    async def answer(self, sender: str, request: ConfirmationRequest) -> ConfirmationAnswer:
        """Return which of these tasks are over here, for a participant of theirs.

        A task whose revision is another one there is told anew.
        """
        async with self._database.connection() as connection:
            known = {t.id: t for t in await tasks.fetch_all(connection, list(request.tasks))}
            if request.restored:
                await bookings.notify(connection, "compare", sender)
        over = {}
        for task, revision in request.tasks.items():
            found = known.get(task)
            why = (
                "its lead does not know it"
                if found is None or found.lead != self._identity
                else why_over(
                    found.state, found.reason, sender, [p.node for p in found.terms.participants]
                )
            )
            if why is not None:
                over[task] = why
            elif found is not None and found.terms.revision != revision:
                await self._editing.tell_again(task, revision)
        return ConfirmationAnswer(over=over)
