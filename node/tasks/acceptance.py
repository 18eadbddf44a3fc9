"""Acceptance of introduced tasks: whether this host takes part, and the task it then stores.

A peer is known, and yet not trusted with this host's disk and time: the number of its tasks and the
rate of new ones are limited, and each task must agree with its own spec.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog

from node.batching import Batcher
from node.capability.catalog import Capabilities
from node.core import Core
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
from node.model.host_limits.closed import LimitedTime
from node.model.host_limits.standing import LimitStanding
from node.model.introduction_limits import duration_refusal, schedule_faults
from node.model.outside_leads import is_outside
from node.model.rates import RateLimit
from node.model.task_terms import terms_of
from node.model.taskstate import OPEN, TaskState
from node.model.wire.host_limits import TaskLimit
from node.model.wire.participants import FreedRuns, Introduction, IntroductionAnswer
from node.plugins.contracts import Test
from node.sharing.host_limits import TASKS_RETRY_S, Judgement, LimitKeeper
from node.store import bookings, changes, host_limits, nodes, tasks
from node.store.database import Connection
from node.store.tasks import StoredTask
from node.tasks.storing import StoreAlong

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
class _Word:
    """An introduction by another node, with what this host makes of it.

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


class _NotTogether(Exception):
    """One of several introduced tasks is known here: each is to be heard alone."""


class Acceptance:
    """Accepts or refuses the tasks that other leads introduce to this node, and stores these."""

    def __init__(  # noqa: PLR0913, PLR0917 - an introduction is checked by each of them
        self,
        core: Core,
        capabilities: Capabilities,
        context_refusal: Callable[[Context], str | None],
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
        self._identity = core.identity
        self._tasks_max = core.settings.peer_tasks
        per_s = core.settings.peer_introductions
        self._new_tasks = RateLimit(times.SECOND // per_s, _BURST_S * per_s)
        self._words: Batcher[_Word, tuple[StoredTask | None, str | None]] = Batcher(
            self._hear_all, apart=lambda word: [word.introduction.task], at_once=2
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
        assessment = self._considered(lead, introduction)
        known, reason = None, assessment.reason
        if lead != self._identity:
            misplaced = None if reason else await self._misaddressed(lead, introduction)
            word = _Word(lead, introduction, assessment, misplaced, along)
            known, reason = await self._words.ask(word)
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
        answer = assessment.answer(reason or _not_open(lead, known))
        if not answer.accepted and lead != self._identity:
            task = str(introduction.task)
            log.info("task not accepted", lead=lead, task=task, reason=answer.reason)
        return answer

    async def _hear_all(
        self, words: Sequence[_Word]
    ) -> list[tuple[StoredTask | None, str | None] | ParleyError]:
        """Apply introductions that came at the same time; several only if all tasks are new."""
        if len(words) == 1:
            return [await self._database.settle(lambda connection: self._hear(connection, *words))]
        return await self._database.settle(lambda connection: self._hear_new(connection, words))

    async def _hear_new(
        self, connection: Connection, words: Sequence[_Word]
    ) -> list[tuple[StoredTask | None, str | None] | ParleyError]:
        """Store the new tasks of several introductions in one transaction.

        :raises _NotTogether: one of them is known here.
        """
        if await tasks.fetch_all(connection, [word.introduction.task for word in words]):
            raise _NotTogether
        wanted = [word for word in words if _refusal(word, None) is None]
        leads = sorted({word.lead for word in wanted})  # everybody locks them in this order
        rooms = {lead: await self._room_of(connection, lead) for lead in leads}
        kept: list[tuple[StoredTask, LimitStanding]] = []
        full: dict[UUID, TooManyRequests] = {}
        for word in wanted:
            try:
                await self._make_room(connection, rooms[word.lead], word.assessment.judged)
                task = stored_task(word.introduction, word.lead)
                kept.append((task, _standing(word.assessment.judged)))
            except TooManyRequests as error:
                full[word.introduction.task] = error
        await tasks.keep_all(connection, kept)
        await _keep_along(connection, [it for it in wanted if it.introduction.task not in full])
        for introduction in (word.introduction for word in wanted):
            if introduction.paused_at is not None:
                revisions = {introduction.task: introduction.revision}
                await changes.stand(connection, revisions, introduction.paused_at)
        return [full.get(word.introduction.task) or (None, _refusal(word, None)) for word in words]

    async def _hear(
        self, connection: Connection, word: _Word
    ) -> tuple[StoredTask | None, str | None]:
        """Apply the lead's introduction, unless this host refuses it.

        Returns the task as it was known before, and why it is refused.
        """
        lead, introduction, assessment = word.lead, word.introduction, word.assessment
        task, now = introduction.task, self._clock.now()
        known = await tasks.lock(connection, task)
        reason = _refusal(word, known)
        if known is not None and known.lead != lead:
            return known, reason
        if known is not None and introduction.freeing is not None:
            await self._free(connection, known, introduction.freeing, now)
        if known is not None and known.terms.revision > introduction.revision:
            return known, reason
        kept = reason is None
        if kept and known is None:
            room = await self._room_of(connection, lead)
            await self._make_room(connection, room, assessment.judged)
        elif kept and known is not None:
            await self._make_room_under(connection, introduction, known, assessment.judged)
        if kept:
            await self._store(connection, stored_task(introduction, lead), known, assessment.judged)
            await _keep_along(connection, [word])
        # A host that refuses the new terms keeps the old revision, so that it refuses a hold under
        # the new one.
        revision = introduction.revision if kept or known is None else known.terms.revision
        stands = await changes.stand(connection, {task: revision}, introduction.paused_at)
        if stands and known is not None:
            await bookings.notify(connection, "task", task, _announced_state(introduction))
        return known, reason

    async def _store(
        self,
        connection: Connection,
        task: StoredTask,
        known: StoredTask | None,
        judged: Judgement | None,
    ) -> None:
        """Write the new version of another node's task."""
        standing = _standing(judged)
        counted = self._limits.counted_priority(task.terms.priority, standing.rule)
        await store_task(connection, task, known, self._clock.now(), standing, counted)

    @staticmethod
    async def _room_of(connection: Connection, lead: str) -> _Room:
        """Count the open tasks of another node, which is locked until the transaction ends.

        :raises UnknownPeer: the node was removed a moment ago.
        """
        if is_outside(lead):
            await nodes.lock_outside(connection, lead)
        elif not await nodes.lock(connection, lead):
            msg = "the owner of this node has just removed the one that leads the task"
            raise UnknownPeer(msg)
        return _Room(lead, await tasks.count_open_of(connection, lead))

    async def _make_room(
        self, connection: Connection, room: _Room, judged: Judgement | None
    ) -> None:
        """Count a new task of another node.

        :raises LimitUsedUp: it has as many tasks here as its rule allows.
        :raises TooManyRequests: it has as many tasks here as it may, or adds them too fast.
        """
        if room.open >= self._tasks_max:
            msg = (
                f"its lead has {room.open} open tasks here, and this host takes at most "
                f"{self._tasks_max} of another node (PARLEY_PEER_TASKS); end some, or ask again "
                "later"
            )
            raise TooManyRequests(msg, TASKS_RETRY_S)
        await self._require_room_under(connection, room, judged)
        wait = self._new_tasks.wait(room.lead, self._clock.monotonic())
        if wait:
            retry_s = -(-wait // times.SECOND)
            msg = (
                "its lead introduces tasks faster than this host takes them of another node "
                f"(PARLEY_PEER_INTRODUCTIONS a second); ask again in {retry_s} s"
            )
            raise TooManyRequests(msg, retry_s)
        room.open += 1
        if judged is not None and judged.rule is not None and judged.rule.name in room.under:
            room.under[judged.rule.name] += 1

    async def _make_room_under(
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
            await nodes.lock(connection, known.lead)
            stood = await self._limits.standings(connection, [known.id])
            if stood[known.id].rule != rule.name:
                room = _Room(known.lead, 0)
                await self._require_room_under(connection, room, judged)
        if self._limits.counts_named and _redirects(introduction, known):
            keeping = (introduction.spec, introduction.tool) != (terms.spec, terms.tool)
            if await host_limits.any_booked(connection, known.id, own_spec=not keeping):
                msg = "its booked runs would measure other addresses than they count for"
                raise LimitUsedUp(f"{msg}; free them first", TASKS_RETRY_S)
        refusal = await self._refusal_of_edit(connection, known.lead, known.id, judged.standing)
        if refusal is not None:
            msg = f"its booked runs have no room there: {refusal.sentence}; free them first"
            raise LimitUsedUp(msg, TASKS_RETRY_S)

    @staticmethod
    async def _require_room_under(
        connection: Connection, room: _Room, judged: Judgement | None
    ) -> None:
        rule = judged.rule if judged else None
        if rule is None or rule.tasks_max is None:
            return
        if rule.name not in room.under:
            counted = await tasks.count_open_of(connection, room.lead, rule.name)
            room.under[rule.name] = counted
        count = room.under[rule.name]
        if count >= rule.tasks_max:
            msg = (
                f"limit '{rule.name}': its lead has {count} of {rule.tasks_max} open tasks here; "
                "end some, or ask again later"
            )
            raise LimitUsedUp(msg, TASKS_RETRY_S, rule.tasks_max)

    async def _free(
        self, connection: Connection, known: StoredTask, freeing: FreedRuns, now: int
    ) -> None:
        await changes.raise_epochs(connection, {known.id: freeing.before_epoch})
        freed = await changes.free_part(connection, known.id, freeing, now)
        lost = await bookings.restore(connection, list(freed), now)
        await bookings.tell_leads(connection, lost, now)
        for run, stopped in freed.items():
            if stopped:
                await bookings.notify(connection, "run", run, known.id, "cancelled")

    async def judge(self, lead: str, introduction: Introduction) -> IntroductionAnswer:
        """Return the answer to an introduction of a new or changed task, without storing it."""
        async with self._database.connection() as connection:
            known = await tasks.fetch(connection, introduction.task)
        assessment = self._considered(lead, introduction)
        reason = assessment.reason
        if reason is None and lead != self._identity:
            misplaced = await self._misaddressed(lead, introduction)
            reason = _address_refusal(introduction, known, misplaced)
        return assessment.answer(reason or _not_open(lead, known))

    async def _misaddressed(self, lead: str, introduction: Introduction) -> str | None:
        """Return why a participant's address is not that of its card, which is read again first.

        The lead may have read a changed card that was not read here yet. One from outside knows no
        cards; whether what it names is an address of this host was seen when its task was read.
        """
        if is_outside(lead):
            return None
        found = self._targets.misaddressed(introduction.participants)
        if found is not None:
            await self._read_card(found[0])
            found = self._targets.misaddressed(introduction.participants)
        return None if found is None else found[1]

    def _foreign_refusal(
        self, lead: str, introduction: Introduction, test: Test, spec: Any
    ) -> str | None:
        """Return why another node's task is refused here, though this node's own would not be."""
        named, introduced = len(test.participants(spec)), len(introduction.participants)
        if introduced != named:
            return (
                f"{test.name} with this spec is measured by {named}, and it was introduced with "
                f"{introduced} participants; introduce it with those that the spec names"
            )
        if is_outside(lead):
            return self._outside_refusal(test, spec)
        durations = self._capabilities.durations(introduction.test, spec, introduction.tools)
        reason = duration_refusal(introduction, durations)
        if reason is not None:
            return reason
        place, participants = introduction.participant, introduction.participants
        others = [each for at, each in enumerate(participants) if at != place]
        return self._targets.refusal(lead, test, spec, others, introduction.addresses)

    @staticmethod
    def _outside_refusal(test: Test, spec: Any) -> str | None:
        """Return why a task that is led from outside is refused here; None if it is not.

        How long its runs take was computed here, and this host only answers the other participants:
        it sends nothing by itself, and no target is chosen by somebody who has no key.
        """
        if not mere_targets(test, spec):
            return None
        return (
            f"{test.name} with this spec measures hosts that take no part; a lead from outside "
            "gets this host only to measure with the participants"
        )

    def _considered(self, lead: str, introduction: Introduction) -> _Assessment:
        """Return what this host makes of an introduction by itself.

        :raises InvalidDocument: the schedule of another node's task cannot be read.
        """
        foreign = lead != self._identity
        if foreign and (faults := schedule_faults(introduction)):
            raise InvalidDocument(faults)
        misplaced = self._misplaced(introduction)
        if misplaced is not None:
            return _Assessment(misplaced)
        try:
            test = self._capabilities.test(introduction.test)
            spec = self._capabilities.spec(test, introduction.spec)
        except InvalidDocument as error:
            return _Assessment(error.detail)
        return self._judged(lead, introduction, test, spec)

    def _judged(self, lead: str, introduction: Introduction, test: Test, spec: Any) -> _Assessment:
        """Return what this host makes of an introduction whose spec it knows."""
        foreign = lead != self._identity
        if test.scheduling_class(spec) is not introduction.scheduling_class:
            return _Assessment(f"{introduction.test} is {test.scheduling_class(spec)} here")
        judged = self._limits.judge(lead, introduction, test, spec) if foreign else None
        if judged is not None and judged.refusal is not None:
            return _Assessment(judged.refusal.in_words(), judged=judged)
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
            reasons = "; ".join(f"{name}: {reason}" for name, reason in lacks.items())
            return _Assessment(reasons or "no tool is known for this test")
        # Leave out the tools that cannot measure this spec anywhere: the lead knows that itself.
        lacks = {
            n: why for n, why in lacks.items() if self._capabilities.tools[n].can(spec) is None
        }
        return _Assessment(None, offered, lacks, judged)

    def _misplaced(self, introduction: Introduction) -> str | None:
        """Return why this host is not the addressed participant, or may not use its context."""
        participants = introduction.participants
        if introduction.participant >= len(participants):
            return f"there is no participant {introduction.participant}"
        if participants[introduction.participant].node != self._identity:
            return "the introduction is addressed to another node; check its URL and key"
        context = _context(introduction)
        return None if context is None else self._context_refusal(context)


async def _keep_along(connection: Connection, words: Sequence[_Word]) -> None:
    """Store what else belongs to the tasks that were introduced."""
    for word in words:
        if word.along is not None:
            await word.along(connection, stored_task(word.introduction, word.lead))


def _standing(judged: Judgement | None) -> LimitStanding:
    """Return how an accepted task stands with the limits of this host."""
    return judged.standing if judged else LimitStanding()


def _refusal(word: _Word, known: StoredTask | None) -> str | None:
    """Return why an introduction is refused; ``known`` is the task as it is known here."""
    if word.assessment.reason is not None:
        return word.assessment.reason
    return _address_refusal(word.introduction, known, word.misplaced)


def _address_refusal(
    introduction: Introduction, known: StoredTask | None, misplaced: str | None
) -> str | None:
    """Return why the addresses of an introduction are refused, or None if they are not.

    A task that is known here with these addresses was accepted with them, so a card has changed
    since; its runs follow the cards.
    """
    if known is None or misplaced is None:
        return misplaced
    accepted = [(each.node, each.address) for each in known.terms.participants]
    introduced = [(each.node, each.address) for each in introduction.participants]
    return None if introduced == accepted else misplaced


def _context(introduction: Introduction) -> Context | None:
    """Return the context in which this participant is to measure, if one is named."""
    written = introduction.participants[introduction.participant].context
    return None if written is None else parse(written)


def _redirects(introduction: Introduction, known: StoredTask) -> bool:
    """Return whether an edit gives a host that the task names another address."""
    return known.terms.addresses != introduction.addresses


def _announced_state(introduction: Introduction) -> TaskState:
    return TaskState.ACTIVE if introduction.paused_at is None else TaskState.PAUSED


def _not_open(lead: str, known: StoredTask | None) -> str | None:
    """Return why an introduction cannot update the task known here, or None if it can."""
    if known is None:
        return None
    if known.lead != lead:
        return f"a task with the id {known.id} is led by another node"
    if known.state not in OPEN:
        return f"the task is {known.state} here: {known.reason or 'its schedule is over'}"
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
        await changes.keep_measured(connection, task.id)
    await tasks.keep(connection, task, limit)
    if known is not None and task.terms.priority != known.terms.priority:
        counted = task.terms.priority if counted_priority is None else counted_priority
        await changes.reprioritise(connection, task.id, counted, now)


def stored_task(introduction: Introduction, lead: str) -> StoredTask:
    """Return the introduced task as this node stores it."""
    return StoredTask(
        id=introduction.task,
        lead=lead,
        state=TaskState.ACTIVE,
        terms=terms_of(introduction),
        participant=introduction.participant,
        pool_task=introduction.pool_task,
    )
