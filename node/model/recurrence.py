"""The nominal starts of a task, and how far each run may slip.

A *nominal start* is the instant at which a run should start if nothing is in its way; the run
itself may start up to its slip later. Nominal starts depend on the schedule alone, never on the
outcome of earlier runs, so a run that slipped does not shift the ones after it.

- **Once** (neither ``repeat`` nor ``cron``): one nominal start, the anchor.
- **Interval** (``repeat``): the anchor and every whole number of intervals after it.
- **After another task** (``follows``): the ends of that task's runs; nobody knows them in advance.
- **Cron**: the firings of the expression in its zone (:mod:`node.model.cron`), none before the
  anchor. The anchor bounds them; it is a nominal start only if the expression fires there.

Instants and durations are microseconds (:mod:`node.model.times`); there is no nominal start at or
after ``until``, nor after the year 2099.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, takewhile

from node.model import times
from node.model.cron import firing_range, firings, parse_cron, zone_of
from node.model.errors import FieldFault


@dataclass(frozen=True)
class Recurrence:
    """The schedule of a task.

    ``anchor`` is the task's start, or, for a task without a start, an instant fixed at its
    creation. At most one of ``repeat`` (a duration) and ``cron`` is set; ``timezone`` belongs to
    ``cron`` and is UTC if absent. ``until`` is an instant, ``slip`` a duration. With ``follows``,
    nominal starts are where runs of another task end, and the schedule has only a slip.
    :func:`recurrence_faults`
    checks all this; the other functions rely on it, and raise :class:`ValueError` for an
    expression or a zone that cannot be parsed.
    """

    anchor: int
    repeat: int | None = None
    cron: str | None = None
    timezone: str | None = None
    until: int | None = None
    slip: int = 0
    follows: bool = False


def nominal_starts(recurrence: Recurrence, after: int, before: int, limit: int) -> list[int]:
    """Return the nominal starts ``n`` with ``after < n < before``, ascending, at most ``limit``.

    Both bounds are excluded, so that the last nominal start planned is the next ``after``. The cost
    depends on ``limit``, not on the distance of the anchor or of ``before``.
    """
    return list(_starts(recurrence, after, before, limit))


def _starts(recurrence: Recurrence, after: int, before: int, limit: int) -> Sequence[int]:
    """Return what :func:`nominal_starts` does; of an interval as a ``range``, at no cost."""
    if recurrence.follows:
        return []
    before = min(before, times.LATEST)
    if recurrence.until is not None:
        before = min(before, recurrence.until)
    earliest = max(after + 1, recurrence.anchor)
    if earliest >= before or limit <= 0:
        return []
    if recurrence.cron is not None:
        starts = firings(parse_cron(recurrence.cron), zone_of(recurrence.timezone), earliest - 1)
        return list(islice(takewhile(lambda start: start < before, starts), limit))
    if recurrence.repeat is not None:
        behind = (earliest - recurrence.anchor) % recurrence.repeat
        first = earliest + (recurrence.repeat - behind if behind else 0)
        return range(first, before, recurrence.repeat)[:limit]
    return [recurrence.anchor] if earliest == recurrence.anchor else []


@dataclass(frozen=True)
class SlotRange:
    """All nominal starts of a task from the first to the last one, and their number."""

    first: int
    last: int
    slots: int


def nominal_range(
    recurrence: Recurrence, after: int, before: int, limit: int | None = None
) -> SlotRange | None:
    """Return the nominal starts ``n`` with ``after < n < before`` as a range; None if none is.

    With ``limit`` these are the first ones only, at most so many. The cost does not depend on the
    number of nominal starts of an interval. A cron expression is walked through day by day.
    """
    if recurrence.cron is not None and limit is None and not recurrence.follows:
        until = times.LATEST if recurrence.until is None else recurrence.until
        earliest = max(after, recurrence.anchor - 1)
        cron, zone = parse_cron(recurrence.cron), zone_of(recurrence.timezone)
        found = firing_range(cron, zone, earliest, min(before, until, times.LATEST))
        return None if found is None else SlotRange(*found)
    starts = _starts(recurrence, after, before, times.LATEST if limit is None else limit)
    return SlotRange(starts[0], starts[-1], len(starts)) if starts else None


def next_nominal(recurrence: Recurrence, after: int) -> int | None:
    """Return the first nominal start strictly later than ``after``, or None."""
    return next(iter(nominal_starts(recurrence, after, times.LATEST, 1)), None)


def interval_after(recurrence: Recurrence, nominal: int) -> int | None:
    """Return the mean of the two intervals after a nominal start (µs); None without repetition.

    What was measured then is stale after twice as long: when the second nominal start after it has
    passed. They count even if ``until`` excludes them.
    """
    following = nominal_starts(replace(recurrence, until=None), nominal, times.LATEST, 2)
    return (following[1] - nominal) // 2 if len(following) > 1 else None


def slip_of(recurrence: Recurrence, duration: int, nominal: int) -> int:
    """Return how much later than ``nominal`` a run of ``duration`` may start (µs).

    The slip is cut so that the run never reaches into the next interval, however late it starts.
    The next interval counts even if ``until`` excludes it: the window of a run does not change
    when somebody moves the end of the task.
    """
    interval = recurrence.repeat
    if recurrence.cron is not None:
        following = next_nominal(replace(recurrence, until=None), nominal)
        interval = None if following is None else following - nominal
    if interval is None:
        return recurrence.slip
    return min(recurrence.slip, max(0, interval - duration))


def recurrence_faults(recurrence: Recurrence, duration: int, what: str = "run") -> list[FieldFault]:
    """Return the faults of a schedule whose ``what`` (run, reservation) takes ``duration``.

    Pointers are those of the task document (``/schedule/…``). Two combinations are refused that
    could be ignored, because the resulting schedule is hardly intended: ``until`` without
    repetition (probably ``repeat`` was forgotten, and there would be a single run), and
    ``timezone`` without ``cron``.
    """
    faults = _combination_faults(recurrence)
    if recurrence.slip < 0:
        faults.append(FieldFault("/schedule/slip", "is negative"))
    if recurrence.repeat is not None:
        faults += _repeat_faults(recurrence.repeat, duration, what)
    if recurrence.until is not None and recurrence.until <= recurrence.anchor:
        start = times.format_instant(recurrence.anchor)
        faults.append(FieldFault("/schedule/until", f"is not later than the start, {start}"))
    faults += _cron_faults(recurrence)
    if faults or recurrence.cron is None:
        return faults
    return _firing_faults(recurrence, duration, what)


def _combination_faults(recurrence: Recurrence) -> list[FieldFault]:
    """Return faults for fields that exclude or require each other."""
    faults = []
    if recurrence.cron is not None and recurrence.repeat is not None:
        faults.append(FieldFault("/schedule/cron", "excludes repeat; keep one of the two"))
    if recurrence.cron is None and recurrence.timezone is not None:
        detail = "is valid with cron only; start and until carry their own offset from UTC"
        faults.append(FieldFault("/schedule/timezone", detail))
    if recurrence.cron is None and recurrence.repeat is None and recurrence.until is not None:
        detail = (
            "needs repeat or cron; without them the task runs once, and slip says how late that "
            "run may start"
        )
        faults.append(FieldFault("/schedule/until", detail))
    return faults


def _repeat_faults(repeat: int, duration: int, what: str) -> list[FieldFault]:
    if repeat <= 0:
        return [FieldFault("/schedule/repeat", "is not longer than zero")]
    if repeat < duration:
        detail = (
            f"every {what} would overlap the next: repeat {times.duration_text(repeat)} is "
            f"shorter than the {what}, {times.duration_text(duration)}"
        )
        return [FieldFault("/schedule/repeat", detail)]
    return []


def _cron_faults(recurrence: Recurrence) -> list[FieldFault]:
    """Return faults for an expression or a zone that cannot be parsed."""
    faults = []
    try:
        zone_of(recurrence.timezone)
    except ValueError as error:
        faults.append(FieldFault("/schedule/timezone", str(error)))
    if recurrence.cron is not None:
        try:
            parse_cron(recurrence.cron)
        except ValueError as error:
            faults.append(FieldFault("/schedule/cron", str(error)))
    return faults


def _firing_faults(recurrence: Recurrence, duration: int, what: str) -> list[FieldFault]:
    """Return faults for a valid expression that never fires or leaves no room for the run."""
    first = next_nominal(replace(recurrence, until=None), recurrence.anchor - 1)
    if first is None:
        return [FieldFault("/schedule/cron", "never fires: no day matches it before 2100")]
    if recurrence.until is not None and first >= recurrence.until:
        detail = f"nothing would run: cron first fires at {times.format_instant(first)}"
        return [FieldFault("/schedule/until", detail)]
    gap = _shortest_gap(recurrence)
    if gap is not None and gap < duration:
        detail = (
            f"{what}s would overlap: cron fires again after {times.duration_text(gap)}, and a "
            f"{what} takes {times.duration_text(duration)}"
        )
        return [FieldFault("/schedule/cron", detail)]
    return []


def _shortest_gap(recurrence: Recurrence) -> int | None:
    """Return the shortest time between two firings (µs), ignoring clock changes.

    One more firing than a day has covers every gap within a day; a few more cover those between
    days.
    """
    every_day = replace(recurrence, timezone=None, until=None)
    count = len(parse_cron(recurrence.cron or "").minutes) + 8
    starts = nominal_starts(every_day, recurrence.anchor - 1, times.LATEST, count)
    return min((later - earlier for earlier, later in pairwise(starts)), default=None)
