"""From a task's schedule as posted to its recurrence: the defaults, and what they hang on."""

from __future__ import annotations

from node.model import times
from node.model.recurrence import Recurrence, next_nominal
from node.model.wire.tasks import Schedule

IMMEDIATE_START_DELAY = 2 * times.SECOND
"""A task without a start has its first nominal start so long after its creation: time to agree."""

_SLIP_LEAST = 30 * times.SECOND
_SLIP_MOST = 5 * times.MINUTE


def default_slip(schedule: Schedule) -> int:
    """A tenth of the interval, at least PT30S and at most PT5M; PT5M for a single run and cron."""
    if schedule.slip is not None:
        return schedule.slip
    if schedule.repeat is None:
        return _SLIP_MOST
    return min(_SLIP_MOST, max(_SLIP_LEAST, schedule.repeat // 10))


def recurrence_of(schedule: Schedule, created_at: int) -> Recurrence:
    """The nominal starts of a task created then."""
    return Recurrence(
        anchor=schedule.start if schedule.start is not None else created_at + IMMEDIATE_START_DELAY,
        repeat=schedule.repeat,
        cron=schedule.cron,
        timezone=schedule.timezone,
        until=schedule.until,
        slip=default_slip(schedule),
    )


def first_slot(recurrence: Recurrence, now: int) -> int | None:
    """The first nominal start worth planning: a single one even if past, else the next to come."""
    if recurrence.repeat is None and recurrence.cron is None:
        return recurrence.anchor
    return next_nominal(recurrence, max(now, recurrence.anchor - 1))
