"""The choice of starts from offers of participants, within the limits of this host. Pure.

Planning and previews choose by it, so that both find the same starts and tell the same reasons. To
the choice, what this host itself closes to a task is one participant more: the limits of its user,
the reserved time of its pool, and the limits of its campaign.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lead.planning.agenda import Slot
from lead.planning.campaign_room import CampaignRoom
from lead.planning.host_quotas import QuotaCount
from lead.planning.limited_time import UserRoom
from lead.planning.placement import ChosenStart, Offer, choose
from lead.planning.reserved import ReservedTime
from lead.planning.tentative_bookings import TentativeBookings
from lead.planning.unplaced import unplaced_reasons
from node.model.classes import SchedulingClass
from node.model.reason import Reason
from node.model.wire.participants import Proposal


@dataclass(frozen=True)
class OwnClosures:
    """Time that this host closes to the runs of a task: by its user, its pool, and its campaign."""

    user: UserRoom | None = None
    reserved: ReservedTime | None = None
    room: CampaignRoom | None = None

    def offers(
        self, slots: Sequence[Slot], duration: int, now: int
    ) -> Iterator[tuple[Offer, Proposal]]:
        """Yield what each of them leaves of these slots, as a participant would offer it.

        If the limits of the user leave nothing, nothing else needs to be asked.
        """
        if self.user is not None and self.user.binds:
            yield self.user.offer(slots, duration, now)
            if self.closes_all(slots, duration):
                return
        if self.reserved is not None and self.reserved.spans:
            yield self.reserved.offer(slots, duration, now)
        if self.room is not None and self.room.full:
            yield self.room.offer(slots, duration, now)

    def closes_all(self, slots: Sequence[Slot], duration: int) -> bool:
        """Return whether the limits of the user leave no time in any of these slots."""
        return self.user is not None and not self.user.leaves_time(slots, duration)


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
class Placed:
    """The chosen starts, by nominal start the reasons of the other slots, and what decided."""

    offers: list[Offer]
    proposals: dict[str, Proposal]
    choices: list[ChosenStart]
    reasons: dict[int, Reason]


def place(
    wanted: WantedRuns,
    offers: Sequence[Offer],
    proposals: Mapping[str, Proposal],
    closures: OwnClosures,
    now: int,
    tentative: TentativeBookings | None = None,
) -> Placed:
    """Choose the starts of runs from the offers and proposals of the participants, in their order.

    ``tentative`` is what was chosen for others and is not booked yet, if anything was.
    """
    slots, duration = wanted.slots, wanted.duration
    own = list(closures.offers(slots, duration, now))
    all_offers = [*offers, *(offer for offer, _ in own)]
    all_proposals = {**proposals, **{offer.name: proposal for offer, proposal in own}}
    if closures.closes_all(slots, duration):
        deciding = [offer for offer, _ in own]
    elif tentative is None:
        deciding = all_offers
    else:
        deciding = [tentative.left(offer, wanted.scheduling_class) for offer in all_offers]
    told = {offer.name: all_proposals[offer.name] for offer in deciding}
    quotas = QuotaCount.of(told, None if tentative is None else tentative.quotas)
    choices = choose(slots, deciding, duration, wanted.rng, wanted.found, quotas)
    reasons = unplaced_reasons(slots, choices, duration, deciding, told, quotas)
    if closures.room is not None:
        choices, beyond = closures.room.first(choices)
        reasons |= beyond
    return Placed(all_offers, all_proposals, choices, reasons)
