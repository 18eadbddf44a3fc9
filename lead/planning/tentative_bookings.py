"""Time that was found for runs and is not booked yet, so that it is not given away twice.

In a preview of several tasks, runs give way to those of a later one as booked ones would: those of
lower rank or priority by what the node tells of both, which is its *precedence*.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from lead.planning.agenda import Slot
from lead.planning.closures import ClosedSpan, longest
from lead.planning.host_quotas import TakenQuotas
from lead.planning.placement import ChosenStart, Offer
from lead.policy.view import PostedRun
from node.model import times
from node.model.classes import SchedulingClass, blockers
from node.model.host_limits.closed import LimitedTime
from node.model.lead_shares import KeptTime
from node.model.spans import Span, at_least, clip, normalise, subtract
from node.model.task_terms import TaskTerms
from node.model.timeline import Precedence
from node.model.wire.participants import (
    AboveShare,
    AnyObstacle,
    HostLimit,
    Obstacle,
    Proposal,
    ResourceTaken,
    limit_obstacle,
)

_BOOKING_DELAY_MAX = 10 * times.SECOND
"""Upper bound on the delay between granting a seat and booking its runs."""


@dataclass(frozen=True)
class TentativeTask:
    """A task whose runs are planned, by a key; ``nodes`` are the names of its participants."""

    key: int
    test: str
    priority: int
    scheduling_class: SchedulingClass
    duration: int
    nodes: Sequence[str]

    @classmethod
    def of(cls, key: int, terms: TaskTerms, priority: int) -> Self:
        """Return the task with these terms; ``priority`` is that of its runs."""
        nodes = [participant.name for participant in terms.participants]
        return cls(key, terms.test, priority, terms.scheduling_class, terms.duration, nodes)


@dataclass(frozen=True)
class _Taken:
    """The class and the time of a run on a node; its task and precedence there, if it has one."""

    kind: SchedulingClass
    span: Span
    of: TentativeTask | None = None
    precedence: Precedence | None = None

    def yields_to(self, other: Precedence | None) -> bool:
        """Return whether it gives way to a run of this precedence."""
        return self.precedence is not None and other is not None and self.precedence < other


@dataclass(frozen=True)
class TentativeDisplacement:
    """A run that gives way on a node, by the key of its task, and the start of the winner."""

    key: int
    name: str
    kind: SchedulingClass
    span: Span
    by: int


class TentativeBookings:
    """The runs of an episode that are not booked yet, node by node (by name).

    What was given last is provisional: it counts until :meth:`drop`, unless :meth:`keep` is called
    before. ``quotas`` has what it takes of the quotas of these nodes.
    """

    def __init__(self, coming: Iterable[PostedRun] = (), now: int | None = None) -> None:
        """Begin with the runs ``coming``, which were found in earlier episodes.

        Runs that are to start at once at ``now`` start later, by the time until they are booked.
        """
        self._soon = 0 if now is None else now + _BOOKING_DELAY_MAX
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
    ) -> None:
        """Take the time of runs with these starts on each of these nodes, provisionally."""
        taken = [_Taken(kind, self._span(start, start + duration)) for start in starts]
        self._provisional += [(name, each) for name in names for each in taken]

    def take(
        self,
        task: TentativeTask,
        proposals: Mapping[str, Proposal],
        choices: Sequence[ChosenStart],
    ) -> list[TentativeDisplacement]:
        """Take the time of the runs of a task for good; return what has to give way to them.

        That has its time until it is given back (:meth:`give_back`).
        """
        if not choices:
            return []
        duration, kind = task.duration, task.scheduling_class
        spans = [(it.starts_at, it.starts_at + duration) for it in choices if it.displacing]
        lost = [
            it for name in task.nodes for it in self._yielding(name, kind, proposals[name], spans)
        ]
        starts = [choice.starts_at for choice in choices]
        for name in task.nodes:
            precedence = proposals[name].precedence
            taken = [_Taken(kind, (at, at + duration), task, precedence) for at in starts]
            self._kept[name] += taken
        self.count(proposals, starts, duration)
        self.quotas.keep()
        return lost

    def give_back(
        self, task: TentativeTask, proposals: Mapping[str, Proposal], starts: Collection[int]
    ) -> None:
        """Free the time of these runs of a task on all its nodes, and what they took of limits."""
        for name in task.nodes:
            self._kept[name] = [
                it
                for it in self._kept[name]
                if it.of is None or it.of.key != task.key or it.span[0] not in starts
            ]
        for name, proposal in proposals.items():
            self.quotas.give(name, proposal.quotas or (), starts, task.duration, back=True)
        self.quotas.keep()

    def _yielding(
        self, name: str, kind: SchedulingClass, proposal: Proposal, spans: Sequence[Span]
    ) -> Iterator[TentativeDisplacement]:
        """Yield what gives way on a node to runs of this class in these spans."""
        for each in self._blocking(name, kind) if spans else ():
            winners = [at for at, end in spans if at < each.span[1] and each.span[0] < end]
            if winners and each.of is not None and each.yields_to(proposal.precedence):
                yield TentativeDisplacement(each.of.key, name, each.kind, each.span, min(winners))

    def count(
        self, proposals: Mapping[str, Proposal], starts: Sequence[int], duration: int
    ) -> None:
        """Count runs with these starts toward the limits in these proposals, provisionally."""
        for name, proposal in proposals.items():
            self.quotas.give(name, proposal.quotas or (), starts, duration)

    def keep(self) -> None:
        """Hold on to the time that was given; :meth:`drop` frees it no longer."""
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
        return _outside(offer, occupied, occupied) if occupied else offer

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
        staying = [it for it in taken if not it.yields_to(proposal.precedence)]
        closed = [_occupied_span(each) for each in staying]
        limits = self.quotas.closed(offer.name, proposal, first, end)
        closed += [_limited_span(each, proposal.now) for each in limits]
        if not taken and not closed:
            return offer, proposal
        spans = [(each.starts_at, each.ends_at) for each in closed]
        yielding = [it.span for it in taken if it.yields_to(proposal.precedence)]
        left = _outside(offer, [*spans, *yielding], spans)
        told = {each.window: each for each in proposal.obstacles}
        obstacles = [
            _longer(told.get(index), longest(closed, slot).obstacle(index, slot), slot)
            for index, slot in enumerate(slots)
            if closed and not _has_room(left.free_displacing, slot, duration)
        ]
        told |= {each.window: each for each in obstacles}
        return left, proposal.model_copy(update={"obstacles": tuple(told.values())})

    def _blocking(self, name: str, kind: SchedulingClass) -> Iterator[_Taken]:
        """Yield what was given of a node's time to runs that block those of a class."""
        against = blockers(kind)
        yield from (each for each in self._kept[name] if each.kind in against)
        yield from (
            each for other, each in self._provisional if other == name and each.kind in against
        )


def _outside(offer: Offer, spans: Sequence[Span], staying: Sequence[Span]) -> Offer:
    """Return what spans leave of an offer, of which only some stay if others give way."""
    # A sweep, because a search does this for each node and case: subtracting 30 spans from 30
    # takes 0.02 ms so, and 1 ms by interval algebra.
    without = normalise(spans)
    lasting = without if staying is spans else normalise(staying)
    return Offer(
        offer.name,
        subtract(normalise(offer.free), without),
        subtract(normalise(offer.free_displacing), lasting),
    )


def _longer(told: AnyObstacle | None, other: AnyObstacle, slot: Slot) -> AnyObstacle:
    """Return which of two obstacles has most of a slot, the first one if both have as much."""
    if told is None:
        return other

    def of_slot(each: AnyObstacle) -> tuple[int, int]:
        return min(each.ends_at, slot.end) - max(each.starts_at, slot.start), -each.starts_at

    return max(told, other, key=of_slot)


def _has_room(ranges: Sequence[Span], slot: Slot, duration: int) -> bool:
    """Return whether a run of a slot fits into one of these ranges, which are sorted."""
    first = max(0, bisect_right(ranges, (slot.start, slot.start)) - 1)
    last = bisect_right(ranges, (slot.end, slot.end))
    return any(at_least(clip(ranges[first:last], slot.start, slot.end), duration))


def _occupied_span(taken: _Taken) -> ClosedSpan:
    test, priority = (None, None) if taken.of is None else (taken.of.test, taken.of.priority)

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
    def obstacle(window: int, slot: Slot) -> HostLimit | ResourceTaken | AboveShare:
        if isinstance(closed, LimitedTime):
            return limit_obstacle(window, closed)
        return AboveShare.of(window, closed, slot.start, now)

    return ClosedSpan(closed.starts_at, closed.ends_at, obstacle)
