"""The states of a task. The names are those of the SQL enum ``task_state``."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum


class TaskState(StrEnum):
    """The state of a task, as one node knows it."""

    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    UNPLACED = "unplaced"


OPEN = frozenset({TaskState.ACTIVE, TaskState.PAUSED})
"""States from which a task may still change; all others are final."""

UNKNOWN = "unknown"
"""State that a participant reports for a task it does not know."""


def end_reason(
    state: TaskState, reason: str | None, participant: str, participants: Collection[str]
) -> str | None:
    """Return why a task of this state at its lead is over for a participant; None if it is not."""
    if participant not in participants:
        return "it takes no part in the task any more"
    if state in OPEN:
        return None
    return f"the task is {state} at its lead: {reason or 'its schedule is over'}"[:1000]
