"""The slots of one case, and the time that nodes offer for them, as a node search learns of it."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from itertools import islice
from uuid import UUID

from lead.exchange.collection import offer_of
from lead.model.reasons import too_much_to_displace
from lead.planning.campaign_room import CampaignRoom
from lead.planning.host_quotas import QuotaCount, TakenQuotas
from lead.planning.limited_time import NAME
from lead.planning.placement import ChosenStart, Offer, choose
from lead.planning.pool_view import SeatCase
from lead.planning.seat_selection import NO_TIME, SpreadLimit, TimeFound, time_found
from lead.policy.fill import reservations
from lead.policy.placement_requests import Ask
from lead.policy.view import PostedRun, ReservationView
from node.model.reason import Reason
from node.model.spans import Span, clip, intersect, normalise, subtract
from node.model.wire.participants import BATCH_MAX, Proposal, ProposalRequest
from node.model.wire.tasks import PRIORITY_MAX

FIRST_EPOCH = 1


class SeatSlots:
    """The slots of one case and the answers of nodes (by name) so far.

    ``proposals`` and ``offers`` are of the nodes that answered, ``failures`` the reasons of those
    that did not (or whose time must not be used). ``found`` is the time that each node has for the
    slots, ``full`` are nodes that were not asked because they have none. ``reserved`` is what
    the pool's own reservations, and the limits of its campaign, leave, as offers.
    """

    def __init__(
        self,
        request: Ask,
        case: SeatCase,
        fixed: Sequence[str],
        spread: SpreadLimit,
        may_yield: Sequence[PostedRun] | None,
        taken: TakenQuotas,
    ) -> None:
        """``fixed`` are nodes that take part in every run.

        ``may_yield`` are the runs that may give way; None is any run of lower priority. ``taken``
        is what seats that were given take of the quotas of nodes.
        """
        self._taken = taken
        self.placement = request
        self.may_yield = may_yield
        self.case = case
        self.fixed = fixed
        self.spread = spread
        self.kind = case.pool_task.terms.scheduling_class
        self.windows = case.windows
        self.slots = self.windows[:BATCH_MAX]
        self.offers: dict[str, Offer] = {}
        self.proposals: dict[str, Proposal] = {}
        self.failures: dict[str, Reason] = {}
        self.found: dict[str, TimeFound] = {}
        self.full: dict[str, Offer] = {}
        self.reserved: list[Offer] = []

    @property
    def wanted_seats(self) -> int:
        """Return the number of seats to fill: the empty ones, as far as limits permit."""
        return min(len(self.case.empty), self.placement.wanted)

    def close_reserved_time(self, now: int) -> None:
        """Leave out the pool's time that is reserved for others, or in which limits are reached.

        These are limits of its campaign, and those of this host for its user.
        """
        if not self.slots:
            return
        case, duration, closed = self.case, self.case.pool_task.terms.duration, self.case.closed
        room = CampaignRoom(self.case.pool_task.campaign, self.placement.full)
        answers = [(closed.name, closed.offer(self.slots, duration, now))] if closed.spans else []
        answers += [(room.name, room.offer(self.slots, duration, now))] if room.binds else []
        if case.user is not None and case.user.binds:
            answers.append((NAME, case.user.offer(self.slots, duration, now)))
        for name, (offer, proposal) in answers:
            self.proposals[name] = proposal
            self.reserved.append(offer)

    @cached_property
    def request(self) -> ProposalRequest:
        """The question that nodes are asked."""
        displacing, named = self.placement.displacing, self.may_yield
        own = self.case.pool_task.terms.priority
        return ProposalRequest(
            task=self.case.pool_task.id,
            lease_epoch=FIRST_EPOCH,
            scheduling_class=self.kind,
            duration=self.case.pool_task.terms.duration,
            priority=own if displacing is None else min(displacing.priority, PRIORITY_MAX),
            yielding=None if named is None else tuple(UUID(run.run) for run in named),
            windows=tuple((slot.start, slot.end) for slot in self.slots),
            test=self.case.pool_task.terms.test,
            campaign=self.case.pool_task.campaign,
            quotas=True,
        )

    def add(self, name: str, proposal: Proposal) -> None:
        """Add what a node answered."""
        self.proposals[name] = proposal
        self.offers[name] = offer_of(name, proposal)

    def has_failed(self, names: Iterable[str]) -> bool:
        """Return whether one of these nodes did not answer."""
        return any(name in self.failures for name in names)

    def next_nodes(
        self, order: Sequence[str], most: int, is_worth_asking: Callable[[str], bool]
    ) -> list[str]:
        """Return the nodes to ask next, ``most`` of them, of those that are worth asking.

        Nodes that fit together by their spread come first.
        """
        known = self.offers.keys() | self.failures.keys() | self.full.keys()
        unknown = [name for name in order if name not in known]
        worthless = set()

        def promising() -> Iterator[str]:
            for name in unknown:
                if is_worth_asking(name):
                    yield name
                else:
                    worthless.add(name)

        chosen = self.spread.kept(promising(), self.case.sitting.values(), most)
        if len(chosen) < most:
            rest = (name for name in unknown if name not in worthless and name not in chosen)
            chosen += list(islice(rest, most - len(chosen)))
        return chosen

    def slip_on(self, names: Iterable[str]) -> int:
        """Return how far runs on these nodes may slip (µs) to end before protected time there.

        A negative value means that a run cannot even start at its slot.
        """
        case, duration = self.case, self.case.pool_task.terms.duration
        slip = case.recurrence.slip
        for start, end in (it.span for it in self._protected_slots(names)):
            # Windows do not overlap, and the last one that reaches into it leaves the least.
            last = bisect_left(case.slots, end) - 1
            if last >= 0 and self.windows[last].end > start:
                slip = min(slip, start - duration - case.slots[last])
        return slip

    def _protected_slots(self, names: Iterable[str]) -> Iterator[ReservationView]:
        for name in names:
            yield from self.placement.avoid.get(name, ())

    def kept_reason(self, names: Iterable[str]) -> Reason:
        """Return for whom the time of these nodes is kept, and until when."""
        slot = min(self._protected_slots(names), key=lambda it: it.span)
        return reservations.kept_reason(slot)

    def within_protected_slip(self, offer: Offer) -> Offer:
        """Return what a node's protected time leaves of its offer; see :meth:`slip_on`."""
        slip = self.slip_on([offer.name])
        if slip == self.case.recurrence.slip:
            return offer
        longest = self.case.pool_task.terms.duration + slip
        ends = [(slot.start, min(slot.end, slot.start + longest)) for slot in self.slots]
        # A sweep, because a search does this for each node (see TentativeBookings.left).
        allowed = normalise(ends) if slip >= 0 else []
        return Offer(
            offer.name,
            intersect(normalise(offer.free), allowed),
            intersect(normalise(offer.free_displacing), allowed),
        )

    def count_beyond(self, name: str, horizon: int) -> int:
        """Return in how many slots a node may have time beyond its horizon.

        Its offer says nothing of them, but for what is in their way before the horizon.
        """
        duration, told = self.case.pool_task.terms.duration, self.proposals.get(name)
        busy_until = {} if told is None else {it.window: it.ends_at for it in told.obstacles}
        return sum(
            slot.start + duration > horizon
            and busy_until.get(index, 0) <= slot.latest_start(duration)
            for index, slot in enumerate(self.slots)
        )

    def reaches_beyond(self, names: Sequence[str]) -> bool:
        """Return whether slots lie beyond the horizon of one of these nodes."""
        return any(self.count_beyond(name, self.proposals[name].horizon) for name in names)

    def choices(
        self, offers: Sequence[Offer], rng: random.Random | None = None
    ) -> list[ChosenStart]:
        """Choose the starts of runs on all nodes with these offers, outside reserved time."""
        whole = [*offers, *self.own_offers()]
        duration = self.case.pool_task.terms.duration
        return choose(self.slots, whole, duration, rng, (), self.quotas(whole))

    def own_offers(self) -> Iterator[Offer]:
        """Yield what this host itself leaves beside the seats that were given."""
        for offer in self.reserved:
            reach = self.slots[0].start, max(slot.end for slot in self.slots)
            limits = self._taken.closed(offer.name, self.proposals[offer.name], *reach)
            closed = normalise([(each.starts_at, each.ends_at) for each in limits])
            free = subtract(normalise(offer.free), closed) if closed else offer.free
            yield Offer(offer.name, free, free)

    def quotas(self, offers: Sequence[Offer]) -> QuotaCount | None:
        """Return a count of the quotas of those who offer this time; None if they have none."""
        told = {it.name: self.proposals[it.name] for it in offers if it.name in self.proposals}
        return QuotaCount.of(told, self._taken)

    def starts(self, offers: Mapping[str, Sequence[Offer]]) -> Iterator[dict[str, list[Span]]]:
        """Yield for each slot the closed ranges of starts that all offers of a node leave it."""
        duration = self.case.pool_task.terms.duration
        free = {
            name: reduce(
                intersect, (normalise(it.free_displacing) for it in [*own, *self.own_offers()])
            )
            for name, own in offers.items()
        }
        for slot in self.slots:
            yield {
                name: [
                    (start, end - duration)
                    for start, end in clip(ranges, slot.start, slot.end)
                    if end - start >= duration
                ]
                for name, ranges in free.items()
            }

    def fits_beside(self, name: str, taken: Iterable[str]) -> bool:
        """Return whether the spread allows a node beside those that have seats."""
        return self.spread.crowded_attribute(name, [*self.case.sitting.values(), *taken]) is None

    def random_slip(self, group: Sequence[str]) -> random.Random | None:
        """Return the generator that draws random slips; None if starts are not random.

        It is seeded by the term and the nodes, so that a plan can be repeated.
        """
        if not self.case.pool_task.terms.schedule.slip_random:
            return None
        return random.Random(f"{self.case.name} {' '.join(group)}")

    def displaced_runs(
        self, names: Sequence[str], choices: Sequence[ChosenStart]
    ) -> list[PostedRun]:
        """Return the named runs that these choices would displace on these nodes."""
        duration = self.case.pool_task.terms.duration
        spans = [(it.starts_at, it.starts_at + duration) for it in choices if it.displacing]
        return [
            run
            for run in self.may_yield or ()
            if not set(run.nodes).isdisjoint(names)
            and any(start < run.end and run.start < end for start, end in spans)
        ]

    def displacement_refusal(
        self,
        group: Sequence[str],
        displaced: Sequence[PostedRun],
        earlier: Mapping[str, Sequence[PostedRun]],
    ) -> Reason | None:
        """Return why the seats of this group may not displace these runs, or None if they may.

        ``earlier`` are the runs displaced so far, by node. The policies limit how many seats may
        displace; a seat counts once, however many runs it has, and however many these displace.
        """
        displacing = self.placement.displacing
        if not displaced or displacing is None or displacing.most is None:
            return None
        before, most = sum(map(bool, earlier.values())), displacing.most
        if before + len(group) <= most:
            return None
        return too_much_to_displace(len(displaced), most, before)

    def time_of(self, name: str, offers: Sequence[Offer], horizon: int) -> TimeFound:
        """Return the time of a node for the slots; what is beyond its horizon counts as free.

        Runs whose starts are drawn are never late.
        """
        if self.slip_on([name, *self.fixed]) < 0:
            return NO_TIME
        choices = self.choices(offers)
        beyond = min(len(self.slots) - len(choices), self.count_beyond(name, horizon))
        return self.without_haste(time_found(choices, beyond))

    def without_haste(self, found: TimeFound) -> TimeFound:
        """Return the time that was found as not late if starts are drawn from the slip anyway."""
        return replace(found, late=0) if self.case.pool_task.terms.schedule.slip_random else found
