"""What occupies a node's time, kept in memory so that it is not read anew for each question. Pure.

It is kept in pieces of five minutes. What is asked about for the first time is read from the
database; what is booked is then added, which does no harm however often it is done; where time is
given back the pieces are forgotten, and read again when somebody asks. Whoever keeps a calendar
must hear of every change, or :meth:`Calendar.clear` it; what was heard while the database was being
read counts for what comes of it, too. Nothing is kept for longer than
``CACHE_LIFETIME``.

Runs of one class and priority block alike, so only the time they occupy together is kept: it stays
small however many runs there are.
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
"""What was read so long ago is read again: a change that was never heard of does harm no longer."""

OccupancyKey = tuple[SchedulingClass, int]
"""Class and priority: what decides whom a run is in the way of."""

_NOTHING: tuple[int, dict[OccupancyKey, list[Span]]] = 0, {}


class Calendar:
    """The time line as it was read, and changed by what was heard since."""

    def __init__(self) -> None:
        """Nothing is known."""
        # When each was read, and by kind what is taken; in the order in which they were read.
        self._pieces: dict[int, tuple[int, dict[OccupancyKey, list[Span]]]] = {}
        self._reading = False
        self._taken: list[tuple[OccupancyKey, Span]] = []
        self._given_back: list[Span] = []

    def missing(self, spans: Iterable[Span], now: int) -> list[Span]:
        """A span set: what must be read to know these spans; then :meth:`caught_up` must follow.

        What was read too long ago is forgotten.
        """
        self._forget_old(now)
        self._reading = True
        pieces = _pieces(spans)
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
        """These spans, :meth:`missing` until now, were read; so much is occupied in them."""
        for number in _pieces(spans):
            self._pieces[number] = now, {}
        found: dict[OccupancyKey, list[Span]] = defaultdict(list)
        for each in occupied:
            found[each.scheduling_class, each.priority] += each.spans
        for kind, together in found.items():
            for span in normalise(together):
                self._add(kind, span)
        for kind, span in self._taken:
            self._add(kind, span)

    def caught_up(self) -> None:
        """Nothing is being read any more, and the question has been answered.

        What was given back meanwhile may have been read as taken or as free: it is forgotten.
        """
        for span in self._given_back:
            self._forget_span(span)
        self._taken, self._given_back, self._reading = [], [], False

    def take(self, scheduling_class: SchedulingClass, priority: int, spans: Iterable[Span]) -> None:
        """Runs of this kind were booked."""
        kind = scheduling_class, priority
        for span in spans:
            self._add(kind, span)
            if self._reading:
                self._taken.append((kind, span))

    def give_back(self, span: Span) -> None:
        """What was in this span may have changed in any way."""
        self._forget_span(span)
        if self._reading:
            self._given_back.append(span)

    def clear(self) -> None:
        """Anything may have changed."""
        self.give_back((times.EARLIEST, times.LATEST))

    def occupied(self, spans: Iterable[Span]) -> list[OccupiedSpan]:
        """What occupies time in these spans, and perhaps near them. All of it could give way."""
        found: dict[OccupancyKey, list[Span]] = defaultdict(list)
        for number in _pieces(spans):
            _, kinds = self._pieces.get(number, _NOTHING)
            for kind, taken in kinds.items():
                found[kind] += taken
        return [OccupiedSpan(*kind, fixed=False, spans=taken) for kind, taken in found.items()]

    def _add(self, kind: OccupancyKey, span: Span) -> None:
        for number in range(span[0] // CACHE_CHUNK, -(-span[1] // CACHE_CHUNK)):
            piece = self._pieces.get(number)
            if piece is None:
                continue
            spans = piece[1].setdefault(kind, [])
            # Cut at the piece's ends: what is given back in the next piece must not linger here.
            spans.append(
                (max(span[0], number * CACHE_CHUNK), min(span[1], (number + 1) * CACHE_CHUNK))
            )
            if len(spans) & (len(spans) - 1) == 0:  # at each doubling: they must not pile up
                spans[:] = normalise(spans)

    def _forget_span(self, span: Span) -> None:
        first, last = span[0] // CACHE_CHUNK, -(-span[1] // CACHE_CHUNK)
        if last - first > len(self._pieces):
            for number in [number for number in self._pieces if first <= number < last]:
                del self._pieces[number]
        else:
            for number in range(first, last):
                self._pieces.pop(number, None)


def _pieces(spans: Iterable[Span]) -> list[int]:
    """The numbers of the pieces that these spans touch, in order."""
    touched = normalise(
        (start // CACHE_CHUNK, -(-end // CACHE_CHUNK)) for start, end in spans if start < end
    )
    return [number for first, last in touched for number in range(first, last)]
