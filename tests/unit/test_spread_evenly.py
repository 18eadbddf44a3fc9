"""A number of runs by a deadline."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node.model import times
from node.model.errors import InvalidDocument
from node.model.recurrence import nominal_starts
from node.model.scheduling import IMMEDIATE_START_DELAY, recurrence_of, spread_evenly
from node.model.wire.tasks import ScheduleDocument
from tests.support.clocks import START


@given(
    samples=st.integers(1, 60),
    duration=st.integers(1, 5 * times.MINUTE),
    within=st.integers(0, 2 * times.DAY),
    begin=st.one_of(st.none(), st.integers(-times.DAY, times.DAY)),
)
def test_all_runs_fit_evenly_and_end_by_the_deadline(
    samples: int, duration: int, within: int, begin: int | None
) -> None:
    """There are so many slots, equally far apart, and each has its part for itself."""
    start = None if begin is None else START + begin
    first = max(START + IMMEDIATE_START_DELAY, start or 0)
    until = first + within
    posted = ScheduleDocument(samples=samples, start=start, until=until)
    try:
        spread = spread_evenly(posted, duration, START)
    except InvalidDocument as error:
        [fault] = error.faults
        assert fault.pointer == "/schedule/samples"
        fit = int(fault.detail.split("; ")[1].split()[0])
        assert fit * max(duration, times.SECOND) <= within
        assert within < samples * (max(duration, times.SECOND) + times.SECOND)
        return
    recurrence = recurrence_of(spread.at(START), START)
    slots = nominal_starts(recurrence, START - 1, times.LATEST, samples + 1)
    assert len(slots) == samples == spread.max_runs
    assert slots[0] == first
    parts = {later - slot for slot, later in pairwise(slots)}
    assert parts <= {spread.repeat}
    assert slots[-1] + recurrence.slip + duration <= until
    assert within - samples * (spread.repeat or 0) < samples * times.SECOND


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "samples are spread until a deadline; add until"),
        ({"until": START, "repeat": times.HOUR}, "samples decide repeat; remove repeat, or"),
        ({"until": START, "cron": "* * * * *"}, "samples decide cron; remove cron, or"),
        ({"until": START, "slip": 0, "max_runs": 3}, "samples decide slip, max_runs; remove slip"),
    ],
)
def test_what_contradicts_a_number_of_runs_is_refused(fields: dict[str, object], said: str) -> None:
    """A deadline is needed, and what follows from it is not given beside it."""
    with pytest.raises(ValidationError, match=said):
        ScheduleDocument.model_validate({"samples": 3, **fields})


def test_too_many_runs_are_refused_with_the_number_that_fits() -> None:
    """The refusal says how long a run is, and how many fit."""
    until = START + IMMEDIATE_START_DELAY + times.HOUR
    posted = ScheduleDocument(samples=40, until=until)
    with pytest.raises(InvalidDocument) as caught:
        spread_evenly(posted, 2 * times.MINUTE, START)
    [fault] = caught.value.faults
    assert "40 runs of 2 min do not fit from " in fault.detail
    assert fault.detail.endswith("; 30 do")
