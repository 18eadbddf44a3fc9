"""The plan of one task: the starts, chosen within what was collected and is closed here. Pure.

Planning books a plan, and a preview shows it: both find the same starts and tell the same reasons.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from lead.planning.agenda import Slot
from lead.planning.campaign_room import CampaignRoom
from lead.planning.closures import OwnOffer
from lead.planning.displacement import DisplacementTerms
from lead.planning.host_quotas import QuotaCount
from lead.planning.placement import ChosenStart, Offer, choose
from lead.planning.reserved import ReservedTime
from lead.planning.retry_times import proposed_retry_times
from lead.planning.tentative_bookings import TentativeBookings
from lead.planning.unplaced import unplaced_reasons
from lead.policy.verdict import PolicyRefusal
from node.model.classes import SchedulingClass
from node.model.outcomes import PlanningOutcome
from node.model.reason import Reason
from node.model.wire.participants import Proposal


@dataclass(frozen=True)
class ParticipantFailure:
    """The reason why a participant's answer is useless: unreachable, or its clock is off."""

    reason: Reason
    outcome: PlanningOutcome


@dataclass(frozen=True)
class Collected:
    """The offers of participants, in their order, the failures of others, and the user's limits.

    ``busy_until`` is when those may be asked again that are asked too much. ``user`` is what the
    limits of this host leave to the user, if they bind.
    """

    offers: list[Offer] = field(default_factory=list)
    proposals: dict[str, Proposal] = field(default_factory=dict)
    failures: dict[str, ParticipantFailure] = field(default_factory=dict)
    busy_until: int | None = None
    user: OwnOffer | None = None

    @property
    def closed(self) -> bool:
        """Return whether the limits of the user leave no time: then nobody else was asked."""
        return self.user is not None and not self.user[0].free


def exceeded_horizon(
    slots: Sequence[Slot], proposals: Mapping[str, Proposal], within: int
) -> int | None:
    """Return a participant's horizon if a slot that ends ``within`` an instant is beyond it."""
    horizon = min((proposal.horizon for proposal in proposals.values()), default=within)
    return horizon if any(horizon < slot.end <= within for slot in slots) else None


@dataclass(frozen=True)
class OwnClosures:
    """Time that this host closes to the runs of a task: by its user, its pool, and its campaign."""

    user: OwnOffer | None = None
    reserved: ReservedTime | None = None
    room: CampaignRoom | None = None

    def offers(self, slots: Sequence[Slot], duration: int, now: int) -> Iterator[OwnOffer]:
        """Yield what each of them leaves of these slots, as a participant would offer it."""
        if self.user is not None:
            yield self.user
        if self.reserved is not None and self.reserved.spans:
            yield self.reserved.offer(slots, duration, now)
        if self.room is not None and self.room.full:
            yield self.room.offer(slots, duration, now)


@dataclass(frozen=True)
class WantedRuns:
    """The runs to place: one for each slot, of this duration (µs) and class.

    ``rng`` draws the starts, if they are random. Starts that were ``found`` before are preferred.
    """

    slots: Sequence[Slot]
    duration: int
    scheduling_class: SchedulingClass
    rng: random.Random | None = None
    found: Sequence[int] = ()


@dataclass(frozen=True)
class Plan:
    """The runs to book of the slots of a task: the chosen starts, and what decided.

    ``reasons`` are by nominal start of the other slots, ``retry_times`` the earliest instants to
    ask again, if a node named one. ``displacing`` is the priority of the runs, and which runs may
    give way to them. With ``failures`` of participants, or ``beyond`` the horizon of one, nothing
    is chosen. ``limited`` tells that limits of the campaign left less time than there is.
    ``afterwards`` is why nothing gives way either once the task has waited for it, if that is so.
    """

    slots: Sequence[Slot] = ()
    displacing: DisplacementTerms = field(default_factory=partial(DisplacementTerms, 0))
    offers: Sequence[Offer] = ()
    proposals: Mapping[str, Proposal] = field(default_factory=dict)
    failures: Mapping[str, ParticipantFailure] = field(default_factory=dict)
    choices: Sequence[ChosenStart] = ()
    reasons: Mapping[int, Reason] = field(default_factory=dict)
    retry_times: Mapping[int, int] = field(default_factory=dict)
    beyond: int | None = None
    limited: bool = False
    afterwards: PolicyRefusal | None = None

    def without_early(self, displacing: DisplacementTerms, before: Plan) -> Plan:
        """Return the plan with what these terms displace, from their earliest start on.

        Earlier runs that would displace others stay without a time, as in the plan ``before``.
        """
        early = {
            each.slot.nominal
            for each in self.choices
            if each.displacing and each.starts_at < displacing.earliest
        }
        return replace(
            self,
            displacing=displacing,
            choices=[each for each in self.choices if each.slot.nominal not in early],
            reasons={**self.reasons, **{at: before.reasons[at] for at in early}},
        )

    def told_beside(self, why: Reason) -> Plan:
        """Return the plan with a further reason for each slot without time."""
        return replace(self, reasons={at: it.beside(why) for at, it in self.reasons.items()})

    @property
    def failure(self) -> ParticipantFailure | None:
        """Return why nothing could be asked of the first participant that failed."""
        return next(iter(self.failures.values()), None)


def plan_of(
    wanted: WantedRuns,
    displacing: DisplacementTerms,
    collected: Collected,
    closures: OwnClosures,
    now: int,
    tentative: TentativeBookings | None = None,
) -> Plan:
    """Choose the starts of runs from what was collected, in the order of the participants.

    ``tentative`` is what was chosen for others and is not booked yet, if anything was.
    """
    slots, duration = wanted.slots, wanted.duration
    own = list(closures.offers(slots, duration, now))
    offers = [*collected.offers, *(offer for offer, _ in own)]
    proposals = {**collected.proposals, **{offer.name: proposal for offer, proposal in own}}
    if tentative is not None and not collected.closed:
        runs = wanted.scheduling_class, duration
        left = [tentative.beside(it, proposals[it.name], slots, runs) for it in offers]
        if closures.user is not None and not (users := left[len(collected.offers)])[0].free:
            left = [users]  # nobody else would have been asked
        offers = [offer for offer, _ in left]
        proposals = {offer.name: proposal for offer, proposal in left}
    quotas = QuotaCount.of(proposals, None if tentative is None else tentative.quotas)
    choices = choose(slots, offers, duration, wanted.rng, wanted.found, quotas)
    reasons = unplaced_reasons(slots, choices, duration, offers, proposals, quotas)
    if closures.room is not None:
        choices, beyond = closures.room.first(choices)
        reasons |= beyond
    return Plan(
        slots,
        displacing,
        offers,
        proposals,
        choices=choices,
        reasons=reasons,
        retry_times=proposed_retry_times(slots, reasons, proposals, quotas),
        limited=closures.room is not None and closures.room.binds,
    )


def plan_without_choice(
    wanted: WantedRuns, displacing: DisplacementTerms, collected: Collected, beyond: int | None
) -> Plan:
    """Return the plan in which participants failed, or slots are beyond the horizon of one."""
    plan = Plan(
        wanted.slots,
        displacing,
        collected.offers,
        collected.proposals,
        collected.failures,
        beyond=beyond,
    )
    if (failure := plan.failure) is None:
        return plan
    nominals = [slot.nominal for slot in wanted.slots]
    later = {} if collected.busy_until is None else dict.fromkeys(nominals, collected.busy_until)
    return replace(plan, reasons=dict.fromkeys(nominals, failure.reason), retry_times=later)
