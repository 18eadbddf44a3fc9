"""Lists of tasks: what a user posts, and what the API answers."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from node.model.wire.fields import Document
from node.model.wire.problems import Problem
from node.model.wire.tasks import TaskDocument

KEY_MAX = 200
"""Maximum length of an Idempotency-Key."""

TASKS_MAX = 500
"""Maximum number of tasks that are posted in one list."""


class ListedTask(TaskDocument):
    """A task of a list of them as posted."""

    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=KEY_MAX,
        description="What the header Idempotency-Key is for a task that is posted alone.",
    )


class TaskCreation(Document):
    """The answer for one task of a list: its id, or why there is none."""

    task: UUID | None = None
    problem: Problem | None = None
