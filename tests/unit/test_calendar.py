"""The calendar, compared with a database whose notifications arrive late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from node.model import times
from node.model.calendar import CACHE_CHUNK, CACHE_LIFETIME, Calendar
from node.model.classes import SchedulingClass
from node.model.ranks import OWN
from node.model.spans import Span, intersect, normalise
from node.model.timeline import OccupiedSpan

NOW = times.parse_instant("2026-12-01T00:00:00Z")
CLASSES = (SchedulingClass.EXCLUSIVE, SchedulingClass.NORMAL)
Run = tuple[SchedulingClass, int, Span]

patient = settings(deadline=None, max_examples=100)


def span(start: int, length: int) -> Span:
    """Return a span from now in thirds of a piece, so that some cross pieces and some do not."""
    return NOW + start * CACHE_CHUNK // 3, NOW + (start + length) * CACHE_CHUNK // 3


SPANS = st.builds(span, st.integers(0, 8), st.integers(1, 5))
RUNS = st.tuples(st.sampled_from(CLASSES), st.integers(0, 1), SPANS)


@dataclass
class Bench:
    """A table of runs, and its calendar, whose notifications are delivered on demand."""

    calendar: Calendar = field(default_factory=Calendar)
    runs: list[Run] = field(default_factory=list)
    under_way: list[tuple[str, Run]] = field(default_factory=list)

    def book(self, run: Run) -> None:
        """Book a run."""
        self.runs.append(run)
        self.under_way.append(("taken", run))

    def drop(self, index: int) -> None:
        """Drop a run."""
        if self.runs:
            self.under_way.append(("freed", self.runs.pop(index % len(self.runs))))

    def deliver(self, most: int) -> None:
        """Deliver this many notifications."""
        for kind, (scheduling_class, priority, taken) in self.under_way[:most]:
            if kind == "taken":
                self.calendar.take(scheduling_class, priority, OWN, [taken])
            else:
                self.calendar.give_back(taken)
        del self.under_way[:most]

    def stored(self, asked: list[Span]) -> list[OccupiedSpan]:
        """Return the result of the query ``occupied``."""
        return [
            OccupiedSpan(scheduling_class, priority, fixed=False, spans=[taken])
            for scheduling_class, priority, taken in self.runs
            if intersect([taken], normalise(asked))
        ]

    def kept(self, asked: list[Span]) -> dict[object, list[Span]]:
        """Return by kind what the calendar has within these spans."""
        return _by_kind(self.calendar.occupied_spans(asked), asked)


def _by_kind(occupied: list[OccupiedSpan], asked: list[Span]) -> dict[object, list[Span]]:
    found: dict[object, list[Span]] = {}
    for each in occupied:
        found.setdefault((each.scheduling_class, each.priority), []).extend(each.spans)
    within = {kind: intersect(normalise(spans), normalise(asked)) for kind, spans in found.items()}
    return {kind: spans for kind, spans in within.items() if spans}


Act = tuple[str, Any]


def act(bench: Bench, acts: Sequence[Act]) -> None:
    """Perform these actions."""
    for name, argument in acts:
        getattr(bench, name)(argument)


def read(bench: Bench, asked: list[Span], meanwhile: Sequence[Act] = ()) -> None:
    """Ask; the database answers with its current state, and ``then`` happens before the answer."""
    missing = bench.calendar.missing_spans(asked, NOW)
    found = bench.stored(missing)
    act(bench, meanwhile)
    bench.calendar.read(missing, found, NOW)
    bench.calendar.caught_up()


def missing(calendar: Calendar, asked: list[Span], now: int) -> list[Span]:
    """Return what would have to be read."""
    found = calendar.missing_spans(asked, now)
    calendar.caught_up()
    return found


CHANGES = st.one_of(
    st.tuples(st.just("book"), RUNS),
    st.tuples(st.just("drop"), st.integers(0, 20)),
    st.tuples(st.just("deliver"), st.sampled_from([1, 2, 100])),
)
ASKED = st.lists(SPANS, min_size=1, max_size=3)
LIVES = st.lists(st.tuples(ASKED, st.lists(CHANGES, max_size=4), st.lists(CHANGES, max_size=4)))


@patient
@given(LIVES, ASKED)
def test_who_has_heard_everything_knows_everything(
    life: list[tuple[list[Span], list[Act], list[Act]]], asked: list[Span]
) -> None:
    """The calendar is right once all is delivered, even after changes during a read."""
    bench = Bench()
    for question, meanwhile, afterwards in life:
        read(bench, question, meanwhile)
        act(bench, afterwards)
    bench.deliver(len(bench.under_way))
    read(bench, asked)
    assert bench.kept(asked) == _by_kind(bench.stored(asked), asked)


EXCLUSIVE: Run = (SchedulingClass.EXCLUSIVE, 0, (NOW, NOW + CACHE_CHUNK // 2))


def test_what_is_booked_while_it_is_read_counts() -> None:
    """A booking during a read counts if its notification arrives before the answer."""
    bench, asked = Bench(), [(NOW, NOW + CACHE_CHUNK)]
    read(bench, asked, [("book", EXCLUSIVE), ("deliver", 1)])
    assert bench.kept(asked) == _by_kind(bench.stored(asked), asked) != {}


def test_what_is_given_back_while_it_is_read_is_not_kept() -> None:
    """A release during a read counts if its notification arrives before the answer."""
    bench, asked = Bench(runs=[EXCLUSIVE]), [(NOW, NOW + CACHE_CHUNK)]
    read(bench, asked, [("drop", 0), ("deliver", 1)])
    assert missing(bench.calendar, asked, NOW) == asked


@patient
@given(st.lists(RUNS, max_size=10), ASKED, RUNS)
def test_what_was_booked_is_known_at_once(before: list[Run], asked: list[Span], run: Run) -> None:
    """A booking is known without a read, and a repeated notification changes nothing."""
    bench = Bench(runs=before)
    read(bench, asked)
    scheduling_class, priority, taken = run
    bench.book(run)
    bench.calendar.take(scheduling_class, priority, OWN, [taken])
    at_once = bench.kept(asked)
    assert missing(bench.calendar, asked, NOW) == []
    bench.deliver(1)
    assert bench.kept(asked) == at_once == _by_kind(bench.stored(asked), asked)


def test_only_what_is_not_known_is_read() -> None:
    """Spans that were read are not missing; pieces in which time was given back are."""
    calendar = Calendar()
    whole = (NOW, NOW + 10 * CACHE_CHUNK)
    assert missing(calendar, [whole], NOW) == [whole]
    calendar.read([whole], [], NOW)
    calendar.caught_up()
    assert missing(calendar, [whole], NOW) == []
    calendar.give_back((NOW + CACHE_CHUNK + 1, NOW + CACHE_CHUNK + 2))
    later = (NOW + 9 * CACHE_CHUNK, NOW + 12 * CACHE_CHUNK)
    assert missing(calendar, [whole, later], NOW) == [
        (NOW + CACHE_CHUNK, NOW + 2 * CACHE_CHUNK),
        (NOW + 10 * CACHE_CHUNK, NOW + 12 * CACHE_CHUNK),
    ]


def test_everything_can_be_forgotten() -> None:
    """A piece is read again when it is cleared, too old, or from the future."""
    calendar = Calendar()
    whole = [(NOW, NOW + 3 * CACHE_CHUNK)]
    for forget, asked_at in (
        (calendar.clear, NOW),
        (lambda: None, NOW + CACHE_LIFETIME),
        (lambda: None, NOW - 1),
    ):
        calendar.read(calendar.missing_spans(whole, NOW), [], NOW)
        calendar.caught_up()
        assert missing(calendar, whole, NOW + CACHE_LIFETIME - 1) == []
        forget()
        assert missing(calendar, whole, asked_at) == whole


def test_many_runs_of_one_time_are_kept_once() -> None:
    """Bookings of the same time do not accumulate."""
    calendar = Calendar()
    calendar.read(calendar.missing_spans([(NOW, NOW + CACHE_CHUNK)], NOW), [], NOW)
    for _ in range(1000):
        calendar.take(SchedulingClass.NORMAL, 0, OWN, [(NOW, NOW + 1), (NOW + 2, NOW + 3)])
    [occupied] = calendar.occupied_spans([(NOW, NOW + 1)])
    assert len(occupied.spans) < 8


def test_an_empty_span_touches_nothing() -> None:
    """A window that ends before it starts needs no read."""
    assert Calendar().missing_spans([(NOW + 5, NOW), (NOW, NOW)], NOW) == []


def test_what_is_given_back_lingers_nowhere() -> None:
    """Dropping the second of two runs that meet at a piece's end leaves no trace of it."""
    calendar, middle = Calendar(), NOW - NOW % CACHE_CHUNK + CACHE_CHUNK
    first, second = (middle - CACHE_CHUNK // 2, middle), (middle, middle + CACHE_CHUNK // 2)
    asked = [(middle - CACHE_CHUNK, middle + CACHE_CHUNK)]
    assert missing(calendar, asked, NOW)
    kind = SchedulingClass.EXCLUSIVE, 0
    calendar.read(asked, [OccupiedSpan(*kind, fixed=False, spans=[first, second])], NOW)
    calendar.give_back(second)
    assert [each.spans for each in calendar.occupied_spans(asked)] == [[first]]
