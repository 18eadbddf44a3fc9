"""Which slots of a task are asked for now, and when to plan it again.

A *slot* is a nominal start of the task. All slots up to the horizon are asked for together; slots
that found no time before wait and come first. Pure: instants in microseconds come in.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile

from lead.planning.unreachable import jittered_pause
from node.model import times
from node.model.recurrence import Recurrence, next_nominal, nominal_starts, slip_of

PAUSE_FIRST = 250 * times.MILLISECOND
PAUSE_MAX = 5 * times.MINUTE
REFILL_SHARE = 8
"""A repeating task is planned again once an eighth of the horizon is unplanned: in batches."""


@dataclass(frozen=True)
class Limits:
    """What bounds one planning of a task."""

    horizon: int
    margin: int
    batch: int


@dataclass(frozen=True)
class Slot:
    """One slot to ask for: the window it may be placed in, half-open, and which attempt it is."""

    nominal: int
    attempt: int
    start: int
    end: int

    def latest_start(self, duration: int) -> int:
        """The last instant at which a run of this slot may start."""
        return self.end - duration


@dataclass(frozen=True)
class Agenda:
    """What to ask for now (by start), what is too late, and the first slot left for later.

    ``beyond`` are slots that wait and whose windows are not within the horizon any more: they are
    asked for when they come in again.
    """

    slots: tuple[Slot, ...]
    too_late: tuple[Slot, ...]
    planned_to: int | None
    next_slot: int | None
    full: bool
    beyond: tuple[Slot, ...] = ()
    found: Sequence[int] = ()
    """As the standing has it."""


@dataclass(frozen=True)
class PlanningProgress:
    """Where the planning of a task is.

    Slots are done up to ``planned_to``; some of them wait (nominal start and attempt); beside these
    it may have ``remaining`` more runs (None: no limit). Of those that wait the first are asked for
    first, a batch at a time. Later slots may have had runs before the task was changed: ``touched``
    has the attempt that follows, or None if none may. ``found`` are instants (sorted) at which some
    can start, as was found out before.
    """

    first_slot: int
    planned_to: int | None
    waiting: Sequence[tuple[int, int]]
    remaining: int | None
    touched: Mapping[int, int | None] = field(default_factory=dict)
    found: Sequence[int] = ()


def agenda(
    recurrence: Recurrence, duration: int, standing: PlanningProgress, limits: Limits, now: int
) -> Agenda:
    """The slots to ask for at ``now``.

    A slot whose window is over uses up no run of the task: another one takes its place.
    """
    soonest = now + limits.margin
    entry = _Entry(duration, limits.horizon, standing.found)
    all_waiting = [_slot(recurrence, duration, at, attempt) for at, attempt in standing.waiting]
    entered = [slot for slot in all_waiting if entry.at(slot) <= now]
    waiting = entered[: limits.batch]
    room = max(0, limits.batch - len(waiting))
    after = standing.first_slot - 1 if standing.planned_to is None else standing.planned_to
    reached = list(islice(_entered(recurrence, entry, limits.batch, after, now), room))
    fresh = list(_untouched(reached, standing.touched))
    last = reached[-1].nominal if reached else after
    remaining = standing.remaining
    if remaining is not None:
        remaining += _late(waiting, duration, soonest)
        allowed = remaining + _late(fresh, duration, soonest)
        if allowed < len(fresh):
            fresh = fresh[:allowed]
            last = fresh[-1].nominal if fresh else after
        remaining -= len(fresh) - _late(fresh, duration, soonest)
    known = {slot.nominal for slot in all_waiting}
    slots = waiting + [slot for slot in fresh if slot.nominal not in known]
    following = None if remaining == 0 else next_nominal(recurrence, last)
    return Agenda(
        slots=tuple(
            sorted((s for s in slots if s.latest_start(duration) >= soonest), key=_by_start)
        ),
        too_late=tuple(s for s in slots if s.latest_start(duration) < soonest),
        planned_to=standing.planned_to if last == after else last,
        next_slot=following,
        full=len(entered) > len(waiting)
        or (following is not None and entry.at(_slot(recurrence, duration, following, 1)) <= now),
        beyond=tuple(slot for slot in all_waiting if entry.at(slot) > now),
        found=standing.found,
    )


def _entered(
    recurrence: Recurrence, entry: _Entry, batch: int, after: int, now: int
) -> Iterator[Slot]:
    """The slots later than ``after`` that may be asked for by now, at most a batch of them."""
    starts = nominal_starts(recurrence, after, now + entry.horizon + 1, batch)
    slots = (_slot(recurrence, entry.duration, at, 1) for at in starts)
    return takewhile(lambda slot: entry.at(slot) <= now, slots)


def _untouched(reached: Sequence[Slot], touched: Mapping[int, int | None]) -> Iterator[Slot]:
    """The slots that may have another run, each with the attempt that it is."""
    for slot in reached:
        attempt = touched.get(slot.nominal, 1)
        if attempt is not None:
            yield replace(slot, attempt=attempt)


@dataclass(frozen=True)
class _Entry:
    """When slots come within the horizon, for runs of this length."""

    duration: int
    horizon: int
    found: Sequence[int]

    def at(self, slot: Slot) -> int:
        """When it may be asked for: once its whole window lies within the horizon.

        A window longer than that is asked for bit by bit, from shortly before it begins; and one
        of which a start is known as soon as that run can be booked: others want its time, too.
        """
        whole = min(slot.end - self.horizon, slot.start - self.horizon // REFILL_SHARE)
        known = bisect_left(self.found, slot.start)
        if known == len(self.found) or self.found[known] > slot.latest_start(self.duration):
            return whole
        return min(whole, self.found[known] + self.duration - self.horizon)


def _late(slots: Sequence[Slot], duration: int, soonest: int) -> int:
    """How many of them cannot start any more."""
    return sum(slot.latest_start(duration) < soonest for slot in slots)


def _slot(recurrence: Recurrence, duration: int, nominal: int, attempt: int) -> Slot:
    slip = slip_of(recurrence, duration, nominal)
    return Slot(nominal, attempt, nominal, nominal + duration + slip)


def _by_start(slot: Slot) -> tuple[int, int]:
    return slot.start, slot.nominal


def plan_next_at(
    recurrence: Recurrence, duration: int, done: Agenda, limits: Limits, unplaced: int, now: int
) -> int | None:
    """When the task's next unplanned slots are to be asked for; None when there are none.

    None also while ``unplaced`` slots take up most of a batch: the others come after them, when
    they are tried again. Else a task that nobody has time for would be planned without a pause.
    """
    entry = _Entry(duration, limits.horizon, done.found)
    again = min((entry.at(slot) for slot in done.beyond), default=None)
    if done.full:
        return again if 2 * unplaced > limits.batch else now
    if done.next_slot is None:
        return again
    enters = entry.at(_slot(recurrence, duration, done.next_slot, 1))
    following = next_nominal(recurrence, done.next_slot)
    refill = limits.horizon // REFILL_SHARE
    if following is not None and 2 * (following - done.next_slot) <= refill:
        enters += refill
    return max(now, enters if again is None else min(enters, again))


def try_again_at(
    waiting: Sequence[Slot], duration: int, failures: int, now: int, rng: random.Random
) -> int | None:
    """When to ask again for slots that found no time: growing, jittered pauses, never past the end.

    The pause doubles from a quarter of a second with each failure in a row, up to five minutes,
    and is drawn between half of it and all of it.
    """
    if not waiting:
        return None
    drawn = now + jittered_pause(PAUSE_FIRST, PAUSE_MAX, failures, rng)
    return max(now, min(drawn, earliest_deadline(waiting, duration)))


def earliest_deadline(waiting: Sequence[Slot], duration: int) -> int:
    """When the first of these slots can start no more."""
    return min(slot.latest_start(duration) for slot in waiting)
