"""One exchange: propose, choose, hold, decide; commits and releases then go out by ``delivery``.

The order is that of the protocol. Names come before messages: the exchange and its run ids are
written before the first hold leaves. Participants are asked all at once. The decision is one
transaction that also writes the trace, the slots that wait, the outbox and what is planned next.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from uuid import UUID

from lead.model import Claim
from lead.participants import ParticipantClient, ProposalSource
from lead.planning.agenda import Slot
from lead.planning.hold_agreement import agree
from lead.planning.placement import ChosenStart, Offer, choose
from lead.planning.reasons import sentence, trace, unplaced_reasons
from lead.planning.reserved import applicant, reserved_for_others
from lead.store import planning
from lead.store.planning import ExchangeOpening
from node.batching import Batcher
from node.clock import Clock
from node.model import times
from node.model.errors import NotFound, ParleyError
from node.model.ids import TaskId, exchange_id, run_id
from node.model.outcomes import PlanningOutcome
from node.model.times import format_instant
from node.model.wire.participants import (
    CommitRequest,
    HoldAnswer,
    HoldRequest,
    Proposal,
    ProposalRequest,
    RunRequest,
)
from node.model.wire.tasks import Schedule
from node.store import reservations
from node.store.database import Database

T = TypeVar("T")


@dataclass(frozen=True)
class NegotiationSettings:
    """What the lead's owner has set: life of a hold, and how far apart clocks may be."""

    hold_life: int
    clock_limit: int


@dataclass
class Exchange:
    """What came of one exchange so far."""

    slots: Sequence[Slot]
    offers: list[Offer] = field(default_factory=list)
    proposals: dict[str, Proposal] = field(default_factory=dict)
    choices: list[ChosenStart] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    id: UUID | None = None
    commit: CommitRequest | None = None
    runs: list[RunRequest] = field(default_factory=list)
    unknown_to: set[str] = field(default_factory=set)
    beyond: bool = False
    outcome: PlanningOutcome = PlanningOutcome.NO_TIME

    @property
    def placed(self) -> list[ChosenStart]:
        """The choices that all participants hold."""
        return [choice for choice in self.choices if choice.slot.nominal not in self.reasons]

    def sentence(self) -> str:
        """What came of it, for lists."""
        first = next(
            (self.reasons[s.nominal] for s in self.slots if s.nominal in self.reasons), None
        )
        return sentence(self.placed, len(self.slots), first)

    def trace(self) -> dict[str, object]:
        """All that it was made of."""
        return trace(self.slots, self.offers, self.proposals, self.placed, self.refusals)

    def fail(self, reason: str, outcome: PlanningOutcome) -> None:
        """None of the slots is placed, all for one reason."""
        self.outcome = outcome
        self.reasons = {slot.nominal: reason for slot in self.slots}

    def take_back(self, ended: set[UUID]) -> None:
        """These runs were cancelled or displaced while they were being held: commit the others."""
        if self.commit is None or not ended:
            return
        taken = {
            run.slot: "taken back while it was being booked"
            for run in self.runs
            if run.run in ended
        }
        self.reasons |= taken
        self.runs = [run for run in self.runs if run.run not in ended]
        self.outcome = PlanningOutcome.PARTLY_BOOKED if self.runs else PlanningOutcome.TAKEN_BACK
        kept = tuple(run.run for run in self.runs)
        self.commit = CommitRequest(runs=kept, data=self.commit.data) if kept else None


@dataclass(frozen=True)
class ParticipantFailure:
    """Why a participant's answer is of no use: it is ``unreachable``, or its ``clock`` is off."""

    reason: str
    outcome: PlanningOutcome


@dataclass(frozen=True)
class CollectedOffers:
    """What the participants offer, in their order, and who could not be asked."""

    offers: list[Offer] = field(default_factory=list)
    proposals: dict[str, Proposal] = field(default_factory=dict)
    failures: dict[str, ParticipantFailure] = field(default_factory=dict)


async def ask(
    participants: Sequence[ProposalSource], request: ProposalRequest, clock: Clock, clock_limit: int
) -> CollectedOffers:
    """Proposals of all participants, asked at once; nothing is booked by it.

    A clock further than ``clock_limit`` (microseconds) from this node's makes a proposal useless.
    """
    asked_at = clock.now()
    answers = await _all([partial(participant.propose, request) for participant in participants])
    answered_at = clock.now()
    asked = CollectedOffers()
    for participant, answered in zip(participants, answers, strict=True):
        if isinstance(answered, ParleyError):
            asked.failures[participant.name] = ParticipantFailure(
                answered.detail, PlanningOutcome.UNREACHABLE
            )
            continue
        off = _clock_offset(answered.now, asked_at, answered_at)
        if abs(off) > clock_limit:
            reason = _clocks(participant.name, answered.now, answered_at, off)
            asked.failures[participant.name] = ParticipantFailure(reason, PlanningOutcome.CLOCK)
            continue
        asked.proposals[participant.name] = answered
        asked.offers.append(offer_of(participant.name, answered))
    return asked


def offer_of(name: str, answered: Proposal) -> Offer:
    """The ranges of an answer."""
    displacing = answered.free if answered.free_displacing is None else answered.free_displacing
    return Offer(name, answered.free, displacing)


def is_beyond_booking_horizon(
    slots: Sequence[Slot], proposals: Mapping[str, Proposal], within: int
) -> bool:
    """Whether somebody books less far ahead than one of these that ends ``within`` the horizon."""
    latest = min(proposal.horizon for proposal in proposals.values())
    return any(latest < slot.end <= within for slot in slots)


class Negotiator:
    """Leads exchanges with the participants of a task."""

    def __init__(self, database: Database, clock: Clock, terms: NegotiationSettings) -> None:
        """Holds nothing between two exchanges."""
        self._database = database
        self._clock = clock
        self._terms = terms
        self._openings: Batcher[ExchangeOpening, bool] = Batcher(self._open_all)

    @property
    def hold_life(self) -> int:
        """How long a hold lasts without a word of this lead."""
        return self._terms.hold_life

    async def exchange(
        self,
        claimed: Claim,
        participants: Sequence[ParticipantClient],
        slots: Sequence[Slot],
        within: int | None = None,
    ) -> Exchange:
        """Ask for these slots and hold what was chosen; nothing is decided yet.

        If a participant books less far ahead than a slot that ends ``within`` this horizon, nothing
        is chosen: the slots are ``beyond``, and fewer are to be asked for.
        """
        done = Exchange(slots)
        await self._propose(claimed, participants, done)
        if done.reasons:
            return done
        done.beyond = within is not None and is_beyond_booking_horizon(
            slots, done.proposals, within
        )
        if done.beyond:
            return done
        rng = slip_random_generator(claimed.task, claimed.lease_epoch, claimed.terms.schedule)
        done.choices = choose(slots, done.offers, claimed.terms.duration, rng, claimed.starts or ())
        done.reasons = unplaced_reasons(
            slots, done.choices, claimed.terms.duration, done.offers, done.proposals
        )
        if done.choices:
            await self._hold(claimed, participants, done)
        return done

    async def _open_all(self, openings: Sequence[ExchangeOpening]) -> list[bool]:
        now = self._clock.now()
        async with self._database.connection() as connection:
            opened = await planning.open_negotiations(
                connection, openings, now, now + self._terms.hold_life
            )
        return [opening.exchange in opened for opening in openings]

    async def _propose(
        self, claimed: Claim, participants: Sequence[ParticipantClient], done: Exchange
    ) -> None:
        request = ProposalRequest(
            task=claimed.task,
            lease_epoch=claimed.lease_epoch,
            scheduling_class=claimed.terms.scheduling_class,
            duration=claimed.terms.duration,
            priority=claimed.terms.priority,
            yielding=_yielding(claimed),
            windows=tuple((slot.start, slot.end) for slot in done.slots),
            test=claimed.terms.test,
            campaign=claimed.terms.campaign,
            pool_task=claimed.parent,
        )
        asked = await ask(participants, request, self._clock, self._terms.clock_limit)
        done.proposals, done.offers = asked.proposals, asked.offers
        done.refusals |= {name: failure.reason for name, failure in asked.failures.items()}
        for failure in asked.failures.values():
            done.fail(failure.reason, failure.outcome)
            return
        if claimed.pool is not None:
            await self._close(claimed, claimed.pool, done)

    async def _close(self, claimed: Claim, pool: str, done: Exchange) -> None:
        """What is reserved of the pool of a seat's task is as if somebody were busy."""
        since = min(slot.start for slot in done.slots)
        until = max(slot.end for slot in done.slots)
        async with self._database.connection() as connection:
            reserved = await reservations.for_pools(connection, [pool], since, until)
        whose = applicant(claimed.terms, claimed.parent or claimed.task)
        left = reserved_for_others(pool, reserved[pool], whose)
        if left.spans:
            now = self._clock.now()
            offer, done.proposals[left.name] = left.offer(done.slots, claimed.terms.duration, now)
            done.offers.append(offer)

    async def _hold(
        self, claimed: Claim, participants: Sequence[ParticipantClient], done: Exchange
    ) -> None:
        done.id = exchange_id(TaskId(claimed.task), claimed.lease_epoch, 1)
        requests = {choice.slot.nominal: _run_request(claimed, choice) for choice in done.choices}
        opening = ExchangeOpening(done.id, claimed, [request.run for request in requests.values()])
        if not await self._openings.ask(opening):
            done.fail("another worker has taken the task over", PlanningOutcome.LEASE_LOST)
            done.id = None
            return
        request = HoldRequest(
            task=claimed.task,
            lease_epoch=claimed.lease_epoch,
            tool=claimed.terms.tool or "",
            priority=claimed.terms.priority,
            yielding=_yielding(claimed),
            revision=claimed.terms.revision,
            life=self._terms.hold_life,
            runs=tuple(requests.values()),
        )
        answers = await _all(
            [partial(participant.hold, done.id, request) for participant in participants]
        )
        _agree(participants, answers, requests, done)


def _agree(
    participants: Sequence[ParticipantClient],
    answers: Sequence[HoldAnswer | ParleyError],
    requests: dict[int, RunRequest],
    done: Exchange,
) -> None:
    """Keep what all hold; give every other choice its reason."""
    names = [participant.name for participant in participants]
    agreed = agree([r.run for r in requests.values()], list(zip(names, answers, strict=True)))
    done.unknown_to = {
        participant.identity
        for participant, answered in zip(participants, answers, strict=True)
        if isinstance(answered, NotFound)
    }
    done.refusals |= agreed.failed
    done.reasons |= {
        nominal: agreed.refused[request.run]
        for nominal, request in requests.items()
        if request.run in agreed.refused
    }
    done.runs = [request for request in requests.values() if request.run not in agreed.refused]
    done.outcome = PlanningOutcome.PARTLY_BOOKED if done.runs and done.reasons else agreed.outcome
    if done.runs:
        data = {
            str(place): answered.data
            for place, answered in enumerate(answers)
            if isinstance(answered, HoldAnswer)
        }
        done.commit = CommitRequest(runs=agreed.held, data=data)


def _yielding(claimed: Claim) -> tuple[UUID, ...] | None:
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
    """For a random slip: seeded by task and attempt, so that the same state plans the same."""
    if not schedule.slip_random:
        return None
    return random.Random(f"{task} {lease_epoch}")


def _clock_offset(theirs: int, asked_at: int, answered_at: int) -> int:
    """How far their clock is ahead of ours: zero if it fits between question and answer."""
    if theirs < asked_at:
        return theirs - asked_at
    return max(0, theirs - answered_at)


def _clocks(name: str, theirs: int, ours: int, off: int) -> str:
    way = "ahead of" if off > 0 else "behind"
    return (
        f"the clock of {name} is {abs(off) / times.SECOND:.1f} s {way} this node's "
        f"(theirs {format_instant(theirs)}, ours {format_instant(ours)})"
    )


async def _all(questions: Sequence[Callable[[], Awaitable[T]]]) -> list[T | ParleyError]:
    """Every answer, or the error in its place; other exceptions are faults and go on.

    Whoever is cancelled before it could ask has not asked: nothing is left that nobody awaits.
    """
    return await asyncio.gather(*(_answer(ask) for ask in questions))


async def _answer(ask: Callable[[], Awaitable[T]]) -> T | ParleyError:
    try:
        return await ask()
    except ParleyError as error:
        return error
