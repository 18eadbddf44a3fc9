"""Decisions about the runs that follow others, and the schedules of their tasks."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from pydantic import ValidationError

from lead.planning.agenda import Limits
from lead.planning.forecast import ForecastPlacement, fresh_agenda
from node.model import times
from node.model.dependencies import (
    EndedRun,
    Follower,
    FollowingRun,
    find_cycle,
    following_run,
    following_runs,
)
from node.model.hold_limits import IntroducedTask, contradiction
from node.model.ids import TaskId, run_id
from node.model.outcome import Judgement
from node.model.reasons import asked_by_run, told
from node.model.recurrence import nominal_starts, recurrence_faults
from node.model.runstate import OVER, RunState
from node.model.scheduling import default_slip, recurrence_of
from node.model.wire.participants import HoldRequest, RunRequest
from node.model.wire.plans import Outcome
from node.model.wire.tasks import Dependency, RunOutcome, Schedule
from tests.support.clocks import START

FIRST, THEN = UUID(int=1), UUID(int=2)
AFTER = Dependency(task=FIRST, within=10 * times.MINUTE)
SCHEDULE = Schedule(after=AFTER)
ENDED = EndedRun(UUID(int=9), FIRST, RunState.FINISHED, None, START)
FOLLOWER = Follower(THEN, AFTER)


@pytest.mark.parametrize("outcome", list(RunOutcome))
@pytest.mark.parametrize("state", sorted(OVER))
def test_runs_that_took_place_are_followed(state: RunState, outcome: RunOutcome) -> None:
    """A finished run is followed, a failed one if every outcome is; no other ever is."""
    after = AFTER.model_copy(update={"outcome": outcome})
    made = following_run(replace(ENDED, state=state), replace(FOLLOWER, after=after))
    followed = state is RunState.FINISHED or (
        state is RunState.FAILED and outcome is RunOutcome.ENDED
    )
    assert made is not None
    assert made.state is (RunState.WAITING if followed else RunState.CANCELLED)
    assert str(ENDED.id) in made.reason
    assert made.id == run_id(TaskId(THEN), START, 1)


def test_the_end_of_a_run_is_followed_once() -> None:
    """A run that is followed already is not followed again, whatever became of that."""
    assert following_run(ENDED, replace(FOLLOWER, attempt=1)) is None
    failed = replace(ENDED, state=RunState.FAILED)
    assert following_run(failed, replace(FOLLOWER, attempt=1, skipped=True)) is None


def test_a_late_success_is_followed() -> None:
    """A run that was cancelled because another one failed is tried again when that one succeeds."""
    made = following_run(ENDED, replace(FOLLOWER, attempt=1, skipped=True))
    assert made is not None
    assert (made.state, made.attempt) == (RunState.WAITING, 2)
    paused = replace(FOLLOWER, attempt=1, skipped=True, paused=True)
    assert following_run(ENDED, paused) is None


WHEN = Dependency(task=FIRST, when="failed or missed", per_hour=2)
ASKED = Follower(THEN, WHEN)
BAD = replace(ENDED, state=RunState.FAILED, judgement=Judgement.FAILED)


def _asked(*runs: EndedRun, of: Follower = ASKED, now: int = START) -> list[FollowingRun]:
    return list(following_runs([(run, of) for run in runs], now).values())


def test_a_run_that_meets_the_condition_asks_for_one() -> None:
    """A run that meets the condition leads to one that waits for a time, with the reason."""
    [made] = _asked(BAD)
    assert (made.id, made.slot) == (run_id(TaskId(THEN), START, 1), START)
    assert made.state is RunState.WAITING
    assert made.reason == asked_by_run(BAD.id, FIRST, "it is failed")
    assert _asked(replace(BAD, state=RunState.MISSED, judgement=Judgement.MISSED))


@pytest.mark.parametrize(
    ("run", "follower"),
    [
        (replace(ENDED, judgement=Judgement.GOOD), ASKED),
        (replace(BAD, state=RunState.UNPLACED), ASKED),
        (BAD, replace(ASKED, paused=True)),
        (BAD, replace(ASKED, busy=True)),
        (BAD, replace(ASKED, attempt=1)),
        (BAD, replace(ASKED, asked_at=[START - times.HOUR + 1, START - times.MINUTE])),
    ],
)
def test_nothing_is_asked_for_twice_or_too_often(run: EndedRun, follower: Follower) -> None:
    """Others leave nothing: good runs, and bad ones while it is paused, busy, or at its bound."""
    assert _asked(run, of=follower) == []


def test_an_hour_later_more_may_be_asked_for() -> None:
    """A run that was asked for an hour ago counts no more."""
    follower = replace(ASKED, asked_at=[START - times.HOUR, START - times.MINUTE])
    assert len(_asked(BAD, of=follower)) == 1


def test_a_storm_asks_each_task_once() -> None:
    """The latest of 10,000 bad runs that end together asks each of two tasks for one run."""
    other = replace(ASKED, task=UUID(int=4))
    runs = [replace(BAD, id=UUID(int=9 + n), slot=START + n) for n in range(10_000)]
    made = following_runs([(run, it) for run in runs for it in (ASKED, other)], START)
    assert {each.task for each in made.values()} == {THEN, other.task}
    assert {each.slot for each in made.values()} == {START + 9_999}
    assert len(made) == 2


def test_a_diagnosis_is_measured_soon_and_seldom() -> None:
    """With a condition the default is within ten minutes, and twice an hour."""
    assert (WHEN.within, Dependency(task=FIRST, when="bad").per_hour) == (10 * times.MINUTE, 2)
    assert "when" not in AFTER.model_dump(mode="json")
    with pytest.raises(ValidationError, match="per_hour is for runs that follow on a condition"):
        Dependency(task=FIRST, per_hour=2)
    with pytest.raises(ValidationError, match="did you mean no-answer"):
        Dependency(task=FIRST, when="noanswer")


def test_a_cycle_has_a_path() -> None:
    """A chain that leads back to the task is a cycle, shown from the task to itself."""
    third = UUID(int=3)
    assert find_cycle(FIRST, [THEN, third, FIRST]) == [FIRST, THEN, third, FIRST]
    assert find_cycle(FIRST, [FIRST]) == [FIRST, FIRST]
    assert find_cycle(FIRST, [THEN, third]) is None


def test_nobody_knows_when_it_runs() -> None:
    """A task that follows another one has no nominal starts, and slips as far as it may."""
    recurrence = recurrence_of(SCHEDULE, START)
    assert nominal_starts(recurrence, 0, times.LATEST, 10) == []
    assert recurrence_faults(recurrence, times.MINUTE) == []
    assert default_slip(SCHEDULE) == recurrence.slip == AFTER.within


def _hold(slot: int, starts_at: int) -> HoldRequest:
    run = RunRequest(
        run=run_id(TaskId(THEN), slot, 1),
        slot=slot,
        attempt=1,
        starts_at=starts_at,
        ends_at=starts_at + times.MINUTE,
    )
    return HoldRequest(
        task=THEN,
        generation=UUID(int=5),
        lease_epoch=1,
        tool="sleep",
        priority=0,
        life=times.MINUTE,
        runs=(run,),
    )


def test_a_participant_accepts_any_slot_and_keeps_to_the_window() -> None:
    """A participant holds runs at any slot, no later than the introduction said."""
    schedule = SCHEDULE.model_dump(mode="json")
    introduced = IntroducedTask(times.MINUTE, 0, schedule, START)
    assert contradiction(_hold(START + 7, START + 7 + AFTER.within), introduced) is None
    fault = contradiction(_hold(START, START + AFTER.within + 1), introduced)
    assert fault is not None
    assert fault.pointer == "/runs/0/starts_at"


@pytest.mark.parametrize("within", ["PT0S", "P31D", "-PT1S"])
def test_within_has_bounds(within: str) -> None:
    """The time within which a run must start is more than nothing and at most 30 days."""
    with pytest.raises(ValidationError):
        Dependency.model_validate({"task": str(FIRST), "within": within})


def test_a_forecast_says_that_times_are_not_known() -> None:
    """A forecast is about the booked ends of the followed task, and says what is not known."""
    limits = Limits(horizon=times.DAY, margin=times.SECOND, batch=100)
    ends = [START + times.HOUR, START + 2 * times.HOUR]
    agenda = fresh_agenda(SCHEDULE, START, times.MINUTE, limits, START, ends)
    assert [slot.nominal for slot in agenda.slots] == ends
    assert agenda.slots[0].end == ends[0] + AFTER.within + times.MINUTE
    nothing = ForecastPlacement(follows=AFTER)
    assert nothing.outcome is Outcome.LATER
    assert nothing.summary().figures == {"task": FIRST, "found": None, "when": None}
    full = ForecastPlacement(agenda, reasons={ends[0]: told("b has no time")}, follows=AFTER)
    assert full.summary().figures == {
        "task": FIRST,
        "found": told("b has no time"),
        "when": None,
    }
