"""Drafts of tasks: check a document against everything that this node knows.

No node is asked, and nothing is stored: ``admission.py`` does both with a draft. So a preview, an
edit, and a trial of limits get from the same document the same task as its creation, or the same
faults.

A pool task is drafted with the first nodes that could have its seats, because most faults of a spec
show only with names in it; the names are then taken out again. The ordinary task of a seat is
drafted from the document of its pool task in the same way, when the seat is given.

A draft has the record that would be stored, with participants, addresses, and the best tool as far
as this node can tell; participants may answer that they have only another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any
from uuid import UUID

import orjson

from node.execution.catalog import Capabilities
from node.execution.spec_secrets import SpecSecrets
from node.model.contexts import offered_contexts
from node.model.errors import FieldFault, InvalidDocument, ToolUnavailable
from node.model.figure_names import figure_faults
from node.model.outside_leads import is_outside
from node.model.reasons import keeps_no_resources
from node.model.recurrence import Recurrence, recurrence_faults
from node.model.resources import parse_taking
from node.model.scheduling import default_slip, first_slot, recurrence_of, spread_evenly
from node.model.task_terms import TaskTerms
from node.model.taskstate import TaskState
from node.model.times import format_instant
from node.model.wire.campaigns import DEFAULT
from node.model.wire.fields import is_address
from node.model.wire.participants import INTRODUCTION_BYTES_MAX
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Keeper, Participant, Schedule, TaskDocument
from node.peers.directory import Directory
from node.plugins.binding import check_version
from node.plugins.contracts import Test, Tool
from node.sharing.campaigns import Campaigns
from node.store.core import Core
from node.store.nodes import KnownNode
from node.store.tasks import StoredTask
from node.tasks.pool_tasks import PoolTaskChecker, PoolTaskRequest

_SAMPLES_OF_NEW = (
    "are for new tasks, whose time they divide; give repeat, slip, until and max_runs instead"
)
_INSTEAD = {
    "slip": "; after.within says how late its runs may start",
    "max_runs": "; the number of runs is that of the task that it follows",
}
_LENGTH_MAX = INTRODUCTION_BYTES_MAX * 3 // 4
"""Maximum length of an introduction before the participants have answered. The rest is for their
answers: which tools each of them has, and why it lacks others."""


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


class TaskDrafter:
    """Makes drafts of tasks that this node leads."""

    def __init__(
        self,
        core: Core,
        capabilities: Capabilities,
        campaigns: Campaigns,
        seating: PoolTaskChecker,
        directory: Directory,
        new_id: Callable[[], UUID],
    ) -> None:
        """``new_id`` makes task ids."""
        self._clock = core.clock
        self._capabilities = capabilities
        self._campaigns = campaigns
        self._seating = seating
        self._directory = directory
        self._new_id = new_id
        self.secrets = SpecSecrets(core, capabilities)

    async def draft_new_pool_task(self, document: TaskDocument, request: SeatRequest) -> Draft:
        """Return the draft of a pool task; no node is asked, and nothing is stored.

        :raises InvalidDocument: a field is wrong.
        """
        await self._campaigns.look_up(document.campaign)
        return self.draft_pool_task(document, await self._seating.find_nodes(document, request))

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
        if document.after is not None:
            reason = "is not for tasks that ask for nodes of a pool; name the participants"
            raise InvalidDocument([FieldFault("/after", reason)])
        request = sought.request
        names = sought.able[: request.k if request.together else 1]
        draft = self._draft(self._seating.fill_in(document, request, names), known)
        terms = draft.task.terms
        if names[0] not in {p.name for p in terms.participants}:
            reason = f"would not make the node take part in {draft.test.name}; name another field"
            raise InvalidDocument([FieldFault("/participants/field", reason)])
        spec = self._capabilities.spec(draft.test, document.test.spec)
        terms = replace(
            terms,
            spec=self._spec_to_store(draft.test, spec),
            participants=(),
            addresses={},
        )
        return replace(draft, task=replace(draft.task, terms=terms, participant=None))

    def seat_task(
        self, pool_task: StoredTask, request: SeatRequest, names: Sequence[str], schedule: Schedule
    ) -> StoredTask:
        """Return the ordinary task in which these nodes have seats of a pool task; not stored yet.

        :raises InvalidDocument: a field does not fit any more, for example an unknown host.
        """
        document = self._seating.document_for(pool_task, request, names, schedule)
        return replace(self._draft(document, None, pool_task).task, parent=pool_task.id)

    def _draft(
        self, document: TaskDocument, known: StoredTask | None, pool_task: StoredTask | None = None
    ) -> Draft:
        """Check a document of a new task, an edit of ``known``, or a seat of ``pool_task``."""
        now = self._clock.now()
        created_at = now if known is None else known.terms.created_at
        test = self._capabilities.test(document.test.type)
        campaign = self._checked_campaign(document, known or pool_task)
        spec = self._parsed_spec(test, document)
        named = test.participants(spec)
        participants = self._participants(document, self._named_nodes(document, named))
        tool = self._best_tool(document, spec)
        duration = tool.duration(spec)
        if faults := dependency_faults(document):
            raise InvalidDocument(faults)
        if known is not None and document.schedule.samples is not None:
            raise InvalidDocument([FieldFault("/schedule/samples", _SAMPLES_OF_NEW)])
        posted = spread_evenly(document.schedule, duration, now)
        schedule = posted.at(now, document.after)
        schedule = schedule.model_copy(update={"slip": default_slip(schedule)})
        recurrence = recurrence_of(schedule, created_at)
        if faults := recurrence_faults(recurrence, duration):
            raise InvalidDocument(faults)
        is_new = known is None or known.terms.reference != document.reference
        if is_new and (faults := list(figure_faults(test.name, document.reference))):
            raise InvalidDocument(faults)
        slot = first_slot(recurrence, now)
        if not recurrence.follows and (known is None or schedule != known.terms.schedule):
            _check_to_come(recurrence, slot, now)
        terms = TaskTerms(
            test=test.name,
            spec=self._spec_to_store(test, spec),
            tools=document.tools,
            tool=tool.name,
            scheduling_class=test.scheduling_class(spec),
            duration=duration,
            priority=document.priority,
            participants=participants,
            addresses=self._addresses_by_host(test.hosts(spec), named, participants),
            schedule=schedule,
            campaign=campaign,
            reference=document.reference,
            created_at=created_at,
            keepers=self._keepers(document),
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
            requester=None if known is None else known.requester,
        )
        _check_length(task)
        return Draft(test, tool, task, now if slot is None else slot)

    def _checked_campaign(self, document: TaskDocument, known: StoredTask | None) -> str:
        """Return the campaign; a known task may keep one that is closed to new tasks."""
        campaign = document.campaign or DEFAULT
        if known is None or campaign != (known.terms.campaign or DEFAULT):
            self._campaigns.check(campaign)
        return campaign

    def _parsed_spec(self, test: Test, document: TaskDocument) -> Any:
        spec = self._capabilities.spec(test, document.test.spec)
        try:
            return test.with_participants(spec, document.named_participants)
        except ValueError as error:
            raise InvalidDocument([FieldFault("/participants", str(error))]) from None

    def _spec_to_store(self, test: Test, spec: Any) -> dict[str, Any]:
        """Return a spec as it is stored, without literal secrets."""
        return self.secrets.sealed_spec(test, spec.model_dump(mode="json", by_alias=True))

    def _named_nodes(self, document: TaskDocument, words: Sequence[str | None]) -> list[KnownNode]:
        """Return the nodes that the test names as participants; None in ``words`` is this one."""
        nodes: list[KnownNode] = []
        for word in words:
            node = self._directory.self if word is None else self._directory.find(word)
            if node is None:
                reason = self._unknown_host_reason(word or "")
                raise InvalidDocument([FieldFault(_pointer_of(document, word), reason)])
            if node in nodes:
                reason = f"{node.name} would take part twice; name another node"
                raise InvalidDocument([FieldFault(_pointer_of(document, word), reason)])
            nodes.append(node)
        return nodes

    def _unknown_host_reason(self, word: str) -> str:
        if sharing := self._directory.nodes_sharing(word):
            names = ", ".join(sorted(node.name for node in sharing))
            return f"{word} is shared by the nodes {names}; use the name of one of them"
        known = ", ".join(sorted(node.name for node in self._directory.all))
        return (
            f"{word} is not a node known here; known are {known}; make it known with: "
            "parley node add URL"
        )

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

    def _keepers(self, document: TaskDocument) -> tuple[Keeper, ...]:
        """Return the nodes that keep what the runs of a task take, by the order of their names.

        :raises InvalidDocument: one is not known here, or a resource is taken twice.
        """
        takes: dict[str, dict[str, int]] = {}
        nodes: dict[str, KnownNode] = {}
        for place, text in enumerate(document.takes):
            name, word, amount = parse_taking(text)
            node = self._directory.find(word)
            if node is None:
                fault = FieldFault(f"/takes/{place}", self._unknown_host_reason(word))
                raise InvalidDocument([fault])
            if is_outside(node.identity):
                raise InvalidDocument([FieldFault(f"/takes/{place}", keeps_no_resources())])
            taken = takes.setdefault(node.identity, {})
            if name in taken:
                fault = FieldFault(f"/takes/{place}", "is taken twice; give the amount once")
                raise InvalidDocument([fault])
            nodes[node.identity], taken[name] = node, amount
        return tuple(
            Keeper(
                node=node.identity,
                name=node.name,
                url=node.url,
                address=node.address,
                takes=takes[node.identity],
            )
            for node in sorted(nodes.values(), key=lambda node: node.name)
        )

    def _addresses_by_host(
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

    def _best_tool(self, document: TaskDocument, spec: Any) -> Tool:
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
            unable = (self._tool_refusal(name, document, spec) for name in document.tools or known)
            raise InvalidDocument([FieldFault(pointer, "; ".join(filter(None, unable)))]) from None

    def _tool_refusal(self, name: str, document: TaskDocument, spec: Any) -> str | None:
        tool = self._capabilities.tools[name]
        return tool.can(spec) if document.test.type in tool.tests else None


def dependency_faults(document: TaskDocument) -> list[FieldFault]:
    """Return the fields that contradict a document's ``after``; none without it. Pure."""
    if document.after is None:
        return []
    return [
        FieldFault(
            f"/schedule/{name}",
            "is not for a task that follows another one: that one's runs decide when it runs; "
            f"remove {name}, or after" + _INSTEAD.get(name, ""),
        )
        for name, value in document.schedule
        if value not in (None, False)
    ]


def _check_to_come(recurrence: Recurrence, slot: int | None, now: int) -> None:
    """Refuse a schedule that leaves nothing to plan.

    :raises InvalidDocument: there is no slot, or the first one and its slip are over.
    """
    if slot is None:
        raise InvalidDocument([FieldFault("/schedule", "leaves no run to come")])
    if slot + recurrence.slip < now:
        over = f"{format_instant(slot)} and its slip are over; give a later start, or none"
        raise InvalidDocument([FieldFault("/schedule/start", over)])


def _check_length(task: StoredTask) -> None:
    """Refuse a task that other nodes would refuse because its introduction is too long.

    :raises InvalidDocument: it is; names the reference if that is most of it.
    """
    if all(party.node == task.lead for party in task.terms.parties):
        return
    length = len(task.introduction(0).model_dump_json().encode())
    if length <= _LENGTH_MAX:
        return
    reference = 2 * len(orjson.dumps(task.terms.reference)) > length
    reason = (
        f"makes the task {length} bytes long; a task with other nodes has at most {_LENGTH_MAX}, "
        "because each of them keeps it; shorten it"
    )
    raise InvalidDocument([FieldFault("/reference" if reference else "/test/spec", reason)])


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
    address = node.address if context is None else offered_contexts(node.attributes).get(context)
    return Participant(
        node=node.identity,
        name=node.name,
        url=node.url,
        address=address or node.address,
        context=context,
    )


def _pointer_of(document: TaskDocument, word: str | None) -> str:
    if word in document.named_participants:
        return f"/participants/{document.named_participants.index(word)}"
    for field, value in document.test.spec.items():
        if value == word:
            return f"/test/spec/{field}"
        if isinstance(value, list) and word in value:
            return f"/test/spec/{field}/{value.index(word)}"
    return "/test/spec"
