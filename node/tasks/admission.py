"""Admission of tasks: make a draft (``drafting.py``), ask every participant, store the task.

A task is refused at once, and nothing of it is stored, if a field is wrong or a participant refuses
to take part. A participant that cannot be reached is no reason to refuse the task: the planner asks
it again, and until then the runs wait with that reason.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from uuid import UUID

from node.capability.catalog import Capabilities
from node.core import Core
from node.model.contexts import offered
from node.model.errors import (
    Conflict,
    PeerError,
    RefusedByParticipant,
    RequestError,
    ToolUnavailable,
)
from node.model.taskstate import TaskState
from node.model.wire.archives import ArchiveChoice
from node.model.wire.participants import Introduction, IntroductionAnswer, TaskEnd
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Participant, TaskDocument
from node.peers.directory import Directory
from node.results.archives import Archives
from node.sharing.campaigns import Campaigns
from node.store import bookings, outbox, tasks
from node.store.nodes import KnownNode
from node.store.tasks import StoredTask
from node.tasks.drafting import TaskDrafter
from node.tasks.pool_tasks import PoolTaskChecker, PoolTaskRequest

Introduce = Callable[[KnownNode, Introduction], Awaitable[IntroductionAnswer]]
"""Introduces a task to a node, which may be this one, or only asks whether it would take part.

Raises :class:`PeerError` if the node gives no answer.
"""


class Admission:
    """Creates tasks led by this node."""

    def __init__(  # noqa: PLR0913 - a new task touches each of them, all but core by name
        self,
        core: Core,
        *,
        drafter: TaskDrafter,
        capabilities: Capabilities,
        campaigns: Campaigns,
        archives: Archives,
        seating: PoolTaskChecker,
        directory: Directory,
        introduce: Introduce,
        consider: Introduce,
    ) -> None:
        """``consider`` asks whether a node would take part, ``introduce`` makes the task known."""
        self._horizon = core.settings.horizon
        self._database = core.database
        self._clock = core.clock
        self._drafter = drafter
        self._capabilities = capabilities
        self._campaigns = campaigns
        self._archives = archives
        self._seating = seating
        self._directory = directory
        self._introduce = introduce
        self._consider = consider

    async def create(self, document: TaskDocument, key: str | None) -> tuple[UUID, bool]:
        """Create a task and return its id, and whether it is new.

        A repeated ``key`` returns the task that it created the first time.

        :raises InvalidDocument: a field is wrong.
        :raises RefusedByParticipant: a participant refuses; the error names it and its reason.
        :raises Conflict: the key was used for another document.
        """
        digest = hashlib.sha256(document.model_dump_json().encode()).hexdigest()
        if key is not None and (earlier := await self._created_with(key, digest)) is not None:
            return earlier, False
        await self._campaigns.look_up(document.campaign)
        archived = await self._archives.checked_all(document.archives)
        document = document.model_copy(update={"archives": archived})
        if document.seats is not None:
            return await self._create_pool_task(document, document.seats, key, digest)
        draft = self._drafter.draft(document)
        task = await self._ask_all(draft.task, self._introduce)
        try:
            task = self._agreed(task)
        except (RefusedByParticipant, ToolUnavailable) as error:
            await self._withdraw(task, error.detail)
            raise
        if await self._store(task, draft.first_slot, key, digest, archived):
            return task.id, True
        # Two requests with the same key ran at the same time, and the other one was faster.
        await self._withdraw(task, "its Idempotency-Key was used for another task")
        earlier = None if key is None else await self._created_with(key, digest)
        return earlier or task.id, False

    async def _create_pool_task(
        self, document: TaskDocument, request: SeatRequest, key: str | None, digest: str
    ) -> tuple[UUID, bool]:
        """Create a pool task; the lead chooses the nodes for its seats later."""
        sought = await self._seating.find_nodes(document, request)
        draft = self._drafter.draft_pool_task(document, sought)
        task = draft.task
        if await self._store(task, draft.first_slot, key, digest, document.archives, sought):
            return task.id, True
        earlier = None if key is None else await self._created_with(key, digest)
        return earlier or task.id, False

    async def _created_with(self, key: str, digest: str) -> UUID | None:
        """Return the task that was created with this Idempotency-Key, if there is one."""
        async with self._database.connection() as connection:
            earlier = await tasks.find_idempotency(connection, key)
        if earlier is None:
            return None
        if earlier[0] != digest:
            msg = "this Idempotency-Key was used for another document; use a new one"
            raise Conflict(msg)
        return earlier[1]

    async def ask(self, document: TaskDocument, known: StoredTask) -> StoredTask:
        """Return a known task as an edited document would make it; nothing is stored anywhere.

        A participant that cannot be reached is asked later; until then it counts as having the
        tools that it had before.

        :raises InvalidDocument: a field is wrong.
        :raises RefusedByParticipant: a participant refuses the edit; names it and its reason.
        :raises ToolUnavailable: no tool is available at all participants.
        """
        await self._campaigns.look_up(document.campaign)
        task = self._drafter.draft(document, known).task
        before = {p.node: p for p in known.terms.participants}
        participants = tuple(
            p.model_copy(update={"tools": earlier.tools, "lacks": earlier.lacks})
            if (earlier := before.get(p.node))
            else p
            for p in task.terms.participants
        )
        task = replace(task, terms=replace(task.terms, participants=participants))
        return self._agreed(await self._ask_all(task, self._consider))

    async def _ask_all(self, task: StoredTask, question: Introduce) -> StoredTask:
        """Ask all participants at once, and return the task with their answers."""
        places = range(len(task.terms.participants))
        answers = await asyncio.gather(*(self._ask(task, place, question) for place in places))
        return replace(task, terms=replace(task.terms, participants=tuple(answers)))

    def _agreed(self, task: StoredTask) -> StoredTask:
        """Return the task with the tool that all participants have.

        :raises RefusedByParticipant: a participant refused, or its address is not known yet.
        :raises ToolUnavailable: no tool is available at all participants.
        """
        participants = task.terms.participants
        refusals = [f"{p.name}: {p.reason}" for p in participants if p.accepted is False]
        if refusals:
            raise RefusedByParticipant("; ".join(refusals))
        for p in participants:
            card = self._directory.by_identity(p.node).attributes
            if p.context is not None and p.context not in offered(card):
                refusals.append(
                    f"{p.name}: its address in the context {p.context} is not known here (yet); "
                    "a node's card is read every 15 seconds, try again then"
                )
        if refusals:
            raise RefusedByParticipant("; ".join(refusals))
        return self._with_tool(task)

    async def _ask(self, task: StoredTask, place: int, question: Introduce) -> Participant:
        participant = task.terms.participants[place]
        node = self._directory.by_identity(participant.node)
        try:
            answer = await question(node, task.introduction(place))
        except (PeerError, RequestError) as error:
            return participant.model_copy(update={"reason": error.detail})
        return participant.model_copy(
            update={
                "accepted": answer.accepted,
                "reason": answer.reason,
                "tools": answer.tools,
                "lacks": answer.lacks,
            }
        )

    async def _withdraw(self, task: StoredTask, reason: str) -> None:
        """Tell every participant that did not refuse that the task has ended.

        A participant without an answer is told as well: it may have accepted, and the answer may
        have been lost.
        """
        own = self._directory.self.identity
        accepted = [p.node for p in task.terms.participants if p.accepted is not False]
        others = [identity for identity in accepted if identity != own]
        end = TaskEnd(task=task.id, state=TaskState.REFUSED, reason=reason[:1000])
        async with self._database.connection() as connection:
            await outbox.post(
                connection,
                others,
                outbox.MessageKind.TASK_END,
                end.model_dump(mode="json"),
                self._clock.now(),
            )
            await bookings.notify(connection, "task", task.id, TaskState.REFUSED)

    def _with_tool(self, task: StoredTask) -> StoredTask:
        terms = task.terms
        offers = [p.tools for p in terms.participants if p.accepted or p.tools]
        tool, duration = self._capabilities.agree(terms.test, terms.tools, offers, terms.spec)
        return replace(task, terms=replace(terms, tool=tool, duration=duration))

    async def _store(
        self,
        task: StoredTask,
        slot: int,
        key: str | None,
        digest: str,
        archived: Sequence[ArchiveChoice],
        sought: PoolTaskRequest | None = None,
    ) -> bool:
        """Store the task, and return False if another request used its key in the meantime."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            if key is not None and not await tasks.keep_idempotency(
                connection, key, digest, task.id, now
            ):
                return False
            await tasks.keep(connection, task)
            if archived:
                await self._archives.keep_of_task(connection, task.id, archived)
            plan_at = max(now, slot - self._horizon + task.terms.duration)
            if not await tasks.open_planning(connection, task.id, slot, plan_at):
                msg = (
                    f"the campaign {task.terms.campaign} was removed a moment ago; name another one"
                )
                raise Conflict(msg)
            if sought is not None:
                await self._seating.keep(connection, task, sought, slot, now)
                await bookings.notify(connection, "seats", task.id, "wanted")
            await bookings.notify(connection, "task", task.id, TaskState.ACTIVE)
        return True
