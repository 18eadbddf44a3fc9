"""A cache of what occupies a node's time, so that not every question reads the database. Pure.

The cache consists of pieces of five minutes. A piece is read from the database when it is first
needed. New bookings are then added, which may safely happen twice; where time is given back, the
pieces are dropped and read again on demand. The owner of a calendar must report every change to it,
or :meth:`Calendar.clear` it. Changes that are reported while the database is being read apply to
the result of that read as well. No piece is kept for longer than ``CACHE_LIFETIME``.

Runs of one class and priority block the same other runs, so only the union of their times is kept:
it stays small however many runs there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from node.model import times
from node.model.classes import SchedulingClass
from node.model.spans import Span, normalise
from node.model.timeline import OccupiedSpan

CACHE_CHUNK = 5 * times.MINUTE
CACHE_LIFETIME = 10 * times.MINUTE
"""Maximum age of a piece, which bounds the harm of a change that was never reported."""

OccupancyKey = tuple[SchedulingClass, int, int]
"""Class, priority, and rank, which together decide whom a run blocks."""

_NOTHING: tuple[int, dict[OccupancyKey, list[Span]]] = 0, {}


class Calendar:
    """The time line as read from the database, plus the changes reported since."""

    def __init__(self) -> None:
        # By piece number: when it was read, and what occupies it. In the order of reading.
        self._pieces: dict[int, tuple[int, dict[OccupancyKey, list[Span]]]] = {}
        self._reading = False
        self._taken: list[tuple[OccupancyKey, Span]] = []
        self._given_back: list[Span] = []

    def missing_spans(self, spans: Iterable[Span], now: int) -> list[Span]:
        """Return the span set that must be read before these spans can be answered.

        Drop the pieces that are too old. After this call, call :meth:`read` with the spans
        returned, and then :meth:`caught_up`.
        """
        self._forget_old(now)
        self._reading = True
        pieces = _piece_numbers(spans)
        return normalise(
            (number * CACHE_CHUNK, (number + 1) * CACHE_CHUNK)
            for number in pieces
            if number not in self._pieces
        )

    def _forget_old(self, now: int) -> None:
        old = []
        for number, (read_at, _) in self._pieces.items():
            if read_at > now - CACHE_LIFETIME:
                break  # all that follow were read later
            old.append(number)
        for number in old:
            del self._pieces[number]
        if self._pieces and self._pieces[next(reversed(self._pieces))][0] > now:
            self.clear()  # the clock has gone back

    def read(self, spans: Sequence[Span], occupied: Iterable[OccupiedSpan], now: int) -> None:
        """Store what was read for ``spans``, which :meth:`missing_spans` returned."""
        for number in _piece_numbers(spans):
            self._pieces[number] = now, {}
        spans_by_kind: dict[OccupancyKey, list[Span]] = defaultdict(list)
        for each in occupied:
            spans_by_kind[each.scheduling_class, each.priority, each.rank] += each.spans
        for kind, together in spans_by_kind.items():
            for span in normalise(together):
                self._add(kind, span)
        for kind, span in self._taken:
            self._add(kind, span)

    def caught_up(self) -> None:
        """End the read that :meth:`missing_spans` started; call it once the question is answered.

        Time given back during the read may have been read as occupied or as free, so the pieces
        that it touches are dropped.
        """
        for span in self._given_back:
            self._forget_span(span)
        self._taken, self._given_back, self._reading = [], [], False

    def take(
        self, scheduling_class: SchedulingClass, priority: int, rank: int, spans: Iterable[Span]
    ) -> None:
        """Add runs of this class, priority, and rank that were booked."""
        kind = scheduling_class, priority, rank
        for span in spans:
            self._add(kind, span)
            if self._reading:
                self._taken.append((kind, span))

    def give_back(self, span: Span) -> None:
        """Drop the pieces of this span, in which anything may have changed."""
        self._forget_span(span)
        if self._reading:
            self._given_back.append(span)

    def clear(self) -> None:
        """Drop all pieces."""
        self.give_back((times.EARLIEST, times.LATEST))

    def occupied_spans(self, spans: Iterable[Span]) -> list[OccupiedSpan]:
        """Return what occupies these spans, and possibly time near them; nothing is ``fixed``."""
        spans_by_kind: dict[OccupancyKey, list[Span]] = defaultdict(list)
        for number in _piece_numbers(spans):
            _, kinds = self._pieces.get(number, _NOTHING)
            for kind, piece_spans in kinds.items():
                spans_by_kind[kind] += piece_spans
        return [
            OccupiedSpan(kind, priority, fixed=False, spans=each, rank=rank)
            for (kind, priority, rank), each in spans_by_kind.items()
        ]

    def _add(self, kind: OccupancyKey, span: Span) -> None:
        for number in range(span[0] // CACHE_CHUNK, -(-span[1] // CACHE_CHUNK)):
            piece = self._pieces.get(number)
            if piece is None:
                continue
            spans = piece[1].setdefault(kind, [])
            # Cut at the piece's ends, so that time given back in the next piece does not stay here.
            spans.append(
                (max(span[0], number * CACHE_CHUNK), min(span[1], (number + 1) * CACHE_CHUNK))
            )
            if len(spans) & (len(spans) - 1) == 0:  # merge at each doubling, to bound the list
                spans[:] = normalise(spans)

    def _forget_span(self, span: Span) -> None:
        first, last = span[0] // CACHE_CHUNK, -(-span[1] // CACHE_CHUNK)
        if last - first > len(self._pieces):
            for number in [number for number in self._pieces if first <= number < last]:
                del self._pieces[number]
        else:
            for number in range(first, last):
                self._pieces.pop(number, None)


def _piece_numbers(spans: Iterable[Span]) -> list[int]:
    """Return the numbers of the pieces that these spans touch, in order."""
    ranges = normalise(
        (start // CACHE_CHUNK, -(-end // CACHE_CHUNK)) for start, end in spans if start < end
    )
    return [number for first, last in ranges for number in range(first, last)]
