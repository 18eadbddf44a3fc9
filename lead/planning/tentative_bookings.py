"""Time that was found for runs and is not booked yet, so that it is not given away twice."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lead.planning.agenda import Slot
from lead.planning.closures import ClosedSpan, longest
from lead.planning.host_quotas import TakenQuotas
from lead.planning.placement import Offer
from lead.policy.view import PostedRun
from node.model import times
from node.model.classes import SchedulingClass, blockers
from node.model.host_limits.closed import LimitedTime
from node.model.lead_shares import KeptTime
from node.model.spans import Span, at_least, clip, normalise, subtract
from node.model.wire.participants import AboveShare, HostLimit, Obstacle, Proposal

_BOOKING_DELAY_MAX = 10 * times.SECOND
"""Upper bound on the delay between granting a seat and booking its runs."""


@dataclass(frozen=True)
class _Taken:
    """The class and the time of a run on a node, and its test and priority, if they are told."""

    kind: SchedulingClass
    span: Span
    of: tuple[str, int] | None = None


class TentativeBookings:
    """The runs of an episode that are not booked yet, node by node (by name).

    What was given last is provisional: it counts until :meth:`drop`, unless :meth:`keep` is called
    before. ``quotas`` has what it takes of the quotas of these nodes.
    """

    def __init__(self, coming: Iterable[PostedRun], now: int) -> None:
        """Begin with the runs ``coming``, which were found in earlier episodes."""
        self._soon = now + _BOOKING_DELAY_MAX
        self.quotas = TakenQuotas()
        self._kept: dict[str, list[_Taken]] = defaultdict(list)
        for run in coming:
            for name in run.nodes:
                span = self._span(run.start, run.end)
                self._kept[name].append(_Taken(run.scheduling_class, span))
        self._provisional: list[tuple[str, _Taken]] = []

    def give(
        self,
        names: Iterable[str],
        kind: SchedulingClass,
        starts: Sequence[int],
        duration: int,
        of: tuple[str, int] | None = None,
    ) -> None:
        """Take the time of runs with these starts on each of these nodes, provisionally.

        ``of`` are the test and the priority of the runs, if somebody is told of them.
        """
        taken = [_Taken(kind, self._span(start, start + duration), of) for start in starts]
        self._provisional += [(name, each) for name in names for each in taken]

    def count(
        self, proposals: Mapping[str, Proposal], starts: Sequence[int], duration: int
    ) -> None:
        """Count runs with these starts toward the limits in these proposals, provisionally."""
        for name, proposal in proposals.items():
            self.quotas.give(name, proposal.quotas or (), starts, duration)

    def keep(self) -> None:
        """Make final what was given."""
        self.quotas.keep()
        for name, taken in self._provisional:
            self._kept[name].append(taken)
        self._provisional = []

    def drop(self) -> None:
        """Free what was given and not kept."""
        self.quotas.drop()
        self._provisional = []

    def longest(self, name: str, kind: SchedulingClass, window: Span) -> Span | None:
        """Return what was given of a node's time that takes most of a window, None if nothing."""
        within = [
            (min(each.span[1], window[1]) - max(each.span[0], window[0]), each.span)
            for each in self._kept.get(name, ())
            if each.kind in blockers(kind)
        ]
        taken, span = max(within, default=(0, (0, 0)))
        return span if taken > 0 else None

    def _span(self, start: int, end: int) -> Span:
        """Extend a run that is to start at once: it starts later by the time booking takes."""
        return start, end + _BOOKING_DELAY_MAX if start < self._soon else end

    def left(self, offer: Offer, kind: SchedulingClass) -> Offer:
        """Return what a node's tentative bookings leave of its offer for a run of this class."""
        occupied = [each.span for each in self._blocking(offer.name, kind)]
        return _outside(offer, occupied) if occupied else offer

    def beside(
        self,
        offer: Offer,
        proposal: Proposal,
        slots: Sequence[Slot],
        wanted: tuple[SchedulingClass, int],
    ) -> tuple[Offer, Proposal]:
        """Return what a node would answer if what was given was booked; the offer alone decides.

        ``wanted`` are the class and the duration (µs) of the runs that are asked for.
        """
        kind, duration = wanted
        first, end = min(slot.start for slot in slots), max(slot.end for slot in slots)
        taken = list(self._blocking(offer.name, kind))
        closed = [_occupied_span(each) for each in taken]
        limits = self.quotas.closed(offer.name, proposal, first, end)
        closed += [_limited_span(each, proposal.now) for each in limits]
        if not closed:
            return offer, proposal
        spans = [(each.starts_at, each.ends_at) for each in closed]
        left = _outside(offer, spans)
        told = {each.window for each in proposal.obstacles}
        obstacles = [
            longest(closed, slot).obstacle(index, slot)
            for index, slot in enumerate(slots)
            if index not in told and not _has_room(left.free_displacing, slot, duration)
        ]
        update = {"obstacles": (*proposal.obstacles, *obstacles)}
        return left, proposal.model_copy(update=update)

    def _blocking(self, name: str, kind: SchedulingClass) -> Iterator[_Taken]:
        """Yield what was given of a node's time to runs that block those of a class."""
        against = blockers(kind)
        yield from (each for each in self._kept[name] if each.kind in against)
        yield from (
            each for other, each in self._provisional if other == name and each.kind in against
        )


def _outside(offer: Offer, spans: Sequence[Span]) -> Offer:
    """Return what spans leave of an offer."""
    # A sweep, because a search does this for each node and case: subtracting 30 spans from 30
    # takes 0.02 ms so, and 1 ms by interval algebra.
    without = normalise(spans)
    return Offer(
        offer.name,
        subtract(normalise(offer.free), without),
        subtract(normalise(offer.free_displacing), without),
    )


def _has_room(ranges: Sequence[Span], slot: Slot, duration: int) -> bool:
    """Return whether a run of a slot fits into one of these ranges, which are sorted."""
    first = max(0, bisect_right(ranges, (slot.start, slot.start)) - 1)
    last = bisect_right(ranges, (slot.end, slot.end))
    return any(at_least(clip(ranges[first:last], slot.start, slot.end), duration))


def _occupied_span(taken: _Taken) -> ClosedSpan:
    test, priority = taken.of or (None, None)

    def obstacle(window: int, _: Slot) -> Obstacle:
        return Obstacle(
            window=window,
            test=test,
            scheduling_class=taken.kind,
            priority=priority,
            starts_at=taken.span[0],
            ends_at=taken.span[1],
        )

    return ClosedSpan(*taken.span, obstacle)


def _limited_span(closed: LimitedTime | KeptTime, now: int) -> ClosedSpan:
    def obstacle(window: int, slot: Slot) -> HostLimit | AboveShare:
        if isinstance(closed, LimitedTime):
            return HostLimit.of(window, closed)
        return AboveShare.of(window, closed, slot.start, now)

    return ClosedSpan(closed.starts_at, closed.ends_at, obstacle)
