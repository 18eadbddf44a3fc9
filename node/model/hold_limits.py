"""Limits of a hold: what the introduction of its task allows.

A participant accepted a task by its introduction. A hold that asks for more than that is refused:
for longer runs, a higher priority, other times, or more runs, of one slot as well. Ids are derived,
so that a node can neither use up the ids of another one's exchanges nor book one slot under two
ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model import times
from node.model.attempts import retry_terms
from node.model.errors import FieldFault
from node.model.ids import TaskId, is_exchange_of, run_id
from node.model.reasons import (
    attempts_in_one_hold,
    foreign_exchange_id,
    foreign_run_id,
    hold_lasts_too_long,
    more_than_max_runs,
    not_a_nominal_start,
    outside_window_of_slot,
    priority_above_introduced,
    run_longer_than_introduced,
)
from node.model.recurrence import Recurrence, nominal_starts, slip_of
from node.model.scheduling import recurrence_of
from node.model.times import duration_text, format_instant
from node.model.wire.participants import HoldRequest, RunRequest
from node.model.wire.tasks import PRIORITY_MAX, Schedule

LIFE_MAX = 2 * times.MINUTE
"""Maximum life of a hold without a decision (microseconds)."""


@dataclass(frozen=True)
class IntroducedTask:
    """The terms of a task that limit its holds; times in microseconds.

    A hold that names the runs that may give way may have a higher priority than the task, up to
    ``priority_max``: what the owner of the host allows its lead.
    ``schedule`` is the stored document. ``counted`` runs took place and count towards its
    ``max_runs``; None if their number is not limited. With ``any_time`` the task's lead chooses
    ids and times of runs by itself: it is no node of Parley, and its schedule says nothing here.
    """

    duration: int
    priority: int
    schedule: dict[str, Any]
    created_at: int
    counted: int | None = None
    priority_max: int = -PRIORITY_MAX - 1
    any_time: bool = False

    @property
    def retries(self) -> int:
        """Number of attempts of a slot that may begin after the first one."""
        return retry_terms(Schedule.model_validate(self.schedule)).times


def foreign_exchange(exchange: UUID, task: UUID, lease_epoch: int) -> FieldFault | None:
    """Return what is wrong with the id of an exchange of this task and epoch, or None. Pure."""
    if is_exchange_of(exchange, task, lease_epoch):
        return None
    return FieldFault("/exchange", foreign_exchange_id(exchange, task, lease_epoch))


def contradiction(request: HoldRequest, introduced: IntroducedTask) -> FieldFault | None:
    """Return the first field of a hold that contradicts the task as introduced, or None. Pure."""
    if request.life > LIFE_MAX:
        return FieldFault("/life", hold_lasts_too_long(request.life, LIFE_MAX))
    most = None if request.yielding is None else introduced.priority_max
    highest = introduced.priority if most is None else max(introduced.priority, most)
    if request.priority > highest:
        fault = priority_above_introduced(request.priority, introduced.priority, most)
        return FieldFault("/priority", fault)
    return next(_run_faults(request, introduced), None)


def _run_faults(request: HoldRequest, introduced: IntroducedTask) -> Iterator[FieldFault]:
    """Yield the faults of the runs, most of them in the order of the runs."""
    task, longest = TaskId(request.task), introduced.duration
    first_of_slot: dict[int, int] = {}
    schedule = Schedule.model_validate(introduced.schedule)
    recurrence = recurrence_of(schedule, introduced.created_at)
    for number, run in enumerate(request.runs):
        length = run.ends_at - run.starts_at
        if length > longest:
            yield FieldFault(f"/runs/{number}/ends_at", run_longer_than_introduced(length, longest))
        if (first := first_of_slot.setdefault(run.slot, run.attempt)) != run.attempt:
            fault = attempts_in_one_hold(first, run.attempt, run.slot)
            yield FieldFault(f"/runs/{number}/attempt", fault)
        if introduced.any_time:
            continue
        if run.run != run_id(task, run.slot, run.attempt):
            fault = foreign_run_id(run.run, run.attempt, run.slot, task)
            yield FieldFault(f"/runs/{number}/run", fault)
        if (misplaced := _time_fault(recurrence, run)) is not None:
            yield FieldFault(f"/runs/{number}/{misplaced.pointer}", misplaced.detail)
    if introduced.counted is not None and schedule.max_runs is not None:
        yield from _count_faults(request.runs, introduced.counted, schedule.max_runs)


def _time_fault(recurrence: Recurrence, run: RunRequest) -> FieldFault | None:
    nominal = recurrence.follows or nominal_starts(recurrence, run.slot - 1, run.slot + 1, 1)
    if not nominal:
        return FieldFault("slot", not_a_nominal_start(run.slot, _in_words(recurrence)))
    latest = run.slot + slip_of(recurrence, run.ends_at - run.starts_at, run.slot)
    if not run.slot <= run.starts_at <= latest:
        return FieldFault("starts_at", outside_window_of_slot(run.starts_at, run.slot, latest))
    return None


def _in_words(recurrence: Recurrence) -> str:
    """Return a schedule in words: ``from 2026-…Z every 1 h until 2026-…Z``."""
    words = f"from {format_instant(recurrence.anchor)}"
    if recurrence.cron is not None:
        words += f" at {recurrence.cron!r} in {recurrence.timezone or 'UTC'}"
    elif recurrence.repeat is not None:
        words += f" every {duration_text(recurrence.repeat)}"
    else:
        words += " once"
    if recurrence.until is not None:
        words += f" until {format_instant(recurrence.until)}"
    return words


def _count_faults(runs: Sequence[RunRequest], counted: int, max_runs: int) -> Iterator[FieldFault]:
    """Yield a fault if these runs are too many; a further attempt takes the place of an earlier."""
    first_attempts = sum(run.attempt == 1 for run in runs)
    if counted + first_attempts > max_runs:
        yield FieldFault("/runs", more_than_max_runs(first_attempts, counted, max_runs))
