"""Takes a task in: checks everything that can be known now, asks every participant, keeps it.

A task is refused at once, and nothing of it kept, if a field is wrong or a participant will not
take part. A participant that cannot be reached is no reason to refuse: it is asked again before
the task is planned, and until then its runs wait with that reason.
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
from node.tasks.acceptance import stored_task
from node.tasks.pool_tasks import PoolTaskChecker, PoolTaskRequest

Introduce = Callable[[KnownNode, Introduction], Awaitable[IntroductionAnswer]]
"""Makes a task known to one node, this one included, or only asks whether it would take part.

Raises :class:`PeerError` without an answer.
"""


@dataclass(frozen=True)
class Draft:
    """A checked task that nobody has been asked about yet."""

    test: Test
    tool: Tool
    introduction: Introduction
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
        """Create a task; its id, and whether it is new (a repeated key gives the task it made).

        :raises InvalidDocument: a field is wrong.
        :raises RefusedByParticipant: somebody will not take part; says who and why.
        :raises Conflict: the key was used for another document.
        """
        digest = hashlib.sha256(document.model_dump_json().encode()).hexdigest()
        if key is not None and (made := await self._made_before(key, digest)) is not None:
            return made, False
        await self._campaigns.look_up(document.campaign)
        archived = await self._archives.checked_all(document.archives)
        document = document.model_copy(update={"archives": archived})
        if document.seats is not None:
            return await self._create_seated(document, document.seats, key, digest)
        draft = self.draft(document)
        introduction = await self._ask_all(draft.introduction, self._introduce)
        try:
            introduction = self._agreed(introduction)
        except (RefusedByParticipant, ToolUnavailable) as error:
            await self._withdraw(introduction, error.detail)
            raise
        if await self._keep(introduction, draft.first_slot, key, digest, archived):
            return introduction.task, True
        # The same key came twice at the same time, and the other one was faster.
        await self._withdraw(introduction, "its Idempotency-Key was used for another task")
        made = None if key is None else await self._made_before(key, digest)
        return made or introduction.task, False

    async def draft_seat_task(self, document: TaskDocument, request: SeatRequest) -> Draft:
        """A pool task as it would be created; nothing is asked or kept.

        :raises InvalidDocument: a field is wrong.
        """
        await self._campaigns.look_up(document.campaign)
        return self.draft_pool_task(document, await self._seating.find_nodes(document, request))

    async def _create_seated(
        self, document: TaskDocument, request: SeatRequest, key: str | None, digest: str
    ) -> tuple[UUID, bool]:
        """Create a pool task; which nodes have its seats is decided by the lead."""
        sought = await self._seating.find_nodes(document, request)
        draft = self.draft_pool_task(document, sought)
        introduction = draft.introduction
        if await self._keep(introduction, draft.first_slot, key, digest, document.archives, sought):
            return introduction.task, True
        made = None if key is None else await self._made_before(key, digest)
        return made or introduction.task, False

    async def _made_before(self, key: str, digest: str) -> UUID | None:
        async with self._database.connection() as connection:
            found = await tasks.find_idempotency(connection, key)
        if found is None:
            return None
        if found[0] != digest:
            msg = "this Idempotency-Key was used for another document; use a new one"
            raise Conflict(msg)
        return found[1]

    async def ask(self, document: TaskDocument, known: StoredTask) -> Introduction:
        """A task as it would be under an edited document; nothing is kept, here or anywhere.

        Who cannot be reached is asked later, and counts as having the tools it had.

        :raises InvalidDocument: a field is wrong.
        :raises RefusedByParticipant: somebody would not take part any more; says who and why.
        :raises ToolUnavailable: there is no tool that all have.
        """
        await self._campaigns.look_up(document.campaign)
        introduction = self.draft(document, known).introduction
        before = {p.node: p for p in known.terms.participants}
        listed = tuple(
            p.model_copy(update={"tools": there.tools, "lacks": there.lacks})
            if (there := before.get(p.node))
            else p
            for p in introduction.participants
        )
        asked = introduction.model_copy(update={"participants": listed})
        return self._agreed(await self._ask_all(asked, self._consider))

    def draft(self, document: TaskDocument, known: StoredTask | None = None) -> Draft:
        """Check a document against what this node knows; nothing is asked or kept.

        ``known``: the document is an edit of this task, and is refused if others would take part.
        """
        if document.seats is not None:
            said = "cannot be edited into nodes of a pool; cancel this task and create another one"
            raise InvalidDocument([FieldFault("/participants/pool", said)])
        draft = self._drafted(document, known)
        check_version(draft.introduction)
        if known is not None:
            _check_participants(document, draft.introduction, known)
        return draft

    def draft_pool_task(
        self, document: TaskDocument, sought: PoolTaskRequest, known: StoredTask | None = None
    ) -> Draft:
        """Check a pool task as it would be for the first nodes that could have its seats.

        ``known``: the document is an edit of this task.

        :raises InvalidDocument: a field is wrong.
        """
        request = sought.request
        names = sought.able[: request.k if request.together else 1]
        draft = self._drafted(self._seating.filled(document, request, names), known)
        if names[0] not in {p.name for p in draft.introduction.participants}:
            said = f"would not make the node take part in {draft.test.name}; name another field"
            raise InvalidDocument([FieldFault("/participants/field", said)])
        spec = self._capabilities.spec(draft.test, document.test.spec)
        bare = {"spec": spec.model_dump(mode="json", by_alias=True), "participants": ()}
        introduction = draft.introduction.model_copy(update={**bare, "addresses": {}})
        return replace(draft, introduction=introduction)

    def seat_task(
        self, whole: StoredTask, request: SeatRequest, names: Sequence[str], schedule: Schedule
    ) -> StoredTask:
        """The ordinary task in which these nodes have seats of a pool task; not kept yet.

        :raises InvalidDocument: a field does not fit (any more): a host is not known, say.
        """
        document = self._seating.document_for(whole, request, names, schedule)
        made = self._own(self._drafted(document, None, whole).introduction)
        return replace(made, parent=whole.id)

    def _drafted(
        self, document: TaskDocument, known: StoredTask | None, whole: StoredTask | None = None
    ) -> Draft:
        now = self._clock.now()
        created_at = now if known is None else known.terms.created_at
        test = self._capabilities.test(document.test.type)
        campaign = self._campaign(document, known or whole)
        spec = self._spec(test, document)
        named = test.participants(spec)
        nodes = self._participants(document, named)
        participants = self._placed(document, nodes)
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
        introduction = Introduction(
            task=self._new_id() if known is None else known.id,
            test=test.name,
            spec=spec.model_dump(mode="json", by_alias=True),
            tools=document.tools,
            tool=tool.name,
            scheduling_class=test.scheduling_class(spec),
            duration=duration,
            priority=document.priority,
            participants=participants,
            participant=0,
            addresses=self._addresses(test.hosts(spec), named, participants),
            schedule=schedule,
            campaign=campaign,
            reference=document.reference,
            created_at=created_at,
            revision=1 if known is None else known.terms.revision + 1,
        )
        return Draft(test, tool, introduction, now if slot is None else slot)

    def _campaign(self, document: TaskDocument, known: StoredTask | None) -> str:
        """Whom it is for; a task keeps a campaign that takes no new ones."""
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

    def _participants(self, document: TaskDocument, words: Sequence[str | None]) -> list[KnownNode]:
        found: list[KnownNode] = []
        for word in words:
            node = self._directory.self if word is None else self._directory.find(word)
            if node is None:
                known = ", ".join(sorted(n.name for n in self._directory.all))
                sentence = (
                    f"{word} is not a node known here; known are {known}; "
                    "make it known with: parley node add URL"
                )
                raise InvalidDocument([FieldFault(_pointer_of(document, word), sentence)])
            if node in found:
                sentence = f"{node.name} would take part twice"
                raise InvalidDocument([FieldFault(_pointer_of(document, word), sentence)])
            found.append(node)
        return found

    def _placed(
        self, document: TaskDocument, nodes: Sequence[KnownNode]
    ) -> tuple[Participant, ...]:
        """The participants, with the contexts they are to measure from and the addresses there.

        :raises InvalidDocument: a context is asked of somebody who takes no part.
        """
        asked: dict[str, str] = {}
        for name, context in document.contexts.items():
            node = self._directory.find(name)
            if node not in nodes or node is None:
                sentence = f"takes no part; those who do are {', '.join(n.name for n in nodes)}"
                raise InvalidDocument([FieldFault(f"/contexts/{name}", sentence)])
            if node.identity in asked:
                raise InvalidDocument([FieldFault(f"/contexts/{name}", "is named twice")])
            asked[node.identity] = context
        return tuple(_participant(node, asked.get(node.identity)) for node in nodes)

    def _addresses(
        self, hosts: Sequence[str], named: Sequence[str | None], participants: Sequence[Participant]
    ) -> dict[str, str]:
        """Where each host of the spec is measured; of a participant, in its context.

        A mere target that is written as an address is measured there, whosever it is.
        """
        placed = {participant.node: participant.address for participant in participants}
        found = {}
        for host in hosts:
            as_written = host not in named and is_address(host)
            node = None if as_written else self._directory.find(host)
            found[host] = host if node is None else placed.get(node.identity, node.address)
        return found

    def _tool(self, document: TaskDocument, spec: Any) -> Tool:
        """The best tool that can measure the spec, or the first such of those asked for."""
        known = self._capabilities.tools
        for index, name in enumerate(document.tools):
            if name not in known or document.test.type not in known[name].tests:
                sentence = f"there is no tool {name!r} for {document.test.type}"
                raise InvalidDocument([FieldFault(f"/tools/{index}", sentence)])
        try:
            return self._capabilities.choose(document.test.type, document.tools, [], spec)
        except ToolUnavailable:
            pointer = "/tools" if document.tools else "/test/spec"
            unable = (self._unable(name, document, spec) for name in document.tools or known)
            raise InvalidDocument([FieldFault(pointer, "; ".join(filter(None, unable)))]) from None

    def _unable(self, name: str, document: TaskDocument, spec: Any) -> str | None:
        tool = self._capabilities.tools[name]
        return tool.can(spec) if document.test.type in tool.tests else None

    async def _ask_all(self, introduction: Introduction, question: Introduce) -> Introduction:
        """Ask all at once whether they take part; the task with what they said."""
        answers = await asyncio.gather(
            *(
                self._ask(introduction, place, question)
                for place in range(len(introduction.participants))
            )
        )
        return introduction.model_copy(update={"participants": tuple(answers)})

    def _agreed(self, introduction: Introduction) -> Introduction:
        """The task with the tool that all have; what nobody refused."""
        answers = introduction.participants
        refusals = [f"{p.name}: {p.reason}" for p in answers if p.accepted is False]
        if refusals:
            raise RefusedByParticipant("; ".join(refusals))
        for p in answers:
            card = self._directory.by_identity(p.node).attributes
            if p.context is not None and p.context not in offered(card):
                refusals.append(
                    f"{p.name}: at which address it measures from {p.context} is not known here "
                    "(yet); a node's card is read every 15 seconds"
                )
        if refusals:
            raise RefusedByParticipant("; ".join(refusals))
        return self._with_tool(introduction)

    async def _ask(
        self, introduction: Introduction, place: int, question: Introduce
    ) -> Participant:
        participant = introduction.participants[place]
        node = self._directory.by_identity(participant.node)
        addressed = introduction.model_copy(update={"participant": place})
        try:
            answered = await question(node, addressed)
        except (PeerError, RequestError) as error:
            return participant.model_copy(update={"reason": error.detail})
        return participant.model_copy(
            update={
                "accepted": answered.accepted,
                "reason": answered.reason,
                "tools": answered.tools,
                "lacks": answered.lacks,
            }
        )

    async def _withdraw(self, introduction: Introduction, reason: str) -> None:
        """Those who have accepted already end the task; so do those whose answer was lost."""
        own = self._directory.self.identity
        told = [p.node for p in introduction.participants if p.accepted is not False]
        others = [identity for identity in told if identity != own]
        end = TaskEnd(task=introduction.task, state=TaskState.REFUSED, reason=reason[:1000])
        async with self._database.connection() as connection:
            await outbox.post(
                connection,
                others,
                outbox.MessageKind.TASK_END,
                end.model_dump(mode="json"),
                self._clock.now(),
            )
            await bookings.notify(connection, "task", introduction.task, TaskState.REFUSED)

    def _with_tool(self, introduction: Introduction) -> Introduction:
        tool, duration = self._capabilities.agree(
            introduction.test,
            introduction.tools,
            [p.tools for p in introduction.participants if p.accepted or p.tools],
            introduction.spec,
        )
        return introduction.model_copy(update={"tool": tool, "duration": duration})

    def _own(self, introduction: Introduction) -> StoredTask:
        """A task as it is kept by its lead, which is this node."""
        own = self._directory.self.identity
        places = [p.node for p in introduction.participants]
        task = stored_task(introduction, own)
        return replace(task, participant=places.index(own) if own in places else None)

    async def _keep(
        self,
        introduction: Introduction,
        slot: int,
        key: str | None,
        digest: str,
        archived: Sequence[ArchiveChoice],
        sought: PoolTaskRequest | None = None,
    ) -> bool:
        """Keep the task; False if its key was used meanwhile."""
        task = self._own(introduction)
        now = self._clock.now()
        async with self._database.transaction() as connection:
            if key is not None and not await tasks.keep_idempotency(
                connection, key, digest, task.id, now
            ):
                return False
            await tasks.keep(connection, task)
            if archived:
                await self._archives.keep_of_task(connection, task.id, archived)
            plan_at = max(now, slot - self._horizon + introduction.duration)
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
    """Refuse a schedule that leaves nothing to plan."""
    if slot is None:
        raise InvalidDocument([FieldFault("/schedule", "leaves no run to come")])
    if slot + recurrence.slip < now:
        over = f"{format_instant(slot)} and its slip are over; give a start to come, or none"
        raise InvalidDocument([FieldFault("/schedule/start", over)])


def _check_participants(
    document: TaskDocument, introduction: Introduction, known: StoredTask
) -> None:
    """Refuse an edit that makes a task another one: other nodes would take part."""
    for new, old in zip_longest(introduction.participants, known.terms.participants):
        if new is None or old is None or new.node != old.node:
            before = "nobody" if old is None else old.name
            sentence = (
                f"who takes part cannot be edited ({before} does); cancel this task and create "
                "another one"
            )
            pointer = _pointer_of(document, None if new is None else new.name)
            raise InvalidDocument([FieldFault(pointer, sentence)])


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
    """Where the document names this host."""
    if word in document.named:
        return f"/participants/{document.named.index(word)}"
    for field, value in document.test.spec.items():
        if value == word:
            return f"/test/spec/{field}"
        if isinstance(value, list) and word in value:
            return f"/test/spec/{field}/{value.index(word)}"
    return "/test/spec"
