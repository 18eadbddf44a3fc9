"""What nodes ask each other when nothing is booked: what runs would displace, how full it would be.

Instants and durations are microseconds, as in all that nodes say to each other.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.classes import SchedulingClass
from node.model.wire.fields import Document
from node.model.wire.participants import BATCH_MAX, Micros, Obstacle, Priority, Span

HOURS = 24
"""So many hours from the instant asked for."""

DISPLACED_MAX = 1000
"""Most displaced runs that are named."""


class ImpactRequest(Document):
    """If these runs were booked here: ``displacing`` are the indices of those of pass 2."""

    since: Micros = Field(description="Where the first hour begins.")
    scheduling_class: SchedulingClass
    priority: Priority
    runs: Annotated[tuple[Span, ...], Field(min_length=1, max_length=BATCH_MAX)]
    displacing: Annotated[tuple[int, ...], Field(max_length=BATCH_MAX)] = ()
    mesh: str | None = Field(None, description="Whose runs are no others; see Hour.")


class Hour(Document):
    """How long in one hour any run has the time, in microseconds: as it is, and as it would be."""

    before: Micros
    after: Micros
    others: Micros = Field(
        0, description="As it is, without background runs and those of the mesh that was named."
    )


class Impact(Document):
    """What they would mean here."""

    displaced: tuple[Obstacle, ...] = Field(
        max_length=DISPLACED_MAX,
        description="Runs that would give way, by start; each names the index of the run it would "
        "give way to.",
    )
    displaced_count: int = Field(ge=0, description="How many would, named or not.")
    hours: Annotated[tuple[Hour, ...], Field(min_length=HOURS, max_length=HOURS)]
