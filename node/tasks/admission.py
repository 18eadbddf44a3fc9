"""Admission of tasks: check the document, ask every participant, store the task.

A task is refused at once, and nothing of it is stored, if a field is wrong or a participant refuses
to take part. A participant that cannot be reached is no reason to refuse the task: the planner asks
it again, and until then the runs wait with that reason.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any
from uuid import UUID

from node.capability.catalog import Capabilities
from node.core import Core
from node.model.contexts import offered
from node.model.errors import (
    Conflict,
    FieldFault,
    InvalidDocument,
    PeerError,
    RefusedByParticipant,
    RequestError,
    ToolUnavailable,
)
from node.model.recurrence import Recurrence, validate
from node.model.scheduling import default_slip, first_slot, recurrence_of
from node.model.task_terms import TaskTerms
from node.model.taskstate import TaskState
from node.model.times import format_instant
from node.model.wire.archives import ArchiveChoice
from node.model.wire.campaigns import DEFAULT
from node.model.wire.fields import is_address
from node.model.wire.participants import Introduction, IntroductionAnswer, TaskEnd
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Participant, Schedule, TaskDocument
from node.peers.directory import Directory
from node.plugins.binding import check_version
from node.plugins.contracts import Test, Tool
from node.results.archives import Archives
from node.sharing.campaigns import Campaigns
from node.store import bookings, outbox, tasks
from node.store.nodes import KnownNode
from node.store.tasks import StoredTask
from node.tasks.pool_tasks import PoolTaskChecker, PoolTaskRequest

Introduce = Callable[[KnownNode, Introduction], Awaitable[IntroductionAnswer]]
"""Introduces a task to a node, which may be this one, or only asks whether it would take part.

Raises :class:`PeerError` if the node gives no answer.
"""


@dataclass(frozen=True)
class Draft:
    """A checked task whose participants have not been asked yet.

    ``task`` is the record that this node would store. ``first_slot`` is the first nominal start
    from now on, or now if there is none.
    """

    test: Test
    tool: Tool
    task: StoredTask
    first_slot: int


class Admission:
    """Creates tasks led by this node."""

    def __init__(  # noqa: PLR0913 - a new task touches each of them, all but core by name
        self,
        core: Core,
        *,
        capabilities: Capabilities,
        campaigns: Campaigns,
        archives: Archives,
        seating: PoolTaskChecker,
        directory: Directory,
        introduce: Introduce,
        consider: Introduce,
        new_id: Callable[[], UUID],
    ) -> None:
        """``new_id`` makes task ids."""
        self._horizon = core.settings.horizon
        self._database = core.database
        self._clock = core.clock
        self._capabilities = capabilities
        self._campaigns = campaigns
        self._archives = archives
        self._seating = seating
        self._directory = directory
        self._introduce = introduce
        self._consider = consider
        self._new_id = new_id

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
        draft = self.draft(document)
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

    async def draft_seat_task(self, document: TaskDocument, request: SeatRequest) -> Draft:
        """Return the draft of a pool task; no node is asked, and nothing is stored.

        :raises InvalidDocument: a field is wrong.
        """
        await self._campaigns.look_up(document.campaign)
        return self.draft_pool_task(document, await self._seating.find_nodes(document, request))

    async def _create_pool_task(
        self, document: TaskDocument, request: SeatRequest, key: str | None, digest: str
    ) -> tuple[UUID, bool]:
        """Create a pool task; the lead chooses the nodes for its seats later."""
        sought = await self._seating.find_nodes(document, request)
        draft = self.draft_pool_task(document, sought)
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
        task = self.draft(document, known).task
        before = {p.node: p for p in known.terms.participants}
        participants = tuple(
            p.model_copy(update={"tools": earlier.tools, "lacks": earlier.lacks})
            if (earlier := before.get(p.node))
            else p
            for p in task.terms.participants
        )
        task = replace(task, terms=replace(task.terms, participants=participants))
        return self._agreed(await self._ask_all(task, self._consider))

    def draft(self, document: TaskDocument, known: StoredTask | None = None) -> Draft:
        """Check a document against what this node knows; no node is asked, and nothing is stored.

        With ``known``, the document is an edit of that task and must keep its participants.

        :raises InvalidDocument: a field is wrong.
        """
        if document.seats is not None:
            reason = (
                "named participants cannot be changed to nodes of a pool; cancel the task and "
                "create a new one"
            )
            raise InvalidDocument([FieldFault("/participants/pool", reason)])
        draft = self._draft(document, known)
        check_version(draft.task.terms)
        if known is not None:
            _check_participants(document, draft.task, known)
        return draft

    def draft_pool_task(
        self, document: TaskDocument, sought: PoolTaskRequest, known: StoredTask | None = None
    ) -> Draft:
        """Check a pool task by filling in the first nodes that could have its seats.

        With ``known``, the document is an edit of that task. The draft itself names no nodes.

        :raises InvalidDocument: a field is wrong.
        """
        request = sought.request
        names = sought.able[: request.k if request.together else 1]
        draft = self._draft(self._seating.filled(document, request, names), known)
        terms = draft.task.terms
        if names[0] not in {p.name for p in terms.participants}:
            reason = f"would not make the node take part in {draft.test.name}; name another field"
            raise InvalidDocument([FieldFault("/participants/field", reason)])
        spec = self._capabilities.spec(draft.test, document.test.spec)
        terms = replace(
            terms,
            spec=spec.model_dump(mode="json", by_alias=True),
            participants=(),
            addresses={},
        )
        return replace(draft, task=replace(draft.task, terms=terms, participant=None))

    def seat_task(
        self, whole: StoredTask, request: SeatRequest, names: Sequence[str], schedule: Schedule
    ) -> StoredTask:
        """Return the ordinary task in which these nodes have seats of a pool task; not stored yet.

        :raises InvalidDocument: a field does not fit any more, for example an unknown host.
        """
        document = self._seating.document_for(whole, request, names, schedule)
        return replace(self._draft(document, None, whole).task, parent=whole.id)

    def _draft(
        self, document: TaskDocument, known: StoredTask | None, whole: StoredTask | None = None
    ) -> Draft:
        """Check a document. ``known`` is the task it edits, ``whole`` the pool task it is for."""
        now = self._clock.now()
        created_at = now if known is None else known.terms.created_at
        test = self._capabilities.test(document.test.type)
        campaign = self._campaign(document, known or whole)
        spec = self._spec(test, document)
        named = test.participants(spec)
        participants = self._participants(document, self._nodes(document, named))
        tool = self._tool(document, spec)
        duration = tool.duration(spec)
        schedule = document.schedule.at(now)
        schedule = schedule.model_copy(update={"slip": default_slip(schedule)})
        recurrence = recurrence_of(schedule, created_at)
        if faults := validate(recurrence, duration):
            raise InvalidDocument(faults)
        slot = first_slot(recurrence, now)
        if known is None or schedule != known.terms.schedule:
            _check_to_come(recurrence, slot, now)
        terms = TaskTerms(
            test=test.name,
            spec=spec.model_dump(mode="json", by_alias=True),
            tools=document.tools,
            tool=tool.name,
            scheduling_class=test.scheduling_class(spec),
            duration=duration,
            priority=document.priority,
            participants=participants,
            addresses=self._addresses(test.hosts(spec), named, participants),
            schedule=schedule,
            campaign=campaign,
            reference=document.reference,
            created_at=created_at,
            revision=1 if known is None else known.terms.revision + 1,
        )
        own = self._directory.self.identity
        places = [p.node for p in participants]
        task = StoredTask(
            id=self._new_id() if known is None else known.id,
            lead=own,
            state=TaskState.ACTIVE,
            terms=terms,
            participant=places.index(own) if own in places else None,
        )
        return Draft(test, tool, task, now if slot is None else slot)

    def _campaign(self, document: TaskDocument, known: StoredTask | None) -> str:
        """Return the campaign; a known task may keep one that is closed to new tasks."""
        campaign = document.campaign or DEFAULT
        if known is None or campaign != (known.terms.campaign or DEFAULT):
            self._campaigns.check(campaign)
        return campaign

    def _spec(self, test: Test, document: TaskDocument) -> Any:
        spec = self._capabilities.spec(test, document.test.spec)
        try:
            return test.with_participants(spec, document.named)
        except ValueError as error:
            raise InvalidDocument([FieldFault("/participants", str(error))]) from None

    def _nodes(self, document: TaskDocument, words: Sequence[str | None]) -> list[KnownNode]:
        """Return the nodes that the test names as participants; None in ``words`` is this one."""
        nodes: list[KnownNode] = []
        for word in words:
            node = self._directory.self if word is None else self._directory.find(word)
            if node is None:
                known = ", ".join(sorted(n.name for n in self._directory.all))
                reason = (
                    f"{word} is not a node known here; known are {known}; "
                    "make it known with: parley node add URL"
                )
                raise InvalidDocument([FieldFault(_pointer_of(document, word), reason)])
            if node in nodes:
                reason = f"{node.name} would take part twice; name another node"
                raise InvalidDocument([FieldFault(_pointer_of(document, word), reason)])
            nodes.append(node)
        return nodes

    def _participants(
        self, document: TaskDocument, nodes: Sequence[KnownNode]
    ) -> tuple[Participant, ...]:
        """Return the participants, each with its context and its address in that context.

        :raises InvalidDocument: a context is given for a node that takes no part, or twice.
        """
        contexts: dict[str, str] = {}
        for name, context in document.contexts.items():
            node = self._directory.find(name)
            if node not in nodes or node is None:
                reason = f"takes no part; the participants are {', '.join(n.name for n in nodes)}"
                raise InvalidDocument([FieldFault(f"/contexts/{name}", reason)])
            if node.identity in contexts:
                reason = "names a participant that has a context already; remove one of them"
                raise InvalidDocument([FieldFault(f"/contexts/{name}", reason)])
            contexts[node.identity] = context
        return tuple(_participant(node, contexts.get(node.identity)) for node in nodes)

    def _addresses(
        self, hosts: Sequence[str], named: Sequence[str | None], participants: Sequence[Participant]
    ) -> dict[str, str]:
        """Return the address of each host of the spec; a participant's is that of its context.

        A target that takes no part and is written as an address is measured at that address, even
        if it belongs to a known node.
        """
        own_addresses = {participant.node: participant.address for participant in participants}
        addresses = {}
        for host in hosts:
            as_written = host not in named and is_address(host)
            node = None if as_written else self._directory.find(host)
            addresses[host] = (
                host if node is None else own_addresses.get(node.identity, node.address)
            )
        return addresses

    def _tool(self, document: TaskDocument, spec: Any) -> Tool:
        """Return the best tool that can measure the spec, of the requested ones the first."""
        known = self._capabilities.tools
        for index, name in enumerate(document.tools):
            if name not in known or document.test.type not in known[name].tests:
                reason = f"there is no tool {name!r} for {document.test.type}"
                raise InvalidDocument([FieldFault(f"/tools/{index}", reason)])
        try:
            return self._capabilities.choose(document.test.type, document.tools, [], spec)
        except ToolUnavailable:
            pointer = "/tools" if document.tools else "/test/spec"
            unable = (self._unable(name, document, spec) for name in document.tools or known)
            raise InvalidDocument([FieldFault(pointer, "; ".join(filter(None, unable)))]) from None

    def _unable(self, name: str, document: TaskDocument, spec: Any) -> str | None:
        tool = self._capabilities.tools[name]
        return tool.can(spec) if document.test.type in tool.tests else None

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


def _check_to_come(recurrence: Recurrence, slot: int | None, now: int) -> None:
    """Refuse a schedule that leaves nothing to plan.

    :raises InvalidDocument: there is no slot, or the first one and its slip are over.
    """
    if slot is None:
        raise InvalidDocument([FieldFault("/schedule", "leaves no run to come")])
    if slot + recurrence.slip < now:
        over = f"{format_instant(slot)} and its slip are over; give a later start, or none"
        raise InvalidDocument([FieldFault("/schedule/start", over)])


def _check_participants(document: TaskDocument, task: StoredTask, known: StoredTask) -> None:
    """Refuse an edit that changes the participants: it would be a different task.

    :raises InvalidDocument: a participant differs.
    """
    for new, old in zip_longest(task.terms.participants, known.terms.participants):
        if new is None or old is None or new.node != old.node:
            before = "nobody" if old is None else old.name
            reason = (
                f"participants cannot be changed (currently {before}); cancel the task and create "
                "a new one"
            )
            pointer = _pointer_of(document, None if new is None else new.name)
            raise InvalidDocument([FieldFault(pointer, reason)])


def _participant(node: KnownNode, context: str | None) -> Participant:
    address = node.address if context is None else offered(node.attributes).get(context)
    return Participant(
        node=node.identity,
        name=node.name,
        url=node.url,
        address=address or node.address,
        context=context,
    )


def _pointer_of(document: TaskDocument, word: str | None) -> str:
    """Return the JSON pointer to the place where the document names this host."""
    if word in document.named:
        return f"/participants/{document.named.index(word)}"
    for field, value in document.test.spec.items():
        if value == word:
            return f"/test/spec/{field}"
        if isinstance(value, list) and word in value:
            return f"/test/spec/{field}/{value.index(word)}"
    return "/test/spec"
