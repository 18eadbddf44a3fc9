"""Limits of a hold: it asks for no more than the introduction of its task said."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.planning.agenda import Limits, PlanningProgress, agenda
from node.model import times
from node.model.hold_limits import LIFE_MAX, IntroducedTask, contradiction, foreign_exchange
from node.model.ids import TaskId, exchange_id, repeated_exchange_id, run_id
from node.model.recurrence import nominal_starts
from node.model.scheduling import first_slot, recurrence_of
from node.model.wire.participants import BATCH_MAX, HoldRequest, RunRequest
from node.model.wire.tasks import Schedule

NOW = times.parse_instant("2026-12-01T00:00:00Z")
TASK = TaskId(UUID(int=7))
HOURLY = Schedule(start=NOW, repeat=times.HOUR, slip=5 * times.MINUTE, until=NOW + times.DAY)

SCHEDULES = st.one_of(
    st.builds(
        lambda start, repeat, slip: Schedule(start=start, repeat=repeat, slip=slip),
        start=st.none() | st.integers(NOW - times.DAY, NOW + times.DAY),
        repeat=st.none() | st.integers(times.MINUTE, times.DAY),
        slip=st.none() | st.integers(0, times.HOUR),
    ),
    st.builds(
        lambda cron, zone: Schedule(cron=cron, timezone=zone),
        cron=st.sampled_from(["*/10 * * * *", "30 2 * * *", "15 */3 * * 1-5"]),
        zone=st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", None]),
    ),
)


LIMITED = HOURLY.model_copy(update={"max_runs": 3})


def _introduced(schedule: Schedule = HOURLY, **terms: Any) -> IntroducedTask:
    made = IntroducedTask(3 * times.SECOND, 5, schedule.model_dump(mode="json"), NOW)
    return replace(made, **terms)


def _run(slot: int, length: int = 3 * times.SECOND, late: int = 0, attempt: int = 1) -> RunRequest:
    return RunRequest(
        run=run_id(TASK, slot, attempt),
        slot=slot,
        attempt=attempt,
        starts_at=slot + late,
        ends_at=slot + late + length,
    )


def _hold(*runs: RunRequest, **fields: Any) -> HoldRequest:
    request = HoldRequest(
        task=TASK,
        generation=TASK,
        lease_epoch=1,
        tool="sleep",
        priority=5,
        life=30 * times.SECOND,
        runs=runs,
    )
    return request.model_copy(update=fields)


def test_a_hold_that_names_what_gives_way_may_have_a_higher_priority() -> None:
    """The owner's limit for other leads holds instead of the priority of the task."""
    introduced = _introduced(priority_max=9)
    first = nominal_starts(recurrence_of(HOURLY, NOW), NOW, times.LATEST, 1)[0]
    for priority, named, refused in ((9, True, False), (10, True, True), (6, False, True)):
        hold = _hold(_run(first), priority=priority, yielding=() if named else None)
        fault = contradiction(hold, introduced)
        assert (fault is not None and fault.pointer == "/priority") is refused


def test_a_hold_asks_for_one_attempt_of_a_slot() -> None:
    """Attempts of one slot in one hold are refused, each at a time of its own; slots are not."""
    slots = nominal_starts(recurrence_of(HOURLY, NOW), NOW, times.LATEST, 2)
    attempts = (_run(slots[0]), _run(slots[1]), _run(slots[0], late=5 * times.SECOND, attempt=2))
    assert contradiction(_hold(*attempts[:2]), _introduced()) is None
    for any_time in (False, True):
        fault = contradiction(_hold(*attempts), _introduced(any_time=any_time))
        assert fault is not None
        assert fault.pointer == "/runs/2/attempt"
        assert fault.detail.startswith("attempts 1 and 2 at the slot ")


@given(
    schedule=SCHEDULES,
    duration=st.integers(1, 2 * times.HOUR),
    horizon=st.integers(times.HOUR, 3 * times.DAY),
    shift=st.integers(0, times.HOUR),
)
def test_what_a_lead_plans_is_never_refused(
    schedule: Schedule, duration: int, horizon: int, shift: int
) -> None:
    """The agenda of a task never lets its lead hold what contradicts the introduction."""
    recurrence = recurrence_of(schedule, NOW)
    first = first_slot(recurrence, NOW)
    assert first is not None
    progress = PlanningProgress(first, None, (), None)
    slots = agenda(recurrence, duration, progress, Limits(horizon, 0, 20), NOW).slots
    runs = []
    for slot in slots:
        late = min(shift, slot.latest_start(duration) - slot.nominal)
        runs.append(_run(slot.nominal, duration, late))
    if runs:
        introduced = _introduced(schedule, duration=duration)
        assert contradiction(_hold(*runs), introduced) is None


@given(excess=st.integers(1, times.DAY), field=st.sampled_from(["length", "late", "slot", "early"]))
def test_more_than_was_introduced_is_refused(excess: int, field: str) -> None:
    """A run that is longer, or elsewhere than the schedule says, is refused, by any amount."""
    slot, length = NOW + times.HOUR, 3 * times.SECOND
    wrong = {
        "length": _run(slot, length + excess),
        "late": _run(slot, late=5 * times.MINUTE + excess),
        "early": _run(slot, late=-excess),
        "slot": _run(NOW + times.DAY + excess - 1),
    }[field]
    fault = contradiction(_hold(_run(NOW), wrong), _introduced())
    assert fault is not None
    expected = {"length": "ends_at", "late": "starts_at", "early": "starts_at", "slot": "slot"}
    assert fault.pointer == f"/runs/1/{expected[field]}"


@pytest.mark.parametrize(
    ("request_", "terms", "pointer", "sentence"),
    [
        (
            _hold(_run(NOW, times.DAY)),
            {},
            "/runs/0/ends_at",
            "the run lasts 1 d, but the task was introduced with 3 s",
        ),
        (
            _hold(_run(NOW), priority=6),
            {},
            "/priority",
            "6 is more than the priority 5 with which the task was introduced",
        ),
        (
            _hold(_run(NOW + 1)),
            {},
            "/runs/0/slot",
            (
                "2026-12-01T00:00:00.000001Z is not a nominal start of the task; its schedule was "
                "introduced as from 2026-12-01T00:00:00Z every 1 h until 2026-12-02T00:00:00Z"
            ),
        ),
        (
            _hold(_run(NOW, late=6 * times.MINUTE)),
            {},
            "/runs/0/starts_at",
            (
                "2026-12-01T00:06:00Z is outside the window of its slot; the schedule was "
                "introduced so that it may start from 2026-12-01T00:00:00Z to 2026-12-01T00:05:00Z"
            ),
        ),
        (
            _hold(_run(NOW), life=10 * 365 * times.DAY),
            {},
            "/life",
            "3650 d is longer than a hold may last without a decision; use at most 2 min",
        ),
        (
            _hold(_run(NOW), _run(NOW + times.HOUR)),
            {"counted": 2, "schedule": LIMITED},
            "/runs",
            (
                "2 more runs beside the 2 that took place are too many; the task was "
                "introduced with max_runs 3"
            ),
        ),
    ],
)
def test_a_refusal_names_the_field_its_value_and_what_was_introduced(
    request_: HoldRequest, terms: dict[str, Any], pointer: str, sentence: str
) -> None:
    """Each refusal points at the field and says what it is and what was introduced."""
    fault = contradiction(request_, _introduced(**terms))
    assert fault is not None
    assert (fault.pointer, fault.detail) == (pointer, sentence)


def test_at_the_limits_nothing_is_refused() -> None:
    """The introduced length, priority, window, number, and the maximum life are accepted."""
    latest = _run(NOW + 23 * times.HOUR, late=5 * times.MINUTE)
    request = _hold(_run(NOW), latest, life=LIFE_MAX)
    assert contradiction(request, _introduced()) is None
    assert contradiction(request, _introduced(LIMITED, counted=1)) is None


def test_a_further_attempt_takes_the_place_of_an_earlier_one() -> None:
    """A second attempt of a slot does not count as another run."""
    request = _hold(_run(NOW, attempt=2))
    assert contradiction(request, _introduced(LIMITED, counted=3)) is None


@given(other=st.uuids(), epoch=st.integers(0, 9), claimed=st.integers(0, 9))
def test_an_exchange_belongs_to_one_task_and_epoch(other: UUID, epoch: int, claimed: int) -> None:
    """Only the exchange of this task and epoch, or its repetition after a late commit, passes."""
    own = exchange_id(TASK, epoch)
    for exchange in (own, repeated_exchange_id(own)):
        assert (foreign_exchange(exchange, TASK, claimed) is None) is (epoch == claimed)
        assert (foreign_exchange(exchange, other, epoch) is None) is (other == TASK)


def test_a_run_of_another_task_is_refused() -> None:
    """A run id that does not follow from the task, the slot, and the attempt is refused."""
    fault = contradiction(_hold(_run(NOW).model_copy(update={"run": uuid4()})), _introduced())
    assert fault is not None
    assert fault.pointer == "/runs/0/run"
    assert f"is not the id of attempt 1 at the slot 2026-12-01T00:00:00Z of task {TASK}" in (
        fault.detail
    )


def test_a_full_batch_is_compared_quickly() -> None:
    """512 runs are compared in a small part of the time that booking them takes."""
    schedule = Schedule(start=NOW, repeat=times.MINUTE, slip=times.SECOND)
    request = _hold(*(_run(NOW + n * times.MINUTE) for n in range(BATCH_MAX)))
    began = time.process_time()
    assert contradiction(request, _introduced(schedule)) is None
    assert time.process_time() - began < 0.5
