"""Schedules of a template as ours. Pure.

A schedule that cannot be kept, or that is over, is refused as a whole: without one of its members
it would be another schedule, and a task whose interval cannot be read would run once, now. Months
and years have no fixed length, so they become cron fields, in UTC as all times of a template.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

from node.model import times
from node.model.moments import parse_moment
from node.model.scheduling import schedule_faults
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.tasks import ScheduleTerms
from node.model.wire.validation import faults_of
from node.pscheduler import times as their_times
from node.pscheduler.psconfig.template import Document

_MONTHS = re.compile(r"P(?:(\d{1,3})Y)?(?:(\d{1,3})M)?", re.ASCII)
_A_YEAR = 12
_DAY_MAX = 28
"""Every month has this day."""
_THEIRS = {"max_runs": "max-runs", "cron": "repeat-cron", "slip_random": "sliprand"}


class UnusableSchedule(Exception):
    """A schedule that no task of ours can have; ``member`` is what of it, empty for all of it."""

    def __init__(self, member: str, why: str) -> None:
        """``why`` is a part of a sentence."""
        super().__init__(why)
        self.member = member


def schedule_of(entry: Document, now: int) -> Document:
    """Return a schedule of ours for one of a template.

    :raises UnusableSchedule: it has no counterpart, or no run to come.
    """
    schedule: Document = {"slip": "PT0S"}
    readers = {"start": _moment, "until": _moment, "slip": _duration}
    for member, read in readers.items():
        if (value := entry.get(member)) is not None:
            schedule[member] = _read(member, value, read)
    schedule |= _interval(entry, schedule.get("start"), now)
    if entry.get("sliprand") is True:
        schedule["slip_random"] = True
    if (runs := entry.get("max-runs")) is not None:
        schedule["max_runs"] = runs
    schedule = _without_vain_end(schedule, now)
    _check(schedule, now)
    return schedule


def _read(member: str, value: Any, read: Any) -> str:
    try:
        return str(read(str(value)))
    except ValueError:
        raise UnusableSchedule(member, f"{value} has no counterpart") from None


def _interval(entry: Document, start: str | None, now: int) -> Document:
    """Return the fields that say how often."""
    if (cron := entry.get("repeat-cron")) is not None:
        return {"cron": str(cron)}
    if (repeat := entry.get("repeat")) is None:
        return {}
    found = _MONTHS.fullmatch(str(repeat))
    if found is None or not any(found.groups()):
        return {"repeat": _read("repeat", repeat, _duration)}
    months = _A_YEAR * int(found[1] or 0) + int(found[2] or 0)
    if not months or (months % _A_YEAR and _A_YEAR % months) or months > _A_YEAR:
        why = f"{repeat} has no counterpart: months that divide a year have one"
        raise UnusableSchedule("repeat", why)
    anchor = None if start is None else parse_moment(start, toward=1).at(now)
    return {"cron": _monthly(months, anchor)}


def _monthly(months: int, anchor: int | None) -> str:
    """Return the cron fields of every so many months from an instant on; of the first of a month.

    :raises UnusableSchedule: not every month has such a day.
    """
    if anchor is None:
        minute, hour, day, month = 0, 0, 1, 1
    else:
        first = times.to_datetime(anchor)
        minute, hour, day, month = first.minute, first.hour, first.day, first.month
    if day > _DAY_MAX and months < _A_YEAR:
        raise UnusableSchedule("start", f"is day {day}, which not every month has")
    names = [str(each) for each in range(1, _A_YEAR + 1) if (each - month) % months == 0]
    return f"{minute} {hour} {day} {'*' if months == 1 else ','.join(names)} *"


def _without_vain_end(schedule: Document, now: int) -> Document:
    """Return a schedule without an end that bounds nothing: that of a single run.

    :raises UnusableSchedule: it is over.
    """
    if (until := schedule.get("until")) is None:
        return schedule
    if (end := parse_moment(until, toward=1).at(now)) <= now:
        raise UnusableSchedule("until", f"is over since {times.to_the_second(end)}")
    if "repeat" in schedule or "cron" in schedule:
        return schedule
    return {name: value for name, value in schedule.items() if name != "until"}


def _check(schedule: Document, now: int) -> None:
    """Check that tasks can have a schedule, and that there are runs to come.

    :raises UnusableSchedule: there are none, or a field is beyond its bounds.
    """
    try:
        document = ScheduleTerms.model_validate(schedule, context=FROM_OUTSIDE)
        faults = schedule_faults(document, now)
    except ValidationError as error:
        faults = faults_of(error, ScheduleTerms)
    for fault in faults:
        member = fault.pointer.removeprefix("/schedule").removeprefix("/")
        raise UnusableSchedule(_THEIRS.get(member, member), fault.detail)


def _duration(text: str) -> str:
    return times.format_duration(their_times.parse_duration(text))


def _moment(text: str) -> str:
    if text.removeprefix("@").startswith("P"):
        parse_moment(text, toward=1)
        return text
    return times.format_instant(their_times.parse_instant(text))
