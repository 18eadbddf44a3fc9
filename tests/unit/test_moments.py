"""Times as people write them."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model import times
from node.model.moments import parse_moment
from node.model.wire.fields import instant_of

BERLIN = ZoneInfo("Europe/Berlin")
NOW = times.parse_instant("2026-12-01T12:00:00Z")


def read(text: str, zone: tzinfo = UTC, toward: int = 0) -> str:
    """Return what is meant by a text at noon of 2026-12-01."""
    return times.format_instant(parse_moment(text, toward).at(NOW, zone))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", "2026-12-01T12:00:00Z"),
        ("-1d", "2026-11-30T12:00:00Z"),
        ("+10m", "2026-12-01T12:10:00Z"),
        ("+PT10M", "2026-12-01T12:10:00Z"),
        ("in 10 min", "2026-12-01T12:10:00Z"),
        ("2h ago", "2026-12-01T10:00:00Z"),
        ("@1h", "2026-12-01T13:00:00Z"),
        ("@PT1H", "2026-12-01T13:00:00Z"),
        ("today", "2026-12-01T00:00:00Z"),
        ("Yesterday", "2026-11-30T00:00:00Z"),
        ("tomorrow 9:30", "2026-12-02T09:30:00Z"),
        ("10:05", "2026-12-01T10:05:00Z"),
        ("23:59:59.5", "2026-12-01T23:59:59.5Z"),
        ("2026-11-27", "2026-11-27T00:00:00Z"),
        ("2026-11-28T00:00", "2026-11-28T00:00:00Z"),
        ("2026-11-28 01:02:03", "2026-11-28T01:02:03Z"),
        ("2026-11-28 00:00:00+01:00", "2026-11-27T23:00:00Z"),
        ("2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"),
    ],
)
def test_forms(text: str, meant: str) -> None:
    """Words, distances, days, times of day, and RFC 3339 are read."""
    assert read(text) == meant


def test_days_are_of_the_zone() -> None:
    """Days and times of day are of the reader's zone; distances and RFC 3339 are of none."""
    assert read("today", BERLIN) == "2026-11-30T23:00:00Z"
    assert read("2026-07-01", BERLIN) == "2026-06-30T22:00:00Z"
    assert read("10:05", BERLIN) == "2026-12-01T09:05:00Z"
    assert read("-1d", BERLIN) == read("-1d")


def test_skipped_and_repeated_times() -> None:
    """A time that the clock skips is the one it shows instead; of a repeated one, the first is."""
    assert read("2026-03-29 02:30", BERLIN) == "2026-03-29T01:30:00Z"
    assert read("2026-10-25 02:30", BERLIN) == "2026-10-25T00:30:00Z"


def test_only_the_future_or_the_past() -> None:
    """A direction that alone is meant needs no sign, and times of day are the nearest."""
    assert read("10m", toward=1) == "2026-12-01T12:10:00Z"
    assert read("10m", toward=-1) == "2026-12-01T11:50:00Z"
    assert read("PT10M", toward=1) == "2026-12-01T12:10:00Z"
    assert read("10:05", toward=1) == "2026-12-02T10:05:00Z"
    assert read("13:00", toward=-1) == "2026-11-30T13:00:00Z"
    assert read("today 10:05", toward=1) == "2026-12-01T10:05:00Z"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a time; write now, "),
        ("soon", "is not a time; write now, "),
        ("25:00", "is not a time; write now, "),
        ("2026-02-30", "is not a time; write now, "),
        ("2026-11-2710:05", "is not a time; write now, "),
        ("2026-12-01Z", "is not a time; write now, "),
        ("1h", "is not a time; write -1h for the past, +1h for the future"),
        ("PT1H", "is not a time; write -PT1H for the past, +PT1H for the future"),
        ("@0s", "has no multiples of zero; write @1h"),
        ("+1x", "is not a duration; write 30s"),
        ("1999-12-31", "is outside 2000 to 2100"),
        ("2100-01-01T00:00:00Z", "is outside 2000 to 2100"),
    ],
)
def test_other_texts(text: str, why: str) -> None:
    """Any other text is refused with what is wrong and what to write."""
    with pytest.raises(ValueError, match=f"^{re.escape(why)}"):
        parse_moment(text)


def test_moments_of_documents() -> None:
    """A document's relative time is read in UTC when the document is, and an instant stays."""
    assert instant_of("tomorrow", NOW) == times.parse_instant("2026-12-02T00:00:00Z")
    assert instant_of("PT1H", NOW) == NOW + times.HOUR
    assert instant_of(NOW, 0) == NOW


@given(st.text())
def test_any_text_is_a_time_or_a_sentence(text: str) -> None:
    """Every text gives an instant or a ValueError."""
    for zone in (UTC, BERLIN):
        with contextlib.suppress(ValueError):
            assert parse_moment(text, 1).at(NOW, zone) > 0
