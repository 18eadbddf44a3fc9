"""Meshes: tasks of one name, identified by their reference, and the outcome of their runs."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from uuid import UUID

from pydantic import Field

from node.model.classes import SchedulingClass
from node.model.wire.fields import Document, Duration, Instant
from node.model.wire.tasks import Dependency, ScheduleTimes

CAUSES_MAX = 20
"""Maximum number of causes listed, most frequent first."""


class Cause(Document):
    """A reason for missing measurements."""

    state: str = Field(description="The state of the runs without a result.")
    cause: str = Field(description="The reason without times, lengths, and ids, for counting.")
    count: int
    example: str = Field(description="The full reason of the latest of them.")


class Delivery(Document):
    """The outcome of the slots of a period."""

    due: int = Field(
        description="Slots whose run is over. Runs that were taken back before their time, "
        "because the task was edited, paused, or cancelled, do not count."
    )
    delivered: int = Field(description="Those among them with a result.")
    open: int = Field(description="Slots of the period whose run is pending or in progress.")
    causes: tuple[Cause, ...] = Field(
        description="Why results are missing, the most frequent cause first."
    )


class Mesh(Document):
    """The tasks of one mesh that this node leads."""

    name: str
    tasks: dict[str, int] = Field(description="Number of tasks by state.")
    campaigns: tuple[str, ...]
    created_at: Instant = Field(description="Creation of its oldest task.")
    changed_at: Instant = Field(description="Creation of its newest task.")


class MeshDelivery(Mesh):
    """A mesh with the outcome of its runs."""

    since: Instant
    until: Instant
    delivery: Delivery


class MeshPair(Delivery):
    """The outcome of the runs of a mesh's task and of its predecessors with the same key."""

    key: str
    test: str
    source: str
    dest: str
    state: str = Field(description="The state of the newest task with this key.")


class MeshTask(Document):
    """A task of a mesh: the newest of its key, or an older one that is not over."""

    id: UUID
    key: str
    state: str
    revision: int
    test: str
    spec: dict[str, Any]
    tools: tuple[str, ...]
    schedule: ScheduleTimes
    after: Dependency | None = Field(None, description="The task whose runs it follows.")
    priority: int
    campaign: str | None
    reference: Any
    scheduling_class: SchedulingClass
    duration: Duration
    created_at: Instant
    participants: tuple[str, ...] = Field(description="Names of the participants.")

    @cached_property
    def schedule_kept(self) -> dict[str, Any]:
        """The schedule in its JSON form."""
        return self.schedule.model_dump(mode="json")
