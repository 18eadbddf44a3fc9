"""Which tasks the idle workers take, said in Python. Pure.

The query ``claim`` takes the same tasks in the same order (it adds the lease); a test compares the
two on a real server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AgendaTask:
    """A task on the agenda; a task that is not to be planned has no ``plan_at``."""

    task: str
    next_run_at: int | None
    plan_at: int | None
    leased_until: int | None
    added_at: int


def select(candidates: Iterable[AgendaTask], now: int, before: int, idle: int) -> list[AgendaTask]:
    """At most ``idle`` tasks: those due whose next run comes soonest, and of these the older ones.

    Due is what is to be planned by ``now``, has its next run earlier than ``before``, and is on no
    worker's lease.
    """
    due = [
        (one.next_run_at, one.added_at, one)
        for one in candidates
        if one.plan_at is not None
        and one.plan_at <= now
        and one.next_run_at is not None
        and one.next_run_at < before
        and (one.leased_until is None or one.leased_until <= now)
    ]
    return [one for _, _, one in sorted(due, key=lambda entry: entry[:2])][: max(0, idle)]
