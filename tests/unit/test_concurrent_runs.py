"""Runs that are measured at the same time on one host."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from node.execution.observer import ConcurrentRun, NeighbourTracker
from node.model.classes import SchedulingClass
from node.model.times import MILLISECOND
from node.model.wire.circumstances import NEIGHBOURS_MAX

BACKGROUND, EXCLUSIVE = SchedulingClass.BACKGROUND, SchedulingClass.EXCLUSIVE


def stay(number: int, began: int, of_class: SchedulingClass = BACKGROUND) -> ConcurrentRun:
    """Return a run that begins at ``began``."""
    return ConcurrentRun(UUID(int=number), UUID(int=0), "idle", of_class, began)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), max_size=NEIGHBOURS_MAX))
def test_all_that_overlap_meet_for_as_long_as_they_do(spans: list[tuple[int, int]]) -> None:
    """Each overlapping pair is reported on both sides, with the length of the overlap."""
    house = NeighbourTracker()
    stays = {number: stay(number, start * MILLISECOND) for number, (start, _) in enumerate(spans)}
    # Who ends at an instant has left before another begins at it.
    events = [(start + length, 0, n) for n, (start, length) in enumerate(spans)]
    events += [(start, 1, n) for n, (start, _) in enumerate(spans)]
    told = {}
    for instant, begins, number in sorted(events):
        if begins:
            house.enter(stays[number])
        else:
            told[number] = house.leave(stays[number], instant * MILLISECOND)
    for number, (start, length) in enumerate(spans):
        shared = {
            other: min(start + length, begin + lasts) - max(start, begin)
            for other, (begin, lasts) in enumerate(spans)
            if other != number
        }
        met = {each.run.int: each.overlap_ms for each in told[number]}
        assert met == {other: share for other, share in shared.items() if share > 0}
        assert stays[number].met_count == len(met)


def test_of_many_the_weightiest_are_named() -> None:
    """If there are many, the runs of the most disturbing classes are listed and all are counted."""
    house, mine = NeighbourTracker(), stay(0, 0)
    house.enter(mine)
    for number in range(1, 100):
        house.enter(stay(number, number, EXCLUSIVE if number == 99 else BACKGROUND))
    named = house.leave(mine, 1000)
    assert len(named) == NEIGHBOURS_MAX
    assert mine.met_count == 99
    assert [each.run.int for each in named] == [99, *range(1, NEIGHBOURS_MAX)]


def test_nobody_is_remembered_by_those_who_come_later() -> None:
    """In an endless chain of overlapping runs each drops its references to those before it."""
    house = NeighbourTracker()
    stays = [stay(number, number) for number in range(3)]
    for number, each in enumerate(stays):
        house.enter(each)
        if number:
            house.leave(stays[number - 1], number)
    assert stays[0].met == stays[1].met == []
    assert house.leave(stays[0], 9) == ()
