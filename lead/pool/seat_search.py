"""Chooses nodes for the seats of one term: those that the policies rank first, and have time.

The search says which nodes to ask next, and goes on when they have answered; it asks nobody by
itself (``node_search.py`` does). Nothing is booked by it. What was found and is used counts as
taken for the rest of the episode, and in the following ones until it is booked
(``tentative_bookings.py``). The ordinary tasks of the seats are planned like all others, but keep
the starts that were found, so that none takes the time of another. If another lead books the same
time meanwhile, that costs them a retry within the slip.

What may give way to the seats is what the policies say, and no more runs than they say: each seat
gets those that its runs need.

Nodes that are known to have no time (``planning/proposal_cache.py``) are not asked.

Time that policies protect for a blocked task is protected when the runs are booked, too: nodes get
a seat only if its runs can end before that time, and these runs may slip no further.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from lead.exchange.collection import offer_of
from lead.model.reasons import (
    free_apart_from_others,
    free_apart_from_seats,
    free_for_some_slots,
    free_without_permission,
    given_to_seat,
    left_out_by_spread,
    not_needed,
)
from lead.planning.choosing import Collected
from lead.planning.placement import Offer
from lead.planning.pool_view import SeatCase
from lead.planning.proposal_cache import ProposalCache
from lead.planning.seat_selection import (
    IDEAL,
    NO_TIME,
    Lack,
    SpreadLimit,
    TimeFound,
    assign_seat_numbers,
    choose_simultaneous,
    rank_by_time,
    time_found,
)
from lead.planning.tentative_bookings import TentativeBookings
from lead.planning.unplaced import unplaced_reason
from lead.policy.placement_requests import Ask
from lead.policy.view import PostedRun
from lead.pool.seat_slots import SeatSlots
from node.model.predicates import Attributes
from node.model.reason import Reason
from node.model.reasons import no_time_free
from node.model.spans import Span
from node.model.wire.participants import YIELDING_MAX
from node.model.wire.tasks import PRIORITY_MAX

_ROUNDS = 4
"""Maximum rounds of probing further nodes."""

_ASKED_IF_LATE = 8
"""Minimum number of nodes to ask next if runs would be late on those that were asked."""

_WIDENING = 4
"""Factor by which each such round asks more nodes than were asked before."""

_LISTED_FULL_MAX = 8
"""Maximum number of skipped nodes to list as "known to be full"."""


@dataclass(frozen=True)
class SeatSearchResult:
    """The nodes that take the seats of a term, by seat number, and the start of the first run.

    ``yielding`` are by node the runs that give way; None is any run of lower priority.
    """

    seats: Mapping[int, str]
    starts_at: int
    yielding: Mapping[str, Sequence[PostedRun]] | None = None
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    """By node, why those that were asked, or are known to be full, do not take a seat."""
    refused: Sequence[str] = ()
    """The nodes that refused the question, or did not answer it."""
    without_time: Sequence[str] = ()
    """The nodes that have no time in any of the windows, by their answer or as is known."""
    slips: Mapping[str, int] = field(default_factory=dict)
    """By node that takes a seat, how far its runs may slip (µs)."""
    starts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By node that takes a seat, the starts of its runs, as far as they could be found out."""
    crowded: Mapping[str, str] = field(default_factory=dict)
    """By node that has time, the attribute that it shares with too many nodes that are taken."""


@dataclass
class _Placement:
    """The nodes whose runs found time, with the starts of these.

    ``lack`` is the most that one of them lacks to be ideal. ``slips`` and ``yielding``
    are as in the result; ``refusals`` say why a node may not displace what its runs would have to.
    """

    starts: dict[str, list[int]] = field(default_factory=dict)
    slips: dict[str, int] = field(default_factory=dict)
    yielding: dict[str, Sequence[PostedRun]] = field(default_factory=dict)
    refusals: dict[str, Reason] = field(default_factory=dict)
    lack: Lack = IDEAL


@dataclass(frozen=True)
class SeatQuestion:
    """Nodes whose answers are needed next; they are added to the ``slots``."""

    slots: SeatSlots
    names: Sequence[str]


class SeatSearch:
    """Chooses nodes for seats, during one episode."""

    def __init__(
        self,
        facts: Mapping[str, Attributes],
        cache: ProposalCache,
        coming: Iterable[PostedRun],
        now: int,
    ) -> None:
        """``facts`` are the attributes of each node, ``cache`` has what is known of their time.

        ``coming`` are runs of seats that were given in earlier episodes and are not booked yet.
        """
        self._facts = facts
        self._cache = cache
        self._tentative = TentativeBookings(coming, now)
        self._now = now
        self._failures: dict[str, Reason] = {}

    def steps(
        self, request: Ask, case: SeatCase, fixed: Sequence[str]
    ) -> Iterator[SeatQuestion | SeatSearchResult]:
        """Yield what to ask next for the empty seats of a case, and at last the result.

        ``fixed`` are nodes that take part anyway. The time that was found is free again at the next
        call, unless :meth:`keep` is called first.

        Each round asks only as many nodes as are missing, and a quarter more. Most nodes answer
        that they have time, so that asking all of a large pool would be wasted; but some do not,
        and one round after the other would take long if none of them were asked in advance. If the
        runs would be late, or displace others, more and more nodes are asked: of those that could
        begin them earlier, as far as the lead knows what is booked there.
        """
        self._tentative.drop()
        spread = SpreadLimit(case.request.spread, self._facts)
        quotas = self._tentative.quotas
        slots = SeatSlots(request, case, fixed, spread, self._runs_that_may_yield(request), quotas)
        slots.close_reserved_time(self._now)
        order = case.in_order(request.nodes)
        yield from self._unknown(slots, fixed)
        rounds = 0
        placed = self._place(slots, order)
        # Without an answer of each fixed node no run is possible, whoever else has time.
        while rounds < _ROUNDS and not slots.has_failed(fixed):
            names = self._next_nodes(slots, order, placed)
            if not names:
                break
            # A round in which the cache answered for everybody costs nothing and is not counted.
            rounds += yield from self._unknown(slots, names)
            placed = self._place(slots, order)
        yield self._result(slots, order, placed)

    def record(self, question: SeatQuestion, collected: Collected) -> None:
        """Add the answers to a question."""
        slots = question.slots
        for name, proposal in collected.proposals.items():
            slots.add(name, self._cache.record(name, slots.request, proposal))
        for name, failure in collected.failures.items():
            slots.failures[name] = self._failures[name] = failure.reason

    def keep(self) -> None:
        """Keep the time that was found last: it is used."""
        self._tentative.keep()

    def _runs_that_may_yield(self, request: Ask) -> Sequence[PostedRun] | None:
        """Return the runs that may give way, the first to go first; None is any of lower priority.

        A run of the highest priority never gives way.
        """
        if request.displacing is None:
            return ()
        if request.displacing.runs is None:
            return None
        runs = self._cache.runs
        known = (runs[run] for run in request.displacing.runs if run in runs)
        return [run for run in known if run.priority < PRIORITY_MAX][:YIELDING_MAX]

    def _next_nodes(
        self, slots: SeatSlots, order: Sequence[str], placed: _Placement
    ) -> Sequence[str]:
        """Return the nodes to ask next, the best first: none if all is as it should be."""
        if len(placed.starts) < slots.wanted_seats:
            able = sum(it.slots > 0 for it in slots.found.values())
            missing = max(1, slots.wanted_seats - able)
            most = missing + 1 + missing // 4
            return slots.next_nodes(order, most, lambda name: not self._is_full(slots, name))
        if placed.lack == IDEAL:
            return ()
        latest = max((starts[0] for starts in placed.starts.values() if starts), default=0)
        is_late, earliest = latest > slots.slots[0].start, slots.placement.earliest

        def may_be_better(name: str) -> bool:
            may_begin_earlier = not is_late or earliest.get(name, latest) < latest
            return may_begin_earlier and not self._is_full(slots, name)

        most = max(_ASKED_IF_LATE, _WIDENING * len(slots.offers))
        return slots.next_nodes(order, most, may_be_better)

    def _is_full(self, slots: SeatSlots, name: str) -> bool:
        """Return whether a node is known to have no time for any slot, without asking it."""
        answer = self._cache.answer(name, slots.request)
        if answer is None:
            offer, horizon = self._cache.at_most(name, slots.request), self._cache.near[1]
        else:
            offer, horizon = offer_of(name, answer), answer.horizon
        left = slots.within_protected_slip(self._tentative.left(offer, slots.kind))
        offers = [left, *(self._time_left(slots, each) for each in slots.fixed)]
        if slots.time_of(name, offers, horizon).slots:
            return False
        slots.full[name] = offer
        return True

    def _unknown(
        self, slots: SeatSlots, names: Sequence[str]
    ) -> Generator[SeatQuestion, None, bool]:
        """Yield the question to those of these nodes that must be asked; return whether any must.

        A node that has answered, or once failed to answer in this episode, is not asked again.
        """
        slots.failures |= {name: self._failures[name] for name in names if name in self._failures}
        if not slots.slots:
            return False
        for name in names:
            answer = self._cache.answer(name, slots.request)
            if answer is not None:
                slots.add(name, answer)
        unknown = [n for n in names if n not in slots.failures and n not in slots.offers]
        if not unknown:
            return False
        yield SeatQuestion(slots, unknown)
        return True

    def _choose_nodes(self, slots: SeatSlots, order: Sequence[str]) -> list[list[str]]:
        """Return the groups of nodes that may take the empty seats, the best ones first.

        Nodes that measure at the same time are one group. Others are a group each, and more than
        there are seats, because those before may leave the fixed nodes no time for them.
        """
        case = slots.case
        left = {name: self._time_left(slots, name) for name in slots.offers}
        fixed = [left[name] for name in slots.fixed if name in left]
        slots.found = {
            name: slots.time_of(name, [left[name], *fixed], slots.proposals[name].horizon)
            for name in slots.offers
            if name not in slots.fixed
        }
        wanted = slots.wanted_seats
        if not case.request.together:
            ranked = rank_by_time(order, slots.found, len(slots.slots), case.usual)
            return [[name] for name in ranked]
        able = [name for name in order if slots.found.get(name, NO_TIME).slots]

        def common(names: Sequence[str]) -> TimeFound:
            choices = slots.choices([*(left[name] for name in names), *fixed])
            return slots.without_haste(time_found(choices))

        def starts() -> Iterator[dict[str, list[Span]]]:
            return slots.starts({name: [left[name], *fixed] for name in able})

        chosen = choose_simultaneous(able, common, len(slots.slots), wanted, slots.spread, starts)
        return [chosen] if chosen else []

    def _time_left(self, slots: SeatSlots, name: str) -> Offer:
        """Return the part of a node's offer that is neither taken nor protected."""
        return slots.within_protected_slip(self._tentative.left(slots.offers[name], slots.kind))

    def _place(self, slots: SeatSlots, order: Sequence[str]) -> _Placement:
        """Place the runs of one group of nodes after the other, until all seats are taken.

        Each group leaves less of the fixed nodes' time, and less to displace. A group that would
        displace too much is taken only if it finds starts without displacement.
        """
        placed = _Placement()
        for group in self._choose_nodes(slots, order):
            if len(placed.starts) == slots.wanted_seats:
                break
            if slots.case.request.together or slots.fits_beside(group[0], placed.starts):
                self._place_group(slots, group, placed)
        # What further nodes have time for, and why others have none, is told without these runs.
        self._tentative.drop()
        return placed

    def _place_group(self, slots: SeatSlots, group: Sequence[str], placed: _Placement) -> None:
        """Add the runs of a group of nodes to what was placed, if they find time."""
        participants = [*group, *slots.fixed]
        offers = [self._time_left(slots, name) for name in participants]
        rng = slots.random_slip(group)
        choices = slots.choices(offers, rng)
        displaced = slots.displaced_runs(participants, choices)
        refusal = slots.displacement_refusal(group, displaced, placed.yielding)
        if refusal is not None:
            choices = slots.choices([Offer(it.name, it.free, it.free) for it in offers], rng)
            displaced = []
            placed.refusals |= dict.fromkeys(group, refusal)
        if not choices and not slots.reaches_beyond(group):
            return
        starts = [choice.starts_at for choice in choices]
        self._take_time(slots, participants, starts)
        placed.starts |= dict.fromkeys(group, starts)
        placed.slips |= dict.fromkeys(group, slots.slip_on(participants))
        placed.yielding |= dict.fromkeys(group, displaced)
        found = slots.without_haste(time_found(choices, len(slots.slots) - len(choices)))
        usual = slots.case.usual.issuperset(group)
        placed.lack = max(placed.lack, found.lack(len(slots.slots), usual=usual))

    def _result(
        self, slots: SeatSlots, order: Sequence[str], placed: _Placement
    ) -> SeatSearchResult:
        """Return the seats of the nodes that were placed, and the reasons of the others."""
        taken, starts = list(placed.starts), placed.starts
        slots.failures |= placed.refusals
        seats = assign_seat_numbers(taken, slots.case.empty, slots.case.before)
        first = min(chain.from_iterable(starts.values()), default=slots.case.slots[0])
        refused = [name for name in order if name in self._failures]
        named = None if slots.may_yield is None else placed.yielding
        crowded = self._nodes_left_out_by_spread(slots, taken)
        reasons = self._reasons(slots, order, taken, crowded)
        full = [name for name in order if name in slots.full or slots.found.get(name) == NO_TIME]
        groups = [taken] if slots.case.request.together and taken else [[name] for name in taken]
        for group in groups:
            self._take_time(slots, [*group, *slots.fixed], starts[group[0]])
        return SeatSearchResult(
            seats, first, named, reasons, refused, full, placed.slips, starts, crowded
        )

    def _take_time(self, slots: SeatSlots, names: Sequence[str], starts: Sequence[int]) -> None:
        """Take the time of runs with these starts on each of these nodes, unless it is dropped."""
        self._tentative.give(names, slots.kind, starts, slots.case.pool_task.terms.duration)
        told = {name: slots.proposals[name] for name in names if name in slots.proposals}
        told |= {offer.name: slots.proposals[offer.name] for offer in slots.reserved}
        self._tentative.count(told, starts, slots.case.pool_task.terms.duration)

    def _nodes_left_out_by_spread(self, slots: SeatSlots, taken: Sequence[str]) -> dict[str, str]:
        """Return the nodes that have time but are left out by the spread, with the attribute."""
        beside = [*slots.case.sitting.values(), *taken]
        others = (name for name, it in slots.found.items() if it.slots and name not in taken)
        attributes = {name: slots.spread.crowded_attribute(name, beside) for name in others}
        return {name: it for name, it in attributes.items() if it is not None}

    def _reasons(
        self,
        slots: SeatSlots,
        order: Sequence[str],
        taken: Sequence[str],
        crowded: Mapping[str, str],
    ) -> dict[str, Reason]:
        """Return why nodes that were asked, or are known to be full, do not take a seat."""
        reasons = {name: why for name, why in slots.failures.items() if name not in taken}
        for name in slots.found:
            if name not in taken and name not in reasons:
                empty = slots.wanted_seats - len(taken)
                reasons[name] = (
                    left_out_by_spread(crowded[name])
                    if name in crowded
                    else self._unused_reason(slots, name, empty)
                )
        for name in islice(slots.full, _LISTED_FULL_MAX):
            reasons[name] = self._full_reason(slots, name)
        return {name: reasons[name] for name in (*slots.fixed, *order) if name in reasons}

    def _unused_reason(self, slots: SeatSlots, name: str, empty: int) -> Reason:
        """Return why a node that answered does not take a seat, of which some may be ``empty``."""
        if slots.found[name].slots:
            if empty and slots.case.request.together:
                return free_apart_from_others()
            if empty:
                return free_apart_from_seats()
            if slots.wanted_seats < len(slots.case.empty):
                return free_without_permission()
            all_slots = slots.found[name].slots == len(slots.slots)
            return not_needed() if all_slots else free_for_some_slots()
        participants = (name, *slots.fixed)
        withheld = self._withheld_reason(slots, name, slots.offers[name])
        if withheld is not None:
            return withheld
        offers = [self._time_left(slots, each) for each in participants]
        offers += slots.own_offers()
        duration = slots.case.pool_task.terms.duration
        quotas = slots.quotas(offers)
        reason = unplaced_reason(0, slots.slots[0], duration, offers, slots.proposals, quotas)
        return reason.of(name)

    def _full_reason(self, slots: SeatSlots, name: str) -> Reason:
        """Return why a node was not even asked."""
        withheld = self._withheld_reason(slots, name, slots.full[name])
        if withheld is not None:
            return withheld
        others = [self._time_left(slots, each) for each in slots.fixed]
        if (others or slots.reserved) and not slots.choices(others):
            slot, duration = slots.slots[0], slots.case.pool_task.terms.duration
            offers = [*others, *slots.own_offers()]
            quotas = slots.quotas(offers)
            return unplaced_reason(0, slot, duration, offers, slots.proposals, quotas)
        return self._cache.why(name, slots.request)

    def _withheld_reason(self, slots: SeatSlots, name: str, offer: Offer) -> Reason | None:
        """Return for whom the time that a node offers is kept, or until when it was given away.

        So may be that of a fixed node. Return None if they offer no time together in any case.
        """
        offers = [offer, *(slots.offers[each] for each in slots.fixed)]
        if slots.choices([self._tentative.left(each, slots.kind) for each in offers]):
            return slots.kept_reason([name, *slots.fixed])
        if not slots.choices(offers):
            return None
        window = slots.slots[0].start, slots.slots[0].end
        for each in (name, *slots.fixed):
            span = self._tentative.longest(each, slots.kind, window)
            if span is not None:
                duration = slots.case.pool_task.terms.duration
                why = no_time_free(duration, given_to_seat(*span))
                return why if each == name else why.at(each)
        return None
