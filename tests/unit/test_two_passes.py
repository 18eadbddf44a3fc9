"""From the runs on several timelines to a start: both passes, against trying every start."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead.planning.agenda import Slot
from lead.planning.placement import ChosenStart, Offer, choose
from node.model.classes import SchedulingClass
from node.model.ranks import OWN, PEER
from node.model.timeline import Booking, TimelineQuestion, answer_question
from tests.support.sql_rules import AgendaTask, displaced_bookings, select

LAST = 24
TASK = UUID(int=99)
MUTUAL = {
    frozenset({SchedulingClass.EXCLUSIVE}),
    frozenset({SchedulingClass.EXCLUSIVE, SchedulingClass.NORMAL}),
}
"""The pairs of classes that must not overlap; of equal classes only exclusive ones."""

RANKS = st.sampled_from([OWN, PEER])

patient = settings(deadline=None, max_examples=100)


@st.composite
def time_lines(draw: st.DrawFn) -> list[Booking]:
    """Draw the runs of one node: any classes, priorities, and states."""
    drawn = draw(
        st.lists(
            st.tuples(
                st.sampled_from(SchedulingClass),
                st.integers(-1, 2),
                st.integers(0, LAST),
                st.integers(1, 10),
                st.booleans(),
                RANKS,
            ),
            max_size=5,
        )
    )
    return [
        Booking(
            *(UUID(int=number), TASK, "idle", kind, priority, start, start + length, fixed),
            rank=rank,
        )
        for number, (kind, priority, start, length, fixed, rank) in enumerate(drawn)
    ]


QUESTIONS = st.builds(
    lambda kind, start, length, duration, priority, rank: TimelineQuestion(
        [(start, start + length)], kind, duration, priority, 0, LAST + 12, rank=rank
    ),
    st.sampled_from(SchedulingClass),
    st.integers(0, 12),
    st.integers(1, 18),
    st.integers(1, 5),
    st.integers(-1, 2),
    RANKS,
)
NODES = st.lists(time_lines(), min_size=1, max_size=3)


def met(question: TimelineQuestion, start: int, booked: list[Booking]) -> list[Booking]:
    """Return the runs that conflict with a run from this start, instant by instant."""
    instants = set(range(start, start + question.duration))
    return [
        booking
        for booking in booked
        if frozenset({question.scheduling_class, booking.scheduling_class}) in MUTUAL
        and instants & set(range(booking.starts_at, booking.ends_at))
    ]


def _lower(booking: Booking, question: TimelineQuestion) -> bool:
    """Return whether a run may give way: the host's own first, then by priority."""
    if booking.rank != question.rank:
        return question.rank == OWN
    return booking.priority < question.priority


def expected(question: TimelineQuestion, nodes: list[list[Booking]]) -> tuple[int, bool] | None:
    """Return the earliest start without conflicts, else the earliest by displacement."""
    [(first, end)] = question.windows
    last = min(end, question.latest) - question.duration
    starts = range(max(first, question.earliest), last + 1)
    for displacing in (False, True):
        for start in starts:
            in_the_way = [one for booked in nodes for one in met(question, start, booked)]
            stays = [
                one
                for one in in_the_way
                if not displacing or one.fixed or not _lower(one, question)
            ]
            if not stays:
                return start, displacing
    return None


def placed(
    question: TimelineQuestion, nodes: list[list[Booking]], rng: random.Random | None = None
) -> ChosenStart | None:
    """Return what the product chooses from every node's answer."""
    answers = [answer_question(question, booked) for booked in nodes]
    offers = [Offer("node", one.free, one.free_displacing) for one in answers]
    [window] = question.windows
    chosen = choose([Slot(window[0], 1, *window)], offers, question.duration, rng)
    return chosen[0] if chosen else None


@patient
@given(QUESTIONS, NODES)
@pytest.mark.nightly
def test_the_first_start_of_the_first_possible_pass_is_chosen(
    question: TimelineQuestion, nodes: list[list[Booking]]
) -> None:
    """The start equals the one found by trying every instant in both passes."""
    choice = placed(question, nodes)
    found = None if choice is None else (choice.starts_at, choice.displacing)
    assert found == expected(question, nodes)


@patient
@given(QUESTIONS, NODES, st.none() | st.integers(0, 9).map(random.Random))
@pytest.mark.nightly
def test_only_conflicting_runs_are_displaced(
    question: TimelineQuestion, nodes: list[list[Booking]], rng: random.Random | None
) -> None:
    """On each node only conflicting runs are displaced, and none in the first pass."""
    choice = placed(question, nodes, rng)
    if choice is None:
        return
    for booked in nodes:
        gone = displaced_bookings(question, choice.starts_at, booked)
        assert gone == met(question, choice.starts_at, booked)
        assert choice.displacing or gone == []
        assert all(_lower(one, question) and not one.fixed for one in gone)
        assert question.rank == OWN or all(one.rank == PEER for one in gone)


@patient
@given(QUESTIONS, NODES)
@pytest.mark.nightly
def test_equals_never_displace_each_other(
    question: TimelineQuestion, nodes: list[list[Booking]]
) -> None:
    """The first to be booked of runs of one rank and priority keeps its time."""
    priority, rank = question.priority, question.rank
    equal = [[replace(one, priority=priority, rank=rank) for one in booked] for booked in nodes]
    choice = placed(question, equal)
    assert choice is None or not choice.displacing
    assert all(displaced_bookings(question, start, b) == [] for b in equal for start in range(LAST))


INSTANTS = st.integers(0, 3)
CANDIDATES = st.lists(
    st.builds(
        AgendaTask,
        task=st.uuids().map(str),
        next_run_at=st.none() | INSTANTS,
        plan_at=st.none() | INSTANTS,
        leased_until=st.none() | INSTANTS,
        added_at=st.integers(0, 99),
    ),
    max_size=12,
    unique_by=lambda one: one.added_at,
)


@patient
@given(CANDIDATES, INSTANTS, INSTANTS, st.integers(0, 5))
def test_idle_workers_take_the_soonest_and_then_the_oldest(
    candidates: list[AgendaTask], now: int, before: int, idle: int
) -> None:
    """No due task is left out while a later or younger one is taken."""
    taken = select(candidates, now, before, idle)
    left = [one for one in candidates if one not in taken]
    due = [
        one
        for one in candidates
        if None not in {one.plan_at, one.next_run_at}
        and (one.plan_at or 0) <= now
        and (one.next_run_at or 0) < before
        and (one.leased_until or 0) <= now
    ]
    assert len(taken) == min(idle, len(due))
    assert all(one in due for one in taken)
    keys = [((one.next_run_at or 0), one.added_at) for one in taken]
    assert keys == sorted(keys)
    for other in left:
        if other in due and keys:
            assert ((other.next_run_at or 0), other.added_at) > keys[-1]
