"""Parse times as people type them, and format them as people read them.

Typed: ``5m``, ``1h30m``, ``PT5M`` for a duration; RFC 3339, ``now``, ``+1h``, ``-30m`` or ``@1h``
(the next full hour) for an instant. Printed: instants in the zone of the terminal with their
offset, which can be typed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from node.model import times

_UNITS = {
    "w": 7 * times.DAY,
    "d": times.DAY,
    "h": times.HOUR,
    "m": times.MINUTE,
    "min": times.MINUTE,
    "s": times.SECOND,
    "ms": times.MILLISECOND,
}
_PIECE = re.compile(r"(?P<number>\d{1,12}(?:\.\d{1,6})?) ?(?P<unit>ms|min|w|d|h|m|s)", re.ASCII)
_PIECES = re.compile(r"(?:\d{1,12}(?:\.\d{1,6})? ?(?:ms|min|w|d|h|m|s) ?)+", re.ASCII)
_HINT = "write 30s, 5m, 1h30m, 2d or PT5M"


def parse_duration(text: str) -> int:
    """Parse ``5m``, ``1h30m`` or ``PT5M``; return microseconds.

    :raises ValueError: the text is not a duration; the message says what to write.
    """
    text = text.strip()
    if text.startswith("P"):
        return times.parse_duration(text)
    if not _PIECES.fullmatch(text):
        why = "has no unit" if text.replace(".", "", 1).isdecimal() else "is not a duration"
        raise ValueError(f"{text!r} {why}; {_HINT}")
    total = sum(
        round(float(piece["number"]) * _UNITS[piece["unit"]]) for piece in _PIECE.finditer(text)
    )
    if total > times.LONGEST:
        raise ValueError(f"{text!r} is longer than 366 days")
    return total


def looks_like_duration(text: str) -> bool:
    """Return whether this is a duration in the short form, such as ``5m``."""
    return _PIECES.fullmatch(text) is not None


@dataclass(frozen=True)
class Moment:
    """An instant as typed: fixed, relative to now, or the next full multiple of an interval."""

    instant: int | None = None
    offset: int = 0
    every: int | None = None

    def at(self, now: int) -> int:
        """Return the instant (µs) that was meant, if it is ``now``."""
        if self.every is not None:
            return times.moment_after(f"@{times.format_duration(self.every)}", now)
        return now + self.offset if self.instant is None else self.instant


def parse_moment(text: str) -> Moment:
    """Parse ``now``, ``+1h``, ``-30m``, ``@1h`` or RFC 3339.

    :raises ValueError: the text is not a time; the message says what to write.
    """
    text = text.strip()
    if text == "now":
        return Moment()
    if text.startswith("@"):
        if every := parse_duration(text[1:]):
            return Moment(every=every)
        raise ValueError(f"{text!r}: the interval is zero; write @1h for the next full hour")
    if text[:1] in {"+", "-"}:
        sign = -1 if text[0] == "-" else 1
        return Moment(offset=sign * parse_duration(text[1:]))
    if looks_like_duration(text):
        plain = text.replace(" ", "")
        msg = f"{text!r} is not a time; write -{plain} for the past, +{plain} for the future"
        raise ValueError(msg)
    try:
        return Moment(times.parse_instant(text))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}, or +10m for ten minutes from now") from None


class _Duration(click.ParamType[int]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Seconds(_Duration):
    """A duration for which a bare number means seconds, as in other programs' ``--timeout``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        bare = isinstance(value, str) and value.replace(".", "", 1).isdecimal()
        return super().convert(f"{value}s" if bare else value, param, ctx)


class _Moment(click.ParamType[Moment]):
    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        if isinstance(value, Moment):
            return value
        try:
            return parse_moment(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def api_instant(moment: Moment | None, now: int) -> str | None:
    """Return what was typed as the API writes instants; None if nothing was."""
    return None if moment is None else times.format_instant(moment.at(now))


DURATION = _Duration()
SECONDS = _Seconds()


class _PastMoment(_Moment):
    """A time at which a bare duration means the past: ``2h`` is two hours ago."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        bare = isinstance(value, str) and looks_like_duration(value.strip())
        return super().convert(f"-{value.strip()}" if bare else value, param, ctx)


MOMENT = _Moment()
PAST_MOMENT = _PastMoment()


def local_time_text(instant: int | str | None) -> str:
    """Return an instant in the terminal's zone, such as ``2026-12-01 01:00:00+01:00``."""
    if instant is None:
        return ""
    if isinstance(instant, str):
        instant = times.parse_instant(instant)
    moment = times.to_datetime(instant).astimezone().replace(microsecond=0)
    return moment.isoformat(" ").replace("+00:00", "Z")


def duration_text(duration: int | str) -> str:
    """Return a duration in full: ``5 min``, ``1 h 30 min``, ``11.7 s``, ``200 ms``.

    A text is a duration of the API. What is printed can be typed again.
    """
    rest = times.parse_duration(duration) if isinstance(duration, str) else duration
    if 0 < rest < times.SECOND:
        return f"{rest / times.MILLISECOND:g} ms"
    words = []
    for size, unit in ((times.DAY, "d"), (times.HOUR, "h"), (times.MINUTE, "min")):
        count, rest = divmod(rest, size)
        words += [f"{count} {unit}"] if count else []
    if rest or not words:
        words.append(f"{rest / times.SECOND:.6f}".rstrip("0").rstrip(".") + " s")
    return " ".join(words)


_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_ISO_DURATION = re.compile(
    r"(?<![\w:.-])P(?=\d|T\d)(?:\d+W)?(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?(?![\w-])",
    re.ASCII,
)


def with_local_times(sentence: str) -> str:
    """Write the instants and durations inside a sentence of the API as people read them.

    >>> with_local_times("no PT16.25S free, asked again in PT5M")
    'no 16.25 s free, asked again in 5 min'
    """
    with_instants = _INSTANT.sub(lambda match: _formatted_time(local_time_text, match[0]), sentence)
    return _ISO_DURATION.sub(lambda match: _formatted_time(duration_text, match[0]), with_instants)


def _formatted_time(form: Callable[[str], str], text: str) -> str:
    """Return a text as ``form`` formats it; unchanged if it is no time after all."""
    try:
        return form(text)
    except ValueError:
        return text


def clock_time(instant: int) -> str:
    """Format only the time of day, where the day is obvious."""
    return times.to_datetime(instant).astimezone().strftime("%H:%M:%S")


def duration_in_words(duration: int) -> str:
    """Format a duration briefly, for a status line: ``4 s``, ``12 min``, ``3 h 5 min``."""
    seconds = round(abs(duration) / times.SECOND)
    for size, name, smaller_size, smaller in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // smaller_size
            return f"{seconds // size} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds} s"
