"""Explains in one sentence why the runs of a task are where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.model import times
from node.model.dependencies import outcome_text
from node.model.outcomes import UNANSWERED
from node.model.outside_leads import is_told_as_outside
from node.model.taskstate import OPEN, TaskState
from node.model.wire.runs import Decision
from node.model.wire.seats import SeatCount
from node.model.wire.tasks import Dependency, Task
from node.store.seats import SeatWait

_NAMED = 5
"""Maximum number of nodes to name."""


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
    sentence = newest.sentence if newest else _unplanned_reason(task, now)
    is_incomplete = newest is not None and not newest.placed
    if task.seats is not None and newest is not None:
        # The newest decision may be about a term far ahead. The seats tell of the current one.
        sentence, is_incomplete = describe_seats(task.seats), task.seats.taken < task.seats.wanted
    sentence = task.reason or sentence
    if terms_before is not None and task.state == TaskState.ACTIVE:
        pool, count = terms_before
        sentence += f"; in pool {pool} {count:,} terms are due before it or at the same time"
    elif not task.reason and is_incomplete and newest is not None and task.plan_at is not None:
        sentence += f"; {_retry_sentence(task, task.plan_at, newest.outcome)}"
    if task.after is not None and task.state in OPEN:
        sentence += f"; {describe_dependency(task.after, followed)}"
    sentence = "; ".join([sentence, *map(describe_wait, waits)])
    counts = ", ".join(f"{count} {state}" for state, count in sorted(task.runs.items()))
    return f"{sentence} ({counts})" if counts else sentence


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


def describe_seats(seats: SeatCount) -> str:
    """Describe the seats of the current or next term, and why some are empty."""
    first, until = times.to_the_second(seats.term), times.to_the_second(seats.until)
    when = first if seats.until - seats.term < times.SECOND else f"{first} to {until}"
    taken = f"{seats.taken} of {seats.wanted} seat{'' if seats.wanted == 1 else 's'}, {when}"
    empty = seats.wanted - seats.taken
    if not empty:
        return taken
    return f"{taken}; {empty} {'is' if empty == 1 else 'are'} empty: {seats.reason}"


def describe_wait(wait: SeatWait) -> str:
    """Describe what runs of seats wait for, as it is reported with the pool task."""
    count, nodes = wait.runs, len(wait.nodes)
    more = f" and {nodes - _NAMED} more" if nodes > _NAMED else ""
    whose = f"seat{'' if nodes == 1 else 's'} of {', '.join(wait.nodes[:_NAMED])}{more}"
    runs_wait = f"{count} run{' waits' if count == 1 else 's wait'}"
    since = times.to_the_second(wait.slot)
    return f"{whose}: {runs_wait} from {since} on, because {wait.reason}"


def describe_dependency(after: Dependency, followed: Task | None) -> str:
    """Describe which runs a task follows, how soon, and when the next of them takes place."""
    which = outcome_text(after)
    if followed is None:
        return f"it follows {which} of task {after.task}, which is not known here"
    within = times.format_duration(after.within)
    sentence = (
        f"it follows {which} of task {after.task} ({followed.test.type}, {followed.state}), each "
        f"with a run that starts within {within} of its end"
    )
    if followed.state not in OPEN:
        return sentence
    if followed.next_run_at is None:
        return f"{sentence}; none of them has a time yet"
    return f"{sentence}; the next of them starts at {times.to_the_second(followed.next_run_at)}"


def _retry_sentence(task: Task, plan_at: int, outcome: str) -> str:
    """Return when a task is planned again, or that this would be too late."""
    end = task.schedule.until
    if end is not None and plan_at > end + (task.schedule.slip or 0):
        return f"not planned again: the task ends before, at {times.to_the_second(end)}"
    verb = "asked" if outcome in UNANSWERED else "planned"
    return f"{verb} again at {times.to_the_second(plan_at)}"


def _unplanned_reason(task: Task, now: int) -> str:
    """Return why nothing of a task has been planned here yet."""
    if is_told_as_outside(task.lead):
        return f"it is led by {task.lead}, which chooses the times of its runs"
    if not task.led_here:
        return f"it is planned by its lead, {task.lead}, which has the trace"
    if task.plan_at is None and task.after is not None:
        return "no run that it follows has ended yet"
    if task.plan_at is None:
        return "nothing is left to plan"
    if task.plan_at > now:
        return "its first run lies beyond the horizon; it is planned when it comes closer"
    return "it is about to be planned"
