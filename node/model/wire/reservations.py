"""Reservations: reserved time of a node or pool, as users request and see it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, Field, StringConstraints

from node.model import times
from node.model.classes import SchedulingClass
from node.model.reservations import split_task, written_task
from node.model.wire.fields import Document, Duration, Instant, Moment, Name, Patch, instant_of
from node.model.wire.tasks import PRIORITY_MAX

CRITERIA_MAX = 100

Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,100}$")]
"""One line of text for a person."""


def _length(value: int) -> int:
    if value < times.MINUTE:
        msg = f"is {times.duration_text(value)}; give 1 min or longer"
        raise ValueError(msg)
    return value


Length = Annotated[Duration, AfterValidator(_length)]
"""The duration of a reservation, at least a minute."""


class Purpose(StrEnum):
    """The purpose of a reservation, which only affects the wording."""

    MAINTENANCE = "maintenance"
    DEMO = "demo"
    QUIET = "quiet"


class OccasionsDocument(Document):
    """The times of a reservation, in the words of a task's schedule; empty means once, now."""

    start: Moment | None = Field(
        None,
        description="First start, and the anchor of the interval: an instant, 10m for in ten "
        "minutes, or @1h for the next full hour; now by default.",
    )
    repeat: Duration | None = Field(None, description="Interval from start to start.")
    cron: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="Five cron fields, instead of repeat.", examples=["0 22 * * 6"]
    )
    timezone: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        None, description="Zone of the cron fields; UTC by default.", examples=["Europe/Berlin"]
    )
    until: Moment | None = Field(None, description="It does not start again then or later.")

    def at(self, now: int) -> Occasions:
        """Return the times of a reservation created at ``now``, with relative ones fixed."""
        start = now if self.start is None else self.start
        moments = {"start": start, "until": self.until}
        fixed = {
            name: None if moment is None else instant_of(moment, now)
            for name, moment in moments.items()
        }
        return Occasions.model_validate(self.model_dump() | fixed)


class Occasions(OccasionsDocument):
    """The times of a reservation as stored."""

    start: Instant = Field(description="First start.")
    until: Instant | None = Field(None, description="It does not start again then or later.")


def _check_task_name(value: str) -> str:
    try:
        task, lead = split_task(value)
    except ValueError:
        msg = f"{value} is not the id of a task; write ID, or ID@NODE with the node that leads it"
        raise ValueError(msg) from None
    return written_task(task, lead)


Named = Annotated[
    str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,200}$"), AfterValidator(_check_task_name)
]
"""A task by its id, optionally with the node that leads it."""


class AccessDocument(Document):
    """An access list: it admits runs that meet one criterion; an empty one admits none."""

    campaigns: tuple[Name, ...] = Field(
        (),
        max_length=CRITERIA_MAX,
        description="Campaigns of tasks that this node leads; 'default' for tasks without one. "
        "The campaign of another lead's task is not trusted; list the node in leads instead.",
    )
    tasks: tuple[Named, ...] = Field(
        (),
        max_length=CRITERIA_MAX,
        description="Ids of tasks; the id of a pool task admits the runs of all its seats. For a "
        "pool task that another node leads, write ID@NODE.",
    )
    leads: tuple[Line, ...] = Field(
        (),
        max_length=CRITERIA_MAX,
        description="Names of nodes: admits all tasks that users created there.",
    )
    tests: tuple[Name, ...] = Field((), max_length=CRITERIA_MAX)
    classes: tuple[SchedulingClass, ...] = Field((), max_length=CRITERIA_MAX)
    priority: int | None = Field(
        None,
        ge=-PRIORITY_MAX - 1,
        le=PRIORITY_MAX,
        strict=True,
        description="Minimum priority of a run, for tasks that this node leads.",
    )


class ReservationDocument(Document):
    """A reservation as posted, of the node that it is posted to, or of one of its pools."""

    kind: Purpose = Field(description="maintenance, demo or quiet.")
    name: Line = Field(description="A name for people.")
    pool: Name | None = Field(
        None,
        description="A pool that this node plans, whose seats get no runs in that time; by "
        "default the time of this node itself is reserved.",
    )
    owner: Line | None = Field(None, description="The owner; by default the node's owner.")
    description: Annotated[str, StringConstraints(max_length=1000)] | None = None
    schedule: OccasionsDocument = OccasionsDocument()
    duration: Length = Field(description="How long it lasts, 1 min or longer.")
    access: AccessDocument = AccessDocument()
    displace: bool = Field(
        default=False,
        strict=True,
        description="Whether runs that are already booked give way, as to a higher priority; "
        "their leads plan them again. Runs that have begun or are about to begin always stay.",
    )


class ReservationPatch(Patch):
    """Changes of a reservation, as a JSON merge patch (RFC 7396): null removes, absent stays.

    The result is then validated like a new reservation.
    """

    kind: Purpose | None = None
    name: Line | None = None
    owner: Line | None = None
    description: Annotated[str, StringConstraints(max_length=1000)] | None = None
    schedule: dict[str, Any] | None = Field(None, description="Fields of the schedule to change.")
    duration: Duration | None = None
    access: dict[str, Any] | None = Field(None, description="Fields of the access list to change.")
    displace: bool = Field(
        default=False, strict=True, description="As in a new reservation, for this change only."
    )


class RunInside(Document):
    """A run that is booked in reserved time and that the reservation does not admit."""

    run: UUID
    task: UUID
    test: str
    scheduling_class: SchedulingClass
    priority: int
    starts_at: Instant
    ends_at: Instant
    displaced: bool = Field(
        description="Whether it has just given way; otherwise it stays and takes place."
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
    next_starts_at: Instant | None = Field(description="Start of the current or next span.")
    next_ends_at: Instant | None
    schedule: Occasions
    duration: Duration
    access: AccessDocument
    revision: int = Field(description="Counts its changes.")
    inside: tuple[RunInside, ...] | None = Field(
        None,
        description="Future runs that had been booked in its time before, at most 1000; present "
        "only for a single reservation that is shown, created or changed.",
    )
    inside_count: int | None = Field(
        None, description="Number of these runs; `inside` lists at most 1000 of them."
    )
    displaced_count: int | None = Field(
        None, description="Number of these runs that have just given way; all others stay."
    )
    created_at: Instant
    changed_at: Instant


class ReservedSpan(Document):
    """A span of reserved time on the node's time line."""

    reservation: UUID
    kind: Purpose
    name: str
    owner: str
    starts_at: Instant
    ends_at: Instant
