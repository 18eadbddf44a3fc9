"""Previews of tasks: ask all participants what would happen, and book and store nothing.

Drafts, proposals, agenda, and choice are those of real planning; only the hold is never sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any
from uuid import UUID

from lead.exchange.collection import PlanMaker, PlanningCase, slip_random_generator
from lead.exchange.edits import EditedTask
from lead.exchange.planner import ChooseTool
from lead.exchange.task_counts import TaskCounts
from lead.model.participants import (
    ImpactSource,
    IntroducingSource,
    ProposalSource,
    TakingSource,
)
from lead.model.reasons import (
    campaign_suspended,
    displaced_not_told,
    gives_way_later,
    no_agreement_now,
    no_tool_for_all,
    over_by_now,
    quotas_not_told,
    task_is_refused,
    times_follow_runs,
)
from lead.planning import choosing, forecast
from lead.planning.agenda import Agenda, Limits, Slot, agenda
from lead.planning.alternatives import (
    ChangeKind,
    DocumentChange,
    Situation,
    alternatives,
    apply_change,
    other_tool,
    shortest_spec,
)
from lead.planning.campaign_room import CampaignRoom, Imagined
from lead.planning.choosing import Collected, WantedRuns
from lead.planning.displacement import DisplacementTerms
from lead.planning.forecast import NOTHING_DUE, ForecastPlacement, fresh_agenda
from lead.planning.host_quotas import QuotaCount, participants_without_quotas
from lead.planning.limited_time import UserRoom
from lead.planning.placement import ChosenStart, Offer, choose
from lead.planning.reserved import ReservedTime
from lead.planning.tentative_bookings import TentativeBookings
from lead.planning.unplaced import unplaced_reasons
from lead.planning.unreachable import why_unanswered
from lead.policy.verdict import PolicyRefusal
from node.model.errors import (
    ParleyError,
    RefusedByParticipant,
    RequestError,
    ToolUnavailable,
    reason_at,
)
from node.model.host_limits.rules import User
from node.model.host_limits.standing import LimitStanding
from node.model.reason import Reason, several
from node.model.reasons import told
from node.model.task_terms import TaskTerms
from node.model.wire.host_limits import TaskRoom
from node.model.wire.impacts import Impact, ImpactRequest
from node.model.wire.participants import Introduction, ProposalRequest
from node.model.wire.plans import (
    Displaced,
    NoAlternative,
    Outcome,
    ParticipantAnswer,
    Plan,
    PlannedStart,
    PlanRequest,
    UnplacedStart,
)
from node.model.wire.problems import Alternative
from node.model.wire.tasks import Participant as Listed
from node.model.wire.tasks import TaskDocument
from node.runtime.clock import Clock
from node.store.tasks import StoredTask

FIRST_EPOCH = 1
"""The lease epoch of the first planning of a task; with the task id it seeds a random slip."""

OF_REQUEST = {"runs", "instead_of"}
"""The fields of a request that are not of the task."""

_ALTERNATIVES = 3
_TRIES = 8

PlannedRuns = Sequence[tuple[TaskTerms, Sequence[int]]]
"""Tasks that would be planned before, each with the starts of its runs."""


@dataclass(frozen=True)
class PreviewDependencies:
    """The functions of the node that previews use: checking, reaching others, choosing a tool.

    ``name`` is that of the node, ``workers`` how many tasks its lead plans at once.
    ``agreed(task)`` returns a task with the tool of its participants,
    or raises why it is refused.
    ``room_of(terms, until, now, imagined)`` returns the room that the limits of its campaign leave
    a task up to an instant, None without limits. ``campaign_of(terms)`` returns the level of its
    campaign, and which one is suspended, its own or one above it, None if none is.
    ``learn_uses()`` asks other leads what the campaigns that they share have used.
    ``expected_bytes(terms)`` returns what each run moves on each participant, None if unknown.
    ``displaceable(terms, slots)`` returns what else its campaign lets it displace for these slots
    once it has waited long enough, why nothing, or None.
    ``ends_of(task)`` returns where the booked runs of a task end. ``limits_of_user(task)``
    returns how a task stands with the limits of its user, ``bind_user(standing)`` whether they
    bound its runs, and ``left_to_user(standing, duration, left_out)`` the room that they leave to
    these. ``no_room(task, standing, left_out, beside)`` returns why its user may have no further
    task beside so many new ones, None if they may.
    """

    name: str
    workers: int
    draft: Callable[[TaskDocument], StoredTask]
    impact_source_of: Callable[[str], ImpactSource]
    agreed: Callable[[StoredTask], StoredTask]
    choose_tool: ChooseTool
    room_of: Callable[[TaskTerms, int, int, Imagined], Awaitable[CampaignRoom | None]]
    campaign_of: Callable[[TaskTerms], Awaitable[tuple[int, str | None]]]
    learn_uses: Callable[[], Awaitable[None]]
    expected_bytes: Callable[[TaskTerms], int | None]
    displaceable: Callable[
        [TaskTerms, Sequence[Slot]], Awaitable[DisplacementTerms | PolicyRefusal | None]
    ]
    ends_of: Callable[[UUID], Awaitable[Sequence[int]]]
    limits_of_user: Callable[[StoredTask], LimitStanding]
    bind_user: Callable[[LimitStanding], bool]
    left_to_user: Callable[[LimitStanding, int, UUID | None], Awaitable[UserRoom]]
    no_room: Callable[[StoredTask, LimitStanding, UUID | None, int], Awaitable[Reason | None]]
    edited: Callable[[UUID, TaskTerms], Awaitable[EditedTask | None]]


@dataclass(frozen=True)
class ConsideredTask:
    """A task with the answers of its participants, and the plan of its runs.

    ``agenda`` has its slots. ``collected`` is what participants said, until the plan is made.
    ``refused`` is set if no time was asked for: the outcome, and why. ``rooms`` is what bounds the
    number of tasks at its participants, by name, unless these refuse it. ``level`` is that of its
    campaign. ``gave_way`` are the runs that would give way to its own, if they were asked for
    as it was planned: those of other tasks of a list, and booked ones.
    ``edited`` is what it leaves of the task of which it is an edit.
    """

    task: StoredTask
    limits: Limits
    agenda: Agenda = NOTHING_DUE
    collected: Collected = field(default_factory=Collected)
    plan: choosing.Plan = field(default_factory=choosing.Plan)
    refused: tuple[Outcome, Reason] | None = None
    rooms: Mapping[str, Sequence[TaskRoom]] | None = None
    level: int = 0
    gave_way: Sequence[Displaced] | None = None
    edited: EditedTask | None = None

    def left_out(self, beside: ConcurrentPlanning) -> UUID | None:
        """Return the task whose booked runs count as freed; None if they stay booked."""
        return beside.left_out if self.edited is None or self.edited.anew else None

    @property
    def kept(self) -> Sequence[ChosenStart]:
        """The runs of the task of which it is an edit that stay booked."""
        return () if self.edited is None else self.edited.kept

    @cached_property
    def placed(self) -> ForecastPlacement:
        """The placement of its runs, as it is told."""
        failure = self.refused
        if failure is None and self.plan.failure is not None:
            failure = Outcome(self.plan.failure.outcome), self.plan.failure.reason
        if failure is not None and failure[0] is Outcome.REFUSED:
            return ForecastPlacement(failure=failure)
        over, after = self.agenda.too_late, self.task.terms.schedule.after
        slots = [*(run.slot for run in self.kept), *self.agenda.slots]
        reasons = dict.fromkeys((slot.nominal for slot in over), over_by_now())
        if failure is None:
            reasons |= self.plan.reasons
        else:
            reasons |= dict.fromkeys((slot.nominal for slot in self.agenda.slots), failure[1])
        return ForecastPlacement(
            replace(self.agenda, slots=tuple(sorted(slots, key=lambda slot: slot.nominal))),
            [*self.kept, *self.plan.choices],
            reasons,
            failure,
            after,
        )

    @property
    def gives_way_at(self) -> int:
        """The instant from which on others give way to its runs; 0 if none has to wait for it."""
        return self.plan.displacing.earliest

    @property
    def open_slots(self) -> list[Slot]:
        """Return the slots for which no start is chosen, or none yet; none if it is refused."""
        if self.refused is not None:
            return []
        chosen = {choice.slot.nominal for choice in self.plan.choices}
        return [slot for slot in self.agenda.slots if slot.nominal not in chosen]

    @property
    def priority(self) -> int:
        """Return the priority with which it asks for time."""
        planned = self.plan.slots
        return self.plan.displacing.priority if planned else self.task.terms.priority


@dataclass(frozen=True)
class ConcurrentPlanning:
    """The tasks that would be planned at the same time.

    ``tentative`` is the time that those take that are planned before, if any, and ``before`` are
    their runs. Booked runs that are ``gone``, by task and start, have given way to these.
    ``yielding`` are the runs that this task may displace; None is any run of lower priority. For a
    task of seats, ``closed`` is the reserved time of its pool, ``pool_task`` whose seats they are,
    and ``found`` are the starts that were found for its runs. ``user`` is who would create them.
    ``left_out`` is the task that this one would replace.
    """

    tentative: TentativeBookings | None = None
    before: PlannedRuns = ()
    gone: Collection[tuple[UUID, int]] = ()
    yielding: Sequence[UUID] | None = None
    closed: ReservedTime | None = None
    pool_task: UUID | None = None
    found: Sequence[int] = ()
    user: User | None = None
    left_out: UUID | None = None


class TaskPreviewer:
    """Previews tasks with named participants."""

    def __init__(
        self, clock: Clock, limits: Limits, clock_limit: int, dependencies: PreviewDependencies
    ) -> None:
        """``limits`` and ``clock_limit`` (microseconds) are those of real planning."""
        self._clock = clock
        self._limits = limits
        self._plans = PlanMaker(clock, clock_limit, dependencies.learn_uses)
        self._dependencies = dependencies

    @property
    def workers(self) -> int:
        """The number of tasks that the lead plans at once."""
        return self._dependencies.workers

    async def plan(self, request: PlanRequest, user: User | None = None) -> Plan:
        """Return what would happen to this task, if this user created it.

        :raises InvalidDocument: a field is wrong. A refusal by a participant is not an error.
        """
        document = request.model_dump(mode="json", exclude_unset=True, exclude=OF_REQUEST)
        beside = ConcurrentPlanning(user=user, left_out=request.instead_of)
        considered = await self._consider(TaskDocument.model_validate(document), beside)
        if request.schedule.samples is not None:  # alternatives differ from what follows from it
            spread = considered.task.terms.schedule.times
            document["schedule"] = spread.model_dump(mode="json", exclude_none=True)
        found, missing = await self._alternatives(document, considered, beside)
        plan = await self.answer(considered, request)
        update = {"alternatives": tuple(found), "no_alternatives": tuple(missing)}
        return plan.model_copy(update=update)

    async def answer(self, considered: ConsideredTask, request: PlanRequest) -> Plan:
        """Return the plan to answer with, but for its alternatives."""
        impacts = await self.impacts([considered], request.instead_of)
        moved = self._dependencies.expected_bytes(considered.task.terms)
        plan = _plan_of(considered, impacts, request.runs, self._clock.now())
        return plan.model_copy(update={"expected_bytes": moved})

    async def _consider(self, document: TaskDocument, beside: ConcurrentPlanning) -> ConsideredTask:
        return await self.consider(self._dependencies.draft(document), beside)

    async def draft_with_answers(
        self, document: TaskDocument, beside: ConcurrentPlanning
    ) -> ConsideredTask:
        """Draft a task and ask its participants; no starts are chosen yet."""
        return await self._with_answers(self._dependencies.draft(document), beside)

    async def consider(self, drafted: StoredTask, beside: ConcurrentPlanning) -> ConsideredTask:
        """Ask the participants of a drafted task, and choose the starts of its runs."""
        return await self.place(await self._with_answers(drafted, beside), beside)

    async def _with_answers(
        self, drafted: StoredTask, beside: ConcurrentPlanning
    ) -> ConsideredTask:
        """Ask the participants of a drafted task; no starts are chosen yet."""
        drafted = _asked_by(beside.user, drafted)
        standing = self._dependencies.limits_of_user(drafted)
        if (failure := self._refusal(standing)) is not None:
            return ConsideredTask(drafted, self._limits, refused=failure)
        task, rooms = await self._ask_all(drafted, beside.left_out)
        try:
            task = self._dependencies.agreed(task)
        except (RefusedByParticipant, ToolUnavailable) as error:
            return ConsideredTask(task, self._limits, refused=(Outcome.REFUSED, error.reason))
        # The tasks of seats count for that of their pool task.
        if beside.pool_task is None:
            failure = await self._no_room(task, standing, beside.left_out)
        if failure is not None:
            return ConsideredTask(task, self._limits, refused=failure, rooms=rooms)
        left_out = beside.left_out
        edited = None if left_out is None else await self._dependencies.edited(left_out, task.terms)
        task = task if edited is None else replace(task, terms=edited.terms)
        level, suspended = await self._dependencies.campaign_of(task.terms)
        failure = _unanswered(task)
        if failure is None and suspended is not None:
            failure = Outcome.NO_TIME, campaign_suspended(suspended)
        found = ConsideredTask(
            task, self._limits, refused=failure, rooms=rooms, level=level, edited=edited
        )
        return await self._with_offers(found, beside)

    def standing_of(self, drafted: StoredTask, user: User | None) -> LimitStanding:
        """Return how a drafted task of this user stands with the limits of this host."""
        return self._dependencies.limits_of_user(_asked_by(user, drafted))

    async def refusal_of_user(
        self, drafted: StoredTask, user: User | None
    ) -> tuple[Outcome, Reason] | None:
        """Return why the limits of this host refuse a task that names no nodes to its user."""
        task = _asked_by(user, drafted)
        standing = self._dependencies.limits_of_user(task)
        return self._refusal(standing) or await self._no_room(task, standing, None)

    def _refusal(self, standing: LimitStanding) -> tuple[Outcome, Reason] | None:
        if standing.refusal is None:
            return None
        return Outcome.REFUSED, told(standing.refusal).at(self._dependencies.name)

    async def _no_room(
        self, task: StoredTask, standing: LimitStanding, left_out: UUID | None, beside: int = 0
    ) -> tuple[Outcome, Reason] | None:
        """Return that its user may have no further task ``beside`` so many new ones, or None."""
        if not standing.binds_user:
            return None
        why = await self._dependencies.no_room(task, standing, left_out, beside)
        return None if why is None else (Outcome.REFUSED, why)

    async def counted(
        self, found: ConsideredTask, counts: TaskCounts, beside: ConcurrentPlanning
    ) -> ConsideredTask:
        """Count a task of a list; return it as it is with the tasks before it."""
        if found.rooms is None:
            return found  # it is refused whatever came before
        standing = self._dependencies.limits_of_user(found.task)
        task = counts.introduced(found.task, found.rooms)
        failure = await self._no_room(task, standing, beside.left_out, counts.of_user(standing))
        if failure is None:
            counts.count_for_user(standing)
            failure = _unanswered(task)
        return found if failure is None else replace(found, task=task, refused=failure)

    async def _ask_all(
        self, task: StoredTask, left_out: UUID | None
    ) -> tuple[StoredTask, dict[str, tuple[TaskRoom, ...]]]:
        """Ask all participants; return the task with their answers, and what bounds tasks there."""
        places = range(len(task.terms.parties))
        answers = await asyncio.gather(*(self._ask(task, place, left_out) for place in places))
        parties = [party for party, _ in answers]
        rooms = {party.name: rooms for party, rooms in answers}
        return replace(task, terms=task.terms.with_parties(parties)), rooms

    async def _ask(
        self, task: StoredTask, place: int, left_out: UUID | None
    ) -> tuple[Listed, tuple[TaskRoom, ...]]:
        """Ask one participant whether it accepts the task, as an edit of the one left out, if any.

        The edit of a task that it has needs no room for one more.
        """
        participant = task.terms.parties[place]
        source = self._dependencies.impact_source_of(participant.node)
        introduction = task.introduction(place).model_copy(update={"rooms": True})
        if left_out is not None:
            introduction = introduction.model_copy(update={"task": left_out})
        asked_at = self._clock.now()
        try:
            answer = await source.consider(introduction)
        except RequestError as error:
            why = reason_at(participant.name, error)
            return participant.model_copy(update={"reason": why}), ()
        except ParleyError as error:
            why = why_unanswered(participant.name, asked_at, error.detail)
            return participant.model_copy(update={"reason": why}), ()
        update = answer.model_dump(exclude={"limit", "rooms"})
        return participant.model_copy(update=update), answer.rooms or ()

    async def _with_offers(
        self, found: ConsideredTask, beside: ConcurrentPlanning
    ) -> ConsideredTask:
        """Request time as real planning does.

        If a participant books less far ahead, the request is repeated for that shorter horizon.
        """
        found = await self._offered_within(found, self._limits, beside)
        now, slots = self._clock.now(), found.agenda.slots
        proposals = found.collected.proposals
        horizon = choosing.exceeded_horizon(slots, proposals, now + self._limits.horizon)
        if horizon is None or found.collected.failures:
            return found
        shorter = replace(self._limits, horizon=horizon - now)
        return await self._offered_within(found, shorter, beside)

    async def place(self, found: ConsideredTask, beside: ConcurrentPlanning) -> ConsideredTask:
        """Make the plan as real planning does, from what the participants offer."""
        if found.refused is not None or not found.agenda.slots:
            return found
        case = self._case(found, found.agenda.slots, found.task.terms.duration, beside)
        plan = await self._plans.choose(case, found.collected, beside.tentative)
        return replace(found, plan=plan)

    async def place_again(
        self, found: ConsideredTask, slots: Sequence[Slot], beside: ConcurrentPlanning
    ) -> ConsideredTask:
        """Ask for time for some slots of a task anew, and make the plan of these."""
        case = self._case(found, slots, found.task.terms.duration, beside)
        agenda = replace(found.agenda, slots=tuple(slots))
        asked = await self._plans.collect(case)
        return await self.place(replace(found, agenda=agenda, collected=asked), beside)

    def _source(self, task: StoredTask, place: int) -> ProposalSource:
        """Return a party of a task, which learns of the task as it is asked."""
        terms = task.terms
        node = terms.parties[place].node
        source = self._dependencies.impact_source_of(node)
        introducing = IntroducingSource(source, task.introduction(place))
        if not (takes := terms.taken_at(node)):
            return introducing
        return TakingSource(introducing, takes, keeps_only=place >= len(terms.participants))

    async def _offered_within(
        self, found: ConsideredTask, limits: Limits, beside: ConcurrentPlanning
    ) -> ConsideredTask:
        """Return the task with what is due, and is offered, within this horizon."""
        schedule, created_at = found.task.terms.schedule, found.task.terms.created_at
        after = schedule.after
        known = beside.found if after is None else await self._dependencies.ends_of(after.task)
        if after is not None and after.when is not None:
            known = known[:1]  # the next one that may ask for a run, if any does
        now, duration = self._clock.now(), found.task.terms.duration
        if found.edited is None or after is not None:
            due = fresh_agenda(schedule, created_at, duration, limits, now, known)
        else:
            due = agenda(found.task.terms.recurrence, duration, found.edited.progress, limits, now)
        found = replace(found, limits=limits, agenda=due)
        if found.refused is not None or not due.slots:
            return found
        case = self._case(found, due.slots, duration, beside)
        return replace(found, collected=await self._plans.collect(case))

    def _case(
        self,
        found: ConsideredTask,
        slots: Sequence[Slot],
        duration: int,
        beside: ConcurrentPlanning,
    ) -> PlanningCase:
        task, terms, dependencies = found.task, found.task.terms, self._dependencies
        standing, now = dependencies.limits_of_user(task), self._clock.now()
        left_out = found.left_out(beside)

        async def user_room() -> UserRoom | None:
            if not dependencies.bind_user(standing):
                return None
            return await dependencies.left_to_user(standing, duration, left_out)

        async def room() -> CampaignRoom | None:
            imagined = Imagined(left_out, beside.before, beside.gone)
            until = max(slot.end for slot in slots)
            return await dependencies.room_of(terms, until, now, imagined)

        async def reserved() -> ReservedTime | None:
            return beside.closed

        return PlanningCase(
            [self._source(task, place) for place in range(len(terms.parties))],
            ProposalRequest(
                task=task.id,
                lease_epoch=FIRST_EPOCH,
                scheduling_class=terms.scheduling_class,
                duration=duration,
                priority=terms.priority,
                yielding=None if beside.yielding is None else tuple(beside.yielding),
                windows=tuple((slot.start, slot.end) for slot in slots),
                test=terms.test,
                campaign=terms.campaign,
                pool_task=beside.pool_task,
                leaving_out=left_out,
                quotas=True,
                preview=True,
                partly=None if beside.tentative is None else True,
            ),
            WantedRuns(
                slots,
                duration,
                terms.scheduling_class,
                slip_random_generator(task.id, FIRST_EPOCH, terms.schedule),
                beside.found,
            ),
            user_room=user_room,
            reserved=reserved,
            room=room,
            displaceable=partial(dependencies.displaceable, terms),
        )

    async def displaced(self, found: ConsideredTask, left_out: UUID | None) -> Sequence[Displaced]:
        """Return the booked runs that would give way to the runs that were just chosen."""
        if not any(choice.displacing for choice in found.plan.choices):
            return ()
        return _displaced_runs(found, await self.impacts([found], left_out))[0]

    async def impacts(
        self, together: Sequence[ConsideredTask], left_out: UUID | None = None
    ) -> dict[str, Impact]:
        """Return the impact of the chosen runs on each participant that answers, by name.

        All tasks that would be planned ``together`` have the same scheduling class. The booked runs
        of the task ``left_out`` count as freed.
        """
        nodes = {p.name: p.node for it in together for p in it.task.terms.participants}
        answers = await asyncio.gather(
            *(
                self._impact(node, together, chosen_on_node(name, together), left_out)
                for name, node in nodes.items()
            )
        )
        named = zip(nodes, answers, strict=True)
        return {name: answered for name, answered in named if answered is not None}

    async def _impact(
        self,
        node: str,
        together: Sequence[ConsideredTask],
        choices: Sequence[ChosenStart],
        left_out: UUID | None,
    ) -> Impact | None:
        """Ask one node; None if it has no runs, or no longer answers."""
        if not choices:
            return None
        task = together[0].task
        request = ImpactRequest(
            since=self._clock.now(),
            scheduling_class=task.terms.scheduling_class,
            priority=max(it.priority for it in together),
            runs=tuple((c.starts_at, c.starts_at + task.terms.duration) for c in choices),
            displacing=tuple(index for index, c in enumerate(choices) if c.displacing),
            mesh=_mesh_of(task.terms.reference),
            leaving_out=left_out,
            introduction=_introduction_to(node, together),
        )
        try:
            return await self._dependencies.impact_source_of(node).impact(request)
        except ParleyError:
            return None

    async def _alternatives(
        self,
        document: Mapping[str, Any],
        considered: ConsideredTask,
        beside: ConcurrentPlanning,
    ) -> tuple[list[Alternative], list[NoAlternative]]:
        """Return the nearest documents that do better, and why there is none of some kinds."""
        outcome = considered.placed.outcome
        if outcome in (Outcome.FOUND, Outcome.LATER):
            return [], []
        if considered.placed.follows is not None:
            return [], _no_alternatives(times_follow_runs())
        if outcome in (Outcome.UNREACHABLE, Outcome.CLOCK):
            return [], _no_alternatives(no_agreement_now())
        if outcome is Outcome.NO_TIME and considered.placed.failure is not None:
            return [], _no_alternatives(considered.placed.summary())
        changes, missing = await self._changes(considered, beside.left_out)
        found: list[Alternative] = []
        for change in changes[:_TRIES]:
            if len(found) == _ALTERNATIVES:
                break
            tried = await self._tried_alternative(
                document, change, len(considered.placed.choices), beside
            )
            if isinstance(tried, Alternative):
                found.append(tried)
            else:
                missing.setdefault(change.kind, tried.at(change.differs))
        kinds = {alternative.kind for alternative in found}
        found.sort(key=lambda alternative: alternative.distance)
        return found, [
            NoAlternative(kind=kind, reason=missing[kind])
            for kind in _NAMED
            if kind in missing and kind not in kinds
        ]

    async def _changes(
        self, considered: ConsideredTask, left_out: UUID | None
    ) -> tuple[list[DocumentChange], dict[ChangeKind, Reason]]:
        task = considered.task
        tools = await self._common_tools(task, left_out)
        if considered.placed.outcome is Outcome.REFUSED:
            reason = task_is_refused(considered.placed.summary())
            missing = dict.fromkeys((ChangeKind.LATER, ChangeKind.SHORTER), reason)
            if not tools:
                missing[ChangeKind.TOOL] = no_tool_for_all()
            return [other_tool(tool, None, rank) for rank, tool in enumerate(tools)], missing
        durations = [self._occupied_time(task, task.terms.spec, tool) for tool in tools]
        if (least := shortest_spec(task.terms.spec)) is not None:
            durations.append(self._occupied_time(task, least, task.terms.tool or ""))
        shortest_run = min([task.terms.duration, *(d for d in durations if d is not None)])
        now = self._clock.now()
        limits = considered.limits
        whole = (now + limits.margin, now + limits.horizon)
        slot = Slot(whole[0], 1, *whole)
        beside = ConcurrentPlanning(left_out=left_out)
        case = self._case(replace(considered, edited=None), [slot], shortest_run, beside)
        asked = await self._plans.collect(case)
        if asked.failures:
            why = several([failure.reason for failure in asked.failures.values()])
            return [], dict.fromkeys(_NAMED, why)
        own = (await self._plans.closures(case, asked)).offers([slot], shortest_run, now)
        situation = Situation(
            terms=task.terms,
            slots=considered.placed.windows,
            placed=len(considered.placed.choices),
            offers=[*asked.offers, *(offer for offer, _ in own)],
            limits=limits,
            now=now,
            tools=tools,
            occupied=lambda spec, tool: self._occupied_time(task, spec, tool),
        )
        # A busy day with many participants takes long enough to block the event loop.
        return await asyncio.to_thread(alternatives, situation)

    async def _common_tools(self, task: StoredTask, left_out: UUID | None) -> list[str]:
        """Return the tools that all participants have, best first, requested or not."""
        asked = task
        if task.terms.tools:
            anyhow = replace(task, terms=replace(task.terms, tools=()))
            asked, _ = await self._ask_all(anyhow, left_out)
        if not all(p.accepted for p in asked.terms.participants):
            return []
        first, *others = (p.tools for p in asked.terms.participants)
        return [tool for tool in first if all(tool in offer for offer in others)]

    def _occupied_time(self, task: StoredTask, spec: Mapping[str, Any], tool: str) -> int | None:
        try:
            alone = replace(task.terms, tools=(tool,), participants=(), spec=dict(spec))
            return self._dependencies.choose_tool(alone).duration
        except (RequestError, ToolUnavailable):
            return None

    async def _tried_alternative(
        self,
        document: Mapping[str, Any],
        change: DocumentChange,
        placed: int,
        beside: ConcurrentPlanning,
    ) -> Alternative | Reason:
        """Preview a changed document; return the alternative, or why it is not better."""
        made = apply_change(document, change)
        try:
            considered = await self._consider(TaskDocument.model_validate(made), beside)
        except RequestError as error:
            return error.reason
        windows, choices = considered.placed.windows, considered.placed.choices
        if not choices or len(choices) < min(len(windows), placed + 1):
            return considered.placed.summary()
        return Alternative(
            kind=change.kind,
            differs=change.differs,
            distance=change.distance,
            asked=len(windows),
            placed=len(choices),
            starts_at=min(choice.starts_at for choice in choices),
            displacing=sum(choice.displacing for choice in choices),
            document=made,
        )


def _asked_by(user: User | None, task: StoredTask) -> StoredTask:
    if user is None:
        return task
    return replace(task, limit_user=user.token, limit_address=user.address, limit_bound=user.bound)


def _unanswered(task: StoredTask) -> tuple[Outcome, Reason] | None:
    """Return the first participant that neither accepts nor refuses a task, and why, or None."""
    for each in task.terms.parties:
        if each.accepted is None:
            return Outcome.UNREACHABLE, told(str(each.reason))
    return None


def _introduction_to(node: str, together: Sequence[ConsideredTask]) -> Introduction:
    """Return the introduction to a node of the first task in which it takes part."""
    return next(
        it.task.introduction(place)
        for it in together
        for place, participant in enumerate(it.task.terms.participants)
        if participant.node == node
    )


_NAMED = (ChangeKind.LATER, ChangeKind.SHORTER, ChangeKind.TOOL)
"""The kinds of alternatives whose absence is explained."""


def _no_alternatives(why: Reason) -> list[NoAlternative]:
    return [NoAlternative(kind=kind, reason=why) for kind in _NAMED]


def _mesh_of(reference: Any) -> str | None:
    mesh = reference.get("mesh") if isinstance(reference, dict) else None
    return mesh if isinstance(mesh, str) else None


def chosen_on_node(name: str, together: Sequence[ConsideredTask]) -> list[ChosenStart]:
    """Return the starts chosen on one node, of tasks that would be planned together."""
    return [
        choice
        for it in together
        if name in {p.name for p in it.task.terms.participants}
        for choice in it.placed.choices
    ]


def _plan_of(
    considered: ConsideredTask, impacts: Mapping[str, Impact], shown: int, now: int
) -> Plan:
    task, placed = considered.task, considered.placed
    choices = sorted(placed.choices, key=lambda choice: choice.starts_at)
    reasons = sorted(placed.reasons.items())
    lost, count = _displaced_runs(considered, impacts)
    return Plan(
        outcome=placed.outcome,
        sentence=_summary(considered, impacts),
        now=now,
        test=task.terms.test,
        tool=task.terms.tool,
        scheduling_class=task.terms.scheduling_class,
        duration=task.terms.duration,
        priority=task.terms.priority,
        asked=len(placed.windows),
        placed=len(choices),
        starts=tuple(
            PlannedStart(
                slot=choice.slot.nominal,
                starts_at=choice.starts_at,
                ends_at=choice.starts_at + task.terms.duration,
                displacing=choice.displacing,
            )
            for choice in choices[:shown]
        ),
        drawn=task.terms.schedule.slip_random,
        unplaced=tuple(UnplacedStart(slot=at, reason=why) for at, why in reasons[:shown]),
        displaced=tuple(lost),
        displaced_count=count,
        participants=tuple(participant_answer(considered, p) for p in task.terms.parties),
        occupancy=tuple(
            forecast.occupancy(name, now, impact.hours) for name, impact in impacts.items()
        ),
        alternatives=(),
        no_alternatives=(),
    )


def _summary(considered: ConsideredTask, impacts: Mapping[str, Impact]) -> Reason:
    """Return the outcome in one sentence, and what participants leave open."""
    participants = [p.name for p in considered.task.terms.participants]
    summary = considered.placed.summary()
    if (afterwards := considered.plan.afterwards) is not None:
        summary = summary.beside(afterwards.reason)
    if not considered.placed.choices:
        return summary
    untold = []
    if at := considered.gives_way_at:
        untold.append(gives_way_later(at))
    if names := participants_without_quotas(considered.plan.proposals, participants):
        untold.append(quotas_not_told(names))
    if names := [name for name in participants if name not in impacts]:
        untold.append(displaced_not_told(names))
    return summary.beside(*untold)


def _displaced_runs(
    considered: ConsideredTask, impacts: Mapping[str, Impact]
) -> tuple[list[Displaced], int]:
    """Return the runs that would be displaced, and their number.

    A node names the runs of lower priority. If the campaign lets the task displace more than
    these, its priority is raised above all that may give way, and only those do.
    """
    if considered.gave_way is not None:
        return list(considered.gave_way), len(considered.gave_way)
    choices = considered.placed.choices
    lost = [
        run
        for name, impact in impacts.items()
        for run in forecast.displaced_runs(name, choices, impact)
    ]
    may = considered.plan.displacing.yielding
    count = sum(impact.displaced_count for impact in impacts.values())
    if may is not None:
        lost = [run for run in lost if run.run in may]
        count = len(lost)
    return lost, count


def participant_answer(considered: ConsideredTask, participant: Listed) -> ParticipantAnswer:
    """Return one participant's answer to a task."""
    answer, reason, windows_free = "accepts", participant.reason, None
    if not participant.accepted:
        answer = "unreachable" if participant.accepted is None else "refuses"
    elif (failure := considered.plan.failures.get(participant.name)) is not None:
        answer, reason = failure.outcome, failure.reason
    for offer in considered.plan.offers:
        if offer.name == participant.name:
            windows_free, reason = _time_of(considered, offer)
    return ParticipantAnswer(
        name=participant.name,
        node=participant.node,
        answer=answer,
        reason=reason,
        tools=participant.tools,
        windows_free=windows_free,
    )


def _time_of(considered: ConsideredTask, offer: Offer) -> tuple[int, Reason | None]:
    """Return in how many windows a participant has time, and the reason for the first other."""
    slots, duration = considered.agenda.slots, considered.task.terms.duration
    told = {offer.name: considered.plan.proposals[offer.name]}
    quotas = QuotaCount.of(told)
    alone = choose(slots, [offer], duration, None, (), quotas)
    reasons = unplaced_reasons(slots, alone, duration, [offer], told, quotas)
    return len(considered.kept) + len(alone), next(
        (why.of(offer.name) for why in reasons.values()), None
    )
