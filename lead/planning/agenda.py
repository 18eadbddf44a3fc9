"""The slots of a task to plan now, and when to plan it again.

A *slot* is a nominal start of the task. All slots up to the horizon are planned together; slots
that found no time before are retried first. Pure: instants in microseconds are arguments.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile

from lead.planning.unreachable import jittered_pause
from node.model import times
from node.model.attempts import last_start
from node.model.gaps import closed_slots, split
from node.model.recurrence import Recurrence, SlotRange, next_nominal, nominal_starts, slip_of
from node.model.wire.tasks import RetryTerms

PAUSE_FIRST = 250 * times.MILLISECOND
PAUSE_MAX = 5 * times.MINUTE
REFILL_SHARE = 8
"""The share of the horizon (1/8) after which a repeating task is planned again, in batches."""


@dataclass(frozen=True)
class Limits:
    """The bounds of one planning of a task: horizon and margin in µs, batch in slots."""

    horizon: int
    margin: int
    batch: int


@dataclass(frozen=True)
class Slot:
    """One slot to plan: its window, half-open, and the number of the attempt.

    ``again`` if an earlier attempt came to nothing.
    """

    nominal: int
    attempt: int
    start: int
    end: int
    again: bool = False

    def latest_start(self, duration: int) -> int:
        """Return the latest instant at which a run of this slot may start."""
        return self.end - duration


@dataclass(frozen=True)
class Agenda:
    """The slots to plan now (by start), those that are too late, and the first slot for later.

    ``beyond`` are waiting slots whose windows are no longer within the horizon: they are planned
    when they enter it again. ``gaps`` are the slots that are too late and were never planned, if
    there are many of them.
    """

    slots: tuple[Slot, ...]
    too_late: tuple[Slot, ...]
    planned_to: int | None
    next_slot: int | None
    full: bool
    beyond: tuple[Slot, ...] = ()
    found: Sequence[int] = ()
    """Start instants found before, as in the progress."""
    gaps: tuple[SlotRange, ...] = ()


@dataclass(frozen=True)
class PlanningProgress:
    """The progress of a task's planning.

    Slots are planned up to ``planned_to``. Some of them are ``waiting`` (nominal start and
    attempt); beside these the task may have ``remaining`` more runs (None: no limit). Waiting slots
    are retried first, a batch at a time. Later slots may have had runs before the task was changed:
    ``touched`` has their next attempt, or None if none may follow. ``found`` are instants (sorted)
    that an earlier search found possible as starts. ``told`` are later slots of which a run
    tells, so that they are in no gap. ``failed_at`` has, by waiting slot, when an earlier attempt
    of it came to nothing, and ``retry`` how such a slot is tried again.
    """

    first_slot: int
    planned_to: int | None
    waiting: Sequence[tuple[int, int]]
    remaining: int | None
    touched: Mapping[int, int | None] = field(default_factory=dict)
    found: Sequence[int] = ()
    told: Collection[int] = ()
    failed_at: Mapping[int, int] = field(default_factory=dict)
    retry: RetryTerms = field(default_factory=RetryTerms)


def agenda(
    recurrence: Recurrence, duration: int, standing: PlanningProgress, limits: Limits, now: int
) -> Agenda:
    """Return the slots to plan at ``now``.

    A slot whose window is over uses up no run of the task: another one takes its place.
    """
    soonest = now + limits.margin
    entry = _Entry(duration, limits.horizon, standing.found)
    all_waiting = [
        _slot(recurrence, duration, at, attempt)
        if (failed_at := standing.failed_at.get(at)) is None
        else _further_slot(recurrence, standing.retry, duration, (at, attempt), failed_at)
        for at, attempt in standing.waiting
    ]
    entered = [slot for slot in all_waiting if entry.at(slot) <= now]
    waiting = entered[: limits.batch]
    room = max(0, limits.batch - len(waiting))
    begin = standing.first_slot - 1 if standing.planned_to is None else standing.planned_to
    remaining = standing.remaining
    if remaining is not None:
        remaining += _count_late(waiting, duration, soonest)
    waiting_starts = {slot.nominal for slot in all_waiting}
    closed = closed_slots(recurrence, duration, begin, soonest, now) if remaining != 0 else None
    after = begin if closed is None else closed.last
    reached = list(islice(_slots_entered(recurrence, entry, limits.batch, after, now), room))
    fresh = list(_slots_untouched(reached, standing.touched))
    last = reached[-1].nominal if reached else after
    if remaining is not None:
        allowed = remaining + _count_late(fresh, duration, soonest)
        if allowed < len(fresh):
            fresh = fresh[:allowed]
            last = fresh[-1].nominal if fresh else after
        remaining -= len(fresh) - _count_late(fresh, duration, soonest)
    slots = waiting + [slot for slot in fresh if slot.nominal not in waiting_starts]
    following = None if remaining == 0 else next_nominal(recurrence, last)
    return Agenda(
        slots=tuple(
            sorted((s for s in slots if s.latest_start(duration) >= soonest), key=_by_start)
        ),
        too_late=tuple(s for s in slots if s.latest_start(duration) < soonest),
        planned_to=standing.planned_to if last == begin else last,
        next_slot=following,
        full=len(entered) > len(waiting)
        or (following is not None and entry.at(_slot(recurrence, duration, following, 1)) <= now),
        beyond=tuple(slot for slot in all_waiting if entry.at(slot) > now),
        found=standing.found,
        gaps=() if closed is None else split(recurrence, closed, {*waiting_starts, *standing.told}),
    )


def _slots_entered(
    recurrence: Recurrence, entry: _Entry, batch: int, after: int, now: int
) -> Iterator[Slot]:
    """Yield at most a batch of slots after ``after`` that are within the horizon by ``now``."""
    starts = nominal_starts(recurrence, after, now + entry.horizon + 1, batch)
    slots = (_slot(recurrence, entry.duration, at, 1) for at in starts)
    return takewhile(lambda slot: entry.at(slot) <= now, slots)


def _slots_untouched(reached: Sequence[Slot], touched: Mapping[int, int | None]) -> Iterator[Slot]:
    """Yield the slots that may have another run, with their attempts."""
    for slot in reached:
        attempt = touched.get(slot.nominal, 1)
        if attempt is not None:
            yield replace(slot, attempt=attempt)


@dataclass(frozen=True)
class _Entry:
    """The rule for when slots enter the horizon, for runs of one duration."""

    duration: int
    horizon: int
    found: Sequence[int]

    def at(self, slot: Slot) -> int:
        """Return the instant from which the slot may be planned.

        That is when its whole window lies within the horizon. A window longer than the horizon is
        planned part by part, from shortly before it begins. A slot for which a start is known is
        planned as soon as that run can be booked, because others want its time too.
        """
        enters_at = min(slot.end - self.horizon, slot.start - self.horizon // REFILL_SHARE)
        index = bisect_left(self.found, slot.start)
        if index == len(self.found) or self.found[index] > slot.latest_start(self.duration):
            return enters_at
        return min(enters_at, self.found[index] + self.duration - self.horizon)


def _count_late(slots: Sequence[Slot], duration: int, soonest: int) -> int:
    """Return how many slots use up no run: a slot whose earlier attempt took place has used one."""
    return sum(slot.latest_start(duration) < soonest and not slot.again for slot in slots)


def _slot(recurrence: Recurrence, duration: int, nominal: int, attempt: int) -> Slot:
    slip = slip_of(recurrence, duration, nominal)
    return Slot(nominal, attempt, nominal, nominal + duration + slip)


def _further_slot(
    recurrence: Recurrence, retry: RetryTerms, duration: int, of: tuple[int, int], failed_at: int
) -> Slot:
    """Return a slot whose earlier attempt came to nothing, which may start some time after that."""
    nominal, attempt = of
    end = last_start(recurrence, retry, duration, nominal) + duration
    start = min(max(nominal, failed_at + retry.after), end - duration)
    return Slot(nominal, attempt, start, end, again=True)


def _by_start(slot: Slot) -> tuple[int, int]:
    return slot.start, slot.nominal


def plan_next_at(
    recurrence: Recurrence, duration: int, planned: Agenda, limits: Limits, unplaced: int, now: int
) -> int | None:
    """Return when to plan the task's next unplanned slots; None if there are none.

    Return None also while ``unplaced`` slots fill more than half of a batch: later slots follow
    when these are retried. Otherwise a task for which no participant has time would be planned
    without a pause.
    """
    entry = _Entry(duration, limits.horizon, planned.found)
    again = min((entry.at(slot) for slot in planned.beyond), default=None)
    if planned.full:
        return again if 2 * unplaced > limits.batch else now
    if planned.next_slot is None:
        return again
    enters = entry.at(_slot(recurrence, duration, planned.next_slot, 1))
    following = next_nominal(recurrence, planned.next_slot)
    refill = limits.horizon // REFILL_SHARE
    if following is not None and 2 * (following - planned.next_slot) <= refill:
        enters += refill
    return max(now, enters if again is None else min(enters, again))


def try_again_at(
    waiting: Sequence[Slot],
    duration: int,
    failures: int,
    now: int,
    rng: random.Random,
    later: Mapping[int, int] | None = None,
) -> int | None:
    """Return when to retry slots that found no time: after growing, jittered pauses.

    The pause doubles from a quarter of a second with each failure in a row, up to five minutes, and
    is drawn between half of it and all of it. It never exceeds the earliest deadline of the slots.
    ``later`` has, by nominal start, the instants from which on a node may have time.
    """
    if not waiting:
        return None
    drawn = now + jittered_pause(PAUSE_FIRST, PAUSE_MAX, failures, rng)
    ask_at = min(max(drawn, (later or {}).get(slot.nominal, drawn)) for slot in waiting)
    return max(now, min(ask_at, earliest_deadline(waiting, duration)))


def earliest_deadline(waiting: Sequence[Slot], duration: int) -> int:
    """Return the instant after which the first of these slots cannot start any more."""
    return min(slot.latest_start(duration) for slot in waiting)
