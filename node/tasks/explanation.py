"""Explains in one sentence why the runs of a task are where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.model import times
from node.model.dependencies import outcome_text
from node.model.outcomes import UNANSWERED
from node.model.outside_leads import is_told_as_outside
from node.model.reason import Reason
from node.model.reasons import (
    about_to_be_planned,
    asked_again,
    followed_has_no_time,
    followed_has_not_ended,
    followed_starts_next,
    follows_task,
    follows_unknown_task,
    led_by_outsider,
    not_planned_again,
    nothing_left_to_plan,
    planned_again,
    planned_by_lead,
    planned_last,
    planned_when_closer,
    seats_given,
    seats_left,
    seats_wait,
    terms_due_before,
    told,
)
from node.model.recurrence import Recurrence, next_nominal, nominal_starts
from node.model.scheduling import recurrence_of
from node.model.taskstate import OPEN, TaskState
from node.model.wire.runs import Decision
from node.model.wire.seats import SeatCount
from node.model.wire.tasks import Dependency, Schedule, Task
from node.store.seats import SeatWait


def stands_for(task: Task, asked: int, slot: int) -> bool:
    """Return whether a known slot is the nearest one of a task to an instant.

    It is not if the schedule has another one between, of which nothing is known here, and nothing
    is the nearest to a time before the task began.
    """
    recurrence = _recurrence(task)
    between = nominal_starts(recurrence, min(asked, slot), max(asked, slot), 1)
    return asked >= min(task.created_at, recurrence.anchor) and not between


def explain_missing_slot(task: Task, asked: int) -> str:
    """Return a sentence on why nothing is known of the slot of a task at an instant."""
    at, began = map(times.to_the_second, (asked, task.created_at))
    recurrence = _recurrence(task)
    if asked < min(task.created_at, recurrence.anchor):
        first = next_nominal(recurrence, recurrence.anchor - 1)
        slot = "" if first is None else f", and its first slot is at {times.to_the_second(first)}"
        return f"task {task.id} did not exist at {at}: it was created at {began}{slot}"
    return f"task {task.id} has no run with a nominal start at or near {at} here, and no gap then"


def _recurrence(task: Task) -> Recurrence:
    schedule = Schedule(**dict(task.schedule), after=task.after)
    return recurrence_of(schedule, task.created_at)


def explain_task(
    task: Task,
    newest: Decision | None,
    waits: Sequence[SeatWait],
    terms_before: tuple[str, int] | None,
    now: int,
    followed: Task | None = None,
) -> str:
    """Return one sentence on why the runs of a task are where they are.

    ``newest`` is its newest planning decision. Of a pool task, ``waits`` is what runs of its seats
    wait for, and ``terms_before`` are the pool and the number of terms that are due before it.
    ``followed`` is the task that it follows, if there is one and it is known here.
    """
    why = told(newest.sentence) if newest else _why_unplanned(task, now)
    if newest is not None and _has_begun_before(task, newest):
        why = planned_last(newest.decided_at, str(why))
    is_incomplete = newest is not None and not newest.placed
    if task.seats is not None and newest is not None:
        # The newest decision may be about a term far ahead. The seats tell of the current one.
        why, is_incomplete = describe_seats(task.seats), task.seats.taken < task.seats.wanted
    further = []
    if terms_before is not None and task.state == TaskState.ACTIVE:
        pool, count = terms_before
        further.append(terms_due_before(pool, count))
    elif not task.reason and is_incomplete and newest is not None and task.plan_at is not None:
        further.append(_retry(task, task.plan_at, newest.outcome))
    if task.after is not None and task.state in OPEN:
        further.append(describe_dependency(task.after, followed))
    further += [seats_wait(wait.nodes, wait.runs, wait.slot, wait.reason) for wait in waits]
    sentence = (told(task.reason) if task.reason else why).beside(*further)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(task.runs.items()))
    return f"{sentence} ({counts})" if counts else sentence


def _has_begun_before(task: Task, decision: Decision) -> bool:
    """Return whether a task has slots before those of a decision, which is not about its first."""
    recurrence = _recurrence(task)
    first = next_nominal(recurrence, max(recurrence.anchor, task.created_at) - 1)
    slot = decision.first_slot
    return first is not None and slot is not None and first < slot


def without_ids(decision: Decision) -> Decision:
    """Return a decision for a user who sees their own tasks only: it names no run in the way.

    What remains is what its sentence says, too: the test, the class, the priority, and the time.
    """
    trace = dict(decision.trace)
    trace.pop("yielding", None)
    if "offers" in trace:
        trace["offers"] = [
            {**offer, "obstacles": [_without_id(each) for each in offer.get("obstacles", ())]}
            for offer in trace["offers"]
        ]
    return decision.model_copy(update={"trace": trace})


def _without_id(obstacle: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in obstacle.items() if name not in {"run", "task"}}


def describe_seats(seats: SeatCount) -> Reason:
    """Describe the seats of the current or next term, and why some are empty."""
    until = seats.term if seats.until - seats.term < times.SECOND else seats.until
    given = seats_given(seats.taken, seats.wanted, (seats.term, until))
    empty = seats.wanted - seats.taken
    return given.beside(seats_left(empty, told(str(seats.reason)))) if empty else given


def describe_dependency(after: Dependency, followed: Task | None) -> Reason:
    """Describe which runs a task follows, how soon, and when the next of them takes place."""
    runs = outcome_text(after)
    if followed is None:
        return follows_unknown_task(runs, after.task)
    why = follows_task(runs, after.task, followed.test.type, followed.state, after.within)
    if followed.state not in OPEN:
        return why
    if followed.next_run_at is None:
        return why.beside(followed_has_no_time())
    return why.beside(followed_starts_next(followed.next_run_at))


def _retry(task: Task, plan_at: int, outcome: str) -> Reason:
    """Return when a task is planned again, or that this would be too late."""
    end = task.schedule.until
    if end is not None and plan_at > end + (task.schedule.slip or 0):
        return not_planned_again(end)
    return asked_again(plan_at) if outcome in UNANSWERED else planned_again(plan_at)


def _why_unplanned(task: Task, now: int) -> Reason:
    """Return why nothing of a task has been planned here yet."""
    if is_told_as_outside(task.lead):
        return led_by_outsider(task.lead)
    if not task.led_here:
        return planned_by_lead(task.lead)
    if task.plan_at is None and task.after is not None:
        return followed_has_not_ended()
    if task.plan_at is None:
        return nothing_left_to_plan()
    if task.plan_at > now:
        return planned_when_closer()
    return about_to_be_planned()
