"""Finds nodes for the seats of one term: asks those that policies put first when they have time.

What may give way to the seats is what the policies say, and no more runs than they say: each seat
has those that its runs need. Nothing is booked by it. What was found, and is of use, counts as
taken for the rest of the episode, and in the following ones until it is booked. The ordinary tasks
of the seats are planned like all others, but keep the starts that were found, so that none takes
the time of another one; that other leads book the same time meanwhile costs them a retry inside the
slip.

Nodes of which it is known that they have no time (``planning/foreknown.py``) are not asked.

What policies keep for somebody who is blocked is nobody else's when the runs are booked, either:
nodes have a seat only if its runs can end before that, and these may slip no further.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from uuid import UUID

from lead.exchange.negotiation import CollectedOffers, ask, offer_of
from lead.participants import ProposalSource
from lead.planning.placement import ChosenStart, Offer, choose
from lead.planning.pool_view import SeatCase
from lead.planning.proposal_cache import ProposalCache
from lead.planning.reasons import unplaced_reason
from lead.planning.reserved import ReservedTime
from lead.planning.seat_selection import (
    SpreadLimit,
    assign_seat_numbers,
    choose_simultaneous,
    rank_by_free_time,
)
from lead.policy.placement_requests import Ask
from lead.policy.view import PostedRun
from node.clock import Clock
from node.model import times
from node.model.classes import SchedulingClass, blockers
from node.model.predicates import Attributes
from node.model.spans import Span, intersect, normalise, subtract
from node.model.wire.participants import BATCH_MAX, YIELDING_MAX, Proposal, ProposalRequest
from node.model.wire.tasks import PRIORITY_MAX

FIRST_EPOCH = 1
_KEPT = "its time then is kept for another task, which is blocked"
_ROUNDS = 4
"""So often others are asked, if those that were asked have no time."""

_TOLD_MAX = 8
"""Of so many nodes that were not asked, because it is known that they have no time, it is said."""

_BOOKED_WITHIN = 10 * times.SECOND
"""So long it may take until the runs of a seat are booked that is given now."""


@dataclass(frozen=True)
class SeatSearchResult:
    """Who takes which seats of a term, and when the first run can start; and why others do not.

    ``yielding`` are by name the runs that give way; None is any of lower priority.
    """

    seats: Mapping[int, str]
    starts_at: int
    yielding: Mapping[str, Sequence[PostedRun]] | None = None
    heard: Mapping[str, str] = field(default_factory=dict)
    """By name, what those who were asked for their time and are not taken said."""
    refused: Sequence[str] = ()
    """Those of them that had no time at all, or did not answer."""
    slips: Mapping[str, int] = field(default_factory=dict)
    """By name of who takes a seat, how far its runs may slip (µs)."""
    starts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By name of who takes a seat, when its runs can start, as far as that could be found out."""
    crowded: Mapping[str, str] = field(default_factory=dict)
    """By name, the attribute in which who has time is like too many that are taken."""


class TentativeBookings:
    """The time that was found in an episode and is not booked yet.

    What was given last is taken as long as its case is looked at; who keeps it makes that last.
    """

    def __init__(self, coming: Iterable[PostedRun], now: int) -> None:
        """Nothing so far but these, which were found in earlier episodes."""
        self._soon = now + _BOOKED_WITHIN
        self._taken: dict[str, list[tuple[SchedulingClass, Span]]] = defaultdict(list)
        for run in coming:
            for name in run.nodes:
                self._taken[name].append((run.scheduling_class, self._span(run.start, run.end)))
        self._given: list[tuple[str, SchedulingClass, Span]] = []

    def give(
        self,
        names: Iterable[str],
        kind: SchedulingClass,
        choices: Sequence[ChosenStart],
        duration: int,
    ) -> None:
        """These nodes are taken for runs that start so."""
        spans = [self._span(it.starts_at, it.starts_at + duration) for it in choices]
        self._given += [(name, kind, span) for name in names for span in spans]

    def keep(self) -> None:
        """What was given is taken."""
        for name, kind, span in self._given:
            self._taken[name].append((kind, span))
        self._given = []

    def drop(self) -> None:
        """What was given and not kept is free again."""
        self._given = []

    def _span(self, start: int, end: int) -> Span:
        """What is begun at once begins a little later, since it is still to be booked."""
        return start, end + _BOOKED_WITHIN if start < self._soon else end

    def left(self, offer: Offer, kind: SchedulingClass) -> Offer:
        """What is left of an offer."""
        against = blockers(kind)
        gone = [span for taken, span in self._taken[offer.name] if taken in against]
        gone += [
            span for name, taken, span in self._given if name == offer.name and taken in against
        ]
        if not gone:
            return offer
        without = normalise(gone)
        return Offer(
            offer.name,
            subtract(normalise(offer.free), without),
            subtract(normalise(offer.free_displacing), without),
        )


class NodeSearch:
    """Looks for nodes, in one episode."""

    def __init__(
        self,
        clock: Clock,
        clock_limit: int,
        participant_of: Callable[[str], ProposalSource],
        facts: Mapping[str, Attributes],
        foreknown: ProposalCache,
        coming: Iterable[PostedRun],
    ) -> None:
        """``participant_of(name)``; what each node says of itself, by name, and what is known.

        ``coming`` are runs of seats that were given before, and are not booked yet.
        """
        self._clock = clock
        self._clock_limit = clock_limit
        self._participant_of = participant_of
        self._facts = facts
        self._foreknown = foreknown
        self._promises = TentativeBookings(coming, clock.now())
        self._silent: dict[str, str] = {}

    async def find(self, asked: Ask, case: SeatCase, fixed: Sequence[str]) -> SeatSearchResult:
        """Who takes the empty seats of a case; ``fixed`` are nodes that take part in every run.

        For the next case their time is free again, unless :meth:`keep` was called meanwhile.
        """
        self._promises.drop()
        spread = SpreadLimit(case.request.spread, self._facts)
        search = _Search(asked, case, fixed, spread, self._may_yield(asked))
        search.close(case.closed, self._clock.now())
        order = case.in_order(asked.nodes)
        await self._hear(search, fixed)
        rounds = 0
        while rounds < _ROUNDS and not search.unheard(fixed):
            if len(self._taken(search, order)) == len(case.empty):
                break
            names = search.to_ask(order, lambda name: self._is_full(search, name))
            if not names:
                break
            rounds += await self._hear(search, names)
        return self._settled(search, order)

    def keep(self) -> None:
        """What was found last is made use of."""
        self._promises.keep()

    def _may_yield(self, asked: Ask) -> Sequence[PostedRun] | None:
        """The runs that may give way, the first to go first; None is any of lower priority."""
        if asked.displacing is None:
            return ()
        if asked.displacing.runs is None:
            return None
        runs = self._foreknown.runs
        known = (runs[run] for run in asked.displacing.runs if run in runs)
        return [run for run in known if run.priority < PRIORITY_MAX][:YIELDING_MAX]

    def _is_full(self, search: _Search, name: str) -> bool:
        """Whether a node has no time for it, as is known before it is asked."""
        told = self._foreknown.answer(name, search.request)
        if told is None:
            offer, horizon = self._foreknown.at_most(name, search.request), self._foreknown.near[1]
        else:
            offer, horizon = offer_of(name, told), told.horizon
        left = search.within_kept_slip(self._promises.left(offer, search.kind))
        both = [left, *(self._left(search, each) for each in search.fixed)]
        if search.placeable(name, both, horizon):
            return False
        search.full[name] = offer
        return True

    async def _hear(self, search: _Search, names: Sequence[str]) -> bool:
        """Hear from these when they have time; whether one of them had to be asked for that.

        Who did not answer once, or has answered, is not asked again.
        """
        search.heard |= {name: self._silent[name] for name in names if name in self._silent}
        if not search.slots:
            return False
        for name in names:
            told = self._foreknown.answer(name, search.request)
            if told is not None:
                search.hear(name, told)
        to_ask = [name for name in names if name not in search.heard and name not in search.offers]
        if not to_ask:
            return False
        participants = [self._participant_of(name) for name in to_ask]
        put = self._foreknown.widened(search.request)
        answered: CollectedOffers = await ask(participants, put, self._clock, self._clock_limit)
        for name, told in answered.proposals.items():
            search.hear(name, self._foreknown.hear(name, search.request, told))
        for name, failure in answered.failures.items():
            search.heard[name] = failure.reason
            self._silent[name] = failure.reason
        return True

    def _taken(self, search: _Search, order: Sequence[str]) -> list[str]:
        case = search.case
        left = {name: self._left(search, name) for name in search.offers}
        search.covered = {
            name: search.placeable(
                name,
                [left[name], *(left[each] for each in search.fixed)],
                search.proposals[name].horizon,
            )
            for name in search.offers
            if name not in search.fixed
        }
        wanted = len(case.empty)
        if case.request.together:
            able = [name for name in order if search.covered.get(name)]

            def common(names: Sequence[str]) -> int:
                return len(search.choices([left[each] for each in (*names, *search.fixed)]))

            return choose_simultaneous(able, common, len(search.slots), wanted, search.spread)
        able = rank_by_free_time(order, search.covered, len(search.slots), case.usual)
        return search.spread.kept(able, case.sitting.values(), wanted)

    def _left(self, search: _Search, name: str) -> Offer:
        return search.within_kept_slip(self._promises.left(search.offers[name], search.kind))

    def _settled(self, search: _Search, order: Sequence[str]) -> SeatSearchResult:
        """The nodes that are taken, one after the other: each leaves less of the fixed ones.

        It leaves less to give way, too: a node for which too much would is taken without that.
        """
        nodes = self._taken(search, order)
        starts: dict[str, list[int]] = {}
        groups = [nodes] if search.case.request.together else [[name] for name in nodes]
        taken: list[str] = []
        yielding: dict[str, Sequence[PostedRun]] = {}
        slips: dict[str, int] = {}
        for group in filter(None, groups):
            both = [*group, *search.fixed]
            offers = [self._left(search, name) for name in both]
            rng = search.drawing(group)
            choices = search.choices(offers, rng)
            going = search.giving_way(both, choices)
            too_many = search.too_many(group, going, yielding)
            if too_many is not None:
                choices = search.choices([Offer(it.name, it.free, it.free) for it in offers], rng)
                going = []
                search.heard |= dict.fromkeys(group, too_many)
            if not choices and not search.reaches_beyond(group):
                continue
            self._promises.give(both, search.kind, choices, search.case.whole.duration)
            starts |= {key: [choice.starts_at for choice in choices] for key in group}
            taken += group
            slips |= dict.fromkeys(group, search.slip(both))
            yielding |= dict.fromkeys(group, going)
        seats = assign_seat_numbers(taken, search.case.empty, search.case.before)
        first = min(chain.from_iterable(starts.values()), default=search.case.slots[0])
        refused = [name for name in order if name in search.heard or search.covered.get(name) == 0]
        named = None if search.may_yield is None else yielding
        crowded = self._crowded(search, taken)
        said = self._reasons(search, order, taken, crowded)
        return SeatSearchResult(seats, first, named, said, refused, slips, starts, crowded)

    def _crowded(self, search: _Search, taken: Sequence[str]) -> dict[str, str]:
        beside = [*search.case.sitting.values(), *taken]
        left = (name for name, slots in search.covered.items() if slots and name not in taken)
        found = {name: search.spread.crowded(name, beside) for name in left}
        return {name: attribute for name, attribute in found.items() if attribute is not None}

    def _reasons(
        self,
        search: _Search,
        order: Sequence[str],
        taken: Sequence[str],
        crowded: Mapping[str, str],
    ) -> dict[str, str]:
        """Of those that were asked and are not taken, why not."""
        said = {name: why for name, why in search.heard.items() if name not in taken}
        for name in search.covered:
            if name not in taken and name not in said:
                like = crowded.get(name)
                others = None if like is None else f"others with its {like} are taken"
                said[name] = others or self._why_not(search, name)
        for name in islice(search.full, _TOLD_MAX):
            said[name] = self._why_full(search, name)
        return {name: said[name] for name in (*search.fixed, *order) if name in said}

    def _why_not(self, search: _Search, name: str) -> str:
        if search.covered[name]:
            full = search.covered[name] == len(search.slots)
            return "was not needed" if full else "has time for some of the slots only"
        both = (name, *search.fixed)
        if search.choices([self._promises.left(search.offers[it], search.kind) for it in both]):
            return _KEPT
        offers = [self._left(search, each) for each in both]
        offers += search.reserved
        duration = search.case.whole.duration
        reason = unplaced_reason(0, search.slots[0], duration, offers, search.proposals)
        return reason.removeprefix(f"{name}: ")

    def _why_full(self, search: _Search, name: str) -> str:
        """Why it was not even asked."""
        unkept = [self._promises.left(search.offers[each], search.kind) for each in search.fixed]
        if search.choices([self._promises.left(search.full[name], search.kind), *unkept]):
            return _KEPT
        others = [self._left(search, each) for each in search.fixed]
        if (others or search.reserved) and not search.choices(others):
            slot, duration = search.slots[0], search.case.whole.duration
            return unplaced_reason(0, slot, duration, [*others, *search.reserved], search.proposals)
        return self._foreknown.why(name, search.request)


class _Search:
    """What is known so far of the nodes for one case."""

    def __init__(
        self,
        asked: Ask,
        case: SeatCase,
        fixed: Sequence[str],
        spread: SpreadLimit,
        may_yield: Sequence[PostedRun] | None,
    ) -> None:
        self.asked = asked
        self.may_yield = may_yield
        self.case = case
        self.fixed = fixed
        self.spread = spread
        self.kind = SchedulingClass(case.whole.scheduling_class)
        self.windows = case.windows
        self.slots = self.windows[:BATCH_MAX]
        self.offers: dict[str, Offer] = {}
        self.proposals: dict[str, Proposal] = {}
        self.heard: dict[str, str] = {}
        self.covered: dict[str, int] = {}
        self.full: dict[str, Offer] = {}
        self.reserved: list[Offer] = []

    def close(self, closed: ReservedTime, now: int) -> None:
        """What of the pool's time is reserved for others is nobody's."""
        if self.slots and closed.spans:
            offer, proposal = closed.offer(self.slots, self.case.whole.duration, now)
            self.proposals[closed.name] = proposal
            self.reserved.append(offer)

    @cached_property
    def request(self) -> ProposalRequest:
        displacing, named = self.asked.displacing, self.may_yield
        own = self.case.whole.priority
        return ProposalRequest(
            task=self.case.whole.id,
            lease_epoch=FIRST_EPOCH,
            scheduling_class=self.kind,
            duration=self.case.whole.duration,
            priority=own if displacing is None else min(displacing.priority, PRIORITY_MAX),
            yielding=None if named is None else tuple(UUID(run.run) for run in named),
            windows=tuple((slot.start, slot.end) for slot in self.slots),
            test=self.case.whole.test,
            campaign=self.case.whole.campaign,
        )

    def hear(self, name: str, told: Proposal) -> None:
        """What a node has to say."""
        self.proposals[name] = told
        self.offers[name] = offer_of(name, told)

    def unheard(self, names: Iterable[str]) -> bool:
        """Whether somebody without whom there is no run did not answer."""
        return any(name in self.heard for name in names)

    def to_ask(self, order: Sequence[str], is_full: Callable[[str], bool]) -> list[str]:
        """Whom to ask next: as many as are missing, and some more, those first that go together.

        Who is full is not asked.
        """
        known = self.offers.keys() | self.heard.keys() | self.full.keys()
        left = [name for name in order if name not in known]
        able = sum(count > 0 for count in self.covered.values())
        wanted = max(1, len(self.case.empty) - able)
        most = wanted + 1 + wanted // 4
        open_ = (name for name in left if not is_full(name))
        first = self.spread.kept(open_, self.case.sitting.values(), most)
        if len(first) < most:
            first += islice(
                (name for name in left if name not in (*first, *self.full)), most - len(first)
            )
        return first

    def slip(self, names: Iterable[str]) -> int:
        """How far runs on these nodes may slip and end before what is kept for others there.

        Less than nothing if a run cannot even start at its slot.
        """
        case, duration = self.case, self.case.whole.duration
        slip = case.recurrence.slip
        for start, end in (span for name in names for span in self.asked.avoid.get(name, ())):
            # Windows do not overlap, and the last one that reaches into it leaves the least.
            last = bisect_left(case.slots, end) - 1
            if last >= 0 and self.windows[last].end > start:
                slip = min(slip, start - duration - case.slots[last])
        return slip

    def within_kept_slip(self, offer: Offer) -> Offer:
        """What of an offer runs may have that slip no further than they may on this node."""
        slip = self.slip([offer.name])
        if slip == self.case.recurrence.slip:
            return offer
        longest = self.case.whole.duration + slip
        ends = [(slot.start, min(slot.end, slot.start + longest)) for slot in self.slots]
        allowed = normalise(ends) if slip >= 0 else []
        return Offer(
            offer.name,
            intersect(normalise(offer.free), allowed),
            intersect(normalise(offer.free_displacing), allowed),
        )

    def beyond(self, horizon: int) -> int:
        """How many slots a node does not book so far ahead; it does not say anything of them."""
        duration = self.case.whole.duration
        return sum(slot.start + duration > horizon for slot in self.slots)

    def reaches_beyond(self, names: Sequence[str]) -> bool:
        return any(self.beyond(self.proposals[name].horizon) for name in names)

    def choices(
        self, offers: Sequence[Offer], rng: random.Random | None = None
    ) -> list[ChosenStart]:
        return choose(self.slots, [*offers, *self.reserved], self.case.whole.duration, rng)

    def drawing(self, group: Sequence[str]) -> random.Random | None:
        """For a random slip: seeded by the term and who takes part, as all that is drawn here."""
        if not self.case.whole.schedule.get("slip_random"):
            return None
        return random.Random(f"{self.case.name} {' '.join(group)}")

    def giving_way(self, names: Sequence[str], choices: Sequence[ChosenStart]) -> list[PostedRun]:
        """Of the runs that are named, those that runs on these nodes would displace."""
        duration = self.case.whole.duration
        spans = [(it.starts_at, it.starts_at + duration) for it in choices if it.displacing]
        return [
            run
            for run in self.may_yield or ()
            if not set(run.nodes).isdisjoint(names)
            and any(start < run.end and run.start < end for start, end in spans)
        ]

    def too_many(
        self,
        group: Sequence[str],
        going: Sequence[PostedRun],
        already: Mapping[str, Sequence[PostedRun]],
    ) -> str | None:
        """Why runs on these nodes may not displace so much, if so.

        A seat counts once, however many runs it has, and however many these displace.
        """
        displacing = self.asked.displacing
        if not going or displacing is None or displacing.most is None:
            return None
        before, most = sum(map(bool, already.values())), displacing.most
        if before + len(group) <= most:
            return None
        runs = "1 run" if len(going) == 1 else f"{len(going)} runs"
        had = f", and {before} have it" if before else ""
        allowed = f"that is allowed for {most} of its seats at most{had}"
        return f"{runs} would have to give way to it; {allowed}"

    def placeable(self, name: str, offers: Sequence[Offer], horizon: int) -> int:
        """For how many slots there is time; those beyond its horizon are taken for free."""
        if self.slip([name, *self.fixed]) < 0:
            return 0
        return min(len(self.slots), len(self.choices(offers)) + self.beyond(horizon))
