"""Instants and durations as pScheduler writes and reads them. Pure.

In memory both are microseconds, as everywhere (:mod:`node.model.times`). On the wire of pScheduler
instants carry an offset and usually no decimals, and a duration of zero is ``P0D``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from node.model import times
from node.model.times import MILLISECOND, SECOND

DURATION = re.compile(
    r"P(?=[\dT])(?:\d+(?:\.\d+)?W)?(?:\d+(?:\.\d+)?D)?"
    r"(?:T(?=\d)(?:\d+(?:\.\d+)?H)?(?:\d+(?:\.\d+)?M)?(?:\d+(?:\.\d+)?S)?)?",
    re.ASCII,
)
_PART = re.compile(r"(\d+)(?:\.(\d+))?([WDHMS])", re.ASCII)
_UNITS = {
    "W": 7 * times.DAY,
    "D": times.DAY,
    "H": times.HOUR,
    "M": times.MINUTE,
    "S": SECOND,
}
_DIGITS_MAX = 12
_LONGEST = 3660 * times.DAY


def parse_duration(text: str) -> int:
    """Return an ISO 8601 duration as microseconds: weeks to seconds, with decimals.

    :raises ValueError: the text is no such duration, or longer than ten years.
    """
    sentence = f"'{text}' is not a valid ISO 8601 duration."
    if not DURATION.fullmatch(text):
        raise ValueError(sentence)
    total = 0
    for whole, decimals, unit in _PART.findall(text):
        if len(whole) > _DIGITS_MAX:
            raise ValueError(sentence)
        fraction = int(f"{decimals:0<6}"[:6])
        total += int(whole) * _UNITS[unit] + fraction * _UNITS[unit] // SECOND
    if total > _LONGEST:
        raise ValueError(f"'{text}' is longer than ten years.")
    return total


def format_duration(duration: int) -> str:
    """Return ``PT13S``, ``P1DT2H``, ``PT0.000043S``; zero is ``P0D``, and below zero is as zero."""
    return times.format_duration(duration) if duration > 0 else "P0D"


def parse_milliseconds(text: object) -> float:
    """Return an ISO 8601 duration in milliseconds, as results of ours have it.

    :raises ValueError: the text is no such duration.
    """
    return parse_duration(str(text)) / MILLISECOND


def format_milliseconds(duration_ms: float) -> str:
    """Return a duration of a result of ours as :func:`format_duration` does."""
    return format_duration(round(duration_ms * MILLISECOND))


def rounded_up(duration: int) -> int:
    """Return a duration rounded up to a whole second, as pScheduler books it."""
    return -(-duration // SECOND) * SECOND


def parse_instant(text: str) -> int:
    """Return the instant that an ISO 8601 text names, cut to the second; UTC without an offset.

    :raises ValueError: the text names no instant between 2000 and 2100.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"'{text}' is not a valid ISO 8601 time.") from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    try:
        instant = times.from_datetime(aware)
    except OverflowError:
        raise ValueError(f"'{text}' is outside 2000 to 2100.") from None
    if not times.EARLIEST <= instant < times.LATEST:
        raise ValueError(f"'{text}' is outside 2000 to 2100.")
    return instant - instant % SECOND


def format_instant(instant: int) -> str:
    """Return ``2026-11-22T08:10:05+00:00``, cut to the second: the form of runs and tasks."""
    return times.to_datetime(instant - instant % SECOND).isoformat()


def format_zulu(instant: int) -> str:
    """Return ``2026-11-22T08:10:05Z``, cut to the second: the form of ``/status``."""
    return times.to_the_second(instant)


def format_precisely(instant: int) -> str:
    """Return ``2026-11-22T08:47:07.639361+00:00``: the form of ``/clock``."""
    return times.to_datetime(instant).isoformat(timespec="microseconds")
