"""Rules that exist only in SQL, written once more in Python to compare the two on a real server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from node.model.classes import blockers
from node.model.timeline import Booking, TimelineQuestion, gives_way


@dataclass(frozen=True, slots=True)
class AgendaTask:
    """A task on the agenda; ``plan_at`` is None if it is not to be planned."""

    task: str
    next_run_at: int | None
    plan_at: int | None
    leased_until: int | None
    added_at: int


def select(candidates: Iterable[AgendaTask], now: int, before: int, idle: int) -> list[AgendaTask]:
    """Return at most ``idle`` due tasks, by next run, then by age, as the query ``claim`` does.

    A task is due if it is to be planned by ``now``, its next run is earlier than ``before``, and no
    worker holds a lease on it.
    """
    due = [
        (task.next_run_at, task.added_at, task)
        for task in candidates
        if task.plan_at is not None
        and task.plan_at <= now
        and task.next_run_at is not None
        and task.next_run_at < before
        and (task.leased_until is None or task.leased_until <= now)
    ]
    return [task for _, _, task in sorted(due, key=lambda entry: entry[:2])][: max(0, idle)]


def displaced_bookings(
    question: TimelineQuestion, start: int, bookings: Sequence[Booking]
) -> list[Booking]:
    """Return the bookings that a run at ``start`` displaces, as the query ``set_aside`` does."""
    conflicting = blockers(question.scheduling_class)
    end = start + question.duration
    return [
        booking
        for booking in bookings
        if booking.scheduling_class in conflicting
        and gives_way(booking, question.yielding, question.precedence)
        and booking.starts_at < end
        and start < booking.ends_at
    ]
