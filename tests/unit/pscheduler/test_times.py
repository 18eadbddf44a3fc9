"""Instants and durations in the forms of pScheduler."""

from __future__ import annotations

import pytest

from node.model.times import DAY, HOUR, SECOND
from node.model.times import parse_instant as exact
from node.pscheduler import times

MORNING = exact("2026-11-22T08:10:05.639361Z")


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("PT13S", 13 * SECOND),
        ("P1DT2H", DAY + 2 * HOUR),
        ("P1W", 7 * DAY),
        ("PT0.000043S", 43),
        ("PT1.5M", 90 * SECOND),
        ("P0D", 0),
        ("P0.5D", DAY // 2),
    ],
)
def test_durations_are_read(text: str, duration: int) -> None:
    """Weeks, days, hours, minutes and seconds are read, each with decimals."""
    assert times.parse_duration(text) == duration


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "10", "P1Y", "P1M", "-PT1S", "PT1S ", "PT9999999999999S", "P999999W"]
)
def test_other_texts_are_no_durations(text: str) -> None:
    """Years and months are refused, as is anything that is no duration."""
    with pytest.raises(ValueError, match=r"^'.*' is "):
        times.parse_duration(text)


@pytest.mark.parametrize(
    ("duration", "text"),
    [(13 * SECOND, "PT13S"), (DAY + 2 * HOUR, "P1DT2H"), (0, "P0D"), (43, "PT0.000043S")],
)
def test_durations_are_written_without_empty_parts(duration: int, text: str) -> None:
    """A duration has its largest units first, and zero is ``P0D``."""
    assert times.format_duration(duration) == text


def test_booked_time_is_whole_seconds() -> None:
    """A fraction of a second counts as a whole one."""
    assert times.rounded_up(12 * SECOND + 1) == 13 * SECOND
    assert times.rounded_up(12 * SECOND) == 12 * SECOND


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-22T08:10:05Z",
        "2026-11-22T09:10:05.639361+01:00",
        "2026-11-22T08:10:05",
        "20261122T081005Z",
        "2026-11-22 08:10:05+0000",
    ],
)
def test_instants_are_cut_to_the_second(text: str) -> None:
    """ISO 8601 is read in all its forms; without an offset it is UTC."""
    assert times.parse_instant(text) == MORNING - 639_361


@pytest.mark.parametrize("text", ["", "now", "2026-13-01", "1969-01-01T00:00:00Z", "9999-12-31"])
def test_other_texts_are_no_instants(text: str) -> None:
    """A text that names no instant of this century is refused."""
    with pytest.raises(ValueError, match=r"^'.*' is "):
        times.parse_instant(text)


def test_instants_are_written_in_three_forms() -> None:
    """Runs have an offset, ``/status`` has ``Z``, and ``/clock`` has microseconds."""
    assert times.format_instant(MORNING) == "2026-11-22T08:10:05+00:00"
    assert times.format_zulu(MORNING) == "2026-11-22T08:10:05Z"
    assert times.format_precisely(MORNING) == "2026-11-22T08:10:05.639361+00:00"
