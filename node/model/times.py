"""Instants and durations as whole microseconds, and their written forms.

An *instant* is an ``int``: microseconds since 1970-01-01T00:00:00Z. A *duration* is an ``int``:
microseconds. Written, instants are RFC 3339. Durations are ISO 8601 (``PT1H30M``) or short
(``1h30m``) with weeks, days, hours, minutes and seconds; years and months are refused because their
length varies. Parley writes ISO 8601. What people write for instants is in
:mod:`node.model.moments`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MILLISECOND = 1_000

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = 946_684_800 * SECOND  # 2000-01-01
LATEST = 4_102_444_800 * SECOND  # 2100-01-01
LONGEST = 366 * DAY

_DURATION = re.compile(
    r"P(?=.)(?:(?P<w>\d{1,6})W)?(?:(?P<d>\d{1,6})D)?"
    r"(?:T(?=\d)(?:(?P<h>\d{1,8})H)?(?:(?P<m>\d{1,9})M)?(?:(?P<s>\d{1,10}(?:[.,]\d{1,6})?)S)?)?",
    re.ASCII,
)
_SECONDS = r"[0-9]{1,10}(?:[.,][0-9]{1,6})?S"
_MINUTES = rf"[0-9]{{1,9}}M(?:{_SECONDS})?"
_CLOCK = rf"T(?:[0-9]{{1,8}}H(?:{_MINUTES}|{_SECONDS})?|{_MINUTES}|{_SECONDS})"
_DAYS = r"(?:[0-9]{1,6}W(?:[0-9]{1,6}D)?|[0-9]{1,6}D)"
_ISO_DURATION = rf"P(?:{_DAYS}(?:{_CLOCK})?|{_CLOCK})"
_ISO_ONLY = f"^{_ISO_DURATION}$"
"""The pattern of nodes of 0.4 and before."""
_UNITS = {
    "w": 7 * DAY,
    "d": DAY,
    "h": HOUR,
    "m": MINUTE,
    "min": MINUTE,
    "s": SECOND,
    "ms": MILLISECOND,
}
_PIECE = r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(ms|min|w|d|h|m|s)"
SHORT_DURATION = f"{_PIECE}(?: ?{_PIECE})*".replace("(ms", "(?:ms").replace("([", "(?:[")
WRITTEN_DURATION = f"^(?:{_ISO_DURATION}|{SHORT_DURATION})$"
"""The texts that :func:`parse_duration` reads."""
DURATION_FORMAT = "duration-text"
"""The format of durations in JSON schemas; JSON Schema's own ``duration`` is ISO 8601 alone."""
_CALENDAR = re.compile(r"P(?:\d+Y|\d+M|\d+Y\d+M).*", re.ASCII)
_NO_T = re.compile(r"P(?:\d+D)?(?=\d+[HMS])(?:\d+[HMS])+", re.ASCII)
# datetime.fromisoformat also takes week dates, basic form and any separator: RFC 3339 does not.
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?P<offset>Z|[+-]\d\d:\d\d)?",
    re.ASCII | re.IGNORECASE,
)


def describes_duration(schema: Mapping[str, Any]) -> bool:
    """Return whether a JSON schema is that of a duration; nodes of 0.3 say so by its pattern."""
    return any(
        choice.get("pattern") == _ISO_ONLY or choice.get("format") in {DURATION_FORMAT, "duration"}
        for choice in (schema, *schema.get("anyOf", ()))
    )


def parse_duration(text: str, longest: int = LONGEST) -> int:
    """Parse ``PT1H30M`` or ``1h30m``, up to the longest duration (µs) that is accepted.

    :raises ValueError: the text is invalid; the message says what is wrong and what to write.
    """
    match = _DURATION.fullmatch(text)
    if match is not None:
        weeks, days, hours, minutes, rest = match.groups("0")
        total = (int(weeks) * 7 + int(days)) * DAY + int(hours) * HOUR + int(minutes) * MINUTE
        seconds, _, fraction = rest.replace(",", ".").partition(".")
        total += int(seconds) * SECOND + int(fraction.ljust(6, "0"))
    elif is_short_duration(text):
        pieces = re.findall(_PIECE, text)
        total = sum(round(float(number) * _UNITS[unit]) for number, unit in pieces)
    else:
        raise ValueError(_duration_fault(text))
    if total > longest:
        msg = f"is longer than {longest // DAY} days; write at most {duration_text(longest)}"
        raise ValueError(msg)
    return total


def is_short_duration(text: str) -> bool:
    """Return whether this is a duration in the short form, such as ``5m``."""
    return re.fullmatch(SHORT_DURATION, text) is not None


def _duration_fault(text: str) -> str:
    """Return what is wrong with a text that is no duration, and what to write."""
    if _CALENDAR.fullmatch(text):
        return "has months or years, which vary in length; use days (P30D) or a cron schedule"
    if _NO_T.fullmatch(text):
        days, _, clock = text[1:].rpartition("D")
        meant = f"P{days}{'D' if days else ''}T{clock}"
        if _DURATION.fullmatch(meant):
            return f"is not a duration; did you mean {meant}?"
    why = "has no unit" if text.replace(".", "", 1).isdecimal() else "is not a duration"
    return f"{why}; {DURATION_HINT}"


DURATION_HINT = "write 30s, 5m, 1h30m, 2d or PT5M"


def format_duration(duration: int) -> str:
    """Format microseconds as ISO 8601: ``PT5M``, ``P1DT2H``, ``PT0.25S``; zero is ``PT0S``."""
    days, rest = divmod(duration, DAY)
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    seconds, fraction = divmod(rest, SECOND)
    text = f"{hours}H" * bool(hours) + f"{minutes}M" * bool(minutes)
    if seconds or fraction:
        decimals = f".{fraction:06d}".rstrip("0") if fraction else ""
        text += f"{seconds}{decimals}S"
    date = f"{days}D" * bool(days)
    if not text and not date:
        return "PT0S"
    return f"P{date}T{text}" if text else f"P{date}"


def duration_text(duration: int | str) -> str:
    """Return a duration in full: ``5 min``, ``1 h 30 min``, ``11.7 s``, ``200 ms``.

    A text is a duration of the API. What is printed can be typed again.
    """
    rest = parse_duration(duration) if isinstance(duration, str) else duration
    if 0 < rest < SECOND:
        return f"{rest / MILLISECOND:g} ms"
    words = []
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        count, rest = divmod(rest, size)
        words += [f"{count} {unit}"] if count else []
    if rest or not words:
        words.append(f"{rest / SECOND:.6f}".rstrip("0").rstrip(".") + " s")
    return " ".join(words)


_IN_SENTENCE = re.compile(
    r"(?<![\w:.-])P(?=\d|T\d)(?:\d+W)?(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?(?![\w-])",
    re.ASCII,
)


def with_durations_in_words(sentence: str) -> str:
    """Write the ISO 8601 durations inside a sentence as people read them.

    >>> with_durations_in_words("no PT16.25S free, asked again in PT5M")
    'no 16.25 s free, asked again in 5 min'
    """

    def in_words(match: re.Match[str]) -> str:
        try:
            return duration_text(match[0])
        except ValueError:
            return match[0]

    return _IN_SENTENCE.sub(in_words, sentence)


def parse_instant(text: str) -> int:
    """Parse RFC 3339 with an offset; raise :class:`ValueError`, which says what to write.

    Seconds may be omitted. Decimals below a microsecond are cut, so that clients that write
    nanoseconds are accepted.
    """
    match = _INSTANT.fullmatch(text)
    try:
        moment = datetime.fromisoformat(text.upper()) if match else None
    except ValueError:
        moment = None
    if match is None or moment is None:
        msg = "is not an RFC 3339 time; write 2026-12-01T00:00:00Z"
        raise ValueError(msg)
    if match["offset"] is None:
        msg = "has no offset from UTC; write 2026-12-01T00:00:00Z"
        raise ValueError(msg)
    instant = from_datetime(moment)
    if not EARLIEST <= instant < LATEST:
        msg = "is outside 2000 to 2100"
        raise ValueError(msg)
    return instant


def format_instant(instant: int) -> str:
    """Format an instant as RFC 3339 in UTC: ``2026-12-01T00:00:00Z``, decimals only if needed."""
    moment = to_datetime(instant)
    text = moment.isoformat().removesuffix("+00:00")
    return f"{text.rstrip('0') if moment.microsecond else text}Z"


def to_the_second(instant: int) -> str:
    """Format an instant for sentences: RFC 3339, cut to whole seconds."""
    return format_instant(instant - instant % SECOND)


def to_datetime(instant: int) -> datetime:
    """Convert an instant to an aware datetime in UTC."""
    return EPOCH + timedelta(microseconds=instant)


def from_datetime(moment: datetime) -> int:
    """Convert an aware datetime to microseconds, exactly."""
    return (moment - EPOCH) // timedelta(microseconds=1)
