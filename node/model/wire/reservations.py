"""Reservations: time of a node that is set apart, as users ask for it and see it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, Field, StringConstraints

from node.model import times
from node.model.classes import SchedulingClass
from node.model.wire.fields import Document, Duration, Instant, Moment, Name, Patch
from node.model.wire.tasks import PRIORITY_MAX

CRITERIA_MAX = 100

Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,100}$")]
"""Text of one line, for a person."""


def _length(value: int) -> int:
    if value < times.MINUTE:
        msg = f"is {times.format_duration(value)}; give PT1M or longer"
        raise ValueError(msg)
    return value


Length = Annotated[Duration, AfterValidator(_length)]
"""How long a reservation may take."""


class Purpose(StrEnum):
    """What time is set apart for; it only makes the sentences readable."""

    MAINTENANCE = "maintenance"
    DEMO = "demo"
    QUIET = "quiet"


class OccasionsDocument(Document):
    """When it takes place, in the words of a task's schedule. Nothing at all means once, now."""

    start: Moment | None = Field(
        None,
        description="When it begins for the first time, and the anchor of the interval: an "
        "instant, PT10M for in ten minutes, @PT1H for the next full hour; now unless said.",
    )
    repeat: Duration | None = Field(None, description="Interval from beginning to beginning.")
    cron: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="Five cron fields, instead of repeat.", examples=["0 22 * * 6"]
    )
    timezone: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        None, description="Zone of the cron fields; UTC unless said.", examples=["Europe/Berlin"]
    )
    until: Moment | None = Field(None, description="It does not begin again then or later.")

    def at(self, now: int) -> Occasions:
        """The same for a reservation that is made now."""
        start = now if self.start is None else self.start
        moments = {"start": start, "until": self.until}
        fixed = {
            name: times.moment_after(moment, now) if isinstance(moment, str) else moment
            for name, moment in moments.items()
        }
        return Occasions.model_validate(self.model_dump() | fixed)


class Occasions(OccasionsDocument):
    """When, as kept."""

    start: Instant = Field(description="When it begins for the first time.")
    until: Instant | None = Field(None, description="It does not begin again then or later.")


class AccessDocument(Document):
    """Whom it admits: a run that meets one criterion. Nobody, unless something is said."""

    campaigns: tuple[Name, ...] = Field(
        (),
        max_length=CRITERIA_MAX,
        description="Of tasks that this node leads; default are those that name none. Of other "
        "nodes' tasks their leads say it, so it does not count: name these in leads.",
    )
    tasks: tuple[UUID, ...] = Field(
        (),
        max_length=CRITERIA_MAX,
        description="Ids of tasks; that of a pool task admits the runs of all its seats.",
    )
    leads: tuple[Line, ...] = Field(
        (),
        max_length=CRITERIA_MAX,
        description="Names of nodes: all tasks that were created there, by their users.",
    )
    tests: tuple[Name, ...] = Field((), max_length=CRITERIA_MAX)
    classes: tuple[SchedulingClass, ...] = Field((), max_length=CRITERIA_MAX)
    priority: int | None = Field(
        None,
        ge=-PRIORITY_MAX - 1,
        le=PRIORITY_MAX,
        strict=True,
        description="Runs of this priority or a higher one, of tasks that this node leads.",
    )


class ReservationDocument(Document):
    """A reservation as posted. It holds on the node that it is posted to, or on a pool of it."""

    kind: Purpose = Field(description="maintenance, demo or quiet.")
    name: Line = Field(description="What it is called, for people.")
    pool: Name | None = Field(
        None,
        description="A pool that this node plans: its seats get no runs in that time. The time of "
        "this node itself unless said.",
    )
    owner: Line | None = Field(None, description="By whom; the node's owner unless said.")
    description: Annotated[str, StringConstraints(max_length=1000)] | None = None
    schedule: OccasionsDocument = OccasionsDocument()
    duration: Length = Field(description="How long it takes, PT1M or longer.")
    access: AccessDocument = AccessDocument()
    displace: bool = Field(
        default=False,
        strict=True,
        description="Whether runs that are booked already give way, as to a higher priority: "
        "their leads plan them again. Runs that have begun or are about to are kept in any case.",
    )


class ReservationPatch(Patch):
    """Changes of a reservation, as a JSON merge patch (RFC 7396): null removes, absent stays.

    The whole of it is then checked like a new one.
    """

    kind: Purpose | None = None
    name: Line | None = None
    owner: Line | None = None
    description: Annotated[str, StringConstraints(max_length=1000)] | None = None
    schedule: dict[str, Any] | None = Field(None, description="Fields of the schedule.")
    duration: Duration | None = None
    access: dict[str, Any] | None = Field(None, description="Fields of the access list.")
    displace: bool = Field(
        default=False, strict=True, description="As in a new reservation, for this time only."
    )


class RunInside(Document):
    """A run that is booked in reserved time and is not for it."""

    run: UUID
    task: UUID
    test: str
    scheduling_class: SchedulingClass
    priority: int
    starts_at: Instant
    ends_at: Instant
    displaced: bool = Field(
        description="Whether it has just given way; else it stays, and takes place."
    )


class Reservation(Document):
    """A reservation as the API shows it."""

    id: UUID
    kind: Purpose
    name: str
    pool: str | None
    owner: str
    description: str | None
    state: str = Field(description="upcoming, now, or over.")
    next_starts_at: Instant | None = Field(description="Beginning of the span now or next.")
    next_ends_at: Instant | None
    schedule: Occasions
    duration: Duration
    access: AccessDocument
    revision: int = Field(description="Counts its changes.")
    inside: tuple[RunInside, ...] | None = Field(
        None,
        description="Runs to come that were booked in its time before, at most 1000; only where "
        "one reservation is asked for, made or changed.",
    )
    inside_count: int | None = Field(
        None, description="How many these are in all; inside names 1000 of them at most."
    )
    displaced_count: int | None = Field(
        None, description="How many of these have just given way; all others stay."
    )
    created_at: Instant
    changed_at: Instant


class ReservedSpan(Document):
    """One span of reserved time on the node's time line."""

    reservation: UUID
    kind: Purpose
    name: str
    owner: str
    starts_at: Instant
    ends_at: Instant
