"""Reserved time, against an oracle that tries every instant."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.model.classes import SchedulingClass
from node.model.recurrence import Recurrence, nominal_starts
from node.model.reservations import (
    AccessList,
    Applicant,
    ReservationSpan,
    access_of,
    admits,
    inadmissible_spans,
    occurrences,
    spans_of,
)
from node.model.spans import Span
from node.model.timeline import Booking, TimelineQuestion, answer_question
from tests.support.clocks import START

patient = settings(deadline=None, max_examples=100)

TASKS = [UUID(int=number) for number in (1, 2)]
INSTANTS = st.integers(0, 30)
SPANS = st.tuples(INSTANTS, st.integers(1, 10)).map(lambda drawn: (drawn[0], sum(drawn)))


def some(*values: object) -> st.SearchStrategy[frozenset[object]]:
    """Draw any subset of these values."""
    return st.frozensets(st.sampled_from(values), max_size=2)


ACCESSES = st.builds(
    AccessList,
    campaigns=some("ops", "default"),
    tasks=some(*TASKS),
    led=st.frozensets(st.tuples(st.sampled_from(TASKS), st.sampled_from("ab")), max_size=2),
    leads=some("a", "b"),
    tests=some("rtt", "idle"),
    classes=some(*SchedulingClass),
    priority=st.none() | st.integers(-1, 2),
)
APPLICANTS = st.builds(
    Applicant,
    task=st.sampled_from(TASKS),
    lead=st.sampled_from("abc"),
    own=st.booleans(),
    campaign=st.sampled_from((None, "ops", "lab")),
    test=st.sampled_from((None, "rtt", "idle")),
    scheduling_class=st.sampled_from(SchedulingClass),
    priority=st.integers(-2, 3),
    pool_task=st.none() | st.sampled_from(TASKS),
)


def reserved(number: int, access: AccessList, span: Span) -> ReservationSpan:
    """Return one span of a reservation."""
    return ReservationSpan(UUID(int=100 + number), "demo", "SC26", "alice", access, *span)


RESERVED = st.lists(st.tuples(st.integers(0, 3), SPANS), max_size=5)

APPLICANT = Applicant(
    task=TASKS[0],
    lead="a",
    own=True,
    campaign=None,
    test="idle",
    scheduling_class=SchedulingClass.NORMAL,
    priority=5,
)


@pytest.mark.parametrize(
    "access",
    [
        AccessList(campaigns=frozenset({"default"})),
        AccessList(tasks=frozenset({TASKS[0]})),
        AccessList(leads=frozenset({"a"})),
        AccessList(tests=frozenset({"idle"})),
        AccessList(classes=frozenset({SchedulingClass.NORMAL})),
        AccessList(priority=5),
    ],
)
def test_one_criterion_suffices(access: AccessList) -> None:
    """Each criterion alone admits what it names, and nothing that differs in just that."""
    other = Applicant(
        task=TASKS[1],
        lead="b",
        own=True,
        campaign="ops",
        test="rtt",
        scheduling_class=SchedulingClass.EXCLUSIVE,
        priority=4,
    )
    assert admits(access, APPLICANT)
    assert not admits(access, other)


@pytest.mark.parametrize(
    "access", [AccessList(campaigns=frozenset({"default"})), AccessList(priority=5)]
)
def test_claims_of_another_lead_do_not_suffice(access: AccessList) -> None:
    """Another lead's campaign and priority are mere claims, so it must be named itself."""
    foreign = replace(APPLICANT, own=False)
    assert not admits(access, foreign)
    assert admits(replace(access, leads=frozenset({"a"})), foreign)


def test_a_pool_task_admits_its_seats() -> None:
    """Runs of seats are admitted by the pool task's id, and by their own."""
    access = AccessList(tasks=frozenset({TASKS[1]}))
    assert not admits(access, APPLICANT)
    assert admits(access, replace(APPLICANT, pool_task=TASKS[1]))
    assert admits(AccessList(tasks=frozenset({TASKS[0]})), replace(APPLICANT, pool_task=TASKS[1]))


def test_a_pool_task_of_another_lead_must_be_named_with_it() -> None:
    """Only the named lead decides which tasks are its seats."""
    foreign = replace(APPLICANT, own=False, pool_task=TASKS[1])
    assert not admits(AccessList(tasks=frozenset({TASKS[1]})), foreign)
    access = access_of({"tasks": [f"{TASKS[1]}@a"]})
    assert admits(access, foreign)
    assert not admits(access, replace(foreign, lead="b"))
    assert not admits(access, replace(foreign, pool_task=None))
    assert admits(access, replace(foreign, task=TASKS[1], pool_task=None))


def test_an_empty_list_admits_nobody() -> None:
    """An empty access list admits no run, of whatever priority."""
    assert not admits(AccessList(), APPLICANT)
    assert not admits(access_of({}), replace(APPLICANT, test=None, priority=2**31 - 1))


@patient
@given(ACCESSES, ACCESSES, APPLICANTS)
@pytest.mark.nightly
def test_more_criteria_admit_more(one: AccessList, other: AccessList, applicant: Applicant) -> None:
    """Two combined lists admit exactly the applicants that either of them admits."""
    least = [access.priority for access in (one, other) if access.priority is not None]
    together = AccessList(
        campaigns=one.campaigns | other.campaigns,
        tasks=one.tasks | other.tasks,
        led=one.led | other.led,
        leads=one.leads | other.leads,
        tests=one.tests | other.tests,
        classes=one.classes | other.classes,
        priority=min(least, default=None),
    )
    expected = admits(one, applicant) or admits(other, applicant)
    assert admits(together, applicant) is expected


@patient
@given(st.lists(ACCESSES, min_size=4, max_size=4), RESERVED, APPLICANTS)
@pytest.mark.nightly
def test_every_reservation_must_admit(
    accesses: list[AccessList], drawn: list[tuple[int, Span]], applicant: Applicant
) -> None:
    """Time is closed as soon as one of several stacked reservations does not admit the run."""
    spans = [reserved(number, accesses[number], span) for number, span in drawn]
    closed = spans_of(inadmissible_spans(applicant, spans))
    for instant in range(45):
        stacked = [each for each in spans if each.starts_at <= instant < each.ends_at]
        is_open = all(admits(each.access, applicant) for each in stacked)
        assert is_open is not any(start <= instant < end for start, end in closed)


BOOKINGS = st.lists(
    st.tuples(SPANS, st.sampled_from(SchedulingClass), st.integers(0, 2), st.booleans()), max_size=4
)


@patient
@given(
    st.lists(SPANS, min_size=1, max_size=3),
    st.sampled_from(SchedulingClass),
    st.integers(1, 5),
    RESERVED,
    BOOKINGS,
)
def test_offers_exclude_exactly_the_closed_time(
    windows: list[Span],
    kind: SchedulingClass,
    duration: int,
    drawn: list[tuple[int, Span]],
    booked: list[tuple[Span, SchedulingClass, int, bool]],
) -> None:
    """No start in closed time is offered and no other is lost, in both passes and every class."""
    bookings = [
        Booking(UUID(int=n), TASKS[1], "idle", one, priority, *span, fixed)
        for n, (span, one, priority, fixed) in enumerate(booked)
    ]
    question = TimelineQuestion(windows, kind, duration, 1, 0, 60)
    closed = [reserved(number, AccessList(), span) for number, span in drawn]
    before, after = (
        answer_question(question, bookings),
        answer_question(replace(question, closed=closed), bookings),
    )
    for without, with_closed in (
        (before.free, after.free),
        (before.free_displacing, after.free_displacing),
    ):
        open_starts = {
            at
            for at in _starts(without, duration)
            if all(at >= each.ends_at or at + duration <= each.starts_at for each in closed)
        }
        assert _starts(with_closed, duration) == open_starts
    for index, each in after.obstacles:
        assert each.starts_at < windows[index][1]
        assert each.ends_at > windows[index][0]


def _starts(ranges: list[Span], duration: int) -> set[int]:
    return {at for start, end in ranges for at in range(start, end - duration + 1)}


def test_the_longest_obstacle_is_named() -> None:
    """The run or the reservation that takes more of the window is named."""
    question = TimelineQuestion([(0, 10)], SchedulingClass.EXCLUSIVE, 8, 0, 0, 60)
    run = Booking(UUID(int=1), TASKS[1], "idle", SchedulingClass.EXCLUSIVE, 5, 0, 4, fixed=False)
    short, long = reserved(1, AccessList(), (7, 10)), reserved(2, AccessList(), (5, 10))
    assert answer_question(replace(question, closed=[short]), [run]).obstacles == [(0, run)]
    assert answer_question(replace(question, closed=[long]), [run]).obstacles == [(0, long)]


@patient
@given(
    st.integers(-50, 50),
    st.none() | st.integers(5, 30),
    st.none() | st.integers(60, 200),
    st.integers(1, 5),
    st.integers(0, 100),
    st.integers(1, 150),
)
def test_occurrences_are_those_within_the_span(
    anchor: int, repeat: int | None, until: int | None, duration: int, since: int, reach: int
) -> None:
    """The occurrences end after the beginning and start before the end, far from the anchor."""
    recurrence = Recurrence(START + anchor, repeat=repeat, until=until and START + until)
    span = START + since, START + since + reach
    every = nominal_starts(recurrence, START - 1000, START + 1000, 1000)
    expected = [(at, at + duration) for at in every if at < span[1] and at + duration > span[0]]
    assert list(occurrences(recurrence, duration, *span, 1000)) == expected
    assert list(occurrences(recurrence, duration, *span, 2)) == expected[:2]
