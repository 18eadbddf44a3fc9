"""Admission of tasks: make a draft (``drafting.py``), ask every participant, store the task.

A task is refused at once, and nothing of it is stored, if a field is wrong or a participant refuses
to take part. A participant that cannot be reached, or answers neither yes nor no, is no reason to
refuse the task: the planner asks it again, and until then the runs wait with that reason.

Who accepted a task stores it before its lead does. So that no participant keeps a task that its
lead does not have, the messages that withdraw it are written before it is introduced, due when the
request must be over, and deleted in the transaction that stores it. Whatever happens in between,
even the death of this process, one of the two takes place.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from uuid import UUID

from node.execution.catalog import Capabilities
from node.model import times
from node.model.contexts import offered_contexts
from node.model.errors import (
    Conflict,
    DatabaseUnavailable,
    LimitRefused,
    ParleyError,
    RefusedByParticipant,
    reason_at,
)
from node.model.host_limits.rules import User
from node.model.reason import several
from node.model.reasons import context_not_known_yet, not_created, told
from node.model.taskstate import TaskState
from node.model.wire.archives import ArchiveChoice
from node.model.wire.host_limits import TaskLimit
from node.model.wire.participants import Introduction, IntroductionAnswer, TaskEnd
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Participant, TaskDocument
from node.peers.directory import Directory
from node.results.archives import Archives
from node.sharing.campaigns import Campaigns
from node.sharing.host_limits import LimitKeeper
from node.store import notices, outbox
from node.store.core import Core
from node.store.nodes import KnownNode
from node.store.outbox import OutgoingMessage
from node.store.tasks import StoreAlong, StoredTask
from node.tasks.away_nodes import AwayNodes
from node.tasks.dependencies import check_followed
from node.tasks.drafting import TaskDrafter
from node.tasks.pool_tasks import PoolTaskChecker
from node.tasks.storing import NewTask, NewTaskStore, Withdrawal
from node.tasks.user_limits import UserLimits

Introduce = Callable[[KnownNode, Introduction], Awaitable[IntroductionAnswer]]
"""Introduces a task to a node, which may be this one, or only asks whether it would take part.

Raises :class:`PeerError` if the node gives no answer.
"""

_WITHDRAWN_AFTER = 30 * times.SECOND
"""Time beyond that of all answers after which a task that is not stored is withdrawn."""


NOBODY = User(None)
"""No user of whom anything is known."""


class _Request(NamedTuple):
    """The user who asks, with their Idempotency-Key, if any, and the digest of all that."""

    user: User
    key: str | None
    digest: str


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
        limits: LimitKeeper,
        user_limits: UserLimits,
        introduce: Introduce,
        consider: Introduce,
    ) -> None:
        """``consider`` asks whether a node would take part, ``introduce`` makes the task known."""
        self._identity = core.identity
        self._name = core.settings.name
        # A request whose signature has become stale is sent a second time.
        self._withdrawn_after = 2 * core.settings.peer_timeout + _WITHDRAWN_AFTER
        self._database = core.database
        self._clock = core.clock
        self._drafter = drafter
        self._capabilities = capabilities
        self._campaigns = campaigns
        self._archives = archives
        self._store = NewTaskStore(core, limits, archives, seating)
        self._seating = seating
        self._directory = directory
        self._limits = limits
        self._user_limits = user_limits
        self._introduce = introduce
        self._consider = consider
        self._away = AwayNodes(core)

    async def create(
        self,
        document: TaskDocument,
        key: str | None,
        user: User = NOBODY,
        along: StoreAlong | None = None,
        place: int = 0,
    ) -> tuple[UUID, bool]:
        """Create a task for a user; ``along`` is stored with it.

        Of a list that is posted as one, the task at an earlier ``place`` is planned before others.

        Returns its id, and whether it is new.

        A repeated ``key`` returns the task that it created for this user the first time.

        :raises InvalidDocument: a field is wrong.
        :raises LimitRefused: the limits of this host or those of participants do not allow it.
        :raises LimitUsedUp: the user has as many open tasks as the limits of this host allow.
        :raises RefusedByParticipant: a participant refuses; the error names it and its reason.
        :raises PeerUnreachable: the participants took so long that they were told it is over.
        :raises Conflict: the key was used for another document.
        """
        document = self._drafter.secrets.sealed_document(document)
        text = f"{user.token or ''}\n{document.model_dump_json()}"
        request = _Request(user, key, hashlib.sha256(text.encode()).hexdigest())
        if (earlier := await self._find_created(request)) is not None:
            return earlier, False
        await self._campaigns.look_up(document.campaign)
        await self.check_followed_task(document)
        archived = await self._archives.checked_choices(document.archives)
        document = document.model_copy(update={"archives": archived})
        if document.seats is not None:
            return await self._create_pool_task(document, document.seats, request)
        draft = self._drafter.draft(document)
        self._user_limits.require(user, draft.task)
        prepared = await self._prepare_withdrawal(draft.task)
        task, limits = await self._ask_all(draft.task, self._introduce)
        try:
            task = self.agree_on_tool(task, limits)
            new = self._new_task(task, draft.first_slot, request, archived)
            if await self._store.keep(replace(new, prepared=prepared, along=along, place=place)):
                return task.id, True
        except ParleyError as error:
            with contextlib.suppress(DatabaseUnavailable):  # what was prepared is sent later
                await self._withdraw(task, prepared, error.detail)
            raise
        # Two requests with the same key ran at the same time, and the other one was faster.
        await self._withdraw(task, prepared, "its Idempotency-Key was used for another task")
        return await self._find_created(request) or task.id, False

    async def _create_pool_task(
        self, document: TaskDocument, seats: SeatRequest, request: _Request
    ) -> tuple[UUID, bool]:
        """Create a pool task; the lead chooses the nodes for its seats later."""
        sought = await self._seating.find_nodes(document, seats)
        draft = self._drafter.draft_pool_task(document, sought)
        self._user_limits.require(request.user, draft.task)
        new = self._new_task(draft.task, draft.first_slot, request, document.archives)
        if await self._store.keep(replace(new, sought=sought)):
            return new.task.id, True
        return await self._find_created(request) or new.task.id, False

    def _new_task(
        self, task: StoredTask, slot: int, request: _Request, archived: Sequence[ArchiveChoice]
    ) -> NewTask:
        task = replace(
            task,
            requester=request.user.token,
            limit_user=request.user.token,
            limit_address=request.user.address,
            limit_bound=request.user.bound,
        )
        return NewTask(
            task, self._limits.standing(task), slot, request.key, request.digest, archived
        )

    async def check_followed_task(self, document: TaskDocument, task: UUID | None = None) -> None:
        """Check that a task, None for a new one, can follow the one that its document names.

        :raises InvalidDocument: it cannot.
        """
        if document.after is not None:
            async with self._database.connection() as connection:
                await check_followed(connection, document.after, self._identity, task)

    async def _find_created(self, request: _Request) -> UUID | None:
        """Return the task that was created with this Idempotency-Key, if there is one."""
        if request.key is None:
            return None
        earlier = await self._store.find_made_with(request.key)
        if earlier is None:
            return None
        if earlier.digest != request.digest:
            msg = (
                "this Idempotency-Key was used for another document, or by another user; use a new "
                "one"
            )
            raise Conflict(msg)
        return earlier.made

    def with_restored_secrets(self, document: TaskDocument, known: StoredTask) -> TaskDocument:
        """Return an edit in which each mark that hides a secret is the secret that the task has."""
        return self._drafter.secrets.restored_document(document, known.terms.spec)

    async def ask(self, document: TaskDocument, known: StoredTask) -> StoredTask:
        """Return a known task as an edited document would make it; nothing is stored anywhere.

        A participant that cannot be reached is asked later; until then it counts as having the
        tools that it had before.

        :raises InvalidDocument: a field is wrong.
        :raises LimitRefused: the limits of participants' hosts do not allow the edit.
        :raises RefusedByParticipant: a participant refuses the edit; names it and its reason.
        :raises ToolUnavailable: no tool is available at all participants.
        """
        await self._campaigns.look_up(document.campaign)
        if document.after != known.terms.schedule.after:
            await self.check_followed_task(document, known.id)
        task = self._drafter.draft(document, known).task
        before = {p.node: p for p in known.terms.parties}
        parties = [
            p.model_copy(update={"tools": earlier.tools, "lacks": earlier.lacks})
            if (earlier := before.get(p.node))
            else p
            for p in task.terms.parties
        ]
        task = replace(task, terms=task.terms.with_parties(parties))
        return self.agree_on_tool(*await self._ask_all(task, self._consider))

    async def _ask_all(
        self, task: StoredTask, question: Introduce
    ) -> tuple[StoredTask, list[TaskLimit]]:
        """Ask all participants at once.

        Returns the task with their answers, and what limits of their hosts do not allow.
        """
        places = range(len(task.terms.parties))
        answers = await asyncio.gather(*(self._ask(task, place, question) for place in places))
        parties = [party for party, _ in answers]
        limits = [limit for _, limit in answers if limit is not None]
        return replace(task, terms=task.terms.with_parties(parties)), limits

    def agree_on_tool(self, task: StoredTask, limits: Sequence[TaskLimit] = ()) -> StoredTask:
        """Return the task with the tool that all participants have.

        :raises LimitRefused: all refusals are because of these limits.
        :raises RefusedByParticipant: a participant refused, or its address is not known yet.
        :raises ToolUnavailable: no tool is available at all participants.
        """
        participants, parties = task.terms.participants, task.terms.parties
        refusals = [told(str(p.reason)).at(p.name) for p in parties if p.accepted is False]
        if refusals and len(limits) == len(refusals):
            raise LimitRefused(several(refusals), limits)
        if refusals:
            raise RefusedByParticipant(several(refusals))
        for p in participants:
            card = self._directory.by_identity(p.node).attributes
            if p.context is not None and p.context not in offered_contexts(card):
                refusals.append(context_not_known_yet(p.context).at(p.name))
        if refusals:
            raise RefusedByParticipant(several(refusals))
        return replace(task, terms=self._capabilities.agree(task.terms))

    async def _ask(
        self, task: StoredTask, place: int, question: Introduce
    ) -> tuple[Participant, TaskLimit | None]:
        participant = task.terms.parties[place]
        try:
            node = self._directory.by_identity(participant.node)
            asked = partial(question, node, task.introduction(place))
            answer = await self._away.ask(node, asked)
        except ParleyError as error:
            reason = reason_at(participant.name, error)
            return participant.model_copy(update={"reason": reason}), None
        answered = participant.model_copy(
            update={
                "accepted": answer.accepted,
                "reason": answer.reason,
                "tools": answer.tools,
                "lacks": answer.lacks,
            }
        )
        limit = answer.limit and answer.limit.model_copy(update={"node": participant.name})
        return answered, limit

    async def _prepare_withdrawal(self, task: StoredTask) -> Withdrawal | None:
        """Write the messages that end a task that is about to be introduced, due later."""
        others = {p.node for p in task.terms.parties} - {self._identity}
        if not others:
            return None
        ends = _end_messages(task, others, not_created(self._name))
        return await self._store.prepare_withdrawal(ends, self._withdrawn_after)

    async def _withdraw(self, task: StoredTask, prepared: Withdrawal | None, reason: str) -> None:
        """Tell every participant that did not refuse that the task has ended.

        A participant without an answer is told as well, and again when its answer can no longer be
        under way: it may accept the task after it has heard of the end.
        """
        others = [p for p in task.terms.parties if p.node != self._identity]
        accepted = {p.node for p in others if p.accepted is not False}
        silent = {p.node for p in others if p.accepted is None}
        now = self._clock.now()
        async with self._database.transaction() as connection:
            if prepared is not None:
                await outbox.recall(connection, dict.fromkeys(prepared.messages, prepared.due_at))
            await outbox.post_all(connection, _end_messages(task, accepted, reason), now)
            later = _end_messages(task, silent, reason)
            await outbox.post_all(connection, later, now, self._withdrawn_after)
            await notices.notify(connection, "task", task.id, TaskState.REFUSED)


def _end_messages(task: StoredTask, nodes: Collection[str], reason: str) -> list[OutgoingMessage]:
    """Return the messages that tell these nodes that a task was refused."""
    end = TaskEnd(task=task.id, state=TaskState.REFUSED, reason=reason[:1000])
    body, kind = end.model_dump(mode="json"), outbox.MessageKind.TASK_END
    return [OutgoingMessage(node, kind, body) for node in sorted(nodes)]
