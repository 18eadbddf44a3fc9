"""Agendas and when to plan again: days of planning in simulated time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead.planning.agenda import (
    PAUSE_FIRST,
    PAUSE_MAX,
    REFILL_SHARE,
    Agenda,
    Limits,
    PlanningProgress,
    Slot,
    agenda,
    plan_next_at,
    try_again_at,
)
from node.model.recurrence import Recurrence, next_nominal, nominal_starts, slip_of
from node.model.scheduling import IMMEDIATE_START_DELAY, default_slip, first_slot, recurrence_of
from node.model.times import DAY, HOUR, LATEST, MINUTE, SECOND, format_instant, parse_instant
from node.model.wire.tasks import Schedule

START = parse_instant("2026-03-27T00:00:00Z")
DAILY = Limits(horizon=DAY, margin=SECOND, batch=512)
MOST_PLANNINGS = 2000
"""The limit of plannings per simulation; beyond it, the lead plans one task all the time."""

patient = settings(deadline=None, max_examples=50)


@dataclass
class Lead:
    """The lead's memory of one task, as the planner keeps it, and nodes that accept or refuse."""

    recurrence: Recurrence
    duration: int
    limits: Limits = DAILY
    max_runs: int | None = None
    luck: float = 1.0
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    planned_to: int | None = None
    waiting: dict[int, int] = field(default_factory=dict)
    failures: int = 0
    booked: list[int] = field(default_factory=list)
    unplaced: list[int] = field(default_factory=list)
    first_asked: dict[int, int] = field(default_factory=dict)
    plannings: list[int] = field(default_factory=list)

    def plan(self, now: int) -> int | None:
        """Plan once; return when to plan again."""
        self.plannings.append(now)
        asked = self.ask(now)
        given_up = [
            *self.in_gaps(asked),
            *(slot.nominal for slot in asked.too_late),
        ]
        for nominal in (*given_up, *(slot.nominal for slot in asked.slots)):
            assert nominal not in self.booked, "a slot that has its run is planned again"
            assert nominal not in self.unplaced, "a slot that was given up is planned again"
            self.first_asked.setdefault(nominal, now)
        missed = [slot for slot in asked.slots if self.rng.random() >= self.luck]
        self.unplaced += given_up
        self.booked += [slot.nominal for slot in asked.slots if slot not in missed]
        self.waiting = {slot.nominal: slot.attempt for slot in missed}
        self.planned_to = asked.planned_to
        again = try_again_at(missed, self.duration, self.failures, now, self.rng)
        self.failures = self.failures + 1 if missed else 0
        regular = plan_next_at(self.recurrence, self.duration, asked, self.limits, len(missed), now)
        return min((at for at in (again, regular) if at is not None), default=None)

    def in_gaps(self, asked: Agenda) -> list[int]:
        """Return the slots of all gaps, one by one."""
        return [
            slot
            for gap in asked.gaps
            for slot in nominal_starts(self.recurrence, gap.first - 1, gap.last + 1, gap.slots)
        ]

    def ask(self, now: int) -> Agenda:
        """Return the agenda of now."""
        remaining = None
        if self.max_runs is not None:
            remaining = max(0, self.max_runs - len(self.booked) - len(self.waiting))
        first = next_nominal(self.recurrence, self.recurrence.anchor - 1)
        assert first is not None
        standing = PlanningProgress(first, self.planned_to, sorted(self.waiting.items()), remaining)
        return agenda(self.recurrence, self.duration, standing, self.limits, now)

    def run(self, start: int, end: int) -> None:
        """Plan whenever planning is due, from start to end."""
        due: int | None = start
        while due is not None and due < end:
            following = self.plan(due)
            assert len(self.plannings) < MOST_PLANNINGS, "it is planned without a pause"
            assert following is None or following >= due
            due = following

    def enters_at(self, nominal: int) -> int:
        """Return when a slot enters the horizon; one with a long window does before it begins."""
        end = nominal + self.duration + slip_of(self.recurrence, self.duration, nominal)
        horizon = self.limits.horizon
        return min(end - horizon, nominal - horizon // REFILL_SHARE)


@st.composite
def leads(draw: st.DrawFn) -> Lead:
    """Draw tasks of all kinds, with nodes that accept more or less often."""
    horizon = draw(st.integers(10, 60)) * MINUTE
    repeat = draw(st.integers(1, 40)) * MINUTE
    recurrence = draw(
        st.sampled_from(
            [
                Recurrence(START, slip=draw(st.integers(0, 3 * horizon))),
                Recurrence(START, repeat=repeat, slip=draw(st.integers(0, 2 * repeat))),
                Recurrence(START, cron="*/7 * * * *", slip=draw(st.integers(0, HOUR))),
                Recurrence(START, cron="5,6,50 0-2 * * *", slip=MINUTE),
            ]
        )
    )
    if recurrence.repeat is not None and draw(st.booleans()):
        recurrence = Recurrence(
            START, repeat=repeat, slip=recurrence.slip, until=START + draw(st.integers(1, 3 * HOUR))
        )
    return Lead(
        recurrence,
        duration=draw(st.integers(1, 60)) * SECOND,
        limits=Limits(horizon, SECOND, draw(st.sampled_from([1, 2, 7, 512]))),
        max_runs=draw(st.none() | st.integers(1, 20)),
        luck=draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])),
        rng=random.Random(draw(st.integers(0, 99))),
    )


# Over days


@patient
@given(leads(), st.integers(-30, 90))
def test_slots_are_planned_once_and_in_order(lead: Lead, late: int) -> None:
    """The planned slots are the first nominal starts, each new one after the one before it."""
    start = START + late * MINUTE
    lead.run(start, start + 3 * lead.limits.horizon)
    asked = list(lead.first_asked)
    assert asked == nominal_starts(lead.recurrence, START - 1, LATEST, len(asked))
    assert sorted([*lead.booked, *lead.unplaced, *lead.waiting]) == asked


@patient
@given(leads(), st.integers(-30, 90))
def test_max_runs_is_never_exceeded(lead: Lead, late: int) -> None:
    """Booked and waiting runs together never exceed max_runs, and given-up slots do not count."""
    start = START + late * MINUTE
    end = start + 3 * lead.limits.horizon
    lead.run(start, end)
    if lead.max_runs is not None:
        assert len(lead.booked) + len(lead.waiting) <= lead.max_runs


@patient
@given(leads())
def test_every_slot_is_planned_in_time(lead: Lead) -> None:
    """Every slot is planned as it enters the horizon, or at most an eighth of it later."""
    lead.luck = 1.0
    start = START - 2 * lead.limits.horizon
    end = start + 4 * lead.limits.horizon
    lead.run(start, end)
    allowance = lead.limits.horizon // REFILL_SHARE
    slots = nominal_starts(lead.recurrence, START - 1, end, lead.max_runs or 10_000)
    for nominal in slots:
        enters = max(start, lead.enters_at(nominal))
        if enters + allowance < end:
            assert enters <= lead.first_asked[nominal] <= enters + allowance


def test_a_task_without_answers_is_not_planned_without_a_pause() -> None:
    """The pauses grow even if more slots than a batch fail."""
    every_minute = Recurrence(START, repeat=MINUTE, slip=30 * SECOND)
    lead = Lead(every_minute, 10 * SECOND, luck=0.0)
    lead.run(START, START + 10 * MINUTE)
    assert len(lead.plannings) < 40


def test_slots_beyond_a_batch_follow_at_once() -> None:
    """A full agenda is followed by the next at the same instant, until the horizon is planned."""
    lead = Lead(Recurrence(START, repeat=MINUTE), 10 * SECOND)
    assert lead.plan(START) == START
    assert lead.plan(START) == START
    assert lead.plan(START) == START + 10 * SECOND + DAY // REFILL_SHARE
    assert list(lead.first_asked) == [START + minute * MINUTE for minute in range(DAY // MINUTE)]


def test_a_few_waiting_slots_do_not_delay_the_others() -> None:
    """The rest of the horizon is planned at once while less than half a batch waits."""
    lead = Lead(Recurrence(START, repeat=MINUTE, slip=30 * SECOND), 10 * SECOND, luck=0.9)
    assert lead.plan(START) == START


def test_a_node_that_was_off_for_hours_plans_the_future() -> None:
    """Slots that passed meanwhile are given up and use up none of the task's runs."""
    lead = Lead(Recurrence(START, repeat=HOUR, slip=MINUTE), MINUTE, max_runs=3)
    lead.run(START + 10 * HOUR, START + 5 * DAY)
    assert lead.unplaced == [START + hour * HOUR for hour in range(10)]
    assert lead.booked == [START + hour * HOUR for hour in range(10, 13)]


def test_an_unplaced_slot_makes_room_for_another() -> None:
    """Unplaced runs do not count: a later slot takes the place of the one that was given up."""
    lead = Lead(Recurrence(START, repeat=HOUR, slip=MINUTE), MINUTE, max_runs=2, luck=0.0)
    lead.plan(START)
    assert sorted(lead.waiting) == [START, START + HOUR]
    lead.luck = 1.0
    lead.plan(START + 30 * MINUTE)
    assert lead.unplaced == [START]
    assert lead.booked == [START + HOUR, START + 2 * HOUR]


def test_max_runs_of_a_cron_task_are_its_first_firings() -> None:
    """Three runs of an expression are its next three, across the change of clocks at night."""
    nightly = Recurrence(START, cron="30 2 * * *", timezone="Europe/Berlin", slip=MINUTE)
    lead = Lead(nightly, MINUTE, max_runs=3)
    lead.run(START, START + 7 * DAY)
    assert [format_instant(nominal) for nominal in lead.booked] == [
        "2026-03-27T01:30:00Z",
        "2026-03-28T01:30:00Z",
        "2026-03-29T01:00:00Z",  # half past two does not exist: the first instant after the gap
    ]


def test_a_completely_planned_task_has_no_next_time() -> None:
    """There is no next time to plan when no slot is left."""
    for recurrence in (
        Recurrence(START),
        Recurrence(START, repeat=HOUR, until=START + 3 * HOUR),
    ):
        assert Lead(recurrence, MINUTE).plan(START) is None
    assert Lead(Recurrence(START, repeat=HOUR), MINUTE, max_runs=2).plan(START) is None


# One agenda


@patient
@given(leads(), st.integers(-60, 180))
def test_a_late_slot_is_given_up(lead: Lead, minutes: int) -> None:
    """A slot is planned while it can start after the margin, and given up afterwards."""
    now = START + minutes * MINUTE
    asked = lead.ask(now)
    soonest = now + lead.limits.margin
    for slot in asked.slots:
        assert slot.nominal + slip_of(lead.recurrence, lead.duration, slot.nominal) >= soonest
    for slot in asked.too_late:
        assert slot.nominal + slip_of(lead.recurrence, lead.duration, slot.nominal) < soonest


@patient
@given(leads(), st.integers(-60, 180))
def test_a_window_is_the_run_and_its_slip(lead: Lead, minutes: int) -> None:
    """Windows are [nominal, nominal + duration + slip), sorted by start, and fit the batch."""
    asked = lead.ask(START + minutes * MINUTE)
    assert list(asked.slots) == sorted(asked.slots, key=lambda slot: slot.start)
    assert len(asked.slots) + len(asked.too_late) <= lead.limits.batch
    for slot in asked.slots:
        slip = slip_of(lead.recurrence, lead.duration, slot.nominal)
        assert (slot.start, slot.end) == (slot.nominal, slot.nominal + lead.duration + slip)


def test_a_waiting_slot_is_planned_again_with_its_attempt() -> None:
    """A waiting slot is planned again, together with new ones and in order of start."""
    standing = PlanningProgress(START, START + HOUR, [(START + HOUR, 4)], None)
    limits = Limits(3 * HOUR, SECOND, 512)
    asked = agenda(Recurrence(START, repeat=HOUR), MINUTE, standing, limits, START)
    assert [(slot.nominal - START, slot.attempt) for slot in asked.slots] == [
        (HOUR, 4),
        (2 * HOUR, 1),
    ]


def test_waiting_slots_count_for_the_batch() -> None:
    """Waiting slots leave less room for new ones."""
    standing = PlanningProgress(START, START + HOUR, [(START, 1), (START + HOUR, 1)], None)
    limits = Limits(DAY, SECOND, 3)
    asked = agenda(Recurrence(START, repeat=HOUR, slip=MINUTE), MINUTE, standing, limits, START)
    assert [slot.nominal - START for slot in asked.slots] == [0, HOUR, 2 * HOUR]
    assert asked.full


def test_a_slip_longer_than_the_interval_delays_nothing() -> None:
    """The slip counts as it is cut, so that such slots do not enter only when they are over."""
    lead = Lead(Recurrence(START, repeat=HOUR, slip=7 * DAY), MINUTE)
    lead.plan(START)
    assert len(lead.booked) == DAY // HOUR


def test_a_window_longer_than_the_horizon_is_planned_before_it_begins() -> None:
    """A single run with a slip of a week is not delayed until the week is nearly over."""
    lead = Lead(Recurrence(START, slip=7 * DAY), MINUTE)
    lead.run(START - 2 * DAY, START + DAY)
    assert lead.first_asked[START] == START - DAY // REFILL_SHARE


@pytest.mark.parametrize(
    ("found", "enters"),
    [
        ((START + HOUR,), START + HOUR + MINUTE - DAY),
        ((START - 1, START + 3 * HOUR), START + 3 * HOUR + MINUTE - DAY),
        ((START - 1, START + 4 * HOUR + 1), START + 4 * HOUR + MINUTE - DAY),
        ((), START + 4 * HOUR + MINUTE - DAY),
    ],
)
def test_a_run_with_a_known_start_is_booked_as_soon_as_possible(
    found: tuple[int, ...], enters: int
) -> None:
    """A known start within the slot's window brings it forward, and any other does not."""
    lead, standing = (
        Recurrence(START, slip=4 * HOUR),
        PlanningProgress(START, None, (), 1, found=found),
    )
    early, now = (agenda(lead, MINUTE, standing, DAILY, at) for at in (enters - 1, enters))
    assert (early.slots, [slot.nominal for slot in now.slots]) == ((), [START])
    assert plan_next_at(lead, MINUTE, early, DAILY, 0, enters - 1) == enters


# When to plan next


@patient
@given(leads(), st.integers(-180, 180), st.integers(0, 512))
def test_planning_never_misses_a_slot(lead: Lead, minutes: int, unplaced: int) -> None:
    """The next planning is when the slot enters, or an eighth of the horizon later for batches."""
    now = START + minutes * MINUTE
    asked = lead.ask(now)
    at = plan_next_at(lead.recurrence, lead.duration, asked, lead.limits, unplaced, now)
    if asked.next_slot is None:
        assert at is None
        return
    if asked.full:
        assert lead.enters_at(asked.next_slot) <= now
        assert at == (None if 2 * unplaced > lead.limits.batch else now)
        return
    enters = lead.enters_at(asked.next_slot)
    refill = lead.limits.horizon // REFILL_SHARE
    following = next_nominal(lead.recurrence, asked.next_slot)
    batches = following is not None and 2 * (following - asked.next_slot) <= refill
    assert now < enters
    assert at == enters + refill * batches


SLOTS = st.lists(
    st.builds(
        lambda nominal, slip: Slot(nominal, 1, nominal, nominal + MINUTE + slip),
        st.integers(START - HOUR, START + HOUR),
        st.integers(0, HOUR),
    ),
    min_size=1,
    max_size=5,
)


@patient
@given(SLOTS, st.integers(0, 10_000), st.integers(0, 99))
def test_the_next_retry_precedes_the_last_start(
    waiting: list[Slot], failures: int, seed: int
) -> None:
    """However long the pause, it ends at the latest start of the first slot."""
    at = try_again_at(waiting, MINUTE, failures, START, random.Random(seed))
    last = min(slot.latest_start(MINUTE) for slot in waiting)
    assert at is not None
    assert START <= at <= max(START, last)


def test_pauses_grow_and_are_jittered() -> None:
    """A pause is drawn between half and all of one that doubles from the first to five minutes."""
    far = [Slot(START, 1, START, START + DAY)]
    rng = random.Random(5)
    for failures in range(40):
        most = min(PAUSE_MAX, 2**failures * PAUSE_FIRST)
        pauses = {(try_again_at(far, MINUTE, failures, START, rng) or 0) - START for _ in range(50)}
        assert most // 2 <= min(pauses) <= max(pauses) <= most
        assert len(pauses) > 40


def test_without_waiting_slots_there_is_no_retry() -> None:
    """There is no next retry without waiting slots."""
    assert try_again_at([], MINUTE, 3, START, random.Random(1)) is None


# From the schedule as posted


@pytest.mark.parametrize(
    ("schedule", "slip"),
    [
        (Schedule(), 5 * MINUTE),
        (Schedule(cron="0 * * * *"), 5 * MINUTE),
        (Schedule(repeat=MINUTE), 30 * SECOND),
        (Schedule(repeat=10 * MINUTE), MINUTE),
        (Schedule(repeat=DAY), 5 * MINUTE),
        (Schedule(repeat=DAY, slip=0), 0),
        (Schedule(slip=DAY), DAY),
    ],
)
def test_the_default_slip(schedule: Schedule, slip: int) -> None:
    """The default is a tenth of the interval within PT30S and PT5M, or PT5M without an interval."""
    assert default_slip(schedule) == slip
    assert recurrence_of(schedule, START).slip == slip


def test_a_task_without_a_start_begins_soon() -> None:
    """Its first nominal start leaves just the time to agree, while a given start is kept."""
    assert recurrence_of(Schedule(), START).anchor == START + IMMEDIATE_START_DELAY
    assert recurrence_of(Schedule(start=START + DAY), START).anchor == START + DAY


def test_the_first_slot_is_in_the_future() -> None:
    """Past slots of a repeating task are left out, while a single run is planned even if late."""
    assert first_slot(Recurrence(START), START + MINUTE) == START
    hourly = Recurrence(START, repeat=HOUR)
    assert first_slot(hourly, START - DAY) == START
    assert first_slot(hourly, START) == START + HOUR
    assert first_slot(hourly, START + MINUTE) == START + HOUR
    assert first_slot(Recurrence(START, repeat=HOUR, until=START + HOUR), START) is None
