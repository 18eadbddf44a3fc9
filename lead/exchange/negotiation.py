"""One exchange with the participants of a task: plan, then hold what was chosen.

The exchange and its run ids are stored before the first hold is sent, so that after a crash they
can be aborted. All participants are asked at the same time. The decision follows in
``decision.py``; ``delivery.py`` sends the commits and releases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from lead.exchange.collection import (
    PlanMaker,
    PlanningCase,
    all_answers,
    answer,
    slip_random_generator,
)
from lead.exchange.displacement import CampaignDisplacement
from lead.exchange.user_limits import LeadLimits
from lead.model.participants import ParticipantClient
from lead.model.reasons import books_without_holds, taken_over
from lead.model.records import Claim
from lead.planning.agenda import Slot
from lead.planning.campaign_room import CampaignRoom
from lead.planning.choosing import Plan, WantedRuns
from lead.planning.displacement import DisplacementTerms
from lead.planning.hold_agreement import agree, newest_epoch
from lead.planning.limited_time import UserRoom
from lead.planning.placement import ChosenStart
from lead.planning.reserved import ReservedTime, applicant, reserved_for_others
from lead.planning.retry_times import refused_retry_times
from lead.planning.unplaced import summary, trace
from lead.policy.verdict import PolicyRefusal
from lead.store import planning
from lead.store.planning import ExchangeOpening
from node.model.errors import NotFound, ParleyError
from node.model.host_limits.standing import LimitStanding
from node.model.ids import TaskId, exchange_id, run_id
from node.model.outcomes import PlanningOutcome
from node.model.reason import Reason
from node.model.reservations import ReservationSpan
from node.model.spans import Span
from node.model.wire.participants import (
    CommitRequest,
    HoldAnswer,
    HoldRequest,
    ProposalRequest,
    RunRequest,
)
from node.runtime.batching import Batcher
from node.runtime.clock import Clock
from node.store import reservations
from node.store.database import Database

_Asked = tuple[Claim, Sequence[Slot]]
"""A task, and the slots about which something is asked for it."""


@dataclass(frozen=True)
class NegotiationSettings:
    """The life of a hold, and the maximum difference of clocks; both in microseconds."""

    hold_life: int
    clock_limit: int


@dataclass
class Exchange:
    """The state of one exchange about a plan; ``reasons`` are those of the slots not placed."""

    plan: Plan
    binding: Sequence[str] = ()
    """The names of the participants that book without holds."""
    reasons: dict[int, Reason] = field(init=False)
    retry_times: dict[int, int] = field(init=False)
    refusals: dict[str, Reason] = field(init=False)
    outcome: PlanningOutcome = field(init=False)
    limited: bool = field(init=False)
    id: UUID | None = None
    commit: CommitRequest | None = None
    runs: list[RunRequest] = field(default_factory=list)
    unknown_to: set[str] = field(default_factory=set)
    known_epoch: int = 0
    """The highest lease epoch of the task that a participant knew, if it refused this one."""

    def __post_init__(self) -> None:
        """Begin with what the plan says."""
        plan, failure = self.plan, self.plan.failure
        self.reasons, self.retry_times = dict(plan.reasons), dict(plan.retry_times)
        self.refusals = {name: each.reason for name, each in plan.failures.items()}
        self.outcome = PlanningOutcome.NO_TIME if failure is None else failure.outcome
        self.limited = plan.limited

    @property
    def slots(self) -> Sequence[Slot]:
        """The slots that need a run."""
        return self.plan.slots

    @property
    def placed(self) -> list[ChosenStart]:
        """The choices that all participants hold."""
        return [choice for choice in self.plan.choices if choice.slot.nominal not in self.reasons]

    def summary(self) -> Reason:
        """Return the outcome in one sentence, for lists."""
        first = next(
            (self.reasons[s.nominal] for s in self.slots if s.nominal in self.reasons), None
        )
        told = summary(self.placed, len(self.slots), first)
        return told.beside(books_without_holds(self.binding)) if self.binding else told

    def trace(self) -> dict[str, object]:
        """Return everything on which the outcome depends."""
        traced = trace(
            self.slots, self.plan.offers, self.plan.proposals, self.placed, self.refusals
        )
        return {**traced, "binding": list(self.binding)} if self.binding else traced

    def fail(self, reason: Reason, outcome: PlanningOutcome) -> None:
        """Set the same reason for all slots: none is placed."""
        self.outcome = outcome
        self.reasons = {slot.nominal: reason for slot in self.slots}

    def take_back(self, reasons: Mapping[UUID, Reason], outcome: PlanningOutcome) -> None:
        """Leave out held runs, each with its reason; ``outcome`` is that of having none left."""
        taken = {run.slot: reasons[run.run] for run in self.runs if run.run in reasons}
        if self.commit is None or not taken:
            return
        self.reasons |= taken
        self.runs = [run for run in self.runs if run.run not in reasons]
        self.outcome = PlanningOutcome.PARTLY_BOOKED if self.runs else outcome
        remaining = tuple(run.run for run in self.runs)
        self.commit = CommitRequest(runs=remaining, data=self.commit.data) if remaining else None


class Negotiator:
    """Conducts exchanges with the participants of tasks."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        terms: NegotiationSettings,
        limits: LeadLimits,
        displacement: CampaignDisplacement,
    ) -> None:
        self._database = database
        self._clock = clock
        self._terms = terms
        self._limits = limits
        self._displacement = displacement
        self._plans = PlanMaker(clock, terms.clock_limit, limits.shared.learn)
        self._openings: Batcher[ExchangeOpening, bool] = Batcher(self._open_all)
        # Tasks that are planned together ask with one connection: if each took its own, they would
        # come to their participants one by one, and no longer in one message.
        self._user_rooms: Batcher[tuple[LimitStanding, int], UserRoom] = Batcher(
            self._read_user_rooms
        )
        self._reserved_times: Batcher[_Asked, ReservedTime] = Batcher(self._read_reserved)
        self._campaign_rooms: Batcher[_Asked, CampaignRoom | None] = Batcher(self._read_rooms)

    @property
    def hold_life(self) -> int:
        """The time after which a hold expires without a decision (µs)."""
        return self._terms.hold_life

    async def exchange(
        self,
        claimed: Claim,
        participants: Sequence[ParticipantClient],
        slots: Sequence[Slot],
        within: int | None = None,
    ) -> Exchange:
        """Negotiate these slots and hold the chosen starts; nothing is decided yet.

        If a slot that ends ``within`` this instant lies beyond the horizon of a participant,
        nothing is chosen: its plan is ``beyond``, and it should be repeated with fewer slots.
        """
        binding = [participant.name for participant in participants if participant.binding]
        plan = await self._plans.plan(self._case(claimed, participants, slots, within))
        exchange = Exchange(plan, binding)
        if plan.choices:
            await self._hold(claimed, participants, exchange)
        return exchange

    def _case(
        self,
        claimed: Claim,
        participants: Sequence[ParticipantClient],
        slots: Sequence[Slot],
        within: int | None,
    ) -> PlanningCase:
        terms = claimed.terms
        return PlanningCase(
            participants,
            ProposalRequest(
                task=claimed.task,
                lease_epoch=claimed.lease_epoch,
                scheduling_class=terms.scheduling_class,
                duration=terms.duration,
                priority=terms.priority,
                yielding=None if claimed.yielding is None else tuple(claimed.yielding),
                windows=tuple((slot.start, slot.end) for slot in slots),
                test=terms.test,
                campaign=terms.campaign,
                pool_task=claimed.parent,
                quotas=True,
            ),
            WantedRuns(
                slots,
                terms.duration,
                terms.scheduling_class,
                slip_random_generator(claimed.task, claimed.lease_epoch, terms.schedule),
                claimed.starts or (),
            ),
            user_room=partial(self._left_to_user, claimed),
            reserved=partial(self._reserved, claimed, slots),
            room=partial(self._room, claimed, slots),
            displaceable=partial(self._displaceable, claimed),
            within=within,
        )

    async def _open_all(self, openings: Sequence[ExchangeOpening]) -> list[bool]:
        now = self._clock.now()
        async with self._database.connection() as connection:
            opened = await planning.open_negotiations(
                connection, openings, now, now + self._terms.hold_life
            )
        return [opening.exchange in opened for opening in openings]

    async def _displaceable(
        self, claimed: Claim, slots: Sequence[Slot]
    ) -> DisplacementTerms | PolicyRefusal | None:
        """Return what the campaign of a task lets it displace for slots without time."""
        if not claimed.privileged:
            return None
        waited = self._clock.now() - claimed.terms.created_at
        async with self._database.connection() as connection:
            return await self._displacement.for_slots(connection, claimed.terms, slots, waited)

    async def _left_to_user(self, claimed: Claim) -> UserRoom | None:
        """Return what the limits of this host leave to the user whose task it is, if they bind."""
        if not self._limits.users.bind(claimed.limit):
            return None
        return await self._user_rooms.ask((claimed.limit, claimed.terms.duration))

    async def _read_user_rooms(self, asked: Sequence[tuple[LimitStanding, int]]) -> list[UserRoom]:
        """Return what is left to users for runs of these durations (µs)."""
        now, users = self._clock.now(), self._limits.users
        async with self._database.connection() as connection:
            return [
                UserRoom(*await users.left_to_user(connection, standing, duration, now))
                for standing, duration in asked
            ]

    async def _reserved(self, claimed: Claim, slots: Sequence[Slot]) -> ReservedTime | None:
        """Return the time of its pool that is reserved for others, if the task has seats of one."""
        return None if claimed.pool is None else await self._reserved_times.ask((claimed, slots))

    async def _read_reserved(self, asked: Sequence[_Asked]) -> list[ReservedTime]:
        """Return the time that pools have reserved for others than these tasks, in their slots."""
        pools = sorted({claimed.pool for claimed, _ in asked if claimed.pool is not None})
        reaches = [_reach(slots) for _, slots in asked]
        since, until = min(start for start, _ in reaches), max(end for _, end in reaches)
        async with self._database.connection() as connection:
            reserved = await reservations.pool_spans_between(connection, pools, since, until)
        return [
            _reserved_in(reach, claimed, reserved[claimed.pool or ""])
            for (claimed, _), reach in zip(asked, reaches, strict=True)
        ]

    async def _room(self, claimed: Claim, slots: Sequence[Slot]) -> CampaignRoom | None:
        """Return what the limits of its campaign leave the task, if they bind."""
        return await self._campaign_rooms.ask((claimed, slots)) if claimed.limited else None

    async def _read_rooms(self, asked: Sequence[_Asked]) -> list[CampaignRoom | None]:
        """Return what the limits of campaigns leave each of these tasks in its slots."""
        now, campaigns = self._clock.now(), self._limits.campaigns
        async with self._database.connection() as connection:
            return [
                await campaigns.room(connection, claimed.terms, _reach(slots)[1], now)
                for claimed, slots in asked
            ]

    async def _hold(
        self, claimed: Claim, participants: Sequence[ParticipantClient], exchange: Exchange
    ) -> None:
        exchange.id = exchange_id(TaskId(claimed.task), claimed.lease_epoch)
        requests = {
            choice.slot.nominal: _run_request(claimed, choice) for choice in exchange.plan.choices
        }
        opening = ExchangeOpening(
            exchange.id, claimed, [request.run for request in requests.values()]
        )
        if not await self._openings.ask(opening):
            exchange.fail(taken_over(), PlanningOutcome.LEASE_LOST)
            exchange.id = None
            return
        request = HoldRequest(
            task=claimed.task,
            generation=self._database.generation,
            lease_epoch=claimed.lease_epoch,
            tool=claimed.terms.tool or "",
            priority=exchange.plan.displacing.priority,
            yielding=exchange.plan.displacing.yielding,
            revision=claimed.terms.revision,
            life=self._terms.hold_life,
            runs=tuple(requests.values()),
        )
        answers = await hold_in_turn(participants, exchange.id, request)
        _agree(participants, answers, requests, exchange, self._clock.now())


async def hold_in_turn(
    participants: Sequence[ParticipantClient], exchange: UUID, request: HoldRequest
) -> list[HoldAnswer | ParleyError]:
    """Ask all participants for holds, in two steps; return their answers in their order.

    Those that hold for a while are asked at the same time. Those whose bookings bind are asked one
    after the other, each for the runs that all before it hold: what binds there would have to be
    taken back otherwise. If none is left, they are not asked.
    """
    answers: dict[str, HoldAnswer | ParleyError] = {}
    first = [participant for participant in participants if not participant.binding]
    held = await all_answers(
        [partial(participant.hold, exchange, request) for participant in first]
    )
    answers |= {each.identity: answer for each, answer in zip(first, held, strict=True)}
    for participant in participants:
        if not participant.binding:
            continue
        agreed = agree(
            [run.run for run in request.runs], _answers_by_name(participants, answers)
        ).held
        runs = tuple(run for run in request.runs if run.run in agreed)
        asked = request.model_copy(update={"runs": runs})
        answers[participant.identity] = (
            await answer(partial(participant.hold, exchange, asked))
            if runs
            else HoldAnswer(held=())
        )
    return [answers[participant.identity] for participant in participants]


def _answers_by_name(
    participants: Sequence[ParticipantClient], answers: Mapping[str, HoldAnswer | ParleyError]
) -> list[tuple[str, HoldAnswer | ParleyError]]:
    return [(p.name, answers[p.identity]) for p in participants if p.identity in answers]


def _agree(
    participants: Sequence[ParticipantClient],
    answers: Sequence[HoldAnswer | ParleyError],
    requests: dict[int, RunRequest],
    exchange: Exchange,
    now: int,
) -> None:
    """Keep the runs that all participants hold, and set the reasons of the others."""
    # The reason of the last one counts: who binds is not asked for what others do not hold.
    in_turn = sorted(zip(participants, answers, strict=True), key=lambda each: not each[0].binding)
    named = [(participant.name, answered) for participant, answered in in_turn]
    agreed = agree([r.run for r in requests.values()], named)
    exchange.unknown_to = {
        participant.identity
        for participant, answered in zip(participants, answers, strict=True)
        if isinstance(answered, NotFound)
    }
    exchange.known_epoch = newest_epoch(answers)
    exchange.refusals |= agreed.failed
    exchange.reasons |= {
        nominal: agreed.refused[request.run]
        for nominal, request in requests.items()
        if request.run in agreed.refused
    }
    exchange.retry_times |= refused_retry_times(requests, answers, now)
    exchange.runs = [request for request in requests.values() if request.run not in agreed.refused]
    exchange.outcome = (
        PlanningOutcome.PARTLY_BOOKED if exchange.runs and exchange.reasons else agreed.outcome
    )
    if exchange.runs:
        data = {
            str(place): answered.data
            for place, answered in enumerate(answers)
            if isinstance(answered, HoldAnswer)
        }
        exchange.commit = CommitRequest(runs=agreed.held, data=data)


def _reach(slots: Sequence[Slot]) -> Span:
    return min(slot.start for slot in slots), max(slot.end for slot in slots)


def _reserved_in(reach: Span, claimed: Claim, reserved: Sequence[ReservationSpan]) -> ReservedTime:
    within = [it for it in reserved if it.starts_at < reach[1] and reach[0] < it.ends_at]
    whose = applicant(claimed.terms, claimed.parent or claimed.task)
    return reserved_for_others(claimed.pool or "", within, whose)


def _run_request(claimed: Claim, choice: ChosenStart) -> RunRequest:
    slot = choice.slot
    return RunRequest(
        run=run_id(TaskId(claimed.task), slot.nominal, slot.attempt),
        slot=slot.nominal,
        attempt=slot.attempt,
        starts_at=choice.starts_at,
        ends_at=choice.starts_at + claimed.terms.duration,
        displacing=choice.displacing,
        again=slot.again,
    )
