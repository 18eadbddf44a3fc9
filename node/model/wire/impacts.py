"""Questions between nodes about the impact of runs: what they displace, how full a node gets.

Instants and durations are microseconds, as in all messages between nodes.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.classes import SchedulingClass
from node.model.wire.fields import Document
from node.model.wire.participants import (
    BATCH_MAX,
    IfIntroduced,
    LeavingOut,
    Micros,
    Obstacle,
    Priority,
    Span,
)

HOURS = 24
"""Number of hours in an answer, from ``since`` on."""

DISPLACED_MAX = 1000
"""Maximum number of displaced runs that are listed."""


class ImpactRequest(Document):
    """A question about booking these runs here; ``displacing`` are the indices of pass-2 runs."""

    since: Micros = Field(description="Start of the first hour.")
    scheduling_class: SchedulingClass
    priority: Priority
    runs: Annotated[tuple[Span, ...], Field(fail_fast=True, min_length=1, max_length=BATCH_MAX)]
    displacing: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=BATCH_MAX, strict=True)], ...],
        Field(fail_fast=True, max_length=BATCH_MAX),
    ] = ()
    mesh: str | None = Field(None, description="The mesh to leave out of `others`; see Hour.")
    leaving_out: LeavingOut = None
    introduction: IfIntroduced = None


class Hour(Document):
    """The time (µs) for which any run occupies the node in one hour: now, and with the runs."""

    before: Micros
    after: Micros
    others: Micros = Field(
        0, description="As `before`, without background runs and without the mesh of the request."
    )


class Impact(Document):
    """The impact of the runs on this node."""

    displaced: tuple[Obstacle, ...] = Field(
        max_length=DISPLACED_MAX,
        description="Runs that would give way, by start; each has the index of the run that it "
        "would give way to.",
    )
    displaced_count: int = Field(ge=0, description="Number of such runs, listed or not.")
    hours: Annotated[tuple[Hour, ...], Field(min_length=HOURS, max_length=HOURS)]
