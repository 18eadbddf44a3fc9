"""Nominal starts and slips, compared with oracles that step through time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.model import times
from node.model.recurrence import Recurrence, interval_after, next_nominal, nominal_starts, slip_of
from node.model.times import DAY, HOUR, MINUTE, SECOND, format_instant, parse_instant

patient = settings(deadline=None)

START = parse_instant("2026-01-01T00:00:00Z")
DAYS_OF_CHANGE = (
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),  # half an hour back
    ("Australia/Lord_Howe", "2026-10-04"),  # half an hour forward
    ("America/Santiago", "2026-09-06"),  # midnight is skipped
    ("America/Havana", "2026-11-01"),  # midnight comes twice
    ("America/Nuuk", "2026-03-28"),  # the last hour of the day is skipped
    ("America/St_Johns", "2010-11-07"),  # a minute after midnight, back into the day before
    ("Pacific/Apia", "2011-12-30"),  # the whole day is skipped
    ("UTC", "2026-03-29"),
)


def texts(starts: list[int]) -> list[str]:
    """Return instants in readable form."""
    return [format_instant(start) for start in starts]


def cron_texts(cron: str, zone: str, after: str, before: str) -> list[str]:
    """Return the firings of an expression between two instants, as texts."""
    recurrence = Recurrence(START, cron=cron, timezone=zone)
    return texts(nominal_starts(recurrence, parse_instant(after), parse_instant(before), 1000))


# Once


@given(st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 2))
def test_once_is_the_anchor(after: int, before: int, limit: int) -> None:
    """A task without repetition has one nominal start, the anchor, strictly inside the bounds."""
    expected = [START] if after < 0 < before and limit else []
    assert nominal_starts(Recurrence(START), START + after, START + before, limit) == expected


def test_two_intervals_after_a_firing_end_with_the_second_one_after_it() -> None:
    """A schedule of weekdays is twice due by Monday after Thursday, whatever its end is."""
    weekdays = Recurrence(START, cron="0 9 * * 1-5", until=parse_instant("2026-01-09T00:00:00Z"))
    for day, second in (("05", "07"), ("08", "12"), ("09", "13")):
        nominal = parse_instant(f"2026-01-{day}T09:00:00Z")
        interval = interval_after(weekdays, nominal)
        assert interval is not None
        assert format_instant(nominal + 2 * interval) == f"2026-01-{second}T09:00:00Z"
    leap_days = Recurrence(START, cron="0 0 29 2 *")
    assert interval_after(leap_days, parse_instant("2096-02-29T00:00:00Z")) is None


def test_once_keeps_its_whole_slip() -> None:
    """A single run keeps its whole slip, because it has no next interval to reach into."""
    assert slip_of(Recurrence(START, slip=DAY), HOUR, START) == DAY


# Intervals


@patient
@given(
    repeat=st.integers(1, 40),
    after=st.integers(-60, 200),
    span=st.integers(-5, 300),
    limit=st.integers(-1, 50),
    until=st.none() | st.integers(-10, 200),
)
def test_interval_agrees_with_stepping(
    repeat: int, after: int, span: int, limit: int, until: int | None
) -> None:
    """The grid is the anchor and all whole intervals after it, bounds and end excluded."""
    end = None if until is None else START + until
    recurrence = Recurrence(START, repeat=repeat, until=end)
    stepped: list[int] = []
    nominal = START
    while nominal < START + after + span and (end is None or nominal < end):
        if nominal > START + after and len(stepped) < limit:
            stepped.append(nominal)
        nominal += repeat
    assert nominal_starts(recurrence, START + after, START + after + span, limit) == stepped


def test_interval_far_from_its_anchor_is_exact() -> None:
    """A grid of microseconds, a century from its anchor, needs no stepping."""
    recurrence = Recurrence(times.EARLIEST, repeat=7)
    after = times.LATEST - 100
    starts = nominal_starts(recurrence, after, times.LATEST, 3)
    first = starts[0]
    assert starts == [first, first + 7, first + 14]
    assert (first - times.EARLIEST) % 7 == 0
    assert after < first <= after + 7


@given(st.integers(1, DAY), st.integers(0, DAY), st.integers(0, 2 * DAY))
def test_interval_slip_stays_in_the_interval(repeat: int, duration: int, slip: int) -> None:
    """However late a run starts within its slip, it ends by the next nominal start if it can."""
    cut = slip_of(Recurrence(START, repeat=repeat, slip=slip), duration, START)
    assert 0 <= cut <= slip
    assert cut == slip or cut + duration == max(repeat, duration)


@given(st.integers(1, DAY), st.integers(0, 1000))
def test_next_nominal_walks_the_grid(repeat: int, steps: int) -> None:
    """Asking again with the last answer gives the next point of the grid."""
    recurrence = Recurrence(START, repeat=repeat)
    assert next_nominal(recurrence, START - 1) == START
    assert next_nominal(recurrence, START + steps * repeat) == START + (steps + 1) * repeat


def test_nothing_lies_at_or_after_until() -> None:
    """A point of the grid that falls on until is not run."""
    recurrence = Recurrence(START, repeat=HOUR, until=START + 2 * HOUR)
    assert nominal_starts(recurrence, START - 1, times.LATEST, 10) == [START, START + HOUR]
    assert next_nominal(recurrence, START + HOUR) is None


# Cron against a clock that is watched minute by minute


@dataclass(frozen=True)
class Expression:
    """A cron expression with the values that its fields allow, computed without cronsim."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    weekdays: frozenset[int]

    def matches(self, shown: datetime) -> bool:
        """Return whether the expression matches the time that the clock shows."""
        if shown.minute not in self.minutes or shown.hour not in self.hours:
            return False
        _, _, day_field, _, weekday_field = self.text.split()
        by_day = shown.day in self.days
        by_weekday = shown.isoweekday() % 7 in self.weekdays
        if day_field.startswith("*") or weekday_field.startswith("*"):
            return by_day and by_weekday
        return by_day or by_weekday

    @property
    def set_times(self) -> bool:
        """Return whether neither minute nor hour begins with a star."""
        minute, hour, *_ = self.text.split()
        return not minute.startswith("*") and not hour.startswith("*")


@st.composite
def cron_field(draw: st.DrawFn, lowest: int, highest: int) -> tuple[str, frozenset[int]]:
    """Draw one field, as text and as the values that it allows."""
    everything = range(lowest, highest + 1)
    kind = draw(st.sampled_from(("star", "step", "one", "list", "range", "range step")))
    low = draw(st.integers(lowest, highest - 1))
    high = draw(st.integers(low, highest))
    step = draw(st.integers(1, 30))
    if kind == "star":
        return "*", frozenset(everything)
    if kind == "step":
        return f"*/{step}", frozenset(everything[::step])
    if kind == "one":
        return str(low), frozenset({low})
    if kind == "list":
        return f"{low},{high}", frozenset({low, high})
    if kind == "range":
        return f"{low}-{high}", frozenset(range(low, high + 1))
    # cronsim reads 7-7/5 as 7/5, from 7 to the end: nobody writes that, so it is left out.
    high = max(high, low + 1)
    return f"{low}-{high}/{step}", frozenset(range(low, high + 1, step))


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    """Draw expressions of five fields, mostly ones that fire on most days."""
    minute, minutes = draw(cron_field(0, 59))
    hour, hours = draw(cron_field(0, 23))
    every = st.just(("*", frozenset(range(32))))
    day, days = draw(every | cron_field(1, 31))
    weekday, weekdays = draw(every | cron_field(0, 6))
    return Expression(f"{minute} {hour} {day} * {weekday}", minutes, hours, days, weekdays)


@cache
def watched(zone: str, day: str) -> list[tuple[int, datetime]]:
    """Return every minute of the week around a day: the instant, and what a wall clock shows."""
    middle = datetime.fromisoformat(day).replace(tzinfo=UTC)
    minutes = (middle + timedelta(minutes=minute) for minute in range(-4 * 1440, 4 * 1440))
    place = ZoneInfo(zone)
    return [
        (times.from_datetime(moment), moment.astimezone(place).replace(tzinfo=None, fold=0))
        for moment in minutes
    ]


def watch(expression: Expression, minutes: list[tuple[int, datetime]]) -> list[int]:
    """Return when somebody who watches the clock would start the run."""
    if not expression.set_times:
        return [instant for instant, shown in minutes if expression.matches(shown)]
    fired: list[int] = []
    latest = minutes[0][1]
    for instant, shown in minutes[1:]:
        while latest < shown:
            latest += timedelta(minutes=1)
            if expression.matches(latest) and fired[-1:] != [instant]:
                fired.append(instant)
    return fired


@settings(max_examples=12)
@pytest.mark.parametrize(("zone", "day"), DAYS_OF_CHANGE)
@given(expression=expressions(), since=st.integers(0, 5 * 1440 * 60))
@pytest.mark.nightly
def test_cron_agrees_with_a_watched_clock(
    zone: str, day: str, expression: Expression, since: int
) -> None:
    """An expression fires when somebody watching a clock in its zone would fire it."""
    minutes = watched(zone, day)
    after, before = minutes[1][0] + since * SECOND, minutes[-1][0]
    expected = [instant for instant in watch(expression, minutes) if after < instant < before]
    recurrence = Recurrence(times.EARLIEST, cron=expression.text, timezone=zone)
    assert texts(nominal_starts(recurrence, after, before, 100_000)) == texts(expected)


@settings(max_examples=50)
@given(expression=expressions(), zone_and_day=st.sampled_from(DAYS_OF_CHANGE))
@pytest.mark.nightly
def test_cron_one_by_one_is_cron_at_once(
    expression: Expression, zone_and_day: tuple[str, str]
) -> None:
    """Requesting the firings one by one gives the same as requesting them at once."""
    zone, day = zone_and_day
    minutes = watched(zone, day)
    recurrence = Recurrence(times.EARLIEST, cron=expression.text, timezone=zone)
    after = minutes[3 * 1440 + 720][0]
    at_once = nominal_starts(recurrence, after, times.LATEST, 40)
    for earlier, later in pairwise([after, *at_once]):
        assert next_nominal(recurrence, earlier) == later
        assert next_nominal(recurrence, later - 1) == later


# Cron in sentences


@pytest.mark.parametrize(
    ("cron", "zone", "day", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-29", ["01:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25", ["00:30"]),
        ("0,30 2 * * *", "Europe/Berlin", "2026-03-29", ["01:00"]),
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-29", []),
        ("*/30 2 * * *", "Europe/Berlin", "2026-10-25", ["00:00", "00:30", "01:00", "01:30"]),
        ("0 2-3 * * *", "Europe/Berlin", "2026-03-29", ["01:00"]),
        ("0 2-3 * * *", "Europe/Berlin", "2026-10-25", ["00:00", "02:00"]),
        ("30 2 * * *", "America/New_York", "2026-03-08", ["07:00"]),
        ("30 1 * * *", "America/New_York", "2026-11-01", ["05:30"]),
        (
            "*/20 1 * * *",
            "America/New_York",
            "2026-11-01",
            ["05:00", "05:20", "05:40", "06:00", "06:20", "06:40"],
        ),
        ("30 2 * * *", "UTC", "2026-03-29", ["02:30"]),
    ],
)
def test_cron_where_clocks_change(cron: str, zone: str, day: str, expected: list[str]) -> None:
    """A skipped time moves to the end of the gap, a repeated one counts once; steps go on."""
    midnight = parse_instant(f"{day}T00:00:00Z")
    recurrence = Recurrence(START, cron=cron, timezone=zone)
    starts = nominal_starts(recurrence, midnight - 1, midnight + 8 * HOUR, 1000)
    assert texts(starts) == [f"{day}T{at}:00Z" for at in expected]


def test_half_an_hour_loses_no_step() -> None:
    """If clocks change by half an hour, no steps in the hours after it are lost."""
    starts = cron_texts(
        "*/10 2 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", "2026-04-05T12:00:00Z"
    )
    assert starts == [f"2026-04-04T15:{minute}:00Z" for minute in (30, 40, 50)] + [
        f"2026-04-04T16:{minute}:00Z" for minute in ("00", 10, 20)
    ]


def test_cron_never_answers_with_the_past() -> None:
    """In the second pass of the repeated hour, the next firing of a set time is on the next day."""
    recurrence = Recurrence(START, cron="15 2 * * *", timezone="Europe/Berlin")
    following = next_nominal(recurrence, parse_instant("2026-10-25T01:05:00Z"))
    assert following == parse_instant("2026-10-26T01:15:00Z")


def test_every_twenty_minutes_stays_so() -> None:
    """Steps keep their distance through both changes of the clock."""
    recurrence = Recurrence(START, cron="*/20 * * * *", timezone="Europe/Berlin")
    starts = nominal_starts(recurrence, START, START + 365 * DAY, 100_000)
    assert {later - earlier for earlier, later in pairwise(starts)} == {20 * MINUTE}


def test_anchor_bounds_cron() -> None:
    """No firing lies before the anchor; the anchor itself counts if the expression fires there."""
    noon = parse_instant("2026-06-01T12:00:00Z")
    recurrence = Recurrence(noon, cron="0 12 * * *")
    assert next_nominal(recurrence, 0) == noon
    assert next_nominal(replace(recurrence, anchor=noon + 1), 0) == noon + DAY


def test_cron_ends_before_until() -> None:
    """A firing that falls on until is not run."""
    recurrence = Recurrence(START, cron="0 * * * *", until=START + 2 * HOUR)
    assert nominal_starts(recurrence, START - 1, times.LATEST, 10) == [START, START + HOUR]


def test_cron_slip_stays_before_the_next_firing() -> None:
    """Slip is cut to the gap before the next firing, even the one that until forbids."""
    recurrence = Recurrence(START, cron="0 8,12 * * *", slip=DAY, until=START + 9 * HOUR)
    assert slip_of(recurrence, HOUR, START + 8 * HOUR) == 3 * HOUR
    assert slip_of(recurrence, HOUR, START + 12 * HOUR) == 19 * HOUR
    assert slip_of(recurrence, 5 * HOUR, START + 8 * HOUR) == 0


def test_last_firing_keeps_its_slip() -> None:
    """The last firing before the end of all times has nothing to reach into."""
    recurrence = Recurrence(START, cron="0 0 31 12 *", slip=DAY)
    assert slip_of(recurrence, HOUR, parse_instant("2099-12-31T00:00:00Z")) == DAY


def test_rare_firings_are_found() -> None:
    """A fifth Monday in February comes once in 28 years, and is found."""
    starts = cron_texts("0 0 * 2 MON#5", "UTC", "2026-01-01T00:00:00Z", "2099-12-31T00:00:00Z")
    assert starts == ["2044-02-29T00:00:00Z", "2072-02-29T00:00:00Z"]
