"""The simulation of work done in turns, and of the seats in use."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lead.policy.order.deadline_first import sorted_by_deadline
from lead.policy.share.recent_work import WorkItem
from node.model import times
from node.model.spare_capacity import SpareCapacity, spare_capacity
from tests.golden.originals.busy_time import busy_for
from tests.golden.originals.round_robin_simulation import (
    SLICE,
    SimulatedSeats,
    late,
    simulate,
)

durations = st.integers(1, 30 * times.HOUR)
tasks = st.lists(
    st.tuples(st.sampled_from("abc"), durations, st.integers(1, 3), st.integers(0, times.DAY)),
    max_size=12,
).map(
    lambda some: [
        WorkItem(f"t{at}", name, length, seats, deadline)
        for at, (name, length, seats, deadline) in enumerate(some)
    ]
)
short = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, SLICE), st.integers(0, times.HOUR)),
    max_size=12,
).map(
    lambda some: [
        WorkItem(f"t{at}", name, length, 1, deadline)
        for at, (name, length, deadline) in enumerate(some)
    ]
)
SHARES = {"a": 1.0, "b": 2.0, "c": 0.0}


def seats_of(count: int) -> SimulatedSeats:
    """Return ``count`` seats for three campaigns, one of them without a share."""
    return SimulatedSeats(count, SHARES, {})


@given(tasks, st.integers(1, 5))
def test_no_seat_is_idle_while_work_waits(work: list[WorkItem], count: int) -> None:
    """All work is done exactly once, and seats stay free only when no work is left."""
    course = simulate(work, seats_of(count), 0)
    assert course.ended.keys() == {it.task for it in work}
    done = sum(used * (end - start) for start, end, used in course.stretches)
    assert done == sum(it.seats * it.duration for it in work)
    for start, _, used in course.stretches:
        unfinished = sum(it.seats for it in work if course.ended[it.task] > start)
        assert used >= min(count, unfinished)


@given(tasks, st.integers(1, 5))
def test_stretches_follow_each_other(work: list[WorkItem], count: int) -> None:
    """Time advances without gaps, by at most an hour or a tenth of the rest."""
    course = simulate(work, seats_of(count), 7)
    at = 7
    for start, end, _ in course.stretches:
        assert start == at
        assert end - start <= max(SLICE, 3 * times.HOUR)
        at = end


@given(short, st.integers(1, 4))
def test_urgent_work_is_not_delayed_by_other_work(work: list[WorkItem], count: int) -> None:
    """Urgent work ends when it would if there were nothing else."""
    first = sorted_by_deadline(late(work, simulate(work, seats_of(count), 0)))
    names = [it.task for it in first]
    alone = simulate(first, seats_of(count), 0, names).ended
    together = simulate(work, seats_of(count), 0, names).ended
    assert {name: together[name] for name in names} == alone


def test_turns_last_an_hour() -> None:
    """Two long tasks of equal shares take turns hour by hour, and so end almost together."""
    work = [WorkItem("x", "a", 4 * times.HOUR), WorkItem("y", "b", 4 * times.HOUR)]
    course = simulate(work, SimulatedSeats(1, {"a": 1, "b": 1}, {}), 0)
    assert course.begun == {"x": 0, "y": times.HOUR}
    assert sorted(course.ended.values()) == [7 * times.HOUR, 8 * times.HOUR]


def test_lateness_has_a_margin() -> None:
    """Work that ends at its deadline is in time, but not with a margin before it."""
    work = [WorkItem("x", "a", 10, deadline=10)]
    course = simulate(work, seats_of(1), 0)
    assert late(work, course) == []
    assert late(work, course, 1) == work


uses = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 15), st.integers(1, 3)), max_size=6)


@given(uses, st.integers(1, 4), st.integers(0, 8), st.integers(0, 20))
def test_the_outlook_agrees_with_counting_every_instant(
    some: list[tuple[int, int, int]], seats: int, now: int, ahead: int
) -> None:
    """Shortfall, saturated time, and idle seats agree with a count instant by instant."""
    spans = [(start, start + length, need) for start, length, need in some]
    used = [sum(n for a, b, n in spans if a <= t < b) for t in range(now, now + 80)]
    full = next((at for at, it in enumerate(used) if it < seats), 80)
    stretches = [(now + at, now + at + 1, it) for at, it in enumerate(used)]
    assert spare_capacity(stretches, seats, now, now + ahead) == SpareCapacity(
        shortfall=sum(max(0, seats - it) for it in used[:ahead]),
        saturated=full,
        idle_now=max(0, seats - used[0]),
    )


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), max_size=9), st.integers(1, 4))
def test_the_busy_hint_is_tight(some: list[tuple[int, int]], seats: int) -> None:
    """No seat is free earlier than the hint, which is at most all work spread evenly."""
    work = [WorkItem(str(at), "a", length, need) for at, (length, need) in enumerate(some)]
    result = busy_for(work, seats)
    total = sum(int(it.seats) * it.duration for it in work)
    assert 0 <= result * seats <= total
    if all(need == 1 for _, need in some) and len(some) >= seats:
        assert result >= min(length for length, _ in some)
