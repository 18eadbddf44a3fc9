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
from node.model.errors import FieldFault
from node.model.ids import TaskId, is_exchange_of, run_id
from node.model.recurrence import Recurrence, nominal_starts, slip_of
from node.model.scheduling import recurrence_of
from node.model.times import format_duration, format_instant
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


def foreign_exchange(exchange: UUID, task: UUID, lease_epoch: int) -> FieldFault | None:
    """Return what is wrong with the id of an exchange of this task and epoch, or None. Pure."""
    if is_exchange_of(exchange, task, lease_epoch):
        return None
    return FieldFault(
        "/exchange",
        f"{exchange} is not an exchange of task {task} under lease epoch {lease_epoch}; derive it "
        "from both",
    )


def contradiction(request: HoldRequest, introduced: IntroducedTask) -> FieldFault | None:
    """Return the first field of a hold that contradicts the task as introduced, or None. Pure."""
    if request.life > LIFE_MAX:
        return FieldFault(
            "/life",
            f"{format_duration(request.life)} is longer than a hold may last without a decision; "
            f"use at most {format_duration(LIFE_MAX)}",
        )
    highest = introduced.priority
    if request.yielding is not None:
        highest = max(highest, introduced.priority_max)
    if request.priority > highest:
        return FieldFault(
            "/priority",
            f"{request.priority} is more than the priority {introduced.priority} with which the "
            "task was introduced"
            + (
                f", and than {introduced.priority_max}, the most that the owner of this host allows"
                if request.yielding is not None
                else ""
            ),
        )
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
            yield FieldFault(
                f"/runs/{number}/ends_at",
                f"the run lasts {format_duration(length)}, but the task was introduced with "
                f"{format_duration(longest)}",
            )
        if (first := first_of_slot.setdefault(run.slot, run.attempt)) != run.attempt:
            yield FieldFault(
                f"/runs/{number}/attempt",
                f"attempts {first} and {run.attempt} at the slot {format_instant(run.slot)} are in "
                "one hold; ask for another attempt once the earlier one is over",
            )
        if introduced.any_time:
            continue
        if run.run != run_id(task, run.slot, run.attempt):
            yield FieldFault(
                f"/runs/{number}/run",
                f"{run.run} is not the id of attempt {run.attempt} at the slot "
                f"{format_instant(run.slot)} of task {task}; derive it from these",
            )
        if (fault := _time_fault(recurrence, run)) is not None:
            yield FieldFault(f"/runs/{number}/{fault.pointer}", fault.detail)
    if introduced.counted is not None and schedule.max_runs is not None:
        yield from _count_faults(request.runs, introduced.counted, schedule.max_runs)


def _time_fault(recurrence: Recurrence, run: RunRequest) -> FieldFault | None:
    nominal = recurrence.follows or nominal_starts(recurrence, run.slot - 1, run.slot + 1, 1)
    if not nominal:
        return FieldFault(
            "slot",
            f"{format_instant(run.slot)} is not a nominal start of the task; its schedule was "
            f"introduced as {_in_words(recurrence)}",
        )
    latest = run.slot + slip_of(recurrence, run.ends_at - run.starts_at, run.slot)
    if not run.slot <= run.starts_at <= latest:
        return FieldFault(
            "starts_at",
            f"{format_instant(run.starts_at)} is outside the window of its slot; the schedule was "
            f"introduced so that it may start from {format_instant(run.slot)} to "
            f"{format_instant(latest)}",
        )
    return None


def _in_words(recurrence: Recurrence) -> str:
    """Return a schedule in words: ``from 2026-…Z every PT1H until 2026-…Z``."""
    words = f"from {format_instant(recurrence.anchor)}"
    if recurrence.cron is not None:
        words += f" at {recurrence.cron!r} in {recurrence.timezone or 'UTC'}"
    elif recurrence.repeat is not None:
        words += f" every {format_duration(recurrence.repeat)}"
    else:
        words += " once"
    if recurrence.until is not None:
        words += f" until {format_instant(recurrence.until)}"
    return words


def _count_faults(runs: Sequence[RunRequest], counted: int, max_runs: int) -> Iterator[FieldFault]:
    """Yield a fault if these runs are too many; a further attempt takes the place of an earlier."""
    first_attempts = sum(run.attempt == 1 for run in runs)
    if counted + first_attempts > max_runs:
        yield FieldFault(
            "/runs",
            f"{first_attempts} more runs beside the {counted} that took place are too many; "
            f"the task was introduced with max_runs {max_runs}",
        )
