"""Instants and durations: they survive a round trip, and refusals say why."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model import times

INSTANTS = st.integers(times.EARLIEST, times.LATEST - 1)
DURATIONS = st.integers(0, times.LONGEST)


@given(DURATIONS)
def test_duration_round_trip(duration: int) -> None:
    """A duration that is written and read again is the same to the microsecond."""
    assert times.parse_duration(times.format_duration(duration)) == duration


@given(INSTANTS)
def test_instant_round_trip(instant: int) -> None:
    """An instant that is written and read again is the same to the microsecond."""
    assert times.parse_instant(times.format_instant(instant)) == instant


@given(INSTANTS)
def test_datetime_round_trip(instant: int) -> None:
    """An instant survives conversion to a datetime and back."""
    assert times.from_datetime(times.to_datetime(instant)) == instant


@given(INSTANTS, st.integers(-23 * 60 - 59, 23 * 60 + 59))
def test_instant_in_any_offset(instant: int, minutes: int) -> None:
    """The offset in which an instant is written does not change it."""
    moment = times.to_datetime(instant).astimezone(timezone(timedelta(minutes=minutes)))
    assert times.parse_instant(moment.isoformat()) == instant


@given(INSTANTS)
def test_instants_sort_as_their_text(instant: int) -> None:
    """Whole seconds are written so that text sorts as time does."""
    second = instant - instant % times.SECOND
    later = second + times.SECOND
    assert times.format_instant(second)[:19] < times.format_instant(later)[:19]


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("PT0S", 0),
        ("PT30S", 30 * times.SECOND),
        ("PT1H30M", 90 * times.MINUTE),
        ("P1D", times.DAY),
        ("P2W", 14 * times.DAY),
        ("P1W1DT1S", 8 * times.DAY + times.SECOND),
        ("PT0.25S", 250_000),
        ("PT0,000001S", 1),
        ("PT90M", 90 * times.MINUTE),
        ("P366D", times.LONGEST),
        ("1m", times.MINUTE),
        ("60s", times.MINUTE),
        ("1h30m", 90 * times.MINUTE),
        ("1 d 2 h", 26 * times.HOUR),
        ("0.25s", 250_000),
        ("200ms", 200_000),
    ],
)
def test_durations_read(text: str, duration: int) -> None:
    """Weeks, days, hours, minutes and seconds add up."""
    assert times.parse_duration(text) == duration


@pytest.mark.parametrize("text", ["P1M", "P1Y", "P1Y2M", "P1Y2M3DT4H", "P1MT5M", "P3M1D"])
def test_calendar_durations_refused(text: str) -> None:
    """Months and years are refused with the hint what to write instead."""
    with pytest.raises(ValueError, match="use days"):
        times.parse_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "1H",
        "1.h",
        "5 m ",
        " 5m",
        "5m,",
        "T1H",
        "pt1h",
        "-PT1H",
        "PT-1H",
        "+PT1H",
        "PT1H ",
        "PT1H\n",
        " PT1H",
        "PT1.5H",
        "PT.5S",
        "PT1.S",
        "PT0.0000001S",
        "PT1S1M",
        "PT1D",
        "R/PT1H",
        "P1DT1H/P1D",
        "PT\u0661S",
        "PTnanS",
        "PT1e3S",
        "P" + "9" * 5000 + "D",
        "10",
    ],
)
def test_other_durations_refused(text: str) -> None:
    """A text that is not a duration is refused with an example of one."""
    with pytest.raises(ValueError, match="write 30s"):
        times.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("P1H", "PT1H"), ("P1D2H", "P1DT2H"), ("P30S", "PT30S")]
)
def test_forgotten_t(text: str, meant: str) -> None:
    """A duration of hours or seconds without its T is answered with what was meant."""
    with pytest.raises(ValueError, match=f"did you mean {meant}"):
        times.parse_duration(text)


def test_the_schema_of_durations_is_what_is_read() -> None:
    """The pattern that documents are described with has both forms, and older ones are known."""
    for text in ("PT1M", "60s", "1m", "1 h 30 min"):
        assert re.search(times.WRITTEN_DURATION, text)
    assert not re.search(times.WRITTEN_DURATION, "m5.example")
    assert times.describes_duration({"pattern": times._ISO_ONLY})


@pytest.mark.parametrize("text", ["P366DT0.000001S", "P999999W", "PT9999999999S", "PT99999999H"])
def test_long_durations_refused(text: str) -> None:
    """A duration of more than 366 days is refused."""
    with pytest.raises(ValueError, match="longer than 366 days"):
        times.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-01T00:00:00Z", datetime(2026, 12, 1, tzinfo=UTC)),
        ("2026-12-01t00:00:00z", datetime(2026, 12, 1, tzinfo=UTC)),
        ("2026-12-01 00:00:00Z", datetime(2026, 12, 1, tzinfo=UTC)),
        ("2026-12-01T00:00Z", datetime(2026, 12, 1, tzinfo=UTC)),
        ("2026-12-01T01:00:00+01:00", datetime(2026, 12, 1, tzinfo=UTC)),
        ("2026-11-30T14:30:00-09:30", datetime(2026, 12, 1, tzinfo=UTC)),
        ("2026-12-01T00:00:00.5Z", datetime(2026, 12, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-12-01T00:00:00.123456789Z", datetime(2026, 12, 1, 0, 0, 0, 123_456, tzinfo=UTC)),
        ("2000-01-01T00:00:00Z", datetime(2000, 1, 1, tzinfo=UTC)),
        ("2099-12-31T23:59:59.999999Z", datetime(2099, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ],
)
def test_instants_read(text: str, expected: datetime) -> None:
    """RFC 3339 is read in any offset; digits below a microsecond are cut."""
    assert times.parse_instant(text) == times.from_datetime(expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-12-01",
        "2026-12-01Z",
        "2026-13-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-12-01T24:00:00Z",
        "2026-12-01T00:00:60Z",
        "2026-12-01T00Z",
        "2026-12-01x00:00:00Z",
        "2026-W48-2T00:00:00Z",
        "20261201T000000Z",
        "2026-12-01T00:00:00,5Z",
        "2026-12-01T00:00:00+0100",
        "2026-12-01T00:00:00+01:00:30",
        "2026-12-01T00:00:00+24:00",
        "2026-12-01T00:00:00Z\n",
        " 2026-12-01T00:00:00Z",
        "2026-12-01T00:00:00.1234567890Z",
        "\uff12026-12-01T00:00:00Z",
        "1798761600",
    ],
)
def test_other_instants_refused(text: str) -> None:
    """A text that is not RFC 3339 is refused with an example, even if Python would accept it."""
    with pytest.raises(ValueError, match=re.escape("write 2026-12-01T00:00:00Z")):
        times.parse_instant(text)


def test_instant_without_offset_refused() -> None:
    """A time without an offset is refused, because its zone would be a guess."""
    with pytest.raises(ValueError, match="no offset from UTC"):
        times.parse_instant("2026-12-01T00:00:00")


@pytest.mark.parametrize(
    "text",
    [
        "1999-12-31T23:59:59.999999Z",
        "2100-01-01T00:00:00Z",
        "2000-01-01T00:00:00+00:01",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_far_instants_refused(text: str) -> None:
    """Instants outside 2000 to 2100 are refused, including the very ends of the calendar."""
    with pytest.raises(ValueError, match="2000 to 2100"):
        times.parse_instant(text)


@given(st.text())
def test_no_text_raises_anything_else(text: str) -> None:
    """Reading any text gives a value or a ValueError."""
    for parse in (times.parse_duration, times.parse_instant):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0
