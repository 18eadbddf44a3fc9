"""Posted tasks: from the document of a client to an ordinary task of this node, which leads it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

from node.api.tasks import require_may_post
from node.model.errors import InvalidDocument, LimitRefused, NotAllowed, ParleyError
from node.model.host_limits.rules import User
from node.model.naming import NodeIndex
from node.model.wire.campaigns import DEFAULT
from node.model.wire.tasks import ScheduleDocument, TaskDocument, TestChoice
from node.pscheduler import archives, documents, hosts, posted
from node.pscheduler.dialects.registry import DIALECTS
from node.pscheduler.documents import Spoken
from node.pscheduler.posted import PostedTask
from node.pscheduler.private_members import stored_texts, told_spec
from node.pscheduler.refusals import Refusal, impossible, invalid
from node.pscheduler.requesters import Requester
from node.pscheduler.tests.contract import ParleyTest
from node.pscheduler.tests.language import Language, fitted_to_interval
from node.pscheduler.tests.registry import LANGUAGES
from node.service import NodeService
from node.store import pscheduler
from node.store.database import Connection
from node.store.pscheduler import PostedRecord
from node.store.tasks import StoredTask


def language_of(test: str) -> Language:
    """Return the language of a test.

    :raises Refusal: 404, there is no such test here.
    """
    language = LANGUAGES.get(test)
    if language is None:
        raise Refusal(404, f'No test "{test[:100]}" is available.')
    return language


_CLIENTS = "pscheduler:"
"""All clients together, as one user in the queue of those who create tasks: addresses are many."""


class TaskPoster:
    """Admits tasks that are posted in the form of pScheduler."""

    def __init__(self, node: NodeService) -> None:
        """Tasks are created as by the API of ``node``, but for a class of users of its own."""
        self._node = node
        self._hostname = socket.gethostname()

    async def post(self, parsed: Any, requester: Requester, host: str) -> UUID:
        """Create a task and return its id; ``host`` is how the caller writes this one.

        :raises Refusal: it is no valid task, or this node cannot do it.
        """
        task = posted.read(parsed, self._node.clock.now())
        language = self._valid_language(task)
        told = told_spec(task.test, task.spec)
        spoken = Spoken(task.test, told, tuple(language.words(told)), language)
        document = self._with_capped_priority(requester, self._task_document(task, language, host))
        own = self._node.card.name
        named = [word or own for word in language.participants(task.spec).names]
        await require_may_post(self._node, requester.principal, document)
        along = partial(self._keep, task, spoken, named, requester)
        async with self._node.creation_gate.place(_CLIENTS):
            made, _ = await self._node.admission.create(
                document, None, self._user(requester, document), along
            )
        return made

    async def propose(self, parsed: Any, requester: Requester, host: str) -> TaskDocument:
        """Return our document for a task that could be posted; nothing is stored.

        :raises Refusal: it could not.
        """
        task = posted.read(parsed, self._node.clock.now())
        document = self._task_document(task, self._valid_language(task), host)
        document = self._with_capped_priority(requester, document)
        await require_may_post(self._node, requester.principal, document)
        user = self._user(requester, document)
        await self._node.user_limits.require_document(user, document)
        return document

    def _valid_language(self, task: PostedTask) -> Language:
        """Return the language of a task whose spec it finds valid.

        :raises Refusal: 400, the test is unknown, or its spec is not valid.
        """
        language = LANGUAGES.get(task.test)
        if language is None:
            names = ", ".join(LANGUAGES)
            raise invalid(
                f"Unable to validate test spec: no test '{task.test[:100]}' is available here; "
                f"there are: {names}"
            )
        language.check(task.spec)
        return language

    def _task_document(self, task: PostedTask, language: Language, host: str) -> TaskDocument:
        """Return the task in our form.

        :raises Refusal: this node has no honest counterpart.
        """
        directory = self._node.directory
        itself = directory.self
        others = {self._hostname, self._node.settings.listen_host, hosts.without_port(host)}
        own = hosts.own_words(itself, {*others, *self._node.contexts.addresses().values()})
        participants = language.participants(task.spec).names
        index = NodeIndex(directory.all)
        names = hosts.participant_names(participants, own, itself, index)
        ours = language.to_parley(task.spec, names)
        # Among participants are hosts that are none in pScheduler's view.
        fault = hosts.first_fault(ours.participants, own, itself, index)
        if fault is not None or hosts.any_runs_pscheduler(ours.participants, index):
            ours = language.test_of_target(task.spec, names) or ours
            if fault is not None and len(ours.participants) > 1:
                raise fault
        ours = fitted_to_interval(ours, task.schedule.repeat)
        contexts = posted.contexts_by_participant(task, names)
        for name, address in ours.addresses.items():
            if name not in contexts and not self._measures_at(name, address, own):
                contexts[name] = f"address:{address}"
        try:
            return TaskDocument(
                test=TestChoice(type=ours.type, spec=ours.spec),
                tools=self._tools(task, language, ours),
                schedule=ScheduleDocument.of(posted.schedule_of_runs(task, ours)),
                priority=task.priority,
                contexts=contexts,
                campaign=self._node.settings.pscheduler_campaign,
                reference=None
                if task.reference is None
                else {
                    documents.WRAPPED: posted.storable_document(
                        posted.without_private_members(task.reference)
                    )
                },
                archives=tuple(archives.to_parley(spec).choice for spec in task.archives),
            )
        except ValueError as error:
            raise invalid(f"Task is not valid: {error}") from None

    def _measures_at(self, name: str, address: str, own: frozenset[str]) -> bool:
        """Return whether an address is the one at which a participant measures anyway."""
        node = self._node.directory.find(address)
        if node is not None:
            return node.name == name
        return name == self._node.directory.self.name and hosts.without_port(address).lower() in own

    def _tools(self, task: PostedTask, language: Language, ours: ParleyTest) -> tuple[str, ...]:
        """Return the tools that a task names and this node knows for its test.

        :raises Refusal: 422, it names tools, and none of them.
        """
        if not task.tools:
            return ours.tools
        known = self._node.capabilities.tools
        able = {name for name, tool in known.items() if ours.type in tool.tests}
        able &= set(ours.tools) or able
        ours_of = {name: dialect.own for name, dialect in DIALECTS.items()}
        if len(ours.participants) > 1:
            ours_of |= language.tools_between_nodes
        wanted = tuple(own for name in task.tools if (own := ours_of.get(name, name)) in able)
        if not wanted:
            named = ", ".join(name[:60] for name in task.tools)
            raise impossible(
                "Unable to complete request: No tool in common among the participants: "
                f"{named} asked for, and {task.test} is measured here with "
                f"{', '.join(sorted(able)) or 'no tool'}."
            )
        return wanted

    def _with_capped_priority(self, requester: Requester, document: TaskDocument) -> TaskDocument:
        """Return a task whose priority is no higher than of a user without a rule of their own."""
        limits, user = self._node.limits.limits, self._user(requester, document)
        if document.priority <= 0 or limits.groups_of_user(user):
            return document
        return document.model_copy(update={"priority": 0})

    @staticmethod
    def _user(requester: Requester, document: TaskDocument) -> User:
        """Return the user whom the limits know, bound by the rules for targets."""
        campaign = document.campaign or DEFAULT
        return User(requester.label, campaign, requester.address, bound=True)

    async def _keep(
        self,
        task: PostedTask,
        spoken: Spoken,
        participants: list[str],
        requester: Requester,
        connection: Connection,
        stored: StoredTask,
    ) -> None:
        """Store what was posted, with the facts about it."""
        hints = {"requester": requester.address, "server": self._node.card.address}
        diags = "\n".join([documents.NO_LIMITS, *_notes(task)])
        detail = documents.static_detail(stored.terms, spoken, participants, hints, diags)
        detail["start"] = task.start
        texts = stored_texts(self._node.core.sealing, task.document, task.key)
        record = PostedRecord(
            stored.id, texts.document, texts.secret, detail, 0, texts.key, requester.address
        )
        await pscheduler.keep(connection, record)


def _notes(task: PostedTask) -> Iterator[str]:
    """Yield a sentence for each thing that is done otherwise here than the document asks for."""
    yield from LANGUAGES[task.test].notes(task.spec)
    if "max-runs" in task.document["schedule"]:
        yield "max-runs counts runs that took place; those that found no time do not count."
    if "keep-after-archive" in task.document:
        yield "keep-after-archive is not used: results are kept as long as this node's owner says."
    if task.priority > 0:
        yield "The priority is 0 unless the limits of this host have a rule for this client."
    if "lead-bind" in task.document:
        yield "lead-bind is not used: this node asks others from the address that its host chooses."
    if "debug" in task.document:
        yield "debug is not used: the log of this node has what it does."
    for spec in task.archives:
        yield from archives.to_parley(spec).notes


def refusal_of(error: ParleyError) -> Refusal:
    """Return the refusal that tells a client of pScheduler why a task is not admitted."""
    if isinstance(error, LimitRefused | NotAllowed):
        return Refusal(403, f"Task forbidden by limits:\n{error.detail}")
    if isinstance(error, InvalidDocument):
        lines = "\n".join(f"{fault.pointer}: {fault.detail}" for fault in error.faults)
        return Refusal(400, lines)
    if error.status < 500 and error.status != 429:  # noqa: PLR2004 - later it may be in order
        return Refusal(422, f"Unable to complete request: {error.detail}")
    return Refusal(error.status, error.detail)
