"""The time line, compared with an oracle that tries every instant, and with portion."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from itertools import chain
from pathlib import Path
from uuid import UUID

import portion
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.model import runstate
from node.model.classes import SchedulingClass, blockers
from node.model.spans import Span, at_least, from_portion, to_portion
from node.model.timeline import (
    Booking,
    TimelineAnswer,
    TimelineQuestion,
    answer_question,
    free_ranges,
    occupation_of,
    trim_window,
)
from node.store.queries import parse_queries

# Few distinct numbers, so that windows and bookings often touch, nest and coincide.
LAST = 30
INSTANTS = st.integers(0, LAST)
TASK = UUID(int=99)

patient = settings(deadline=None, max_examples=70)


def span(start: int, length: int) -> Span:
    """Draw a span of this length."""
    return start, start + length


SPANS = st.builds(span, INSTANTS, st.integers(1, 12))


@st.composite
def timelines(draw: st.DrawFn) -> list[Booking]:
    """Draw any bookings, even impossible combinations: the answer does not rely on that."""
    drawn = draw(
        st.lists(
            st.tuples(SPANS, st.sampled_from(SchedulingClass), st.integers(-1, 2), st.booleans()),
            max_size=6,
        )
    )
    return [
        Booking(UUID(int=number), TASK, "idle", kind, priority, *taken, fixed)
        for number, (taken, kind, priority, fixed) in enumerate(drawn)
    ]


QUESTIONS = st.builds(
    TimelineQuestion,
    windows=st.lists(SPANS, max_size=4),
    scheduling_class=st.sampled_from(SchedulingClass),
    duration=st.integers(1, 6),
    priority=st.integers(-1, 2),
    earliest=st.integers(-2, LAST // 2),
    latest=st.integers(LAST // 2, LAST + 15),
    yielding=st.none() | st.frozensets(st.integers(0, 5).map(lambda number: UUID(int=number))),
)


def blocking(
    question: TimelineQuestion, bookings: list[Booking], *, displacing: bool
) -> list[Booking]:
    """Return what must not be overlapped in a pass, computed slowly."""
    return [
        booking
        for booking in bookings
        if booking.scheduling_class in blockers(question.scheduling_class)
        and not (
            displacing
            and not booking.fixed
            and booking.priority < question.priority
            and (question.yielding is None or booking.run in question.yielding)
        )
    ]


def feasible(question: TimelineQuestion, window: Span, busy: list[Booking]) -> set[int]:
    """Return every start in this window at which the run would conflict with nothing."""
    last = window[1] - question.duration
    return {
        start
        for start in range(window[0], last + 1)
        if start >= question.earliest
        and start + question.duration <= question.latest
        and all(
            start >= booking.ends_at or start + question.duration <= booking.starts_at
            for booking in busy
        )
    }


def passes(answered: TimelineAnswer) -> list[tuple[bool, list[Span]]]:
    """Yield both passes: whether it displaces, and its free ranges."""
    return [(False, answered.free), (True, answered.free_displacing)]


def starts_in(ranges: list[Span], duration: int) -> set[int]:
    """Return every start that the ranges offer."""
    return {at for start, end in ranges for at in range(start, end - duration + 1)}


# Free ranges


@patient
@given(QUESTIONS, timelines())
def test_the_feasible_starts_are_offered_and_no_other(
    question: TimelineQuestion, bookings: list[Booking]
) -> None:
    """In both passes the ranges offer exactly the starts without a conflict."""
    for displacing, ranges in passes(answer_question(question, bookings)):
        busy = blocking(question, bookings, displacing=displacing)
        expected = set(chain.from_iterable(feasible(question, w, busy) for w in question.windows))
        assert starts_in(ranges, question.duration) == expected


@patient
@given(QUESTIONS, timelines())
def test_the_ranges_agree_with_portion(question: TimelineQuestion, bookings: list[Booking]) -> None:
    """Window by window the ranges are what portion leaves of it, without the short ones."""
    bounds = portion.closedopen(question.earliest, question.latest)
    for displacing, ranges in passes(answer_question(question, bookings)):
        busy = to_portion(
            (b.starts_at, b.ends_at) for b in blocking(question, bookings, displacing=displacing)
        )
        expected = [
            at_least(from_portion((to_portion([window]) & bounds) - busy), question.duration)
            for window in question.windows
        ]
        assert ranges == list(chain.from_iterable(expected))


@patient
@given(QUESTIONS, timelines())
def test_every_range_is_long_enough_and_free(
    question: TimelineQuestion, bookings: list[Booking]
) -> None:
    """A range is long enough, lies in a window and the bounds, and overlaps nothing that blocks."""
    for displacing, ranges in passes(answer_question(question, bookings)):
        for start, end in ranges:
            assert end - start >= question.duration
            assert question.earliest <= start < end <= question.latest
            assert any(window[0] <= start < end <= window[1] for window in question.windows)
            for booking in blocking(question, bookings, displacing=displacing):
                assert booking.ends_at <= start or end <= booking.starts_at


def test_a_range_lies_in_one_window_even_where_windows_touch() -> None:
    """Free time across the border of two windows is offered window by window."""
    asked = question_of([(0, 10), (10, 20)], duration=4)
    assert answer_question(asked, []).free == [(0, 10), (10, 20)]


def test_overlapping_windows_each_get_their_ranges() -> None:
    """Free time that two windows share is offered for both, in the order of the windows."""
    asked = question_of([(0, 12), (4, 16)], duration=2)
    assert answer_question(asked, [booking_of(6, 8)]).free == [(0, 6), (8, 12), (4, 6), (8, 16)]


def test_windows_that_overlap_do_not_multiply_the_answer() -> None:
    """However many windows share the same gaps, the answer is bounded, and none loses its time."""
    occupied = occupation_of([booking_of(at, at + 1) for at in range(2, 1000, 2)])
    asked = question_of([(0, 1000)] * 200, duration=1)
    found = free_ranges(asked, occupied, ranges_max=1200)
    assert len(found.free) <= 1200 + len(asked.windows)
    assert found.free[:500] == free_ranges(question_of([(0, 1000)], 1), occupied).free
    assert not found.without


def test_many_long_windows_without_time_are_answered_at_once() -> None:
    """The obstacles of hundreds of full days are found in a fraction of a second."""
    bookings = [booking_of(at, at + 1) for at in range(2, 3000, 2)]
    asked = replace(question_of([(0, 3000)] * 500, duration=50), latest=3000)
    began = time.process_time()
    assert len(answer_question(asked, bookings).obstacles) == 500
    assert time.process_time() - began < 1


def test_a_long_booking_is_not_forgotten_behind_a_short_one() -> None:
    """A short run inside a long one does not end the occupied time."""
    bookings = [
        booking_of(0, 20, kind=SchedulingClass.NORMAL),
        booking_of(2, 4, kind=SchedulingClass.NORMAL),
    ]
    assert answer_question(question_of([(0, 30)], duration=5), bookings).free == [(20, 30)]


def test_a_run_may_start_when_another_ends() -> None:
    """With half-open times, a gap of just the duration between two bookings is free."""
    bookings = [booking_of(0, 10), booking_of(15, 20)]
    assert answer_question(question_of([(0, 20)], duration=5), bookings).free == [(10, 15)]


@patient
@given(QUESTIONS, timelines(), st.randoms(use_true_random=False))
def test_the_order_of_the_bookings_does_not_matter(
    question: TimelineQuestion, bookings: list[Booking], rng: random.Random
) -> None:
    """The order of the bookings changes neither ranges nor obstacles."""
    shuffled = list(bookings)
    rng.shuffle(shuffled)
    assert answer_question(question, shuffled) == answer_question(question, bookings)


# Who gives way


@patient
@given(QUESTIONS, timelines())
def test_fixed_bookings_are_never_displaced(
    question: TimelineQuestion, bookings: list[Booking]
) -> None:
    """If nothing may be displaced, both passes are the same whatever the priorities."""
    answered = answer_question(question, [replace(booking, fixed=True) for booking in bookings])
    assert answered.free_displacing == answered.free


@patient
@given(QUESTIONS, timelines())
def test_only_strictly_lower_priority_gives_way(
    question: TimelineQuestion, bookings: list[Booking]
) -> None:
    """Runs of the same or higher priority block pass 2 as they block pass 1."""
    not_lower = [replace(b, priority=max(b.priority, question.priority)) for b in bookings]
    answered = answer_question(question, not_lower)
    assert answered.free_displacing == answered.free


@patient
@given(QUESTIONS, timelines())
def test_pass_2_offers_all_of_pass_1(question: TimelineQuestion, bookings: list[Booking]) -> None:
    """Time that is free without displacing is free with it."""
    answered = answer_question(question, bookings)
    quiet = starts_in(answered.free, question.duration)
    assert quiet <= starts_in(answered.free_displacing, question.duration)


@patient
@given(QUESTIONS, timelines())
def test_background_never_blocks(question: TimelineQuestion, bookings: list[Booking]) -> None:
    """Background bookings change no answer."""
    background = (SchedulingClass.BACKGROUND, SchedulingClass.BACKGROUND_MULTI)
    others = [b for b in bookings if b.scheduling_class not in background]
    assert answer_question(question, bookings) == answer_question(question, others)


@pytest.mark.parametrize("kind", [SchedulingClass.BACKGROUND, SchedulingClass.BACKGROUND_MULTI])
@patient
@given(QUESTIONS, timelines())
def test_background_is_never_blocked(
    kind: SchedulingClass, question: TimelineQuestion, bookings: list[Booking]
) -> None:
    """A background run finds the whole time line free."""
    asked = replace(question, scheduling_class=kind)
    assert answer_question(asked, bookings) == answer_question(asked, [])


# What stands in the way


@patient
@given(QUESTIONS, timelines())
def test_obstacles_are_named_where_nothing_is_free(
    question: TimelineQuestion, bookings: list[Booking]
) -> None:
    """Exactly the windows without a start in pass 2 and with a blocker have an obstacle."""
    lasting = blocking(question, bookings, displacing=True)
    named = dict(answer_question(question, bookings).obstacles)
    for index, window in enumerate(question.windows):
        start, end = trim_window(question, window)
        touching = [b for b in lasting if max(b.starts_at, start) < min(b.ends_at, end)]
        stuck = bool(touching) and not feasible(question, window, lasting)
        assert (index in named) == stuck
        assert not stuck or named[index] in touching


@patient
@given(QUESTIONS, timelines())
def test_the_obstacle_is_what_blocks_longest(
    question: TimelineQuestion, bookings: list[Booking]
) -> None:
    """No other blocker takes more of the window than the one reported."""
    lasting = blocking(question, bookings, displacing=True)
    for index, obstacle in answer_question(question, bookings).obstacles:
        start, end = trim_window(question, question.windows[index])
        taken = [min(b.ends_at, end) - max(b.starts_at, start) for b in lasting]
        assert min(obstacle.ends_at, end) - max(obstacle.starts_at, start) == max(taken)


def test_a_free_neighbour_does_not_hide_an_obstacle() -> None:
    """A full window has its obstacle even if the adjacent window is free."""
    in_the_way = booking_of(0, 10)
    answered = answer_question(question_of([(0, 10), (10, 20)], duration=4), [in_the_way])
    assert answered.obstacles == [(0, in_the_way)]


def test_a_window_of_the_past_has_no_obstacle() -> None:
    """A window in the past has no obstacle."""
    asked = replace(question_of([(0, 10)], duration=4), earliest=12)
    assert answer_question(asked, [booking_of(5, 20)]).obstacles == []


def question_of(windows: list[Span], duration: int) -> TimelineQuestion:
    """Return an exclusive run of priority 0 with bounds that do not matter."""
    return TimelineQuestion(windows, SchedulingClass.EXCLUSIVE, duration, 0, -1000, 1000)


def booking_of(start: int, end: int, kind: SchedulingClass = SchedulingClass.EXCLUSIVE) -> Booking:
    """Return a booking of priority 0 that may be displaced."""
    return Booking(UUID(int=start), TASK, "idle", kind, 0, start, end, fixed=False)


# The same rule in the database


@dataclass(frozen=True)
class Row:
    """A booked run as the exclusion constraint sees it; a lane is null, all, or one number."""

    during: Span
    lane: tuple[float, float] | None


def lane_of(kind: SchedulingClass, number: int) -> tuple[float, float] | None:
    """Return the lane of the query ``book``; see :func:`test_lanes_are_written_as_modelled`."""
    if kind is SchedulingClass.EXCLUSIVE:
        return -float("inf"), float("inf")
    if kind is SchedulingClass.NORMAL:
        return number, number + 1
    return None


def excluded(left: Row, right: Row) -> bool:
    """Return whether ``EXCLUDE (during WITH &&, lane WITH &&)`` refuses the pair."""
    if left.lane is None or right.lane is None:
        return False
    return overlap(left.during, right.during) and overlap(left.lane, right.lane)


def overlap(left: tuple[float, float], right: tuple[float, float]) -> bool:
    """Compute the operator ``&&`` on non-empty half-open ranges."""
    return left[0] < right[1] and right[0] < left[1]


@patient
@given(SPANS, st.sampled_from(SchedulingClass), SPANS, st.sampled_from(SchedulingClass))
def test_the_conflict_rule_is_the_exclusion_constraint(
    wanted: Span, kind: SchedulingClass, taken: Span, other: SchedulingClass
) -> None:
    """A span is free on the time line exactly if the constraint accepts it beside the booking."""
    asked = TimelineQuestion([wanted], kind, wanted[1] - wanted[0], 0, -1000, 1000)
    free = answer_question(asked, [booking_of(*taken, kind=other)]).free == [wanted]
    refused = excluded(Row(wanted, lane_of(kind, 1)), Row(taken, lane_of(other, 2)))
    assert free is not refused


def test_the_constraint_is_as_modelled(schema: str) -> None:
    """The schema excludes by time and lane, for exactly the states that occupy their time."""
    found = re.search(
        r"EXCLUDE USING gist \(during WITH &&, lane WITH &&\)\s+"
        r"WHERE \(state IN \(([^)]*)\) AND lane IS NOT NULL\)",
        schema,
    )
    assert found is not None
    assert set(re.findall(r"'([a-z-]+)'", found[1])) == set(runstate.LIVE)
    assert "GENERATED ALWAYS AS (tstzrange(starts_at, ends_at)) STORED" in schema


def test_lanes_are_written_as_modelled(query: Callable[[str], str]) -> None:
    """Booking gives an exclusive run every lane, a normal one its own, and others none."""
    lanes = re.search(r"CASE wanted.scheduling_class\s+(.*?)\s+END,", query("book"), re.DOTALL)
    assert lanes is not None
    assert re.findall(r"WHEN '(\w+)' THEN (.*)", lanes[1]) == [
        ("exclusive", "int8range(NULL, NULL)"),
        ("normal", "int8range(number, number, '[]')"),
    ]
    assert "nextval('lane') END AS number" in query("book")


@pytest.fixture
def schema() -> str:
    """The text of ``schema.sql``."""
    return (Path(__file__).parents[2] / "schema.sql").read_text("utf-8")


@pytest.fixture
def query() -> Callable[[str], str]:
    """The named queries about bookings."""
    text = resources.files("node.store").joinpath("sql", "bookings.sql").read_text("utf-8")
    return parse_queries(text).__getitem__
