"""Cron expressions in a time zone: when they fire, correct on days when clocks change.

Five fields (minute, hour, day of month, month, day of week), names and ``L``, ``LW``, ``#`` as in
Debian's cron and cronsim. cronsim parses the expression and knows the calendar. The walk over the
days is implemented here: cronsim 2.8 steps by whole hours, so it loses up to an hour of runs where
clocks change by half an hour (Australia/Lord_Howe), and in the repeated hour of autumn it can
return an instant before the one that it was given.

Two rules, those of Debian's cron, say what happens when clocks change:

- An expression of *set times* (neither minute nor hour begins with ``*``) fires once for each time
  it names. A time that the clock skips fires at the first instant after the gap; a time that the
  clock shows twice fires at the first.
- An expression of *steps* (``*/20 * * * *``) fires in every matching minute that really happens:
  not in skipped ones, and in both passes of repeated ones.

The walk takes one local day at a time. Nearly every day is 24 hours long, as is the day before it:
the clock did not change, and instants are plain sums. The few other days are computed time by time.
(No zone changes its offset twice within two days; this was checked for the 599 zones of the tz
database from 2000 on.)
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from node.model import times
from node.model.similar import similar_words

MINUTES_OF_HOUR = 60
FIELDS = 5

_ONE_DAY = timedelta(days=1)
_ONE_MINUTE = timedelta(minutes=1)
_LAST_DAY = times.to_datetime(times.LATEST).date()
_EXPRESSION = re.compile(r"[0-9A-Za-z*,/#-]{1,200}(?: [0-9A-Za-z*,/#-]{1,200})*", re.ASCII)
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}", re.ASCII)
_LONGEST_ZONE = 64
# Files beside the zones: with leap seconds, or with a different meaning on every host.
_NOT_ZONES = re.compile(r"(?:right|posix)/.*|localtime|posixrules|Factory", re.ASCII)


@dataclass(frozen=True, eq=False)
class Cron:
    """A parsed cron expression.

    ``minutes`` are minutes of the day, ascending; ``set_times`` chooses between the two rules
    above; ``calendar`` matches days.
    """

    minutes: tuple[int, ...]
    set_times: bool
    calendar: CronSim

    def matches(self, day: date) -> bool:
        """Return whether the expression names times on this day."""
        return day.month in self.calendar.months and self.calendar.match_day(day)


@lru_cache(maxsize=1024)
def parse_cron(expression: str) -> Cron:
    """Parse five fields; raise :class:`ValueError`, saying what to write, if they are invalid."""
    fields = expression.split()
    if len(fields) != FIELDS:
        msg = (
            f"has {len(fields)} fields; write five: minute, hour, day of month, month, "
            'day of week, such as "*/15 * * * *" (for less than a minute use repeat)'
        )
        raise ValueError(msg)
    if not _EXPRESSION.fullmatch(" ".join(fields)):
        msg = "contains characters that are not allowed in a cron expression"
        raise ValueError(msg)
    try:
        # Without a zone cronsim does no clock arithmetic; its start does not matter.
        calendar = CronSim(" ".join(fields), times.EPOCH.replace(tzinfo=None))
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        msg = f'the {field} is not valid; write five fields such as "30 2 * * MON-FRI"'
        raise ValueError(msg) from None
    minutes = (h * MINUTES_OF_HOUR + m for h in calendar.hours for m in calendar.minutes)
    return Cron(
        minutes=tuple(sorted(minutes)),
        set_times=not (fields[0].startswith("*") or fields[1].startswith("*")),
        calendar=calendar,
    )


def zone_of(name: str | None) -> tzinfo:
    """Return the zone of this name, UTC for None; raise :class:`ValueError` if it is unknown."""
    if name is None or name == "UTC":
        return UTC
    zone_like = len(name) <= _LONGEST_ZONE and _ZONE.fullmatch(name)
    try:
        zone = ZoneInfo(name) if zone_like and not _NOT_ZONES.fullmatch(name) else None
    except (ZoneInfoNotFoundError, ValueError, IsADirectoryError):
        # No such file; a file that is not a zone; "America" where the package tzdata is installed.
        zone = None
    if zone is None:
        near = similar_words(name, _zone_names())
        hint = f"did you mean {' or '.join(near)}?" if near else f"write {_ZONE_FORM}"
        raise ValueError(f"no such time zone; {hint}")
    return zone


_ZONE_FORM = "a name of the tz database such as Europe/Berlin"


@lru_cache(maxsize=1)
def _zone_names() -> list[str]:
    return sorted(available_timezones())


def firings(cron: Cron, zone: tzinfo, after: int) -> Iterator[int]:
    """Yield instants strictly later than ``after``, ascending, distinct, up to the year 2100."""
    for of_day in _firings_by_day(cron, zone, after, _LAST_DAY):
        yield from of_day[bisect_right(of_day, after) :]


def _local_day(zone: tzinfo, instant: int) -> date:
    return times.to_datetime(instant).astimezone(zone).date()


def _firings_by_day(
    cron: Cron, zone: tzinfo, after: int, last_day: date
) -> Iterator[tuple[int, ...]]:
    """Yield the firings of the local day of ``after`` and of later ones, up to the last day."""
    day = _local_day(zone, after)
    while day <= min(last_day, _LAST_DAY):
        yield _firings_of(cron, zone, day)
        day += _ONE_DAY
        # Visit the first of each month: a time skipped at the end of the last month may move there.
        if day.day > 1 and day.month not in cron.calendar.months:
            day = (day.replace(day=1) + 31 * _ONE_DAY).replace(day=1)


def firing_range(cron: Cron, zone: tzinfo, after: int, before: int) -> tuple[int, int, int] | None:
    """Return the first firing between two instants (both excluded), the last, and their number.

    None means that there is none. The firings of a day are counted together.
    """
    first = last = None
    count = 0
    for of_day in _firings_by_day(cron, zone, after, _local_day(zone, before)):
        begin, end = bisect_right(of_day, after), bisect_left(of_day, before)
        if begin < end:
            first = of_day[begin] if first is None else first
            last = of_day[end - 1]
            count += end - begin
    return None if first is None or last is None else (first, last, count)


@lru_cache(maxsize=128)  # the lead asks for the runs of a day one after another
def _firings_of(cron: Cron, zone: tzinfo, day: date) -> tuple[int, ...]:
    """Return the firings from the start of this local day to the start of the next, ascending.

    These stretches partition the time line: no firing is counted twice or missed.
    """
    matching = [near for near in (day - _ONE_DAY, day) if cron.matches(near)]
    if not matching:
        return ()
    before, start, end = (_midnight(zone, day + shift * _ONE_DAY) for shift in (-1, 0, 1))
    if end - start == start - before == times.DAY:
        minutes = cron.minutes if day in matching else ()
        return tuple(start + minute * times.MINUTE for minute in minutes)
    # Clocks change: times of the day before, skipped or shown again, may fall into this stretch.
    instants = {instant for each in matching for instant in _firings_time_by_time(cron, zone, each)}
    return tuple(sorted(instant for instant in instants if start <= instant < end))


def _firings_time_by_time(cron: Cron, zone: tzinfo, day: date) -> Iterator[int]:
    """Yield the firings of the times named for this local day, in any order."""
    midnight = datetime.combine(day, time(), tzinfo=zone)
    for minute in cron.minutes:
        shown = midnight + minute * _ONE_MINUTE
        first, second = _readings(shown)
        if first <= second:
            yield first
            if not cron.set_times:
                yield second
        elif cron.set_times:
            yield _after_gap(shown)


def _readings(shown: datetime) -> tuple[int, int]:
    """Return both readings of a clock's face.

    They are equal in general, ascending if the time is shown twice, and descending if skipped.
    """
    return times.from_datetime(shown.replace(fold=0)), times.from_datetime(shown.replace(fold=1))


def _after_gap(shown: datetime) -> int:
    """Return the first instant at which the clock shows this time or a later one."""
    first, second = _readings(shown)
    while first > second:
        shown += _ONE_MINUTE
        first, second = _readings(shown)
    return first


@lru_cache(maxsize=1024)
def _midnight(zone: tzinfo, day: date) -> int:
    """Return the first instant of the local day."""
    return _after_gap(datetime.combine(day, time(), tzinfo=zone))
