"""Conversion of a task's posted schedule to its recurrence, with the defaults."""

from __future__ import annotations

from node.model import times
from node.model.errors import FieldFault, InvalidDocument
from node.model.recurrence import Recurrence, next_nominal, recurrence_faults
from node.model.wire.fields import instant_of
from node.model.wire.tasks import Schedule, ScheduleDocument, ScheduleTerms

IMMEDIATE_START_DELAY = 2 * times.SECOND
"""Delay from a task's creation to its first nominal start, if it has no start: time to agree."""

_SLIP_LEAST = 30 * times.SECOND
_SLIP_MOST = 5 * times.MINUTE


def default_slip(schedule: Schedule) -> int:
    """Return a tenth of the interval, PT30S to PT5M; PT5M for a single run and for cron.

    A task that follows another one has the time within which its runs must start.
    """
    if schedule.after is not None:
        return schedule.after.within
    if schedule.slip is not None:
        return schedule.slip
    if schedule.repeat is None:
        return _SLIP_MOST
    return min(_SLIP_MOST, max(_SLIP_LEAST, schedule.repeat // 10))


def spread_evenly(schedule: ScheduleDocument, duration: int, now: int) -> ScheduleTerms:
    """Return the schedule of ``samples`` runs by a deadline; one without samples as it is.

    The time from now on, or from its start, is divided into as many equal parts of whole seconds.
    Each run may start whenever it ends within its part: what finds no time at once is made up for,
    and all is over by the deadline.

    :raises InvalidDocument: so many runs that take ``duration`` (µs) do not fit.
    """
    if schedule.samples is None or schedule.until is None:
        return schedule
    first = now + IMMEDIATE_START_DELAY
    if schedule.start is not None:
        first = max(first, instant_of(schedule.start, now))
    until, least = instant_of(schedule.until, now), max(duration, times.SECOND)
    part = (until - first) // schedule.samples // times.SECOND * times.SECOND
    if part < least:
        fit = max(0, (until - first) // least)
        detail = (
            f"{schedule.samples} runs of {times.duration_text(duration)} do not fit from "
            f"{times.to_the_second(first)} until {times.to_the_second(until)}; {fit} do"
        )
        raise InvalidDocument([FieldFault("/schedule/samples", detail)])
    return ScheduleTerms(
        start=None if schedule.start is None else first,
        repeat=part,
        until=first + schedule.samples * part,
        max_runs=schedule.samples,
        slip=part - duration,
        slip_random=schedule.slip_random,
        retry=schedule.retry,
        displacement_budget=schedule.displacement_budget,
    )


def recurrence_of(schedule: Schedule, created_at: int) -> Recurrence:
    """Return the nominal starts of a task created at ``created_at``."""
    if schedule.after is not None:
        return Recurrence(anchor=created_at, slip=schedule.after.within, follows=True)
    return Recurrence(
        anchor=schedule.start if schedule.start is not None else created_at + IMMEDIATE_START_DELAY,
        repeat=schedule.repeat,
        cron=schedule.cron,
        timezone=schedule.timezone,
        until=schedule.until,
        slip=default_slip(schedule),
    )


def first_slot(recurrence: Recurrence, now: int) -> int | None:
    """Return the first nominal start to plan: a single one even if past, else the next one."""
    if recurrence.repeat is None and recurrence.cron is None:
        return recurrence.anchor
    return next_nominal(recurrence, max(now, recurrence.anchor - 1))


def schedule_faults(schedule: ScheduleTerms, now: int) -> list[FieldFault]:
    """Return why a schedule has no run to come; pointers are as in a task."""
    recurrence = recurrence_of(schedule.at(now), now)
    faults = recurrence_faults(recurrence, 0)
    if faults:
        return faults
    slot = first_slot(recurrence, now)
    if slot is None:
        return [FieldFault("/schedule", "has no future run")]
    if slot + recurrence.slip < now:
        return [FieldFault("/schedule/start", "and its slip are in the past")]
    return []
