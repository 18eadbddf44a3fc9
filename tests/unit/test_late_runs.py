"""Decisions about runs that are late, whatever had been done for them."""

from __future__ import annotations

import pytest

from node.model import late_runs, times
from node.model.late_runs import START_LATENESS_MAX, UnmeasuredEnd, late_start
from node.model.reasons import not_measured_or_forgotten, started_too_late
from node.model.runstate import LIVE, OVER, RunState, predecessors
from tests.support.clocks import START

LATE = START + START_LATENESS_MAX + 1


def test_a_part_may_start_a_little_late() -> None:
    """A part may start until the tolerance has passed, and not a microsecond later."""
    assert late_start(START, START - times.DAY) is None
    assert late_start(START, START) is None
    assert late_start(START, LATE - 1) is None
    assert late_start(START, LATE) is not None


@pytest.mark.parametrize("late", [5_500_000, times.MINUTE, times.DAY])
def test_the_reason_says_how_late_it_was(late: int) -> None:
    """The reason tells by how many seconds the part was late, however many they are."""
    end = UnmeasuredEnd(RunState.MISSED, started_too_late(late))
    assert late_start(START, START + late) == end
    assert end.reason.figures == {"late": late}


def test_the_queries_and_the_decision_agree() -> None:
    """The start that a query calls missed is missed by the decision, too, at every instant."""
    for now in (LATE - 1, LATE, LATE + 1):
        assert (late_start(START, now) is not None) == (late_runs.last_missed_start(now) > START)


@pytest.mark.parametrize("state", sorted(LIVE))
def test_a_late_start_is_possible_in_every_state_that_occupies_time(state: RunState) -> None:
    """A run can be missed before it is running and afterwards: its time is freed in both."""
    end = late_start(START, LATE)
    assert end is not None
    assert state in predecessors(end.state)
    assert end.state in OVER


def test_the_other_ends_follow_the_states_in_which_they_are_found() -> None:
    """A run that was lost or interrupted was running, one that was overslept was booked."""
    for end in (late_runs.LOST, late_runs.INTERRUPTED):
        assert RunState.RUNNING in predecessors(end.state)
    assert RunState.BOOKED in predecessors(late_runs.overslept_end(LATE).state)
    for end in (late_runs.overslept_end(LATE), late_runs.passed_over_end(LATE)):
        assert RunState.BOOKED in predecessors(late_runs.end_in_doubt(end, others_tell=False).state)


def test_a_restored_database_may_have_forgotten_that_a_part_was_measured() -> None:
    """The reason does not claim that the node was down if it cannot know that."""
    down = late_runs.overslept_end(LATE)
    unknown = late_runs.end_in_doubt(down, others_tell=False)
    assert unknown.state is down.state
    assert unknown.reason == not_measured_or_forgotten(down.reason)


def test_a_lead_that_may_have_forgotten_a_part_hears_the_others() -> None:
    """A run that others may have measured is not missed: they are asked for their parts."""
    told = late_runs.end_in_doubt(late_runs.overslept_end(LATE), others_tell=True)
    assert told.state is RunState.FAILED
