"""Faults of schedules, each with the field and the reason."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from node.model import times
from node.model.recurrence import Recurrence, next_nominal, recurrence_faults
from node.model.times import DAY, HOUR, MINUTE, SECOND, parse_instant
from node.model.wire.tasks import Schedule

patient = settings(deadline=None)

START = parse_instant("2026-01-01T00:00:00Z")


def faults_of(recurrence: Recurrence, duration: int = 12 * SECOND) -> list[tuple[str, str]]:
    """Return pointers and sentences of the faults."""
    return [(fault.pointer, fault.detail) for fault in recurrence_faults(recurrence, duration)]


@pytest.mark.parametrize(
    "recurrence",
    [
        Recurrence(START),
        Recurrence(START, slip=HOUR),
        Recurrence(START, repeat=12 * SECOND),
        Recurrence(START, repeat=HOUR, until=START + 1),
        Recurrence(START, cron="* * * * *"),
        Recurrence(START, cron="30 2 * * MON-FRI", timezone="Europe/Berlin"),
        Recurrence(START, cron="0 0 29 2 *", timezone="America/Argentina/Buenos_Aires"),
        Recurrence(START, cron="  0 0\t* jan,Feb 0  ", timezone="Etc/GMT+5"),
        Recurrence(START, cron="0 0 L * *", timezone="UTC", until=START + 31 * DAY),
    ],
)
def test_valid_schedules(recurrence: Recurrence) -> None:
    """Typical schedules pass without a fault."""
    assert faults_of(recurrence) == []


@pytest.mark.parametrize(
    ("recurrence", "pointer", "words"),
    [
        (Recurrence(START, repeat=HOUR, cron="0 * * * *"), "/schedule/cron", "excludes repeat"),
        (Recurrence(START, repeat=0), "/schedule/repeat", "not longer than zero"),
        (Recurrence(START, repeat=-HOUR), "/schedule/repeat", "not longer than zero"),
        (
            Recurrence(START, repeat=5 * SECOND),
            "/schedule/repeat",
            "every run would overlap the next: repeat 5 s is shorter than the run, 12 s",
        ),
        (Recurrence(START, timezone="Europe/Berlin"), "/schedule/timezone", "with cron only"),
        (Recurrence(START, slip=-1), "/schedule/slip", "negative"),
        (
            Recurrence(START, repeat=HOUR, until=START),
            "/schedule/until",
            "not later than the start, 2026-01-01T00:00:00Z",
        ),
        (Recurrence(START, until=START + HOUR), "/schedule/until", "needs repeat or cron"),
        (
            Recurrence(START, cron="0 0 29 2 *", until=START + DAY),
            "/schedule/until",
            "first fires at 2028-02-29T00:00:00Z",
        ),
        (Recurrence(START, cron="0 0 30 2 *"), "/schedule/cron", "day-of-month is not valid"),
        (Recurrence(START, cron="0 0 */15 2 MON#5"), "/schedule/cron", "never fires"),
    ],
)
def test_faults_name_field_and_reason(recurrence: Recurrence, pointer: str, words: str) -> None:
    """Each fault points to its field and says what is wrong with it."""
    ((found, detail),) = faults_of(recurrence)
    assert found == pointer
    assert words in detail


def test_runs_longer_than_the_gap_are_refused() -> None:
    """An expression that fires again before a run is over is refused with both durations."""
    recurrence = Recurrence(START, cron="0,2 9-17 * * MON-FRI", timezone="Europe/Berlin")
    assert faults_of(recurrence, 2 * MINUTE) == []
    ((pointer, detail),) = faults_of(recurrence, 3 * MINUTE)
    assert pointer == "/schedule/cron"
    assert "again after 2 min, and a run takes 3 min" in detail


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("0 30 2 * * *", "has 6 fields"),
        ("@daily", "has 1 fields"),
        ("60 * * * *", "minute is not valid"),
        ("* 24 * * *", "hour is not valid"),
        ("* * 0 * *", "day-of-month is not valid"),
        ("* * * 13 *", "month is not valid"),
        ("* * * * 8", "day-of-week is not valid"),
        ("*/0 * * * *", "minute is not valid"),
        ("5-1 * * * *", "minute is not valid"),
        ("1/ * * * *", "minute is not valid"),
        (", * * * *", "minute is not valid"),
        ("* * 31 4,6,9,11 *", "day-of-month is not valid"),
        ("* * * * MON#6", "day-of-week is not valid"),
        ("\u0661 * * * *", "characters"),
        ("* * * \u017fep *", "characters"),
        ("$(id) * * * *", "characters"),
        ("\ud800 * * * *", "characters"),
        ("9" * 5000 + " * * * *", "characters"),
    ],
)
def test_bad_expressions_are_refused(cron: str, words: str) -> None:
    """An invalid expression is refused with its field."""
    ((pointer, detail),) = faults_of(Recurrence(START, cron=cron))
    assert pointer == "/schedule/cron"
    assert words in detail


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Mars/Olympus",
        "CEST",
        "+02:00",
        "../../etc/passwd",
        "/etc/passwd",
        "/usr/share/zoneinfo/UTC",
        "America",
        "Europe/Berlin/x",
        "Europe/Berlin/",
        "Europe//Berlin",
        "Europe/./Berlin",
        "Europe/Berlin\x00",
        "Europe/Berlin ",
        "tzdata.zi",
        "leapseconds",
        "localtime",
        "posixrules",
        "right/UTC",
        "posix/UTC",
        "Factory",
        "\u00e9",
        "\ud800",
        "A" * 5000,
        "A/" * 2000,
    ],
)
def test_bad_zones_are_refused(zone: str) -> None:
    """A name that is not a zone of the tz database is one fault, and never opens another file."""
    ((pointer, detail),) = faults_of(Recurrence(START, cron="0 0 * * *", timezone=zone))
    assert pointer == "/schedule/timezone"
    assert "no such time zone" in detail


def test_all_faults_at_once() -> None:
    """All faults of a schedule are reported at once."""
    recurrence = Recurrence(START, repeat=1, cron="x", timezone="y", until=START - 1, slip=-1)
    pointers = [pointer for pointer, _ in faults_of(recurrence)]
    assert sorted(pointers) == [
        "/schedule/cron",
        "/schedule/cron",
        "/schedule/repeat",
        "/schedule/slip",
        "/schedule/timezone",
        "/schedule/until",
    ]


@patient
@given(
    cron=st.none() | st.text() | st.text("0123456789*/,-#LW MONJAN", max_size=30),
    zone=st.none() | st.text(),
    repeat=st.none() | st.integers(-1, DAY),
    until=st.none() | st.integers(times.EARLIEST, times.LATEST),
    slip=st.integers(-1, DAY),
)
def test_validation_never_raises(
    cron: str | None, zone: str | None, repeat: int | None, until: int | None, slip: int
) -> None:
    """Validation never raises, and a schedule that passes can be planned."""
    recurrence = Recurrence(START, repeat, cron, zone, until, slip)
    if not recurrence_faults(recurrence, SECOND):
        assert next_nominal(recurrence, START - 1) is not None


@pytest.mark.parametrize(
    "written", ["1", "0/20", "20/20", "21/20", "1/20000", "1 of 20", 0.05, "٢/20"]
)
def test_a_budget_of_displacements_is_fewer_of_many(written: object) -> None:
    """Budgets are fewer runs than those among which they count, and the error shows one."""
    assert Schedule.model_validate({"displacement_budget": "19/20"}).displacement_budget == "19/20"
    with pytest.raises(ValidationError, match="no budget such as 1/20"):
        Schedule.model_validate({"displacement_budget": written})
