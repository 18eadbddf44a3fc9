"""Meshes: tasks of one name, identified by their reference, and the outcome of their runs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Self
from uuid import UUID

from pydantic import Field, FiniteFloat, ValidationError, model_validator

from node.model.classes import SchedulingClass
from node.model.wire.alerts import RuleName
from node.model.wire.fields import Document, Duration, Instant
from node.model.wire.outcomes import JudgedOutcome
from node.model.wire.runs import MetricView
from node.model.wire.tasks import Dependency, ScheduleTimes

FILE_MAX = 500_000
"""Maximum characters of a mesh file."""

CAUSES_MAX = 20
"""Maximum number of causes listed, most frequent first."""

THRESHOLDS_MAX = 20
"""Maximum number of figures of an entry of a mesh file that have thresholds."""

FigureName = RuleName
"""The name of a figure as lists have it, with labels (``loss.forward``) or without."""


class Threshold(Document):
    """The values of a figure from which on a result is fair, and from which on it is bad.

    If ``bad`` is less than ``fair``, smaller values are worse.
    """

    fair: FiniteFloat = Field(description="From this value on a result is only fair.")
    bad: FiniteFloat = Field(
        description="From this value on a result is bad; below `fair` if smaller values are worse."
    )

    @model_validator(mode="after")
    def _check_direction(self) -> Self:
        if self.fair == self.bad:
            msg = "fair and bad are the same, so that nobody knows which values are worse"
            raise ValueError(msg)
        return self


GIVEN = "reference"
"""The member of a task's reference that has what the mesh file adds to it."""


def thresholds_of(reference: Any) -> dict[str, Threshold]:
    """Return the thresholds in the reference of a task, by the name of the figure.

    Those of a wrong form are left out: anybody may post a task with any reference.
    """
    written = reference.get("thresholds") if isinstance(reference, Mapping) else None
    found = {}
    for name, each in written.items() if isinstance(written, Mapping) else ():
        with contextlib.suppress(ValidationError):
            found[name] = Threshold.model_validate(each)
    return found


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
    bad: int = Field(
        0,
        description="Those delivered whose result is bad: beyond the second threshold, or nothing "
        "arrived. They were measured as planned; it is the path that failed.",
    )
    open: int = Field(description="Slots of the period whose run is pending or in progress.")
    causes: tuple[Cause, ...] = Field(
        description="Why results are missing, the most frequent cause first."
    )

    @property
    def good_percent(self) -> float | None:
        """The part of what was due that was delivered and is not bad; None if nothing was due."""
        return 100 * (self.delivered - self.bad) / self.due if self.due else None


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


class MeshResult(Document):
    """The latest result of a pair."""

    run: UUID
    ends_at: Instant
    summary: str | None
    verdict: str | None = Field(description="Whether anything on the hosts has changed the result.")
    metrics: tuple[MetricView, ...] = Field(description="Its figures, the most important first.")
    stale: bool = Field(
        default=False, description="Whether it is older than twice the interval of the task."
    )


class MeshPair(Delivery):
    """The outcome of the runs of a mesh's task and of its predecessors with the same key."""

    key: str
    test: str
    source: str
    dest: str
    state: str = Field(
        description="The state of the newest task with this key; refused also if none was created."
    )
    outcome: JudgedOutcome | None = Field(
        None,
        description="That of its newest slot that is over, stale if that is old; not-planned, with "
        "the reason, if its task is refused, or none was created.",
    )
    thresholds: dict[str, Threshold] = Field(
        default_factory=dict, description="Those of the mesh file, by the name of the figure."
    )
    latest: MeshResult | None = Field(
        None,
        description="Its latest result before the end of the period; null if none of the latest "
        "300 runs of its tasks has one.",
    )


class MatrixEntry(Document):
    """The pairs of an entry of a mesh file, a letter each."""

    name: str = Field(description="The first part of their keys.")
    test: str
    sources: tuple[str, ...]
    dests: tuple[str, ...]
    rows: tuple[str, ...] = Field(
        description="For each source a letter for each dest: g good, f fair, b bad, n no-answer, "
        "x failed, m missed, p not-planned, s stale, u unknown, r refused or never created, and . "
        "for no pair. Capitals: the result is doubtful. The key of a pair is name/source/dest."
    )


class MeshMatrix(Document):
    """All pairs of a mesh in few words: what is to be thought of each."""

    at: Instant
    entries: tuple[MatrixEntry, ...]


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


class MeshFile(Document):
    """A mesh file, as it is written."""

    text: str = Field(description="The file: TOML, or JSON.", max_length=FILE_MAX)
    format: Literal["toml", "json"] = "toml"


class MeshFinding(Document):
    """A fault of a mesh file, or a part of it without effect."""

    cause: str = Field(description="invalid, or idle (a part without effect).")
    pointer: str = Field(description="Its place in the file, as a JSON pointer.")
    line: int | None = Field(description="The line in a file of TOML, from 1.")
    detail: str
    remedy: str = Field(description="What to do; may be empty.")
    stops: bool = Field(description="Whether it must be corrected before anything can be applied.")


class MeshCreation(Document):
    """A task that a mesh file has and the node has not."""

    key: str
    depth: int = Field(
        description="Number of tasks that it follows, one after the other; those with less first."
    )
    follows: str | None = Field(
        description="The key of a task that is created, too, and that it follows: the id of that "
        "task goes to `after.task`."
    )
    document: dict[str, Any] = Field(
        description="What to post to /v1/tasks as an item of a list, with its idempotency_key."
    )


class MeshEdit(Document):
    """A task that differs from a mesh file."""

    task: UUID
    key: str
    patch: dict[str, Any] = Field(description="What to send to it, as a JSON merge patch.")
    differences: tuple[str, ...]


class MeshCancellation(Document):
    """A task that a mesh file has no more."""

    task: UUID
    key: str
    reason: str


class MeshTrial(Document):
    """A mesh file compared with the tasks that there are; nothing is changed."""

    name: str | None = Field(description="The name of the mesh; null if the file cannot be read.")
    findings: tuple[MeshFinding, ...]
    create: tuple[MeshCreation, ...] = Field((), description="By depth.")
    edit: tuple[MeshEdit, ...] = ()
    end: tuple[MeshCancellation, ...] = ()
    unchanged: int = 0
    previewed: tuple[str, ...] = Field(
        (), description="Keys of tasks to be created that stand for all: one of each entry."
    )
