"""Parse times as people type them, and format them as people read them.

What may be typed is in :mod:`node.model.times` and :mod:`node.model.moments`. Printed: instants in
the zone of the terminal with their offset, which can be typed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from node.model import moments, times
from node.model.moments import Moment
from node.model.times import with_durations_in_words

T = TypeVar("T")


def parse_duration(text: str) -> int:
    """Parse ``5m``, ``1h30m`` or ``PT5M``; return microseconds.

    :raises ValueError: the text is not a duration; the message says what to write.
    """
    return _quoting(text, times.parse_duration)


def parse_moment(text: str, toward: int = 0) -> Moment:
    """Parse a time as :func:`node.model.moments.parse_moment` does.

    :raises ValueError: the text is not a time; the message says what to write.
    """
    return _quoting(text, lambda stripped: moments.parse_moment(stripped, toward))


def _quoting(text: str, parse: Callable[[str], T]) -> T:
    """Parse a text as typed; an error begins with what was typed."""
    try:
        return parse(text.strip())
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None


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

    def __init__(self, toward: int = 0) -> None:
        self._toward = toward

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        if isinstance(value, Moment):
            return value
        try:
            return parse_moment(value, self._toward)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def api_instant(moment: Moment | None, now: int) -> str | None:
    """Return what was typed as the API writes instants; None if nothing was."""
    return None if moment is None else times.format_instant(moment.at(now))


DURATION = _Duration()
SECONDS = _Seconds()


MOMENT = _Moment()
PAST_MOMENT = _Moment(toward=-1)
"""A time at which a bare duration means the past: ``2h`` is two hours ago."""
COMING_MOMENT = _Moment(toward=1)
"""A time at which a bare duration means the future, and ``10:05`` the next one."""


def local_time_text(instant: int | str | None) -> str:
    """Return an instant in the terminal's zone, such as ``2026-12-01 01:00:00+01:00``."""
    if instant is None:
        return ""
    if isinstance(instant, str):
        instant = times.parse_instant(instant)
    moment = times.to_datetime(instant).astimezone().replace(microsecond=0)
    return moment.isoformat(" ").replace("+00:00", "Z")


_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)


def with_local_times(sentence: str) -> str:
    """Write the instants and durations inside a sentence of the API as people read them.

    >>> with_local_times("no PT16.25S free, asked again in PT5M")
    'no 16.25 s free, asked again in 5 min'
    """
    with_instants = _INSTANT.sub(_local_time_or_text, sentence)
    return with_durations_in_words(with_instants)


def _local_time_or_text(match: re.Match[str]) -> str:
    """Return an instant as :func:`local_time_text` does; the text itself if it is none."""
    try:
        return local_time_text(match[0])
    except ValueError:
        return match[0]


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
