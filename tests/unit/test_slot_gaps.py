"""Slots that nobody planned in time, as ranges: the same slots as one by one, at no such cost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lead.planning.agenda import Agenda, Limits, PlanningProgress, agenda
from node.model.gaps import GAP_MIN, closed_slots, split
from node.model.recurrence import Recurrence, SlotRange, nominal_range, nominal_starts, slip_of
from node.model.times import DAY, HOUR, LATEST, MINUTE, SECOND, parse_instant

START = parse_instant("2026-03-27T00:00:00Z")
WEEK = 7 * DAY
CLOCKS_CHANGE = parse_instant("2026-03-29T00:00:00Z")
LIMITS = Limits(horizon=DAY, margin=SECOND, batch=512)
patient = settings(deadline=None, max_examples=150)


@st.composite
def recurrences(draw: st.DrawFn) -> Recurrence:
    """Draw schedules of all kinds."""
    slip = draw(st.integers(0, 3 * HOUR))
    repeat = draw(st.integers(20, 20_000)) * SECOND
    crons = ("*/7 * * * *", "5,6,50 0-4 * * *", "30 2 * * *", "0 0 29 2 *", "15 3 * * SUN")
    zones = ("Europe/Berlin", "Australia/Lord_Howe", None)
    cron, zone = draw(st.sampled_from(crons)), draw(st.sampled_from(zones))
    made = draw(
        st.sampled_from(
            [
                Recurrence(START, slip=slip),
                Recurrence(START, repeat=repeat, slip=slip),
                Recurrence(START, cron=cron, timezone=zone, slip=slip),
            ]
        )
    )
    if made.repeat is None or draw(st.booleans()):
        return made
    return Recurrence(START, repeat=repeat, slip=slip, until=START + draw(st.integers(1, WEEK)))


DURATIONS = st.integers(SECOND, 20 * SECOND)
INSTANTS = st.integers(START - HOUR, START + 4 * DAY)


@patient
@given(recurrences(), INSTANTS, INSTANTS, st.none() | st.integers(0, 20))
def test_a_range_is_what_the_slots_are(
    recurrence: Recurrence, after: int, before: int, limit: int | None
) -> None:
    """First, last and number are those of the nominal starts, in any zone."""
    starts = nominal_starts(recurrence, after, before, LATEST if limit is None else limit)
    expected = SlotRange(starts[0], starts[-1], len(starts)) if starts else None
    assert nominal_range(recurrence, after, before, limit) == expected


@patient
@given(recurrences(), DURATIONS, INSTANTS, INSTANTS, st.integers(0, 10 * SECOND))
def test_only_slots_that_are_too_late_are_closed(
    recurrence: Recurrence, duration: int, after: int, now: int, margin: int
) -> None:
    """Slots up to now whose runs cannot start any more are closed, unless they are too few."""
    late = [
        slot
        for slot in nominal_starts(recurrence, after, now + 1, LATEST)
        if slot + slip_of(recurrence, duration, slot) < now + margin
    ]
    closed = closed_slots(recurrence, duration, after, now + margin, now)
    if len(late) < GAP_MIN:
        assert closed is None
    else:
        assert closed == SlotRange(late[0], late[-1], len(late))


@patient
@given(recurrences(), st.sets(st.integers(0, 300)), st.integers(START, START + 2 * DAY))
def test_known_slots_split_a_gap(recurrence: Recurrence, places: set[int], now: int) -> None:
    """The ranges contain each other slot once, and none of the known ones."""
    closed = nominal_range(recurrence, START - 1, now)
    if closed is None:
        return
    slots = nominal_starts(recurrence, START - 1, now, LATEST)
    known = {slots[place] for place in places if place < len(slots)}
    ranges = split(recurrence, closed, known)
    inside = [
        slot
        for each in ranges
        for slot in nominal_starts(recurrence, each.first - 1, now, each.slots)
    ]
    assert inside == [slot for slot in slots if slot not in known]
    assert len(ranges) <= len(known) + 1


@patient
@given(
    recurrences(),
    DURATIONS,
    INSTANTS,
    st.none() | st.integers(1, 40),
    st.sets(st.integers(0, 50)),
    st.sets(st.integers(0, 50)),
)
def test_an_agenda_tells_each_slot_once(
    recurrence: Recurrence,
    duration: int,
    now: int,
    max_runs: int | None,
    waiting: set[int],
    done: set[int],
) -> None:
    """After an absence each slot is planned, given up with a row, in a gap, or measured before."""
    slots = nominal_starts(recurrence, START - 1, now + DAY, 60)
    standing = PlanningProgress(
        START,
        START - 1,
        [(slots[place], 2) for place in waiting - done if place < len(slots)],
        max_runs,
        {slots[place]: None for place in done if place < len(slots)},
        told={slots[place] for place in done if place < len(slots)},
    )
    asked = agenda(recurrence, duration, standing, LIMITS, now)
    in_gaps = [
        slot
        for gap in asked.gaps
        for slot in nominal_starts(recurrence, gap.first - 1, gap.last + 1, gap.slots)
    ]
    told = [slot.nominal for slot in (*asked.slots, *asked.too_late, *asked.beyond)] + in_gaps
    assert len(told) == len(set(told))
    assert not {slots[place] for place in done if place < len(slots)} & set(told)
    assert all(slot + slip_of(recurrence, duration, slot) < now + SECOND for slot in in_gaps)
    up_to = START - 1 if asked.planned_to is None else asked.planned_to
    expected = set(nominal_starts(recurrence, START - 1, up_to + 1, LATEST))
    left = expected - set(told) - standing.touched.keys()
    assert not left
    if max_runs is not None:
        waits = {at for at, _ in standing.waiting}
        assert sum(slot.nominal not in waits for slot in asked.slots) <= max_runs + len(waits)


def _after_absence(recurrence: Recurrence, now: int, max_runs: int | None = None) -> Agenda:
    standing = PlanningProgress(START, START, (), max_runs)
    return agenda(recurrence, MINUTE, standing, LIMITS, now)


def test_an_open_window_is_no_gap() -> None:
    """The last slot of an absence can still run if its slip reaches beyond the return."""
    hourly = Recurrence(START, repeat=HOUR, slip=30 * MINUTE)
    asked = _after_absence(hourly, START + WEEK + 20 * MINUTE)
    assert asked.gaps == (SlotRange(START + HOUR, START + WEEK - HOUR, 167),)
    assert asked.slots[0].nominal == START + WEEK
    asked = _after_absence(hourly, START + WEEK + 31 * MINUTE)
    assert asked.gaps == (SlotRange(START + HOUR, START + WEEK, 168),)


def test_slots_of_a_gap_use_up_no_runs() -> None:
    """A task with a number of runs has as many after the absence; one without runs left no gap."""
    hourly = Recurrence(START, repeat=HOUR)
    asked = _after_absence(hourly, START + WEEK, 3)
    assert (len(asked.gaps), len(asked.slots)) == (1, 3)
    assert asked.next_slot is None
    asked = _after_absence(hourly, START + WEEK, 0)
    assert (asked.gaps, asked.slots, asked.next_slot) == ((), (), None)


def test_a_schedule_that_is_over_ends_with_its_gap() -> None:
    """Nothing is left to plan once ``until`` has passed."""
    asked = _after_absence(Recurrence(START, repeat=HOUR, until=START + DAY), START + WEEK)
    assert asked.gaps == (SlotRange(START + HOUR, START + 23 * HOUR, 23),)
    assert (asked.slots, asked.next_slot, asked.full) == ((), None, False)


def test_a_few_slots_are_told_one_by_one() -> None:
    """A short absence leaves runs with a reason, as always."""
    asked = _after_absence(Recurrence(START, repeat=MINUTE), START + 3 * MINUTE + 30 * SECOND)
    assert (asked.gaps, len(asked.too_late)) == ((), GAP_MIN - 1)
    asked = _after_absence(Recurrence(START, repeat=MINUTE), START + 4 * MINUTE + 30 * SECOND)
    assert (asked.gaps[0].slots, asked.too_late) == (GAP_MIN, ())


def test_the_cost_does_not_depend_on_the_slots() -> None:
    """A gap of 600,000,000,000 slots is computed like one of ten."""
    asked = _after_absence(Recurrence(START, repeat=1), START + WEEK)
    assert asked.gaps[0].slots == WEEK


def test_a_gap_of_a_cron_schedule_is_right_where_clocks_change() -> None:
    """The hour that the clock skips has no slots."""
    every = Recurrence(START, cron="*/10 * * * *", timezone="Europe/Berlin")
    found = nominal_range(every, CLOCKS_CHANGE - HOUR - 1, CLOCKS_CHANGE + 3 * HOUR)
    assert found is not None
    assert found.slots == 6 * 4
