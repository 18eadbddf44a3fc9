"""Acceptance of introduced tasks: whether this host takes part, and the task it then stores.

A peer is known, and yet not trusted with this host's disk and time: the number of its tasks and the
rate of new ones are limited, and each task must agree with its own spec.

An introduction is assessed without a lock first, since that may read a card or ask a name server,
and then applied in a transaction that locks the task, and the lead for a new one. Introductions may
come late, twice, and in any order: one with an older revision than the stored one changes no terms.
What its lead has freed is freed in any case, even if the change is refused, as the lead has given
up these runs already. A host that refuses new terms keeps the old revision, and so refuses holds
under the new one.

Introductions that come at the same time share a transaction if all of their tasks are new; the
locks are then taken in the order of the leads' keys, so that two transactions cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog

from node.execution.catalog import Capabilities
from node.execution.spec_secrets import SpecSecrets
from node.execution.targets import ForeignTargets, mere_targets
from node.model import times
from node.model.contexts import Context, parse
from node.model.errors import (
    Conflict,
    InvalidDocument,
    LimitUsedUp,
    ParleyError,
    TooManyRequests,
    UnknownPeer,
)
from node.model.host_limits.caps import CapAccount
from node.model.host_limits.closed import LimitedTime
from node.model.host_limits.standing import LimitStanding
from node.model.introduction_limits import duration_refusal, schedule_faults
from node.model.outside_leads import is_outside
from node.model.rates import RateLimit
from node.model.reason import Reason
from node.model.reasons import (
    addressed_to_another,
    booked_runs_count_elsewhere,
    booked_runs_have_no_room,
    class_differs_here,
    introduced_too_fast,
    no_such_participant,
    no_tool_for_test,
    outsider_measures_strangers,
    participants_not_of_spec,
    resource_not_kept,
    resource_too_small,
    task_of_another_lead,
    task_over_here,
)
from node.model.task_terms import terms_of
from node.model.taskstate import OPEN, TaskState
from node.model.wire.host_limits import TaskLimit, TaskRoom
from node.model.wire.participants import FreedRuns, Introduction, IntroductionAnswer
from node.plugins.contracts import Test
from node.runtime.batching import Batcher
from node.sharing.host_limits import TASKS_RETRY_S, Judgement, LimitKeeper
from node.store import bookings, changes, host_limits, nodes, notices, tasks
from node.store.core import Core
from node.store.database import Connection
from node.store.tasks import StoreAlong, StoredTask

log = structlog.get_logger()

_BURST_S = 5
"""Seconds of the permitted rate that may come at once, for example when a mesh is applied."""


RefusalOfEdit = Callable[[Connection, str, UUID, LimitStanding], Awaitable[LimitedTime | None]]
"""``refusal(connection, lead, task, standing)``: the limit without room for the task's runs."""


@dataclass(frozen=True)
class _Assessment:
    """The assessment of an introduction before it is stored: a refusal, or its tools.

    ``judged`` is what its limits make of another node's task.
    """

    reason: str | None = None
    tools: tuple[str, ...] = ()
    lacks: Mapping[str, str] = field(default_factory=dict)
    judged: Judgement | None = None

    def answer(self, reason: str | None) -> IntroductionAnswer:
        """Return the answer to the lead; ``reason`` is why the task is refused, if it is."""
        if reason is None:
            return IntroductionAnswer(accepted=True, tools=self.tools, lacks=dict(self.lacks))
        limit = self.judged.refusal if self.judged and self.reason == reason else None
        limit_on_wire = None if limit is None else TaskLimit(**vars(limit))
        return IntroductionAnswer(accepted=False, reason=reason[:1000], limit=limit_on_wire)


@dataclass(frozen=True)
class _Introduced:
    """An introduction by another node, with this host's assessment of it.

    ``misplaced`` says which address is not that of a participant's card. ``along`` stores what else
    belongs to the task.
    """

    lead: str
    introduction: Introduction
    assessment: _Assessment
    misplaced: str | None
    along: StoreAlong | None = None


@dataclass
class _Room:
    """The number of open tasks of a lead here, and of those under its rules that were counted."""

    lead: str
    open: int
    under: dict[str, int] = field(default_factory=dict)
    capped: dict[CapAccount, int] = field(default_factory=dict)


class _SomeKnown(Exception):
    """One of several introduced tasks is known here: each has to be applied alone."""


class Acceptance:
    """Accepts or refuses the tasks that other leads introduce to this node, and stores these."""

    def __init__(  # noqa: PLR0913, PLR0917 - an introduction is checked by each of them
        self,
        core: Core,
        capabilities: Capabilities,
        context_refusal: Callable[[Context], Reason | None],
        targets: ForeignTargets,
        limits: LimitKeeper,
        refusal_of_edit: RefusalOfEdit,
        read_card: Callable[[str], Awaitable[None]],
    ) -> None:
        """``context_refusal(context)`` returns why nobody can measure from there, or None.

        ``refusal_of_edit`` returns what has no room for the booked runs of an edited task.

        ``read_card(identity)`` reads the card of a known node now.
        """
        self._context_refusal = context_refusal
        self._targets = targets
        self._limits = limits
        self._refusal_of_edit = refusal_of_edit
        self._read_card = read_card
        self._database = core.database
        self._clock = core.clock
        self._capabilities = capabilities
        self._secrets = SpecSecrets(core, capabilities)
        self._identity = core.identity
        self._tasks_max = core.settings.peer_tasks
        per_s = core.settings.peer_introductions
        self._new_tasks = RateLimit(times.SECOND // per_s, _BURST_S * per_s)
        self._introductions: Batcher[_Introduced, tuple[StoredTask | None, str | None]] = Batcher(
            self._apply_all, apart=lambda each: [each.introduction.task], at_once=2
        )

    async def consider(
        self, lead: str, introduction: Introduction, along: StoreAlong | None = None
    ) -> IntroductionAnswer:
        """Check that this host can do its part, and store the task if it can.

        Runs that the lead has freed are freed here in any case, even if the change is refused.
        ``along`` is called in the transaction that stores a task of another node.

        :raises Conflict: a newer revision of the task is known here.
        :raises InvalidDocument: its schedule cannot be read, or leaves no room for its runs.
        :raises TooManyRequests: the lead has as many tasks here as it may, or adds them too fast.
        """
        introduction = self._with_sealed_secrets(lead, introduction)
        assessment = await self._assessment(lead, introduction)
        known, reason = None, assessment.reason
        if lead != self._identity:
            misplaced = None if reason else await self._address_mismatch(lead, introduction)
            introduced = _Introduced(lead, introduction, assessment, misplaced, along)
            known, reason = await self._introductions.ask(introduced)
        if (
            known is not None
            and known.lead == lead
            and known.terms.revision > introduction.revision
        ):
            msg = (
                f"task {introduction.task} has been changed since revision "
                f"{introduction.revision}: {known.terms.revision} is known here"
            )
            raise Conflict(msg)
        answer = assessment.answer(reason or _update_refusal(lead, known))
        if not answer.accepted and lead != self._identity:
            task = str(introduction.task)
            log.info("task not accepted", lead=lead, task=task, reason=answer.reason)
        return answer

    async def _apply_all(
        self, several: Sequence[_Introduced]
    ) -> list[tuple[StoredTask | None, str | None] | ParleyError]:
        """Apply introductions that came together; in one transaction only if all tasks are new."""
        if len(several) == 1:
            return [
                await self._database.settle(lambda connection: self._apply(connection, *several))
            ]
        return await self._database.settle(lambda connection: self._store_new(connection, several))

    async def _store_new(
        self, connection: Connection, several: Sequence[_Introduced]
    ) -> list[tuple[StoredTask | None, str | None] | ParleyError]:
        """Store the new tasks of several introductions in one transaction.

        :raises _SomeKnown: one of them is known here.
        """
        if await tasks.fetch_all(connection, [each.introduction.task for each in several]):
            raise _SomeKnown
        wanted = [each for each in several if _refusal(each, None) is None]
        leads = sorted({each.lead for each in wanted})  # everybody locks them in this order
        capped: dict[CapAccount, int] = {}  # for all leads together
        rooms = {lead: await self._read_room(connection, lead, capped) for lead in leads}
        caps = [
            it for each in wanted if each.assessment.judged for it in each.assessment.judged.caps
        ]
        await self._limits.lock_caps(connection, caps)
        kept: list[tuple[StoredTask, LimitStanding]] = []
        full: dict[UUID, TooManyRequests] = {}
        for each in wanted:
            try:
                await self._count_new_task(connection, rooms[each.lead], each.assessment.judged)
                task = stored_task(each.introduction, each.lead)
                kept.append((task, _standing_of(each.assessment.judged)))
            except TooManyRequests as error:
                full[each.introduction.task] = error
        await tasks.keep_all(connection, kept)
        await _store_along(connection, [it for it in wanted if it.introduction.task not in full])
        for introduction in (each.introduction for each in wanted):
            if introduction.paused_at is not None:
                revisions = {introduction.task: introduction.revision}
                await changes.set_standing(connection, revisions, introduction.paused_at)
        return [
            full.get(each.introduction.task) or (None, _refusal(each, None)) for each in several
        ]

    async def _apply(
        self, connection: Connection, introduced: _Introduced
    ) -> tuple[StoredTask | None, str | None] | TooManyRequests:
        """Apply the lead's introduction, unless this host refuses it.

        Returns the task as it was known before, and why it is refused; or that changes come too
        fast.
        """
        lead, introduction, assessment = (
            introduced.lead,
            introduced.introduction,
            introduced.assessment,
        )
        task, now = introduction.task, self._clock.now()
        known = await tasks.lock(connection, task)
        reason, hurried = _refusal(introduced, known), None
        if known is not None and known.lead != lead:
            return known, reason
        if known is not None and introduction.freeing is not None:
            await self._free_runs(connection, known, introduction.freeing, now)
        if known is not None and known.terms.revision > introduction.revision:
            return known, reason
        kept = reason is None
        if kept:
            hurried = await self._admit_change(connection, introduced, known)
            kept = hurried is None
        if kept:
            await self._store(connection, stored_task(introduction, lead), known, assessment.judged)
            await _store_along(connection, [introduced])
        # A host that refuses the new terms keeps the old revision, so that it refuses a hold under
        # the new one.
        revision = introduction.revision if kept or known is None else known.terms.revision
        stands = await changes.set_standing(connection, {task: revision}, introduction.paused_at)
        if stands and known is not None:
            await notices.notify(connection, "task", task, _announced_state(introduction))
        return hurried or (known, reason)

    async def _admit_change(
        self, connection: Connection, introduced: _Introduced, known: StoredTask | None
    ) -> TooManyRequests | None:
        """Count a new or changed task; return the error if its lead changes tasks too fast.

        It is not raised: what the lead has freed with the change is freed all the same.

        :raises TooManyRequests: there is no room for it.
        """
        judged = introduced.assessment.judged
        if known is not None:
            hurried = self._rate_refusal(introduced.lead)
            if hurried is None:
                await self._count_edited_task(connection, introduced.introduction, known, judged)
            return hurried
        room = await self._read_room(connection, introduced.lead)
        await self._limits.lock_caps(connection, judged.caps if judged else ())
        await self._count_new_task(connection, room, judged)
        return None

    async def _store(
        self,
        connection: Connection,
        task: StoredTask,
        known: StoredTask | None,
        judged: Judgement | None,
    ) -> None:
        standing = _standing_of(judged)
        counted = self._limits.counted_priority(task.terms.priority, standing.rule)
        await store_task(connection, task, known, self._clock.now(), standing, counted)

    @staticmethod
    async def _read_room(
        connection: Connection, lead: str, capped: dict[CapAccount, int] | None = None
    ) -> _Room:
        """Count the open tasks of another node, which is locked until the transaction ends.

        :raises UnknownPeer: the node was removed a moment ago.
        """
        if is_outside(lead):
            await nodes.lock_outside(connection, lead)
        elif not await nodes.lock(connection, lead):
            msg = "the owner of this node has just removed the one that leads the task"
            raise UnknownPeer(msg)
        count = await tasks.count_open_of(connection, lead, None)
        return _Room(lead, count, capped={} if capped is None else capped)

    async def _count_new_task(
        self, connection: Connection, room: _Room, judged: Judgement | None
    ) -> None:
        """Count a new task of another node.

        :raises LimitUsedUp: it has as many tasks here as its rule allows.
        :raises TooManyRequests: it has as many tasks here as it may, or adds them too fast.
        """
        _require_room(await self._find_rooms(connection, room, judged))
        self._new_tasks.wait(room.lead, self._clock.monotonic())
        room.open += 1
        for counted, key in _counts(room, judged):
            if key in counted:
                counted[key] += 1

    async def _find_rooms(
        self, connection: Connection, room: _Room, judged: Judgement | None
    ) -> list[TaskRoom]:
        """Return what bounds the tasks of another node, in the order in which it refuses one."""
        used, most, step = self._new_tasks.used(room.lead, self._clock.monotonic())
        rooms = [TaskRoom(kind="lead", used=room.open, most=self._tasks_max)]
        rooms += await self._rooms_under(connection, room, judged)
        rooms.append(TaskRoom(kind="rate", used=used, most=most, step=step))
        if judged is not None:
            rooms += await self._limits.rooms_of_caps(connection, judged.caps, room.capped)
        return rooms

    def _rate_refusal(self, lead: str) -> TooManyRequests | None:
        """Count a new or changed task of another node; return the error if they come too fast."""
        wait = self._new_tasks.wait(lead, self._clock.monotonic())
        if not wait:
            return None
        retry_s = -(-wait // times.SECOND)
        return TooManyRequests(introduced_too_fast(retry_s), retry_s)

    async def _count_edited_task(
        self,
        connection: Connection,
        introduction: Introduction,
        known: StoredTask,
        judged: Judgement | None,
    ) -> None:
        """Count a known task of another node, and its runs, under what an edit brings it.

        Runs that were booked with another spec keep that, and what they count for; their addresses
        are those of the task.

        :raises LimitUsedUp: there is no room for the task under its rule, or for its runs.
        """
        if judged is None or judged.rule is None:
            return
        rule, terms = judged.rule, known.terms
        if rule.tasks_max is not None:
            await nodes.lock(connection, known.lead)  # before the caps, as for a new task
        await self._limits.lock_caps(connection, judged.caps)
        stood = (await self._limits.standings(connection, [known.id])).get(known.id)
        counted = set() if stood is None else {it[:2] for it in stood.caps}
        new = [it for it in judged.caps if it[:2] not in counted]
        _require_room(await self._limits.rooms_of_caps(connection, new, {}))
        if stood is None or stood.rule != rule.name:
            _require_room(await self._rooms_under(connection, _Room(known.lead, 0), judged))
        if self._limits.counts_named_targets and _changes_addresses(introduction, known):
            keeping = (introduction.spec, introduction.tool) != (terms.spec, terms.tool)
            if await host_limits.has_booked_runs(connection, known.id, own_spec=not keeping):
                raise LimitUsedUp(booked_runs_count_elsewhere(), TASKS_RETRY_S)
        refusal = await self._refusal_of_edit(connection, known.lead, known.id, judged.standing)
        if refusal is not None:
            raise LimitUsedUp(booked_runs_have_no_room(refusal.why), TASKS_RETRY_S)

    @staticmethod
    async def _rooms_under(
        connection: Connection, room: _Room, judged: Judgement | None
    ) -> list[TaskRoom]:
        rule = judged.rule if judged else None
        if rule is None or rule.tasks_max is None:
            return []
        if rule.name not in room.under:
            room.under[rule.name] = await tasks.count_open_of(connection, room.lead, rule.name)
        used = room.under[rule.name]
        return [TaskRoom(kind="rule", name=rule.name, used=used, most=rule.tasks_max)]

    async def _free_runs(
        self, connection: Connection, known: StoredTask, freeing: FreedRuns, now: int
    ) -> None:
        await changes.raise_epochs(connection, {known.id: freeing.before_epoch})
        freed = await changes.free_part(connection, known.id, freeing, now)
        lost = await bookings.restore(connection, list(freed), now)
        await bookings.tell_leads(connection, lost, now)
        for run, stopped in freed.items():
            if stopped:
                await notices.notify(connection, "run", run, known.id, "cancelled")

    async def judge(self, lead: str, introduction: Introduction) -> IntroductionAnswer:
        """Return the answer to an introduction of a new or changed task, without storing it.

        :raises TooManyRequests: the lead has as many tasks here as it may.
        """
        introduction = self._with_sealed_secrets(lead, introduction)
        async with self._database.connection() as connection:
            known = await tasks.fetch(connection, introduction.task)
        assessment = await self._assessment(lead, introduction)
        reason = assessment.reason
        rooms: list[TaskRoom] = []
        if reason is None and lead != self._identity:
            misplaced = await self._address_mismatch(lead, introduction)
            reason = _address_refusal(introduction, known, misplaced)
            if reason is None and known is None:
                rooms = await self._find_rooms_unlocked(lead, assessment.judged)
                _require_room(rooms)
        answer = assessment.answer(reason or _update_refusal(lead, known))
        told = tuple(rooms) if introduction.rooms else None
        return answer.model_copy(update={"rooms": told})

    async def _find_rooms_unlocked(self, lead: str, judged: Judgement | None) -> list[TaskRoom]:
        """Return what bounds the tasks of another node; nothing is locked."""
        async with self._database.connection() as connection:
            room = _Room(lead, await tasks.count_open_of(connection, lead, None))
            return await self._find_rooms(connection, room, judged)

    def _with_sealed_secrets(self, lead: str, introduction: Introduction) -> Introduction:
        if lead == self._identity:
            return introduction
        return self._secrets.accepted_introduction(lead, introduction)

    async def _address_mismatch(self, lead: str, introduction: Introduction) -> str | None:
        """Return why a participant's address is not that of its card, which is read again first.

        The lead may have read a changed card that was not read here yet. One from outside knows no
        cards; whether what it names is an address of this host was seen when its task was read.
        """
        if is_outside(lead) or introduction.participant is None:
            return None
        found = self._targets.find_misaddressed(introduction.participants)
        if found is not None:
            await self._read_card(found[0])
            found = self._targets.find_misaddressed(introduction.participants)
        return None if found is None else found[1]

    def _foreign_refusal(
        self, lead: str, introduction: Introduction, test: Test, spec: Any
    ) -> str | None:
        """Return why another node's task is refused here, though this node's own would not be."""
        named, introduced = len(test.participants(spec)), len(introduction.participants)
        if introduced != named:
            return participants_not_of_spec(test.name, named, introduced)
        if is_outside(lead):
            return self._outside_refusal(test, spec)
        durations = self._capabilities.durations(introduction.test, spec, introduction.tools)
        reason = duration_refusal(introduction, durations)
        if reason is not None:
            return reason
        tools = [self._capabilities.tools[name] for name in durations]
        return self._targets.refusal(lead, test, spec, tools, introduction)

    @staticmethod
    def _outside_refusal(test: Test, spec: Any) -> str | None:
        """Return why a task that is led from outside is refused here; None if it is not.

        How long its runs take was computed here, and this host only answers the other participants:
        it sends nothing by itself, and no target is chosen by somebody who has no key.
        """
        if not mere_targets(test, spec):
            return None
        return outsider_measures_strangers(test.name)

    async def _assessment(self, lead: str, introduction: Introduction) -> _Assessment:
        """Return this host's assessment of an introduction, which hosts that opted out may change.

        :raises InvalidDocument: the schedule of another node's task cannot be read.
        """
        assessment = self._own_assessment(lead, introduction)
        if assessment.reason is not None or self._targets.opt_outs is None:
            return assessment
        if introduction.participant is None:
            return assessment
        test = self._capabilities.test(introduction.test)
        spec = self._capabilities.spec(test, introduction.spec)
        participants = () if is_outside(lead) else introduction.participants
        hosts = self._targets.hosts_to_ask(test, spec, introduction.addresses, participants)
        objection = await self._targets.opt_outs.refusal(hosts)
        return assessment if objection is None else _Assessment(objection)

    def _own_assessment(self, lead: str, introduction: Introduction) -> _Assessment:
        """Return the assessment by addressee, test, spec, limits, targets, and tools; ask nobody.

        :raises InvalidDocument: the schedule of another node's task cannot be read.
        """
        foreign = lead != self._identity
        if foreign and (faults := schedule_faults(introduction)):
            raise InvalidDocument(faults)
        misplaced = self._addressing_fault(introduction) or self._resource_refusal(introduction)
        if misplaced is not None or introduction.participant is None:
            return _Assessment(misplaced)
        try:
            test = self._capabilities.test(introduction.test)
            spec = self._capabilities.spec(test, introduction.spec)
        except InvalidDocument as error:
            return _Assessment(error.detail)
        return self._assessment_of_spec(lead, introduction, test, spec)

    def _assessment_of_spec(
        self, lead: str, introduction: Introduction, test: Test, spec: Any
    ) -> _Assessment:
        foreign = lead != self._identity
        if test.scheduling_class(spec) is not introduction.scheduling_class:
            return _Assessment(class_differs_here(introduction.test, test.scheduling_class(spec)))
        judged = self._limits.judge(lead, introduction, test, spec) if foreign else None
        if judged is not None and judged.refusal is not None:
            return _Assessment(judged.refusal.reason, judged=judged)
        refusal = self._foreign_refusal(lead, introduction, test, spec) if foreign else None
        if refusal is not None:
            return _Assessment(refusal)
        offered, lacks = self._capabilities.offers(
            introduction.test,
            spec,
            introduction.tools,
            _context(introduction),
            foreign=foreign,
        )
        if not offered:
            return _Assessment(no_tool_for_test(lacks))
        # Leave out the tools that cannot measure this spec anywhere: the lead knows that itself.
        lacks = {
            n: why for n, why in lacks.items() if self._capabilities.tools[n].can(spec) is None
        }
        return _Assessment(None, offered, lacks, judged)

    def _resource_refusal(self, introduction: Introduction) -> Reason | None:
        """Return why this host cannot keep what the runs of a task take; None if it can."""
        numbers = self._limits.limits.resources
        for keeper in introduction.keepers:
            if keeper.node != self._identity:
                return addressed_to_another()
            for name, amount in keeper.takes.items():
                if name not in numbers:
                    return resource_not_kept(name, ", ".join(sorted(numbers)) or "none")
                if numbers[name] < amount:
                    return resource_too_small(amount, name, numbers[name])
        return None

    def _addressing_fault(self, introduction: Introduction) -> str | None:
        """Return why this host is not the addressed participant, or may not use its context."""
        participants = introduction.participants
        if introduction.participant is None:
            keeps = [each.node for each in introduction.keepers]
            return None if keeps == [self._identity] else addressed_to_another()
        if introduction.participant >= len(participants):
            return no_such_participant(introduction.participant)
        if participants[introduction.participant].node != self._identity:
            return addressed_to_another()
        context = _context(introduction)
        return None if context is None else self._context_refusal(context)


def _require_room(rooms: Iterable[TaskRoom]) -> None:
    """Check that all of these have room for one more task.

    :raises LimitUsedUp: a rule or a cap has none.
    :raises TooManyRequests: its lead has as many tasks here as it may, or adds them too fast.
    """
    full = next((each for each in rooms if each.lacks()), None)
    if full is None:
        return
    if full.kind in {"rule", "cap"}:
        raise LimitUsedUp(full.why_full(), TASKS_RETRY_S, full.most)
    raise TooManyRequests(full.why_full(), full.retry_s or TASKS_RETRY_S)


def _counts(
    room: _Room, judged: Judgement | None
) -> Iterator[tuple[dict[Any, int], str | CapAccount]]:
    """Yield the counts that a new task raises, each with its key."""
    if judged is None:
        return
    if judged.rule is not None:
        yield room.under, judged.rule.name
    yield from ((room.capped, account) for account in judged.caps)


async def _store_along(connection: Connection, several: Sequence[_Introduced]) -> None:
    for each in several:
        if each.along is not None:
            await each.along(connection, stored_task(each.introduction, each.lead))


def _standing_of(judged: Judgement | None) -> LimitStanding:
    return judged.standing if judged else LimitStanding()


def _refusal(introduced: _Introduced, known: StoredTask | None) -> str | None:
    """Return why an introduction is refused; ``known`` is the task as it is known here."""
    if introduced.assessment.reason is not None:
        return introduced.assessment.reason
    return _address_refusal(introduced.introduction, known, introduced.misplaced)


def _address_refusal(
    introduction: Introduction, known: StoredTask | None, misplaced: str | None
) -> str | None:
    """Return why the addresses of an introduction are refused, or None if they are not.

    Runs follow the cards, so an address only shows how old the message is. Of a task that goes on
    between the same nodes it is not asked: an edit may have waited here or there while one of them
    moved, and leads of earlier releases tell the addresses of when it was written.
    """
    if known is None or misplaced is None:
        return misplaced
    accepted = [(each.node, each.context) for each in known.terms.participants]
    introduced = [(each.node, each.context) for each in introduction.participants]
    return None if introduced == accepted else misplaced


def _context(introduction: Introduction) -> Context | None:
    """Return the context in which this host is to measure; None if none is named."""
    if introduction.participant is None:
        return None
    written = introduction.participants[introduction.participant].context
    return None if written is None else parse(written)


def _changes_addresses(introduction: Introduction, known: StoredTask) -> bool:
    """Return whether an edit gives any host that the task names another address."""
    return known.terms.addresses != introduction.addresses


def _announced_state(introduction: Introduction) -> TaskState:
    return TaskState.ACTIVE if introduction.paused_at is None else TaskState.PAUSED


def _update_refusal(lead: str, known: StoredTask | None) -> str | None:
    """Return why an introduction cannot update the task known here, or None if it can."""
    if known is None:
        return None
    if known.lead != lead:
        return task_of_another_lead(known.id)
    if known.state not in OPEN:
        return task_over_here(known.state, known.reason)
    return None


async def store_task(
    connection: Connection,
    task: StoredTask,
    known: StoredTask | None,
    now: int,
    limit: LimitStanding | None = None,
    counted_priority: int | None = None,
) -> None:
    """Write the new version of a task; booked runs keep the spec and tool of their booking.

    ``limit`` is how the task stands with the limits of this host, and ``counted_priority`` as what
    the priority of another node's task counts here.
    """
    if known is not None and (task.terms.spec, task.terms.tool) != (
        known.terms.spec,
        known.terms.tool,
    ):
        await changes.keep_booked_terms(connection, task.id)
    await tasks.keep(connection, task, limit)
    if known is not None and task.terms.priority != known.terms.priority:
        counted = task.terms.priority if counted_priority is None else counted_priority
        await changes.reprioritise(connection, task.id, counted, now)


def stored_task(introduction: Introduction, lead: str) -> StoredTask:
    """Return the record that this node stores of an introduced task, in the state active."""
    return StoredTask(
        id=introduction.task,
        lead=lead,
        state=TaskState.ACTIVE,
        terms=terms_of(introduction),
        participant=introduction.participant,
        pool_task=introduction.pool_task,
    )
