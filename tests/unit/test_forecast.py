"""The forecast of a task in sentences and figures."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.model.reasons import first_run_beyond_horizon, over_by_now, runs_found
from lead.planning import forecast
from lead.planning.agenda import Agenda, Limits, PlanningProgress, Slot, agenda
from lead.planning.forecast import ForecastPlacement, fresh_agenda
from lead.planning.placement import ChosenStart
from node.model import times
from node.model.classes import SchedulingClass
from node.model.reason import Reason
from node.model.reasons import told
from node.model.scheduling import first_slot, recurrence_of
from node.model.wire.impacts import HOURS, Hour, Impact
from node.model.wire.participants import Obstacle
from node.model.wire.plans import Outcome
from node.model.wire.tasks import Schedule
from tests.support.clocks import START

MINUTE = times.MINUTE
LIMITS = Limits(times.DAY, 2 * times.SECOND, 512)
SLOTS = tuple(Slot(at, 1, at, at + MINUTE) for at in (START + times.HOUR, START + 2 * times.HOUR))
DUE = Agenda(SLOTS, (), SLOTS[-1].nominal, None, full=False)
LATER = Agenda((), (), None, START + 3 * times.DAY, full=False)
MISSED = Agenda((), SLOTS[:1], None, None, full=False)

BUSY = told("busy").at("b")


def chosen(*slots: Slot, displacing: bool = False) -> list[ChosenStart]:
    """Return choices at the nominal starts."""
    return [ChosenStart(slot, slot.start, displacing) for slot in slots]


@pytest.mark.parametrize(
    ("placed", "outcome", "why"),
    [
        (
            ForecastPlacement(DUE, chosen(*SLOTS)),
            Outcome.FOUND,
            runs_found(2, 2, SLOTS[0].start, 0, None),
        ),
        (
            ForecastPlacement(DUE, chosen(SLOTS[0], displacing=True), {SLOTS[1].nominal: BUSY}),
            Outcome.PARTLY,
            runs_found(1, 2, SLOTS[0].start, 1, BUSY),
        ),
        (ForecastPlacement(DUE, [], {SLOTS[0].nominal: BUSY}), Outcome.NO_TIME, BUSY),
        (
            ForecastPlacement(MISSED, [], {SLOTS[0].nominal: over_by_now()}),
            Outcome.NO_TIME,
            over_by_now(),
        ),
        (ForecastPlacement(LATER), Outcome.LATER, first_run_beyond_horizon(LATER.next_slot or 0)),
        (ForecastPlacement(failure=(Outcome.REFUSED, BUSY)), Outcome.REFUSED, BUSY),
    ],
)
def test_outcomes(placed: ForecastPlacement, outcome: Outcome, why: Reason) -> None:
    """Each outcome has its reason."""
    assert placed.outcome is outcome
    assert placed.summary() == why


@given(st.integers(1, 40), st.integers(0, 20), st.none() | st.integers(1, 9))
def test_the_first_agenda_is_that_of_a_new_task(
    repeat: int, delay: int, max_runs: int | None
) -> None:
    """The first agenda equals that of a lead planning the task for the first time."""
    schedule = Schedule(
        start=START - MINUTE, repeat=repeat * times.HOUR, slip=MINUTE, max_runs=max_runs
    )
    now = START + delay * times.HOUR
    recurrence = recurrence_of(schedule, now)
    first = first_slot(recurrence, now)
    assert first is not None
    standing = PlanningProgress(first, None, (), max_runs)
    asked = fresh_agenda(schedule, now, MINUTE, LIMITS, now)
    assert asked == agenda(recurrence, MINUTE, standing, LIMITS, now)
    assert len(asked.slots) <= (max_runs or 512)


HOUR_LISTS = st.lists(
    st.builds(Hour, before=st.integers(0, times.HOUR), after=st.integers(0, times.HOUR)),
    min_size=HOURS,
    max_size=HOURS,
)


@given(HOUR_LISTS)
def test_occupancy_adds_up(hours: list[Hour]) -> None:
    """The hours add up to the day, and the added time is the difference."""
    full = forecast.occupancy("a", START, hours)
    assert full.before == pytest.approx(sum(hour.before for hour in full.hours) / HOURS)
    assert full.after == pytest.approx(sum(hour.after for hour in full.hours) / HOURS)
    assert full.added_s == pytest.approx((full.after - full.before) * 86400)
    assert [hour.starts_at for hour in full.hours[:2]] == [START, START + times.HOUR]


def test_the_runs_that_a_choice_displaces() -> None:
    """A displaced run names the run that displaces it, and unknown windows are left out."""

    def lost(index: int) -> Obstacle:
        return Obstacle(
            window=index,
            run=uuid4(),
            task=uuid4(),
            test="idle",
            scheduling_class=SchedulingClass.NORMAL,
            priority=-1,
            starts_at=START,
            ends_at=START + MINUTE,
        )

    hours = (Hour(before=0, after=0),) * HOURS
    told = Impact(displaced=(lost(1), lost(7), lost(-1)), displaced_count=3, hours=hours)
    [found] = forecast.displaced_runs("b", chosen(*SLOTS), told)
    assert (found.name, found.by, found.run) == ("b", SLOTS[1].start, told.displaced[0].run)
