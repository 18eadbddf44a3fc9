"""A node's time line: the free ranges inside many windows, and the obstacles.

All instants are microseconds; spans are half-open ``(start, end)`` tuples. One sweep over the
sorted bookings serves all windows and both passes:

* pass 1 displaces nothing: every booking of a conflicting class blocks;
* pass 2 lets bookings of lower rank give way, and those of the same rank and strictly lower
  priority, except those that are running or start within the start margin (:attr:`Booking.fixed`);
  where the runs that may give way are listed (:attr:`TimelineQuestion.yielding`), only these.

Reserved time blocks in both passes, whatever the classes, unless the reservation admits the run; so
does time that is kept for other leads.

Normal runs overlap each other, so blocking spans are merged first: the end of a long run must not
be lost because a short run inside it ends earlier.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from uuid import UUID

from node.model.classes import SchedulingClass, blockers
from node.model.host_limits.closed import LimitedTime
from node.model.lead_shares import KeptTime
from node.model.ranks import OWN
from node.model.reservations import ReservationSpan, spans_of
from node.model.resources import Use
from node.model.spans import Span, normalise, union

Precedence = tuple[int, int]
"""A rank and a priority: runs of a higher one displace those of a lower one."""

ClosedTime = ReservationSpan | KeptTime | LimitedTime
"""Time in which a run may not take place, whatever is booked."""

_NEARBY_MAX = 64
"""Maximum number of bookings in one window of which the longest is named as its obstacle."""

_NOBODY = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Booking:
    """A run that occupies time on this node; ``lead`` is the identity of its task's lead.

    ``spared_as`` is the priority as which it counts if its task may lose no further run.
    """

    run: UUID
    task: UUID
    test: str
    scheduling_class: SchedulingClass
    priority: int
    starts_at: int
    ends_at: int
    fixed: bool
    lead: str = ""
    rank: int = OWN
    spared_as: int | None = None

    @property
    def standing(self) -> int:
        """The priority as which it counts where it could give way."""
        return self.priority if self.spared_as is None else self.spared_as


@dataclass(frozen=True, slots=True)
class OccupiedSpan:
    """Time that runs of one class, rank, and standing occupy; ``fixed`` as for a booking."""

    scheduling_class: SchedulingClass
    priority: int
    fixed: bool
    spans: Sequence[Span]
    rank: int = OWN


@dataclass(frozen=True)
class TimelineQuestion:
    """A question to a time line: the ranges in which a run of this class and duration could go.

    ``earliest`` and ``latest`` bound every range: no run starts before the one or ends after the
    other. ``yielding`` are the runs that may give way if their rank or priority is lower; None
    means any.
    ``closed`` are the reservations that do not admit the run, the time kept for other leads, and
    the time that limits of the host close. ``left_out`` is the task, with the identity of its lead,
    whose runs count for nothing unless they are fixed. With ``partly``, obstacles of windows that
    are free for a part are wanted, too. ``taken`` is closed in pass 1 only: runs that may give way
    take too much then of resources which are kept here.
    """

    windows: Sequence[Span]
    scheduling_class: SchedulingClass
    duration: int
    priority: int
    earliest: int
    latest: int
    closed: Sequence[ClosedTime] = ()
    yielding: frozenset[UUID] | None = None
    rank: int = OWN
    left_out: tuple[UUID, str] | None = None
    partly: bool = False
    taken: Sequence[Span] = ()

    @property
    def precedence(self) -> Precedence:
        """The rank and the priority, which decide whom it displaces."""
        return self.rank, self.priority

    @property
    def names_runs(self) -> bool:
        """Return whether it can only be answered run by run."""
        return bool(self.yielding) or self.left_out is not None

    def counted_bookings(self, bookings: Sequence[Booking]) -> Sequence[Booking]:
        """Return these bookings without those that count for nothing."""
        if self.left_out is None:
            return bookings
        return [it for it in bookings if it.fixed or (it.task, it.lead) != self.left_out]


@dataclass(frozen=True)
class TimelineAnswer:
    """Free ranges of both passes, and for each window without any, the longest obstacle."""

    free: list[Span]
    free_displacing: list[Span]
    obstacles: list[tuple[int, Booking | ClosedTime]]


class Occupation:
    """The occupied time, for any number of questions: spans that block alike are merged once."""

    def __init__(self, occupied: Sequence[OccupiedSpan]) -> None:
        """Take the spans in any order, overlapping or not."""
        self._occupied = occupied
        self._merged: dict[frozenset[int], list[Span]] = {}

    def blocking_spans(
        self, scheduling_class: SchedulingClass, precedence: Precedence | None
    ) -> list[Span]:
        """Return what a run of this class must avoid; with ``precedence``, only what stays."""
        conflicting = blockers(scheduling_class)
        indices = frozenset(
            index
            for index, each in enumerate(self._occupied)
            if each.scheduling_class in conflicting
            and (precedence is None or not is_below(each, precedence))
        )
        if indices not in self._merged:
            spans = chain.from_iterable(self._occupied[index].spans for index in indices)
            self._merged[indices] = normalise(spans)
        return self._merged[indices]


def answer_question(question: TimelineQuestion, bookings: Sequence[Booking]) -> TimelineAnswer:
    """Answer a question, given the bookings that touch any window (in any order)."""
    ranges = free_ranges_beside(question, bookings)
    return TimelineAnswer(
        ranges.free, ranges.free_displacing, obstacles(question, ranges.without, bookings)
    )


def occupation_of(bookings: Sequence[Booking]) -> Occupation:
    """Return what these bookings occupy."""
    grouped: dict[tuple[SchedulingClass, int, bool, int], list[Span]] = defaultdict(list)
    for each in bookings:
        grouped[each.scheduling_class, each.standing, each.fixed, each.rank].append(
            (each.starts_at, each.ends_at)
        )
    return Occupation(
        [
            OccupiedSpan(kind, priority, fixed, spans, rank)
            for (kind, priority, fixed, rank), spans in grouped.items()
        ]
    )


@dataclass(frozen=True)
class FreeRanges:
    """Free ranges of both passes, and the windows that have none even in pass 2."""

    free: list[Span]
    free_displacing: list[Span]
    without: list[int]


def free_ranges(
    question: TimelineQuestion, occupation: Occupation, ranges_max: int = sys.maxsize
) -> FreeRanges:
    """Return the free ranges, given what occupies time; no run in ``yielding`` gives way.

    After ``ranges_max`` of them each further window has only its first one: hundreds of windows
    that are each a day long would have the thousand gaps of that day hundreds of times.
    """
    precedence = question.precedence if question.yielding is None else None
    every = occupation.blocking_spans(question.scheduling_class, None)
    lasting = occupation.blocking_spans(question.scheduling_class, precedence)
    return _ranges(question, every, lasting, ranges_max)


def free_ranges_beside(
    question: TimelineQuestion, bookings: Sequence[Booking], ranges_max: int = sys.maxsize
) -> FreeRanges:
    """Return the free ranges as :func:`free_ranges`, given the bookings that touch any window."""
    bookings = question.counted_bookings(bookings)
    if not question.yielding:
        return free_ranges(question, occupation_of(bookings), ranges_max)
    staying = [
        booking
        for booking in bookings
        if not gives_way(booking, question.yielding, question.precedence)
    ]
    every, lasting = (
        occupation_of(each).blocking_spans(question.scheduling_class, None)
        for each in (bookings, staying)
    )
    return _ranges(question, every, lasting, ranges_max)


def _ranges(
    question: TimelineQuestion, every: list[Span], lasting: list[Span], ranges_max: int
) -> FreeRanges:
    closed = spans_of(question.closed)
    first = union([closed, normalise(question.taken)]) if question.taken else closed
    free = _free_by_window(question, union([every, first]) if first else every, ranges_max)
    displacing = free
    if lasting is not every or question.taken:
        displacing = _free_by_window(
            question, union([lasting, closed]) if closed else lasting, ranges_max
        )
    return FreeRanges(
        list(chain.from_iterable(free)),
        list(chain.from_iterable(displacing)),
        [
            index
            for index, (window, ranges) in enumerate(zip(question.windows, displacing, strict=True))
            if not ranges and (cut := trim_window(question, window))[0] < cut[1]
        ],
    )


def gives_way(
    booking: Booking | Use, yielding: Collection[UUID] | None, precedence: Precedence
) -> bool:
    """Return whether a run of this precedence may displace what is in its way.

    ``yielding`` are the only runs that may give way, if not None.
    """
    return (yielding is None or booking.run in yielding) and is_below(booking, precedence)


def is_below(taken: Booking | OccupiedSpan | Use, precedence: Precedence) -> bool:
    """Return whether what is taken could give way to a run of this precedence."""
    standing = taken.standing if isinstance(taken, Booking) else taken.priority
    return not taken.fixed and (taken.rank, standing) < precedence


def trim_window(question: TimelineQuestion, window: Span) -> Span:
    """Return the window within what the node allows; empty (start ≥ end) if nothing is left."""
    return max(window[0], question.earliest), min(window[1], question.latest)


def windows_to_explain(question: TimelineQuestion, free: FreeRanges) -> list[int]:
    """Return the windows of which the obstacle is wanted: those without time, or not all free."""
    if not question.partly:
        return free.without
    whole = set(free.free_displacing)
    cuts = [trim_window(question, window) for window in question.windows]
    return [index for index, cut in enumerate(cuts) if cut[0] < cut[1] and cut not in whole]


def _free_by_window(
    question: TimelineQuestion, busy: list[Span], ranges_max: int
) -> list[list[Span]]:
    """Return by window the gaps of at least ``duration``; ``busy`` is sorted and disjoint."""
    duration, room = question.duration, ranges_max
    starts = [span[0] for span in busy]
    by_window: list[list[Span]] = []
    for window in question.windows:
        cursor, end = trim_window(question, window)
        gaps: list[Span] = []
        at = bisect_right(starts, cursor) - 1
        if at >= 0:
            cursor = max(cursor, busy[at][1])
        at += 1
        while at < len(busy) and busy[at][0] < end:
            if busy[at][0] - cursor >= duration:
                gaps.append((cursor, busy[at][0]))
                if len(gaps) >= room:
                    break
            cursor = max(cursor, busy[at][1])
            at += 1
        else:
            if end - cursor >= duration:
                gaps.append((cursor, end))
        room -= len(gaps)
        by_window.append(gaps)
    return by_window


def obstacles(
    question: TimelineQuestion, without: Sequence[int], bookings: Sequence[Booking]
) -> list[tuple[int, Booking | ClosedTime]]:
    """Return for each window the longest obstacle: closed time, or a booking that stays.

    Only the first dozens of obstacles of a window are compared, since many windows may be long.
    """
    conflicting = blockers(question.scheduling_class)
    lasting = [
        booking
        for booking in question.counted_bookings(bookings)
        if booking.scheduling_class in conflicting
        and not gives_way(booking, question.yielding, question.precedence)
    ]
    blocking: list[Booking | ClosedTime] = [*question.closed, *lasting]
    ordered = sorted(blocking, key=_start_order)
    starts = [each.starts_at for each in ordered]
    reach = list(accumulate((each.ends_at for each in ordered), max))
    longest = []
    for index in without:
        start, end = trim_window(question, question.windows[index])
        first = bisect_right(reach, start)
        nearby = ordered[first : min(bisect_left(starts, end), first + _NEARBY_MAX)]
        if nearby:
            longest.append((index, max(nearby, key=partial(_overlap, start, end))))
    return longest


def _start_order(each: Booking | ClosedTime) -> tuple[int, bool, UUID]:
    if isinstance(each, KeptTime | LimitedTime):
        return each.starts_at, False, _NOBODY
    if isinstance(each, ReservationSpan):
        return each.starts_at, False, each.reservation
    return each.starts_at, True, each.run


def _overlap(start: int, end: int, each: Booking | ClosedTime) -> int:
    return min(each.ends_at, end) - max(each.starts_at, start)
