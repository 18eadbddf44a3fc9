"""Meshes: tasks of one name, found by their reference, and what came of their runs."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from uuid import UUID

from pydantic import Field

from node.model.classes import SchedulingClass
from node.model.wire.fields import Document, Duration, Instant
from node.model.wire.tasks import Schedule

CAUSES_MAX = 20
"""Most causes that are told, the most frequent ones."""


class Cause(Document):
    """Why measurements are missing."""

    state: str = Field(description="The state of the run that was not delivered.")
    cause: str = Field(description="Its reason without times, lengths and ids: to be counted by.")
    count: int
    example: str = Field(description="The reason of the latest of them.")


class Delivery(Document):
    """What came of the slots of a stretch of time."""

    due: int = Field(
        description="Slots whose run is over. What was taken back before its time, because the "
        "task was edited, paused or cancelled, was not due."
    )
    delivered: int = Field(description="Those of them that have a result.")
    open: int = Field(description="Slots of the same time whose run is still to come or running.")
    causes: tuple[Cause, ...] = Field(
        description="What is missing and why, the most frequent first."
    )


class Mesh(Document):
    """The tasks of one mesh, led here."""

    name: str
    tasks: dict[str, int] = Field(description="How many tasks, by state.")
    campaigns: tuple[str, ...]
    created_at: Instant = Field(description="When its oldest task was made.")
    changed_at: Instant = Field(description="When the newest one was made.")


class MeshDelivery(Mesh):
    """A mesh, and what came of its runs."""

    since: Instant
    until: Instant
    delivery: Delivery


class MeshPair(Delivery):
    """What came of the runs of one task of a mesh, and of those it had before of the same key."""

    key: str
    test: str
    source: str
    dest: str
    state: str = Field(description="Of the newest task of this key.")


class MeshTask(Document):
    """A task of a mesh: the newest of its key, or another one that is not over."""

    id: UUID
    key: str
    state: str
    revision: int
    test: str
    spec: dict[str, Any]
    tools: tuple[str, ...]
    schedule: Schedule
    priority: int
    campaign: str | None
    reference: Any
    scheduling_class: SchedulingClass
    duration: Duration
    created_at: Instant
    participants: tuple[str, ...] = Field(description="Their names.")

    @cached_property
    def schedule_kept(self) -> dict[str, Any]:
        """The schedule as JSON has it."""
        return self.schedule.model_dump(mode="json")
