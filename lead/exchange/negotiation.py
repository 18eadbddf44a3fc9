"""One exchange with the participants of a task: propose, choose, hold.

The exchange and its run ids are stored before the first hold is sent, so that after a crash they
can be aborted. All participants are asked at the same time. The decision follows in
``decision.py``; ``delivery.py`` sends the commits and releases.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from lead.exchange.displacement import CampaignDisplacement
from lead.exchange.user_limits import LeadLimits
from lead.model import Claim
from lead.participants import ParticipantClient, ProposalSource
from lead.planning.agenda import Slot
from lead.planning.campaign_room import CampaignRoom
from lead.planning.choosing import OwnClosures, WantedRuns, place
from lead.planning.displacement import DisplacementTerms
from lead.planning.hold_agreement import agree, newest_epoch
from lead.planning.limited_time import UserRoom
from lead.planning.placement import ChosenStart, Offer
from lead.planning.reserved import ReservedTime, applicant, reserved_for_others
from lead.planning.retry_times import busy_until, proposed_retry_times, refused_retry_times
from lead.planning.unplaced import summary, trace
from lead.policy.verdict import PolicyRefusal
from lead.reasons import books_without_holds, clocks_differ, taken_over
from lead.store import planning
from lead.store.planning import ExchangeOpening
from node.model.errors import DatabaseUnavailable, NotFound, ParleyError
from node.model.ids import TaskId, exchange_id, run_id
from node.model.outcomes import PlanningOutcome
from node.model.reason import Reason
from node.model.wire.participants import (
    CommitRequest,
    HoldAnswer,
    HoldRequest,
    Proposal,
    ProposalRequest,
    RunRequest,
)
from node.model.wire.tasks import Schedule
from node.runtime.batching import Batcher
from node.runtime.clock import Clock
from node.store import reservations
from node.store.database import Database

T = TypeVar("T")
ORDINARY = DisplacementTerms(0)
"""The terms of an exchange for which nobody is asked."""


@dataclass(frozen=True)
class NegotiationSettings:
    """The life of a hold, and the maximum difference of clocks; both in microseconds."""

    hold_life: int
    clock_limit: int


@dataclass
class Exchange:
    """The state of one exchange; ``reasons`` are by nominal start of the slots not placed."""

    slots: Sequence[Slot]
    offers: list[Offer] = field(default_factory=list)
    proposals: dict[str, Proposal] = field(default_factory=dict)
    choices: list[ChosenStart] = field(default_factory=list)
    reasons: dict[int, Reason] = field(default_factory=dict)
    retry_times: dict[int, int] = field(default_factory=dict)
    """By nominal start of a slot, the earliest instant to ask again, if a node named one."""
    refusals: dict[str, Reason] = field(default_factory=dict)
    id: UUID | None = None
    commit: CommitRequest | None = None
    runs: list[RunRequest] = field(default_factory=list)
    unknown_to: set[str] = field(default_factory=set)
    beyond: bool = False
    outcome: PlanningOutcome = PlanningOutcome.NO_TIME
    room: CampaignRoom | None = None
    limited: bool = False
    """True if limits of the campaign left less time than there is."""
    displacing: DisplacementTerms = ORDINARY
    """The priority of the runs, and which runs may give way to them."""
    known_epoch: int = 0
    """The highest lease epoch of the task that a participant knew, if it refused this one."""
    binding: Sequence[str] = ()
    """The names of the participants that book without holds."""

    @property
    def placed(self) -> list[ChosenStart]:
        """The choices that all participants hold."""
        return [choice for choice in self.choices if choice.slot.nominal not in self.reasons]

    def summary(self) -> Reason:
        """Return the outcome in one sentence, for lists."""
        first = next(
            (self.reasons[s.nominal] for s in self.slots if s.nominal in self.reasons), None
        )
        told = summary(self.placed, len(self.slots), first)
        return told.beside(books_without_holds(self.binding)) if self.binding else told

    def trace(self) -> dict[str, object]:
        """Return everything on which the outcome depends."""
        traced = trace(self.slots, self.offers, self.proposals, self.placed, self.refusals)
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


@dataclass(frozen=True)
class ParticipantFailure:
    """The reason why a participant's answer is useless: unreachable, or its clock is off."""

    reason: Reason
    outcome: PlanningOutcome


@dataclass(frozen=True)
class CollectedOffers:
    """The offers of participants, in their order, and the failures of others."""

    offers: list[Offer] = field(default_factory=list)
    proposals: dict[str, Proposal] = field(default_factory=dict)
    failures: dict[str, ParticipantFailure] = field(default_factory=dict)
    busy_until: int | None = None
    """The instant from which those may be asked again that are asked too much."""


async def ask(
    participants: Sequence[ProposalSource], request: ProposalRequest, clock: Clock, clock_limit: int
) -> CollectedOffers:
    """Ask all participants for proposals at the same time; nothing is booked.

    A participant whose clock is further than ``clock_limit`` (microseconds) from this node's counts
    as failed.

    :raises DatabaseUnavailable: this node's own database does not answer.
    """
    asked_at = clock.now()
    answers = await _all_answers(
        [partial(participant.propose, request) for participant in participants]
    )
    answered_at = clock.now()
    collected = CollectedOffers(busy_until=busy_until(answers, answered_at))
    for participant, answered in zip(participants, answers, strict=True):
        if isinstance(answered, DatabaseUnavailable):
            raise answered  # only this node itself answers so; another one's fault is a PeerError
        if isinstance(answered, ParleyError):
            collected.failures[participant.name] = ParticipantFailure(
                answered.reason, PlanningOutcome.UNREACHABLE
            )
            continue
        off = _clock_offset(answered.now, asked_at, answered_at)
        if abs(off) > clock_limit:
            reason = clocks_differ(participant.name, off, answered.now, answered_at)
            collected.failures[participant.name] = ParticipantFailure(reason, PlanningOutcome.CLOCK)
            continue
        collected.proposals[participant.name] = answered
        collected.offers.append(offer_of(participant.name, answered))
    return collected


def offer_of(name: str, answered: Proposal) -> Offer:
    """Return the free ranges of a proposal."""
    displacing = answered.free if answered.free_displacing is None else answered.free_displacing
    return Offer(name, answered.free, displacing)


def is_beyond_booking_horizon(
    slots: Sequence[Slot], proposals: Mapping[str, Proposal], within: int
) -> bool:
    """Return whether a slot that ends ``within`` this instant is beyond a participant's horizon."""
    latest = min(proposal.horizon for proposal in proposals.values())
    return any(latest < slot.end <= within for slot in slots)


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
        """Keep no state between two exchanges."""
        self._database = database
        self._clock = clock
        self._terms = terms
        self._limits = limits
        self._displacement = displacement
        self._openings: Batcher[ExchangeOpening, bool] = Batcher(self._open_all)

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
        nothing is chosen: the exchange is ``beyond``, and should be repeated with fewer slots.
        """
        terms = DisplacementTerms(claimed.terms.priority, _runs_that_may_yield(claimed))
        binding = [participant.name for participant in participants if participant.binding]
        exchange = Exchange(slots, displacing=terms, binding=binding)
        await self._choose(claimed, participants, exchange, within)
        if exchange.beyond or exchange.refusals:
            return exchange
        if exchange.reasons and claimed.privileged:
            exchange = await self._displace(claimed, participants, exchange, within)
        if exchange.choices:
            await self._hold(claimed, participants, exchange)
        return exchange

    async def _choose(
        self,
        claimed: Claim,
        participants: Sequence[ParticipantClient],
        exchange: Exchange,
        within: int | None,
    ) -> None:
        """Ask all participants for time, and choose starts, or find the reasons against them."""
        slots, duration = exchange.slots, claimed.terms.duration
        closures = OwnClosures(user=await self._left_to_user(claimed))
        if not closures.closes_all(slots, duration):
            await self._propose(claimed, participants, exchange)
            if exchange.reasons:
                return
            exchange.beyond = within is not None and is_beyond_booking_horizon(
                slots, exchange.proposals, within
            )
            if exchange.beyond:
                return
            closures = replace(
                closures,
                reserved=await self._reserved(claimed, slots),
                room=await self._room(claimed, slots),
            )
        wanted = WantedRuns(
            slots,
            duration,
            claimed.terms.scheduling_class,
            slip_random_generator(claimed.task, claimed.lease_epoch, claimed.terms.schedule),
            claimed.starts or (),
        )
        now = self._clock.now()
        placed = place(wanted, exchange.offers, exchange.proposals, closures, now)
        exchange.offers, exchange.proposals = placed.offers, placed.proposals
        exchange.choices, exchange.reasons = placed.choices, placed.reasons
        exchange.retry_times |= proposed_retry_times(slots, placed.reasons, placed.proposals)
        exchange.room = closures.room
        exchange.limited = closures.room is not None and closures.room.binds

    async def _displace(
        self,
        claimed: Claim,
        participants: Sequence[ParticipantClient],
        exchange: Exchange,
        within: int | None,
    ) -> Exchange:
        """Ask again for what the campaign of the task may displace; return the better exchange."""
        without = [slot for slot in exchange.slots if slot.nominal in exchange.reasons]
        waited = self._clock.now() - claimed.terms.created_at
        async with self._database.connection() as connection:
            found = await self._displacement.for_slots(connection, claimed.terms, without, waited)
        if isinstance(found, PolicyRefusal):
            exchange.reasons = {
                nominal: reason.beside(found.reason) for nominal, reason in exchange.reasons.items()
            }
        if found is None or isinstance(found, PolicyRefusal):
            return exchange
        displacing = Exchange(exchange.slots, displacing=found, binding=exchange.binding)
        await self._choose(claimed, participants, displacing, within)
        better = len(displacing.choices) > len(exchange.choices)
        return displacing if better else exchange

    async def _open_all(self, openings: Sequence[ExchangeOpening]) -> list[bool]:
        now = self._clock.now()
        async with self._database.connection() as connection:
            opened = await planning.open_negotiations(
                connection, openings, now, now + self._terms.hold_life
            )
        return [opening.exchange in opened for opening in openings]

    async def _propose(
        self, claimed: Claim, participants: Sequence[ParticipantClient], exchange: Exchange
    ) -> None:
        request = ProposalRequest(
            task=claimed.task,
            lease_epoch=claimed.lease_epoch,
            scheduling_class=claimed.terms.scheduling_class,
            duration=claimed.terms.duration,
            priority=exchange.displacing.priority,
            yielding=exchange.displacing.yielding,
            windows=tuple((slot.start, slot.end) for slot in exchange.slots),
            test=claimed.terms.test,
            campaign=claimed.terms.campaign,
            pool_task=claimed.parent,
            quotas=True,
        )
        collected = await ask(participants, request, self._clock, self._terms.clock_limit)
        exchange.proposals, exchange.offers = collected.proposals, collected.offers
        exchange.refusals |= {name: failure.reason for name, failure in collected.failures.items()}
        if collected.busy_until is not None:
            exchange.retry_times = {slot.nominal: collected.busy_until for slot in exchange.slots}
        for failure in collected.failures.values():
            exchange.fail(failure.reason, failure.outcome)
            return

    async def _left_to_user(self, claimed: Claim) -> UserRoom | None:
        """Return what the limits of this host leave to the user whose task it is, if they bind."""
        if not claimed.limit.binds_user:
            return None
        now, duration = self._clock.now(), claimed.terms.duration
        async with self._database.connection() as connection:
            left = await self._limits.users.left_to_user(connection, claimed.limit, duration, now)
        return UserRoom(*left)

    async def _reserved(self, claimed: Claim, slots: Sequence[Slot]) -> ReservedTime | None:
        """Return the time of its pool that is reserved for others, if the task has seats of one."""
        if claimed.pool is None:
            return None
        since, until = min(slot.start for slot in slots), max(slot.end for slot in slots)
        async with self._database.connection() as connection:
            reserved = await reservations.pool_spans_between(
                connection, [claimed.pool], since, until
            )
        whose = applicant(claimed.terms, claimed.parent or claimed.task)
        return reserved_for_others(claimed.pool, reserved[claimed.pool], whose)

    async def _room(self, claimed: Claim, slots: Sequence[Slot]) -> CampaignRoom | None:
        """Return what the limits of its campaign leave the task, if they bind."""
        if not claimed.limited:
            return None
        until, now = max(slot.end for slot in slots), self._clock.now()
        async with self._database.connection() as connection:
            return await self._limits.campaigns.room(connection, claimed.terms, until, now)

    async def _hold(
        self, claimed: Claim, participants: Sequence[ParticipantClient], exchange: Exchange
    ) -> None:
        exchange.id = exchange_id(TaskId(claimed.task), claimed.lease_epoch)
        requests = {
            choice.slot.nominal: _run_request(claimed, choice) for choice in exchange.choices
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
            priority=exchange.displacing.priority,
            yielding=exchange.displacing.yielding,
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
    held = await _all_answers(
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
            await _answer(partial(participant.hold, exchange, asked))
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


def _runs_that_may_yield(claimed: Claim) -> tuple[UUID, ...] | None:
    return None if claimed.yielding is None else tuple(claimed.yielding)


def _run_request(claimed: Claim, choice: ChosenStart) -> RunRequest:
    slot = choice.slot
    return RunRequest(
        run=run_id(TaskId(claimed.task), slot.nominal, slot.attempt),
        slot=slot.nominal,
        attempt=slot.attempt,
        starts_at=choice.starts_at,
        ends_at=choice.starts_at + claimed.terms.duration,
        displacing=choice.displacing,
    )


def slip_random_generator(task: UUID, lease_epoch: int, schedule: Schedule) -> random.Random | None:
    """Return the generator of random slips; None if starts are not random.

    It is seeded by task and attempt, so that the same state gives the same plan.
    """
    if not schedule.slip_random:
        return None
    return random.Random(f"{task} {lease_epoch}")


def _clock_offset(theirs: int, asked_at: int, answered_at: int) -> int:
    """Return how far their clock is ahead (µs): zero if it lies between question and answer."""
    if theirs < asked_at:
        return theirs - asked_at
    return max(0, theirs - answered_at)


async def _all_answers(questions: Sequence[Callable[[], Awaitable[T]]]) -> list[T | ParleyError]:
    """Await all answers; an expected error takes the place of its answer, others are raised.

    The questions are functions, not coroutines, so that cancellation leaves none un-awaited.
    """
    return await asyncio.gather(*(_answer(ask) for ask in questions))


async def _answer(ask: Callable[[], Awaitable[T]]) -> T | ParleyError:
    try:
        return await ask()
    except ParleyError as error:
        return error
