"""The states of a task. The names are those of the SQL enum ``task_state``."""

from __future__ import annotations

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
