"""Confirmation: a participant asks the leads about the tasks that it takes for open.

The protocol tells participants when a task ends. Lost and restored databases do not know it: the
task is over, or was never known, at one side alone. A node asks at intervals, and before it begins
any run after its database was restored; it ends the tasks that their lead no longer has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

import structlog

from node.model import looks
from node.model.errors import NotAllowed, ParleyError
from node.model.features import Feature, has_feature
from node.model.reasons import unknown_to_lead
from node.model.shortfall import Shortfall
from node.model.taskstate import TaskState, end_reason
from node.model.wire.comparisons import Difference, TaskComparison, task_comparison
from node.model.wire.participants import (
    CONFIRMED_MAX,
    ConfirmationAnswer,
    ConfirmationRequest,
    TaskEnd,
)
from node.peers.announcer import Announcer, Heard
from node.peers.directory import Directory
from node.peers.rivals import ASK_AGAIN_S, SILENT, STARTING, OwnProcess, ProcessesHeard, Standing
from node.runtime.gathering import NODES_AT_ONCE, WAITED_AT_ONCE, gather_some
from node.store import nodes, outbox, tasks
from node.store.core import Core
from node.tasks.termination import TaskTerminator

log = structlog.get_logger()


class ConfirmationPeer(Protocol):
    """Another node that can be asked about its tasks."""

    async def confirm(self, request: ConfirmationRequest) -> ConfirmationAnswer:
        """Return which of these tasks of its own are over."""
        ...


class TaskConfirmer:
    """Ends the tasks here that their leads do not have, and tells others about tasks led here."""

    def __init__(  # noqa: PLR0913, PLR0917 - its parts, from the node that is put together
        self,
        core: Core,
        directory: Directory,
        termination: TaskTerminator,
        peer: Callable[[str], ConfirmationPeer],
        heard: Callable[[str], None],
        free_time: Callable[[], Awaitable[Shortfall]],
        announcer: Announcer,
    ) -> None:
        """``peer(identity)`` returns the client of a known node, ``heard(identity)`` notes one.

        ``free_time()`` returns how much time this node has left, which its answers tell.
        ``announcer`` tells others where this node is.
        """
        self._announcer = announcer
        self._free_time = free_time
        self._database = core.database
        self._identity = core.identity
        self._directory = directory
        self._termination = termination
        self._peer = peer
        self._heard = heard
        self._believed: set[str] = set()
        self._clock = core.clock
        self._heard_processes = ProcessesHeard(core.clock)
        self.process: OwnProcess | None = None
        """This process, if it serves the node."""

    async def run_once(self) -> int:
        """Ask every node that leads open tasks here; return how many tasks were ended.

        :raises CopyOfNode: this is a copy of a node that goes on.
        """
        await self.require_original()
        return sum(await gather_some(self._try, await self._asked(), NODES_AT_ONCE))

    async def _asked(self) -> Sequence[str]:
        """Return the nodes to ask: all of a fleet that is looked at as a whole, or the leads."""
        others = [known.identity for known in self._directory.all if not known.is_self]
        if looks.fits(others):
            return others
        async with self._database.connection() as connection:
            leading = set(await tasks.leading_here(connection))
        return [it for it in others if it in leading]

    async def require_original(self, *, starting: bool = False, dated: bool = True) -> None:
        """Return once it is known that no other process goes on as this node, if one may.

        A process that is ``starting`` does not answer yet: whoever answers where the node was is
        another one. One that is slow is asked again, as long as it would take to be heard of, or,
        if the data were on another host, to start. Other nodes are asked if they accept what is
        ``dated`` here; without them nothing is settled yet.

        :raises CopyOfNode: one does.
        """
        if self.process is not None and self._database.copy_of == "":
            await self._settle_doubt(starting=starting, dated=dated)
        elif self.process is not None and starting:
            await self._require_nobody_where_it_was()

    async def _settle_doubt(self, *, starting: bool, dated: bool) -> None:
        """Look for another process that goes on as this node; something speaks for one."""
        url = await self._announcer.previous_url() if starting else None
        may_start = starting and self._database.was_elsewhere
        until = self._clock.monotonic() + (STARTING if may_start else SILENT)
        if may_start:
            log.warning("the data were on another host: looking whether the node goes on there")
        while True:
            lives = url is not None and await self._announcer.answers_at(url)
            if lives:
                await self._announcer.note_original(url)
            heard = dated and await self._heard_lately()
            over = url is None and not dated
            alone = lives is False and not heard and not may_start
            if over or alone or self._clock.monotonic() >= until:
                break
            await self._clock.sleep(ASK_AGAIN_S)
        if dated and self._database.copy_of == "":
            await self._announcer.note_original(None)

    async def _require_nobody_where_it_was(self) -> None:
        """Return once nobody goes on where this node was before it got another URL.

        Nothing else may tell a clone of a machine from its original, and those that would hear of
        both may be reached by neither.

        :raises CopyOfNode: somebody does.
        """
        until = self._clock.monotonic() + SILENT
        while (url := await self._announcer.place_before()) is not None:
            lives = await self._announcer.goes_on_at(url)
            if lives:
                await self._announcer.note_original(url)
            if lives is False or self._clock.monotonic() >= until:
                break
            await self._clock.sleep(ASK_AGAIN_S)

    async def _heard_lately(self) -> bool:
        """Ask the other nodes; return whether one has heard another process as this node lately.

        :raises CopyOfNode: that one lives.
        """
        others = [known.identity for known in self._directory.all if not known.is_self]
        heard = await gather_some(self._heard_by, others, WAITED_AT_ONCE)
        self._announcer.require_here()
        return any(heard)

    async def _heard_by(self, other: str) -> bool:
        """Return whether a node has heard another process as this one lately, and tells so."""
        try:
            answered = await self._confirm(other, ())
        except ParleyError as error:
            log.info("not told who else is heard", node=other, error=error.detail)
            return False
        except Exception:
            log.exception("not told who else is heard", node=other)
            return False
        return answered.other_heard is not None and answered.other_heard < SILENT

    async def _try(self, lead: str) -> int:
        try:
            return (await self.ask(lead)).found
        except ParleyError as error:
            log.info("tasks not confirmed", lead=lead, error=error.detail)
            return 0

    async def ask(self, lead: str) -> TaskComparison:
        """Ask one node about its tasks; return which ones were ended here.

        :raises ParleyError: it does not answer.
        """
        async with self._database.connection() as connection:
            asked = await tasks.open_tasks_of(connection, lead)
        found: list[Difference] = []
        for first in range(0, max(1, len(asked)), CONFIRMED_MAX):
            page = asked[first : first + CONFIRMED_MAX]
            found += await self._end(lead, page, (await self._confirm(lead, page)).over)
        if found:
            log.warning("ended tasks that their lead does not have", lead=lead, tasks=len(found))
        return task_comparison(len(found), 0, found)

    async def ask_service(self, other: str) -> Shortfall | None:
        """Ask a node, about no task, whether it serves this one and knows it in a later state.

        Return how much time it has left, None if it does not tell.

        :raises ParleyError: it does not serve this node.
        """
        answered = await self._confirm(other, ())
        if answered.shortfall is None or answered.busy_until is None:
            return None
        return Shortfall(answered.shortfall, answered.busy_until)

    async def _confirm(self, lead: str, page: Sequence[UUID]) -> ConfirmationAnswer:
        mark, known = self._database.marked_at, self._directory.by_identity(lead)
        if self._database.copy_of is not None:
            mark = None  # a copy tells nobody of its data
        follows = has_feature(known.attributes, Feature.ANNOUNCEMENTS)
        serves = self.process is not None
        announcement = await self._announcer.own(serves=serves) if follows else None
        own = self.process if has_feature(known.attributes, Feature.PROCESSES) else None
        answered = await self._peer(lead).confirm(
            ConfirmationRequest(
                tasks=tuple(page),
                marked_at=mark,
                announcement=announcement,
                process=None if own is None else self._announcer.process_statement(own),
            )
        )
        self._heard(lead)
        if own is not None and answered.rival is not None:
            await self._announcer.meet(own, answered.rival, known.name)
        await self._announcer.learn(known.name, answered)
        later = answered.marked_at if mark is not None and self.process is not None else None
        # Data that were just restored are settled: a later mark lets them go on as a newer node,
        # unasked. But as long as another process is heard, it may be that one's, of which this one
        # is a clone: then the next answers tell of a rival.
        contested = self._database.was_restored and answered.other_heard is not None
        # Once for each node and start: a node that tells a wrong mark again changes nothing. Only
        # the process that serves the node believes it, since only that one is told of a rival.
        if later is not None and lead not in self._believed and not contested:
            # All others may have been restarted, and have forgotten whom they heard.
            if await self._announcer.may_live_where_it_was():
                log.warning("another process with this node's key may be where the node was")
                return answered
            self._believed.add(lead)
            if await self._database.check_mark(later):
                await self.require_original()
        return answered

    async def _end(
        self, lead: str, asked: Sequence[UUID], over: Mapping[UUID, str]
    ) -> list[Difference]:
        found = []
        for task in asked:
            if (why := over.get(task)) is None:
                continue
            end = TaskEnd(task=task, state=TaskState.CANCELLED, reason=why)
            if await self._termination.apply_task_end(lead, end):
                found.append(Difference(task=task, difference=why, repair="ended here"))
        return found

    async def answer(self, sender: str, request: ConfirmationRequest) -> ConfirmationAnswer:
        """Return which of these tasks are over here, for a participant of theirs.

        A sender whose key another host has, which was restored later, is told that alone.

        :raises NotAllowed: it has not signed its announcement, or its process.
        """
        heard, standing = Heard(), Standing()
        if request.announcement is not None:
            heard = await self._announcer.hear(sender, request.announcement)
        if request.process is not None:
            standing = self._standing_of_process(sender, request.process)
        if heard.successor is not None:
            return ConfirmationAnswer(successor=heard.successor, rival=standing.rival)
        async with self._database.connection() as connection:
            # Read before the tasks: a task is introduced before it is stored, and the messages that
            # withdraw it are there from before the one to the other.
            ending = await outbox.pending_ends(connection, sender, request.tasks)
            known = {t.id: t for t in await tasks.fetch_all(connection, list(request.tasks))}
            before = None
            if request.marked_at is not None:
                before = await nodes.keep_mark(connection, sender, request.marked_at)
        over = {}
        for task in request.tasks:
            found = known.get(task)
            if found is None and task in ending:
                continue  # it may just be being created; otherwise the message ends it
            why = (
                unknown_to_lead()
                if found is None or found.lead != self._identity
                else end_reason(
                    found.state, found.reason, sender, [p.node for p in found.terms.parties]
                )
            )
            if why is not None:
                over[task] = why
        later = before if before is not None and before > (request.marked_at or 0) else None
        left = await self._free_time()
        return ConfirmationAnswer(
            over=over,
            marked_at=later,
            shortfall=left.missing,
            busy_until=left.busy_until,
            successor=heard.overtaking,
            not_followed=heard.not_followed,
            rival=standing.rival,
            other_heard=standing.heard,
        )

    def _standing_of_process(self, sender: str, statement: str) -> Standing:
        process = self._announcer.read_process(statement, sender)
        if process is None:
            msg = "the process is not one that the sender has signed"
            raise NotAllowed(msg)
        return self._heard_processes.hear(sender, process, statement)
