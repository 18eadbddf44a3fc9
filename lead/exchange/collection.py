"""Plans one task: asks its participants for time, adds what this host closes, and chooses.

The plan is a frozen value. Planning books it (``negotiation.py``) and a preview shows it
(``preview.py``); up to here both do the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from lead.model.participants import ProposalSource
from lead.model.reasons import clocks_differ
from lead.planning.agenda import Slot
from lead.planning.campaign_room import CampaignRoom
from lead.planning.choosing import (
    Collected,
    OwnClosures,
    ParticipantFailure,
    Plan,
    WantedRuns,
    exceeded_horizon,
    plan_of,
    plan_without_choice,
)
from lead.planning.displacement import DisplacementTerms
from lead.planning.limited_time import UserRoom
from lead.planning.placement import Offer
from lead.planning.reserved import ReservedTime
from lead.planning.retry_times import busy_until
from lead.planning.tentative_bookings import TentativeBookings
from lead.policy.verdict import PolicyRefusal
from node.model.errors import DatabaseUnavailable, ParleyError
from node.model.outcomes import PlanningOutcome
from node.model.wire.participants import Proposal, ProposalRequest
from node.model.wire.tasks import Schedule
from node.runtime.clock import Clock

T = TypeVar("T")


@dataclass(frozen=True)
class PlanningCase:
    """A task to plan: whom to ask what, which runs are wanted, and what this host knows of it.

    ``user_room()``, ``reserved()``, and ``room()`` return what the limits of its user, reservations
    of its pool, and the limits of its campaign leave it, None if nothing binds it.
    ``displaceable(slots)`` returns what its campaign lets it displace for slots without time, why
    nothing, or None. If a slot that ends ``within`` this instant lies beyond the horizon of a
    participant, nothing is chosen.
    """

    participants: Sequence[ProposalSource]
    request: ProposalRequest
    wanted: WantedRuns
    user_room: Callable[[], Awaitable[UserRoom | None]]
    reserved: Callable[[], Awaitable[ReservedTime | None]]
    room: Callable[[], Awaitable[CampaignRoom | None]]
    displaceable: Callable[[Sequence[Slot]], Awaitable[DisplacementTerms | PolicyRefusal | None]]
    within: int | None = None

    def displacing(self, terms: DisplacementTerms) -> PlanningCase:
        """Return the case that asks for what these terms let it displace."""
        slots = [_after(terms.earliest, slot, self.wanted.duration) for slot in self.wanted.slots]
        update = {
            "priority": terms.priority,
            "yielding": terms.yielding,
            "windows": tuple((slot.start, slot.end) for slot in slots),
        }
        return replace(
            self,
            request=self.request.model_copy(update=update),
            wanted=replace(self.wanted, slots=slots),
        )


class PlanMaker:
    """Makes the plans of tasks; books and stores nothing."""

    def __init__(
        self, clock: Clock, clock_limit: int, learn_uses: Callable[[], Awaitable[None]]
    ) -> None:
        """A participant whose clock is further away than ``clock_limit`` (µs) counts as failed.

        ``learn_uses()`` asks other leads what the campaigns that they share have used.
        """
        self._clock = clock
        self._clock_limit = clock_limit
        self._learn_uses = learn_uses

    async def plan(self, case: PlanningCase) -> Plan:
        """Return the plan of a task."""
        return await self.choose(case, await self.collect(case))

    async def collect(self, case: PlanningCase) -> Collected:
        """Ask all participants, unless the limits of the user leave no time anyway."""
        wanted, user = case.wanted, await case.user_room()
        left = None
        if user is not None and user.binds:
            left = user.offer(wanted.slots, wanted.duration, self._clock.now())
            if not left[0].free:
                return Collected(user=left)
        asked, _ = await asyncio.gather(
            ask(case.participants, case.request, self._clock, self._clock_limit),
            self._learn_uses(),
        )
        return replace(asked, user=left)

    async def choose(
        self, case: PlanningCase, collected: Collected, tentative: TentativeBookings | None = None
    ) -> Plan:
        """Return the plan with what was collected, beside what is ``tentative``."""
        plan = await self._choose(case, collected, tentative)
        without = [slot for slot in plan.slots if slot.nominal in plan.reasons]
        if plan.failures or not without:
            return plan
        terms = await case.displaceable(without)
        if terms is None:
            return plan
        if isinstance(terms, PolicyRefusal):
            return replace(plan.told_beside(terms.reason), afterwards=terms.afterwards)
        displacing = case.displacing(terms)
        other = await self._choose(displacing, await self.collect(displacing), tentative)
        other = other.without_early(terms, plan)
        if len(other.choices) > len(plan.choices):
            return other
        return plan if terms.too_early is None else plan.told_beside(terms.too_early)

    async def _choose(
        self, case: PlanningCase, collected: Collected, tentative: TentativeBookings | None
    ) -> Plan:
        wanted = case.wanted
        displacing = DisplacementTerms(case.request.priority, case.request.yielding)
        beyond = None
        if case.within is not None and not collected.failures:
            beyond = exceeded_horizon(wanted.slots, collected.proposals, case.within)
        if collected.failures or beyond is not None:
            return plan_without_choice(wanted, displacing, collected, beyond)
        closures = await self.closures(case, collected)
        return plan_of(wanted, displacing, collected, closures, self._clock.now(), tentative)

    async def closures(self, case: PlanningCase, collected: Collected) -> OwnClosures:
        """Return what this host itself closes to the task."""
        if collected.closed:
            return OwnClosures(collected.user)
        return OwnClosures(collected.user, await case.reserved(), await case.room())


def _after(earliest: int, slot: Slot, duration: int) -> Slot:
    """Return the part of a slot from an instant on; all of it if it leaves a run no time."""
    later = replace(slot, start=max(slot.start, earliest))
    return later if later.latest_start(duration) >= later.start else slot


async def ask(
    participants: Sequence[ProposalSource], request: ProposalRequest, clock: Clock, clock_limit: int
) -> Collected:
    """Ask all participants for proposals at the same time; nothing is booked.

    A participant whose clock is further than ``clock_limit`` (microseconds) from this node's counts
    as failed.

    :raises DatabaseUnavailable: this node's own database does not answer.
    """
    asked_at = clock.now()
    answers = await all_answers(
        [partial(participant.propose, request) for participant in participants]
    )
    answered_at = clock.now()
    collected = Collected(busy_until=busy_until(answers, answered_at))
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


async def all_answers(questions: Sequence[Callable[[], Awaitable[T]]]) -> list[T | ParleyError]:
    """Await all answers; an expected error takes the place of its answer, others are raised.

    The questions are functions, not coroutines, so that cancellation leaves none un-awaited.
    """
    return await asyncio.gather(*(answer(ask) for ask in questions))


async def answer(ask: Callable[[], Awaitable[T]]) -> T | ParleyError:
    """Await an answer; an expected error takes its place, others are raised."""
    try:
        return await ask()
    except ParleyError as error:
        return error
