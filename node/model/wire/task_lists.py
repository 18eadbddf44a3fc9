"""Lists of tasks: what a user posts, and what the API answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self
from uuid import UUID

from pydantic import Field, model_validator

from node.model.wire.fields import Document
from node.model.wire.problems import Problem
from node.model.wire.tasks import TaskDocument, TaskPatch

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


class TaskVerb(StrEnum):
    """A change of tasks."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    EDIT = "edit"


class TaskChanges(Document):
    """A change of many tasks: each is changed or refused as if it came alone."""

    change: TaskVerb
    tasks: Annotated[tuple[UUID, ...], Field(min_length=1, max_length=TASKS_MAX, fail_fast=True)]
    patch: TaskPatch | None = Field(None, description="The changes of an edit, for all tasks.")

    @model_validator(mode="after")
    def _check_needed_fields(self) -> Self:
        if (self.change is TaskVerb.EDIT) is (self.patch is None):
            msg = "an edit needs a patch, and nothing else has one"
            raise ValueError(msg)
        return self


class TaskChange(Document):
    """The answer for one task: its state after the change, or why it was not changed."""

    task: UUID
    state: str | None = None
    problem: Problem | None = None
