"""Terms of pool tasks, the schedules of their seats, and the possible number of seats."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node.model import times
from node.model.recurrence import Recurrence, nominal_starts, slip_of
from node.model.scheduling import recurrence_of
from node.model.terms import (
    Term,
    due_at,
    next_term,
    open_slots,
    schedule_for,
    seats_possible,
    slots_in,
)
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Schedule, TaskDocument
from node.model.wire.validation import faults_of
from tests.support.clocks import START

MINUTE = times.MINUTE
DURATION = MINUTE
SCHEDULES = st.builds(
    Schedule,
    start=st.integers(0, 120).map(lambda m: START + m * MINUTE),
    repeat=st.integers(2, 90).map(lambda m: m * MINUTE),
    until=st.none() | st.integers(130, 900).map(lambda m: START + m * MINUTE),
    slip=st.integers(0, 30).map(lambda m: m * MINUTE),
    slip_random=st.booleans(),
) | st.builds(
    Schedule,
    start=st.integers(0, 120).map(lambda m: START + m * MINUTE),
    cron=st.sampled_from(["*/10 * * * *", "7 8-18 * * *", "0 0 * * 1"]),
    until=st.none() | st.integers(1000, 9000).map(lambda m: START + m * MINUTE),
    slip=st.integers(0, 30).map(lambda m: m * MINUTE),
)
LENGTHS = st.integers(0, 400).map(lambda m: m * MINUTE)
FAR = START + 2000 * MINUTE


def _terms(recurrence: Recurrence, length: int, rounds: int | None = None) -> list[Term]:
    result: list[Term] = []
    after = START - 1
    while (term := next_term(recurrence, length, after, rounds)) and term.starts_at < FAR:
        result.append(term)
        after = term.ends_at - 1
        if rounds is not None:
            rounds -= len(slots_in(recurrence, term))
    return result


@given(SCHEDULES, LENGTHS)
def test_every_slot_lies_in_one_term(schedule: Schedule, length: int) -> None:
    """The terms follow each other without a gap, and each has the slots of its time."""
    recurrence = recurrence_of(schedule, START)
    terms = _terms(recurrence, length)
    slots = [slot for term in terms for slot in slots_in(recurrence, term)]
    assert [slot for slot in slots if slot < FAR] == nominal_starts(
        recurrence, START - 1, FAR, 10_000
    )
    for term in terms:
        inside = slots_in(recurrence, term)
        assert inside[0] == term.starts_at
        assert inside[-1] - term.starts_at < max(length, 1)


@given(SCHEDULES, LENGTHS, st.integers(0, 20))
def test_a_limited_task_has_a_limited_number_of_rounds(
    schedule: Schedule, length: int, rounds: int
) -> None:
    """With ``max_runs``, the terms have the first slots up to it, wherever they are cut."""
    recurrence = recurrence_of(schedule, START)
    slots = [
        slot for term in _terms(recurrence, length, rounds) for slot in slots_in(recurrence, term)
    ]
    expected = nominal_starts(recurrence, START - 1, FAR, rounds)
    assert [slot for slot in slots if slot < FAR] == expected


@given(SCHEDULES, LENGTHS, st.integers(0, 2000).map(lambda m: START + m * MINUTE))
def test_the_task_of_a_seat_has_the_slots_of_the_rest_of_its_term(
    schedule: Schedule, length: int, soonest: int
) -> None:
    """Its schedule gives the same slots with the same slips, from the first open one."""
    recurrence = recurrence_of(schedule, START)
    for term in _terms(recurrence, length):
        slots = open_slots(recurrence, DURATION, term, soonest)
        assert slots == [
            slot
            for slot in slots_in(recurrence, term)
            if slot + slip_of(recurrence, DURATION, slot) >= soonest
        ]
        if not slots:
            continue
        own = recurrence_of(schedule_for(schedule, recurrence, DURATION, slots), START)
        assert nominal_starts(own, START - 1, FAR * 2, 10_000) == slots
        assert [slip_of(own, DURATION, slot) for slot in slots] == [
            slip_of(recurrence, DURATION, slot) for slot in slots
        ]


def test_a_single_slot_is_a_term() -> None:
    """A task without repetition has one term, and its seats have one run."""
    schedule = Schedule(start=START, slip=MINUTE)
    recurrence = recurrence_of(schedule, START)
    term = next_term(recurrence, 6 * times.HOUR, START - 1)
    assert term is not None
    assert slots_in(recurrence, term) == [START]
    assert next_term(recurrence, 6 * times.HOUR, term.starts_at) is None
    assert schedule_for(schedule, recurrence, DURATION, [START]) == Schedule(
        start=START, slip=MINUTE
    )


NODES = st.lists(
    st.dictionaries(st.sampled_from(["site", "as"]), st.integers(1, 3), max_size=2), max_size=7
)


def _most(nodes: list[dict[str, int]], spread: dict[str, int]) -> int:
    """Return the size of the largest choice within the spread, by trying all."""

    def keeps(chosen: tuple[dict[str, int], ...]) -> bool:
        counts = [
            Counter(node[attribute] for node in chosen if attribute in node) for attribute in spread
        ]
        return all(
            count <= most
            for most, counted in zip(spread.values(), counts, strict=True)
            for count in counted.values()
        )

    return max(
        size
        for size in range(len(nodes) + 1)
        for chosen in combinations(nodes, size)
        if keeps(chosen)
    )


@given(NODES, st.dictionaries(st.sampled_from(["site", "as"]), st.integers(1, 2), max_size=2))
def test_the_possible_number_of_seats_is_an_upper_bound(
    nodes: list[dict[str, int]], spread: dict[str, int]
) -> None:
    """The number is never too low, and exact if nodes are spread over at most one attribute."""
    possible, most = seats_possible(nodes, spread), _most(nodes, spread)
    assert possible == most if len(spread) < 2 else possible >= most


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"k": 0}, "/participants/k"),
        ({"k": "3"}, "/participants/k"),
        ({"min_k": 4}, "/participants/min_k"),
        ({"pool": "A"}, "/participants/pool"),
        ({"spread": {"site": 0}}, "/participants/spread/site"),
        ({"prefer": {"site": [{}]}}, "/participants/prefer/site"),
        ({"together": True, "min_k": 2}, "/participants/together"),
        ({"together": True, "k": 33}, "/participants/together"),
        ({"choice": "best"}, "/participants/choice"),
        ({"nodes": 3}, "/participants/nodes"),
    ],
)
def test_a_wrong_request_names_its_field(changes: dict[str, object], pointer: str) -> None:
    """Each wrong request is refused with a pointer into the task's document."""
    document = {"test": {"type": "rtt"}, "participants": {"pool": "europe", "k": 3} | changes}
    with pytest.raises(ValidationError) as raised:
        TaskDocument.model_validate(document, context=FROM_OUTSIDE)
    assert [fault.pointer for fault in faults_of(raised.value, TaskDocument)] == [pointer]


def test_how_many_nodes_suffice() -> None:
    """One node suffices by default, or all of them if they act together."""
    assert SeatRequest(pool="europe", k=20).suffices == 1
    assert SeatRequest(pool="europe", k=20, min_k=15).suffices == 15
    assert SeatRequest(pool="europe", k=20, together=True).suffices == 20


@given(
    hour=st.integers(0, 1000),
    starts=st.lists(st.integers(0, times.HOUR - 1), min_size=2, max_size=5),
    length=st.integers(1, 3 * times.DAY),
    horizon=st.integers(times.MINUTE, 2 * times.DAY),
)
def test_terms_of_one_hour_are_due_together(
    hour: int, starts: list[int], length: int, horizon: int
) -> None:
    """Terms that begin in one hour are given at one instant, if the horizon has room for that."""
    begins = [START - START % times.HOUR + hour * times.HOUR + start for start in starts]
    due = [due_at(Term(at, at + length), horizon) for at in begins]
    if horizon >= 2 * times.HOUR:
        assert len(set(due)) == 1
    assert all(at - horizon < when < at for at, when in zip(begins, due, strict=True))
