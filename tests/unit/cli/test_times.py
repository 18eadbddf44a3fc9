"""Times as people type and read them."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator

import click
import pytest
from hypothesis import given, strategies

from node.cli.times import (
    DURATION,
    MOMENT,
    SECONDS,
    clock_time,
    duration_in_words,
    local_time_text,
    parse_duration,
    parse_moment,
    with_local_times,
)
from node.model import times
from node.model.times import DAY, HOUR, LONGEST, MILLISECOND, MINUTE, SECOND, duration_text


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the time zone to Berlin."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("5m", 5 * MINUTE),
        ("5min", 5 * MINUTE),
        ("PT5M", 5 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("1 h 30 m", 90 * MINUTE),
        ("1.5s", 1_500 * MILLISECOND),
        ("250ms", 250 * MILLISECOND),
        ("2d", 2 * DAY),
        ("1w", 7 * DAY),
        (" 10s ", 10 * SECOND),
    ],
)
def test_durations(text: str, duration: int) -> None:
    """Short and ISO 8601 forms mean the same."""
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text", ["", "5", "5M", "m", "-5m", "5 parsecs", "P1M", "367d", "5mm", "\u0665m"]
)
def test_invalid_durations(text: str) -> None:
    """A text that could be misread is refused with what to write instead."""
    with pytest.raises(ValueError, match=r"write|longer|cron"):
        parse_duration(text)


@given(strategies.integers(0, LONGEST))
def test_iso_is_accepted_as_it_is_written(duration: int) -> None:
    """Every duration that is printed can be typed again."""
    assert parse_duration(times.format_duration(duration)) == duration


@given(strategies.text(max_size=12))
def test_any_text_is_a_duration_or_a_sentence(text: str) -> None:
    """Every text gives a duration or a ValueError."""
    with contextlib.suppress(ValueError):
        assert 0 <= parse_duration(text) <= LONGEST


def test_only_the_short_form_looks_like_a_duration() -> None:
    """A host name and an ISO 8601 duration do not look like the short form."""
    assert times.is_short_duration("20ms")
    assert not times.is_short_duration("PT20S")
    assert not times.is_short_duration("m5.example")


def test_moments() -> None:
    """Relative moments count from now, and RFC 3339 is absolute."""
    assert parse_moment("now").at(7) == 7
    assert parse_moment("+1h").at(7) == HOUR + 7
    assert parse_moment("-30m").at(HOUR) == 30 * MINUTE
    assert parse_moment("@1h").at(HOUR - 1) == HOUR
    assert parse_moment("@PT1H").at(HOUR) == 2 * HOUR
    written = "2026-12-01T01:00:00+01:00"
    assert parse_moment(written).at(7) == times.parse_instant("2026-12-01T00:00:00Z")


def test_local_moments() -> None:
    """Days and times of day are those of the terminal."""
    now = times.parse_instant("2026-12-01T23:30:00Z")
    at = {text: parse_moment(text).at(now) for text in ("today", "10:05", "2026-07-01T02:00")}
    assert [times.format_instant(instant) for instant in at.values()] == [
        "2026-12-01T23:00:00Z",
        "2026-12-02T09:05:00Z",
        "2026-07-01T00:00:00Z",
    ]


@pytest.mark.parametrize("text", ["soon", "2026-13-01", "+", "1h", "@", "@0s", ""])
def test_invalid_moments(text: str) -> None:
    """Any other text is quoted and refused with what to write."""
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} .*write"):
        parse_moment(text)


def test_option_types() -> None:
    """Invalid values raise BadParameter, and only --timeout takes bare seconds."""
    assert SECONDS.convert("1.5", None, None) == 1_500 * MILLISECOND
    assert SECONDS.convert("2m", None, None) == 2 * MINUTE
    assert DURATION.convert(5, None, None) == 5
    assert MOMENT.convert(parse_moment("now"), None, None).at(3) == 3
    for kind in (DURATION, MOMENT):
        with pytest.raises(click.BadParameter):
            kind.convert("soon", None, None)


def test_local_times_carry_their_offset_and_can_be_typed_again() -> None:
    """Times are shown with the right offset in summer and winter, and can be typed again."""
    winter, summer = "2026-12-01T00:00:00Z", "2026-07-01T00:00:00Z"
    assert local_time_text(winter) == "2026-12-01 01:00:00+01:00"
    assert local_time_text(summer) == "2026-07-01 02:00:00+02:00"
    assert local_time_text(None) == ""
    assert parse_moment(local_time_text(winter)).at(0) == times.parse_instant(winter)
    assert clock_time(times.parse_instant(winter)) == "01:00:00"


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (400 * MILLISECOND, "0 s"),
        (4 * SECOND, "4 s"),
        (-4 * SECOND, "4 s"),
        (75 * SECOND, "1 min 15 s"),
        (12 * MINUTE, "12 min"),
        (3 * HOUR + 5 * MINUTE, "3 h 5 min"),
        (2 * DAY + 3 * HOUR, "2 d 3 h"),
    ],
)
def test_spoken(duration: int, text: str) -> None:
    """A duration is spoken in at most two units, without those that are zero."""
    assert duration_in_words(duration) == text


@pytest.mark.parametrize("text", ["2m", "1h 30m"])
def test_a_duration_is_not_a_time(text: str) -> None:
    """A duration in place of a time is refused with how to write past and future."""
    plain = text.replace(" ", "")
    with pytest.raises(ValueError, match=rf"write -{plain} for the past, \+{plain} for the future"):
        parse_moment(text)


@pytest.mark.parametrize(
    ("sentence", "wanted"),
    [
        ("no PT16.25S free", "no 16.25 s free"),
        ("every PT1H30M, P1DT2H or PT0.2S.", "every 1 h 30 min, 1 d 2 h or 200 ms."),
        ("until 2026-12-01T10:00:00Z;", "until LOCAL;"),
        ("P, PT and P1M are none; nor ed25519:P1D or run-P1D", None),
        ("since 2026-13-01T10:00:00Z", None),
    ],
)
def test_times_inside_sentences(sentence: str, wanted: str | None) -> None:
    """Instants and durations inside a sentence are written for people, all else stays."""
    here = local_time_text("2026-12-01T10:00:00Z")
    assert with_local_times(sentence) == (wanted or sentence).replace("LOCAL", here)


@pytest.mark.parametrize("duration", [0, 1, 250_000, 1_000_000, 11_700_000, 90 * 60_000_000])
def test_a_spelt_duration_can_be_typed(duration: int) -> None:
    """A duration as printed is one that options take."""
    assert parse_duration(duration_text(duration)) == duration
