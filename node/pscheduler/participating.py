"""This node as participant 1 or later of a task that a node of pScheduler leads.

Each call of such a lead is an operation of this node's own::

    POST /tasks/U?participant=N     the introduction of a task, by a lead without a key
    GET  /tasks/U/runtimes          a proposal, in whole seconds
    PUT  /tasks/U/runs/R start-time a hold, which its lead has two minutes to commit
    PUT  … part-data-full           the commit
    DELETE /tasks/U/runs/R          the release of a hold, or the end of a run
    DELETE /tasks/U                 the end of the task

The ids of tasks and runs are those of the lead. A committed run gives way to nobody, since the lead
could not be told. Merging is the lead's; this node keeps its part as ever.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

from node.execution import netlink
from node.execution.versions import Versions
from node.model import times
from node.model.errors import Conflict, InvalidDocument, TooManyRequests
from node.model.hold_limits import LIFE_MAX
from node.model.ids import TaskId, exchange_id
from node.model.introduction_limits import schedule_faults
from node.model.loopback import is_loopback
from node.model.outside_leads import is_outside, lead_in_words, outside_identity
from node.model.runstate import OVER, RunState
from node.model.spans import Span
from node.model.suspension import suspended_in
from node.model.targets import literal
from node.model.task_terms import terms_of
from node.model.taskstate import OPEN, TaskState
from node.model.wire.campaigns import DEFAULT
from node.model.wire.participants import (
    AboveShare,
    CommitRequest,
    HoldRequest,
    HostLimit,
    Introduction,
    LimitReached,
    ProposalRequest,
    Release,
    RunEnd,
    RunRequest,
    TaskEnd,
)
from node.model.wire.tasks import Participant, Schedule
from node.pscheduler import documents, posted
from node.pscheduler.dialects.contract import Dialect
from node.pscheduler.dialects.registry import DIALECTS, dialects_of
from node.pscheduler.documents import Spoken
from node.pscheduler.hosts import without_port
from node.pscheduler.posted import PostedTask
from node.pscheduler.private_members import may_change, stored_texts, told_spec, whole_document
from node.pscheduler.refusals import Refusal, impossible, invalid
from node.pscheduler.tests.contract import Document, ParleyTest, PartOutcome
from node.pscheduler.tests.language import Language
from node.pscheduler.tests.registry import LANGUAGES
from node.pscheduler.times import rounded_up
from node.service import NodeService
from node.store import bookings, campaigns, outside, pscheduler, runs, tasks
from node.store.database import Connection
from node.store.outside import OutsideRun
from node.store.pscheduler import PostedRecord
from node.store.runs import KeptPart
from node.store.tasks import StoreAlong, StoredTask

_GENERATION = UUID(int=0)
"""Leads from outside have no database whose generation they would tell."""
_FORBIDDEN, _NOT_FOUND, _CONFLICT = 403, 404, 409
_LOST = frozenset({RunState.SET_ASIDE, RunState.DISPLACED, RunState.CANCELLED})
_PRIORITY_KEY = "priority"
_HERE_ALREADY = (
    "Task error: All participants must be on separate systems: this one has a task with that id "
    "already."
)


@dataclass(frozen=True)
class Offer:
    """A tool for a test, and why this node does not measure with it; empty if it does."""

    tool: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class LedTask:
    """A task that is led from outside: as this node stores it, and as it was posted."""

    stored: StoredTask
    posted: Document
    participants: tuple[str, ...]
    record: PostedRecord

    @property
    def dialect(self) -> Dialect:
        """The dialect of its tool."""
        return DIALECTS[self.posted["tool"]]

    @property
    def spec(self) -> Document:
        """The spec of its test, in pScheduler's words."""
        spec: Document = self.posted["test"]["spec"]
        return spec

    @property
    def place(self) -> int:
        """The number of this node among the participants."""
        return self.stored.participant or 0


@dataclass(frozen=True)
class LedRun:
    """This node's part of a run that is led from outside.

    ``data`` is what this node has told the lead, ``part`` its part in the form of the tool; None
    while there is none.
    """

    task: LedTask
    run: OutsideRun
    data: Document
    part: Document | None

    @property
    def is_over(self) -> bool:
        """Return whether the run has ended here, so that its part will not change."""
        return self.part is not None or self.run.state in OVER


@dataclass(frozen=True)
class _Reading:
    """A posted task that was understood, with the place of this node in it."""

    terms: PostedTask
    language: Language
    dialect: Dialect
    place: int
    names: tuple[str, ...]
    ours: ParleyTest


class Participating:
    """Answers leads from outside."""

    def __init__(self, node: NodeService) -> None:
        """Use the services of a node that is complete."""
        self._node = node
        self._database = node.database
        self._clock = node.clock
        self._versions = Versions(node.tool_runner)
        self._locks: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    # The tools

    def offers(self, test: Document) -> list[Offer]:
        """Return the tools for a test, and why some do not measure it here.

        A test of several participants is measured in a dialect that all of them understand, any
        other one by the tools of this host.

        :raises Refusal: 400, the test is not valid.
        """
        language = LANGUAGES.get(str(test.get("type")))
        if language is None:
            return []
        spec = test.get("spec")
        language.check(spec)
        if not isinstance(spec, dict):
            raise invalid("Test has no specification.")
        dialects = dialects_of(language.name)
        names = _distinct_names(
            [without_port(name or "lead") for name in language.participants(spec).names]
        )
        try:
            ours = language.to_parley(spec, names)
        except Refusal as refusal:
            return [Offer(each.tool, (refusal.text,)) for each in dialects]
        if dialects:
            return [self._offer(each, spec, ours) for each in dialects]
        return [
            Offer(name, self._obstacles(ours, name, ours.spec))
            for name in self._node.capabilities.offered_tools(ours.type)
        ]

    def _offer(self, dialect: Dialect, spec: Document, ours: ParleyTest) -> Offer:
        if (reason := dialect.obstacle(spec)) is not None:
            return Offer(dialect.tool, (reason,))
        adapted = dialect.adapted_spec(ours.spec)
        return Offer(dialect.tool, self._obstacles(ours, dialect.own, adapted))

    def _obstacles(self, ours: ParleyTest, tool: str, spec: Document) -> tuple[str, ...]:
        """Return why this host does not measure a test with a tool of ours; empty if it does."""
        if ours.tools and tool not in ours.tools:
            return (f"{tool} is not used for such a spec",)
        capabilities = self._node.capabilities
        try:
            parsed = capabilities.spec(capabilities.test(ours.type), spec)
        except InvalidDocument as error:
            return (error.detail,)
        offered, lacks = capabilities.offers(ours.type, parsed, (tool,), foreign=True)
        return () if offered else (lacks.get(tool, f"{tool} is not known here"),)

    # The task

    async def introduce(self, task: UUID, place: int, address: str, document: Document) -> None:
        """Take part in a task that a lead at an address has posted.

        :raises Refusal: this node does not take part; says why.
        """
        lead = outside_identity(address)
        if not is_outside(lead):
            raise Refusal(_FORBIDDEN, f"{address} is no address of a lead.")
        reading = self._parse_posted(place, document, address)
        introduction = self._introduction_of(task, lead, reading)
        async with self._database.connection() as connection:
            if await tasks.fetch(connection, task) is not None:
                raise invalid(_HERE_ALREADY)
        document, key = _without_participants(reading.terms.document), reading.terms.key
        texts = stored_texts(self._node.core.sealing, document, key)
        detail = self._told_detail(introduction, reading, address)
        record = PostedRecord(task, texts.document, texts.secret, detail, place, texts.key, address)

        async def keep(connection: Connection, stored: StoredTask) -> None:
            if await pscheduler.fetch(connection, [stored.id]):  # it came twice at the same time
                raise invalid(_HERE_ALREADY)
            await pscheduler.keep(connection, record)

        await self._accept(lead, introduction, keep)

    def _told_detail(self, introduction: Introduction, reading: _Reading, address: str) -> Document:
        language = reading.language
        spec = told_spec(language.name, reading.terms.spec)
        spoken = Spoken(language.name, spec, tuple(language.words(spec)), language)
        written = [name or address for name in language.participants(spec).names]
        terms = terms_of(introduction)
        hints = {"requester": address}
        detail = documents.static_detail(terms, spoken, written, hints, documents.NO_LIMITS)
        return {**detail, "participant": reading.place}

    async def _accept(self, lead: str, introduction: Introduction, along: StoreAlong) -> None:
        try:
            answer = await self._node.acceptance.consider(lead, introduction, along)
        except TooManyRequests as error:
            raise Refusal(_FORBIDDEN, f"Task forbidden by limits:\n{error.detail}") from None
        except InvalidDocument as error:
            raise invalid(f"Task error: {error.detail}") from None
        except Conflict as error:
            raise invalid(f"Task error: {error.detail}") from None
        if answer.accepted:
            return
        if answer.limit is not None:
            raise Refusal(_FORBIDDEN, f"Task forbidden by limits:\n{answer.reason}")
        raise impossible(f"{self._node.settings.name} does not take part: {answer.reason}")

    def _parse_posted(self, place: int, document: Document, address: str) -> _Reading:
        """Return what a posted task asks for.

        :raises Refusal: it is not valid, or this node cannot do it.
        """
        terms = posted.read(document, self._clock.now())
        language = LANGUAGES.get(terms.test)
        if language is None:
            raise impossible(f'No test "{terms.test}" is available.')
        tool = terms.document.get("tool")
        dialect = DIALECTS.get(str(tool))
        if dialect is None or language.name not in dialect.tests:
            spoken = ", ".join(each.tool for each in dialects_of(language.name)) or "none"
            raise impossible(
                f"This node cannot measure {language.name} together with others by {tool}; tools "
                f"for that here: {spoken}."
            )
        language.check(terms.spec)
        names = self._participant_names(language, terms, place, address)
        ours = language.to_parley(terms.spec, names)
        if (reason := dialect.obstacle(terms.spec)) is not None:
            raise impossible(f"{reason}.")
        return _Reading(terms, language, dialect, place, names, ours)

    def _participant_names(
        self, language: Language, terms: PostedTask, place: int, address: str
    ) -> tuple[str, ...]:
        """Return the participants by name: this node's own, and those of the others as written.

        :raises Refusal: this node has no such place among them.
        """
        names = language.participants(terms.spec).names
        if not 1 <= place < len(names):
            raise invalid(
                f"Task error: Participant {place} is not one of the {len(names)} of the test, of "
                "which 0 is its lead."
            )
        written = [without_port(name or address) for name in names]
        written[place] = self._node.settings.name
        return tuple(_distinct_names(written, keep=place))

    def _introduction_of(self, task: UUID, lead: str, reading: _Reading) -> Introduction:
        node, ours, dialect, terms = self._node, reading.ours, reading.dialect, reading.terms
        spec = dialect.adapted_spec(ours.spec)
        test = node.capabilities.test(ours.type)
        parsed = node.capabilities.spec(test, spec)
        own_duration = node.capabilities.duration_with(ours.type, dialect.own, spec)
        now = self._clock.now()
        introduction = Introduction(
            task=task,
            test=ours.type,
            spec=parsed.model_dump(mode="json"),
            tools=(dialect.own,),
            tool=dialect.own,
            scheduling_class=test.scheduling_class(parsed),
            duration=rounded_up(max(reading.language.duration(terms.spec), own_duration)),
            priority=terms.priority,
            participants=self._participants(lead, reading),
            participant=reading.place,
            addresses={},
            schedule=terms.schedule.at(now),
            campaign=node.settings.pscheduler_campaign,
            reference=terms.reference,
            created_at=now,
        )
        if not schedule_faults(introduction):
            return introduction
        # Its lead chooses the times, and ours is for people alone.
        repeats = terms.schedule.repeat is not None or terms.schedule.cron is not None
        rough = Schedule(repeat=max(times.DAY, introduction.duration) if repeats else None)
        return introduction.model_copy(update={"schedule": rough})

    def _participants(self, lead: str, reading: _Reading) -> tuple[Participant, ...]:
        """Return the participants: the lead, this node, and others, of which nothing is known."""
        own, names = self._node.card, reading.names
        addresses = reading.ours.addresses
        contexts = posted.contexts_by_participant(reading.terms, names)
        listed = [
            Participant(
                node=lead if at == 0 else f"{lead}#{at}",
                name=name,
                url=None,
                address=addresses.get(name, name),
            )
            for at, name in enumerate(names)
        ]
        name = names[reading.place]
        where = addresses.get(name)
        listed[reading.place] = Participant(
            node=own.identity,
            name=name,
            url=own.url,
            address=where if where is not None and _is_own(where) else name,
            context=contexts.get(name),
            accepted=True,
        )
        return tuple(listed)

    async def task(self, task: UUID, *, key: str | None, address: str) -> LedTask:
        """Return a task that a caller may change: with its key, or its lead if it has none.

        :raises Refusal: 404, it is not led from outside; or 403.
        """
        found = await self.find(task)
        if found is None:
            raise Refusal(_NOT_FOUND, "No such task.")
        if not may_change(self._node.core.sealing, found.record, key, address):
            raise Refusal(_FORBIDDEN, "Task belongs to another lead, or the key is wrong.")
        return found

    async def find(self, task: UUID) -> LedTask | None:
        """Return a task that is led from outside; None if it is not known, or another one."""
        async with self._database.connection() as connection:
            stored = await tasks.fetch(connection, task)
            record = (await pscheduler.fetch(connection, [task])).get(task)
        if stored is None or record is None or not is_outside(stored.lead):
            return None
        document = whole_document(self._node.core.sealing, record)
        if document is None:
            return None
        participants = tuple(record.detail["participants"])
        return LedTask(stored, document, participants, record)

    async def end(self, task: LedTask) -> None:
        """End a task: its future runs, and those under way."""
        stored = task.stored
        reason = f"cancelled by its lead, {lead_in_words(stored.lead)}"
        end = TaskEnd(task=stored.id, state=TaskState.CANCELLED, reason=reason)
        await self._node.termination.apply_task_end(stored.lead, end)

    # Its runs

    async def runtimes(self, task: LedTask, asked: Span, *, displacing: bool) -> list[Span]:
        """Return the ranges of whole seconds within a span in which a run can take place.

        A lead that is offered nothing tells its operator nothing but that. So what a limit, or a
        suspended campaign, forbids is offered, and :meth:`hold` refuses it in words.

        :raises Refusal: 404, the task is over here.
        """
        terms = self._require_open(task).terms
        first = max(asked[0], self._clock.now())
        window = (-(-first // times.SECOND) * times.SECOND, asked[1])
        if window[1] - window[0] < terms.duration:
            return []
        if await self._suspension_reason(task.stored) is not None:
            return [window]
        request = ProposalRequest(
            task=task.stored.id,
            lease_epoch=0,
            scheduling_class=terms.scheduling_class,
            duration=terms.duration,
            priority=terms.priority,
            windows=(window,),
            test=terms.test,
            campaign=terms.campaign,
        )
        proposal = await self._node.time_line.propose(task.stored.lead, request)
        free = proposal.free
        if displacing and proposal.free_displacing is not None:
            free = proposal.free_displacing
        ways = proposal.obstacles
        if not (free or proposal.free_displacing) and ways and all(map(_is_limit, ways)):
            free = (window,)
        return [span for each in free if (span := _whole_seconds(each, terms.duration)) is not None]

    async def _suspension_reason(self, stored: StoredTask) -> str | None:
        """Return the suspended campaign because of which a task books nothing new, if there is one.

        Here the campaign is this node's own word, not that of the lead.
        """
        async with self._database.connection() as connection:
            listed = await campaigns.find_all(connection)
        known = {each.settings.name: each.settings for each in listed}
        return suspended_in(stored.terms.campaign or DEFAULT, known)

    def _require_open(self, task: LedTask) -> StoredTask:
        stored = task.stored
        if stored.state not in OPEN:
            why = stored.reason or "its schedule is over"
            raise Refusal(_NOT_FOUND, f"The task is {stored.state} here: {why}")
        return stored

    async def hold(self, task: LedTask, run: UUID, start: int) -> None:
        """Book a run that starts at an instant (whole seconds), until its lead commits it.

        :raises Refusal: 409, there is no time for it; 403, a limit forbids it, which no other time
            may change, so that leads tell why and do not try again.
        """
        stored = self._require_open(task)
        if (suspended := await self._suspension_reason(stored)) is not None:
            raise Refusal(_FORBIDDEN, f"Run is not booked here: campaign {suspended} is suspended.")
        async with self._lock_of(stored.id):
            async with self._database.connection() as connection:
                known = await outside.fetch(connection, stored.id, run)
                count, busy = await outside.count_attempts(connection, stored.id, start)
                standing = (await bookings.task_standings(connection, [stored.id]))[stored.id]
            if known is not None and known.starts_at == start and known.state not in OVER:
                return
            if known is not None or busy:
                raise Refusal(_CONFLICT, "Run would create a scheduling conflict with another one.")
            epoch = max(self._clock.now(), standing[2] + 1)
            wanted = RunRequest(
                run=run,
                slot=start,
                attempt=count + 1,
                starts_at=start,
                ends_at=start + stored.terms.duration,
                displacing=_PRIORITY_KEY in task.posted,
            )
            request = HoldRequest(
                task=stored.id,
                generation=_GENERATION,
                lease_epoch=epoch,
                revision=stored.terms.revision,
                tool=task.dialect.own,
                priority=stored.terms.priority,
                life=LIFE_MAX,
                runs=(wanted,),
            )
            exchange = exchange_id(TaskId(stored.id), epoch)
            await self._book(exchange, stored.lead, request)

    async def _book(self, exchange: UUID, lead: str, request: HoldRequest) -> None:
        """Hold the one run of a request.

        :raises Refusal: 409 or 403, with the reason; then nothing of it is left.
        """
        try:
            answer = await self._node.time_line.hold(exchange, lead, request)
        except (Conflict, InvalidDocument) as error:
            raise Refusal(_CONFLICT, f"Run would create a conflict: {error.detail}") from None
        if answer.held:
            return
        release = Release(task=request.task, lease_epoch=request.lease_epoch)
        await self._node.time_line.release(exchange, release, lead)
        [refused] = answer.refused or (None,)
        if refused is not None and _is_limit(refused.obstacle):
            raise Refusal(_FORBIDDEN, f"Run is not booked here: {refused.reason}")
        reason = "its time was just taken" if refused is None else refused.reason
        raise Refusal(_CONFLICT, f"Run would create a scheduling conflict: {reason}")

    def _lock_of(self, task: UUID) -> asyncio.Lock:
        """Return the lock of a task; its holds are made in turn, each with a higher lease epoch."""
        lock = self._locks.get(task)
        if lock is None:
            lock = self._locks[task] = asyncio.Lock()
        return lock

    async def commit(self, task: LedTask, run: UUID, data: Sequence[Any]) -> None:
        """Commit a held run, with the data of all participants in their order.

        :raises Refusal: it is not held any more, or the data cannot be used.
        """
        found = await self._require_run(task, run)
        participants = task.stored.terms.participants
        if len(data) != len(participants):
            raise invalid(
                f"Participant data is of {len(data)} participants, not of {len(participants)}."
            )
        understood = {
            str(place): task.dialect.command_data(place, _object(each))
            for place, each in enumerate(data)
            if place != task.place
        }
        understood[str(task.place)] = found.held
        request = CommitRequest(runs=(run,), data=understood)
        lead = task.stored.lead
        answer = await self._node.time_line.commit(found.exchange, request, lead)
        kept = None if answer.late else await self._fetch(task, run)
        if kept is None:
            raise Refusal(_NOT_FOUND, await self._absence_reason(task, run))
        if kept.state in _LOST:
            # It gave way while it was held. Its lead is told now, while it can still choose.
            await self.release(task, run)
            why = kept.reason or "it gave way to a run of higher priority"
            raise Refusal(_CONFLICT, f"Run is in conflict by now: {why}.")
        async with self._database.transaction() as connection:
            await outside.keep_part_data(connection, run, json.dumps(list(data)))

    async def release(self, task: LedTask, run: UUID) -> None:
        """Give a run up: release its hold, or end it; repeating is harmless.

        :raises Refusal: 404, there is no such run.
        """
        found = await self._require_run(task, run)
        lead = task.stored.lead
        if found.is_held:
            request = Release(task=task.stored.id, lease_epoch=found.lease_epoch)
            await self._node.time_line.release(found.exchange, request, lead)
            return
        reason = f"cancelled by its lead, {lead_in_words(lead)}"
        end = RunEnd(run=run, state=RunState.CANCELLED, reason=reason)
        await self._node.termination.apply_run_end(lead, end)

    async def run(self, task: LedTask, run: UUID) -> LedRun:
        """Return this node's part of a run.

        :raises Refusal: 404, it is not known, or not any more; says why.
        """
        found = await self._require_run(task, run)
        async with self._database.connection() as connection:
            own = [
                each
                for each in await runs.parts(connection, run)
                if each.participant == found.participant
            ]
        held = found.held or {"port": task.spec.get("port", 0)}
        version = await self._versions.of(self._node.capabilities.tools[task.dialect.own])
        data = task.dialect.data(found.participant, held, version)
        return LedRun(task, found, data, self._part_document(task, own[0]) if own else None)

    @staticmethod
    def _part_document(task: LedTask, part: KeptPart) -> Document:
        outcome = PartOutcome(part.name, part.command, part.output, part.result, part.reason)
        return task.dialect.told_part(part.participant, task.spec, outcome)

    async def _fetch(self, task: LedTask, run: UUID) -> OutsideRun | None:
        async with self._database.connection() as connection:
            return await outside.fetch(connection, task.stored.id, run)

    async def _require_run(self, task: LedTask, run: UUID) -> OutsideRun:
        found = await self._fetch(task, run)
        if found is None:
            raise Refusal(_NOT_FOUND, await self._absence_reason(task, run))
        return found

    async def _absence_reason(self, task: LedTask, run: UUID) -> str:
        async with self._database.connection() as connection:
            dropped = await outside.dropped_hold(connection, task.stored.id, run)
        if dropped is None:
            return "No such run."
        decided_at, expires_at = dropped
        if decided_at < expires_at:
            return "Run was deleted by its lead."
        return (
            f"Run was held until {times.to_the_second(expires_at)} and dropped then, because its "
            "lead sent no part-data-full."
        )


def _without_participants(document: Document) -> Document:
    """Return a posted task as it is shown: its participants stand in its details."""
    return {name: value for name, value in document.items() if name != "participants"}


def _is_limit(obstacle: object) -> bool:
    """Return whether what is in the way of a run is a limit of the owner's, and no other run."""
    return isinstance(obstacle, AboveShare | HostLimit | LimitReached)


def _object(value: object) -> Document:
    return value if isinstance(value, dict) else {}


def _whole_seconds(span: Span, duration: int) -> Span | None:
    """Return the whole seconds inside a span; None if they leave no time for a run."""
    start = -(-span[0] // times.SECOND) * times.SECOND
    end = span[1] // times.SECOND * times.SECOND
    return (start, end) if end - start >= duration else None


def _is_own(address: str) -> bool:
    """Return whether this host has an address, so that a program can listen there."""
    found = literal(address)
    if found is None:
        return False
    return is_loopback(found) or netlink.has_address(found)


def _distinct_names(names: Sequence[str], keep: int | None = None) -> list[str]:
    """Return names that are all different: equal ones but the kept one are numbered."""
    taken: set[str] = set() if keep is None else {names[keep]}
    distinct = []
    for at, name in enumerate(names):
        if at != keep and name in taken:
            distinct.append(f"{name}-{at}")
        else:
            distinct.append(name)
        taken.add(distinct[-1])
    return distinct
