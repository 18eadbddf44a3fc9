"""The task: what a user posts, and what the API shows of it."""

from __future__ import annotations

from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import Discriminator, Field, StringConstraints, Tag, TypeAdapter, model_validator

from node.model import times
from node.model.classes import SchedulingClass
from node.model.contexts import ContextWord
from node.model.wire.archives import ArchiveChoice
from node.model.wire.fields import (
    KIND,
    Count,
    Document,
    Duration,
    Host,
    Instant,
    Moment,
    Name,
    Patch,
)
from node.model.wire.seats import PARTICIPANTS_MAX, SeatCount, SeatRequest

PRIORITY_MAX = 2**31 - 1
ARCHIVES_MAX = 16


class TestChoice(Document):
    """What is measured."""

    type: Name
    spec: dict[str, Any] = Field(
        default_factory=dict, description="The test's own fields; see /v1/tests."
    )


class ScheduleDocument(Document):
    """When, as posted. Nothing at all means once, as soon as possible."""

    start: Moment | None = Field(
        None,
        description="Nominal start of the first run, and the anchor of the interval: an instant, "
        "PT10M for so long after the task is created, @PT1H for the next full hour.",
    )
    repeat: Duration | None = Field(
        None, description="Interval from nominal start to nominal start."
    )
    cron: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="Five cron fields, instead of repeat.", examples=["*/10 8-18 * * 1-5"]
    )
    timezone: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        None, description="Zone of the cron fields; UTC unless said.", examples=["Europe/Berlin"]
    )
    until: Moment | None = Field(
        None, description="No run has its nominal start then or later; written as start is."
    )
    max_runs: Count | None = Field(
        None, description="So many runs; displaced, cancelled and unplaced ones do not count."
    )
    slip: Duration | None = Field(
        None,
        description="How much later than its nominal start a run may start. Unless said: a tenth "
        "of the interval, at least PT30S and at most PT5M; PT5M for a single run. Cut so that a "
        "run never reaches into its next interval.",
    )
    slip_random: bool = Field(
        default=False,
        strict=True,
        description="Start at random within the slip instead of as early as possible.",
    )

    def at(self, now: int) -> Schedule:
        """The schedule of a task that is created now: nothing in it hangs on the time any more."""
        moments = {"start": self.start, "until": self.until}
        fixed = {
            name: times.moment_after(moment, now) if isinstance(moment, str) else moment
            for name, moment in moments.items()
        }
        return Schedule.model_validate(self.model_dump() | fixed)


class Schedule(ScheduleDocument):
    """When, as kept: start and until are instants."""

    start: Instant | None = Field(
        None, description="Nominal start of the first run, and the anchor of the interval."
    )
    until: Instant | None = Field(None, description="No run has its nominal start then or later.")


def _kind(value: object) -> str:
    return _SEATS if isinstance(value, dict | SeatRequest) else _NAMES


_SEATS, _NAMES = f"{KIND}seats", f"{KIND}names"
Participants = Annotated[
    Annotated[tuple[Host, ...], Field(max_length=PARTICIPANTS_MAX), Tag(_NAMES)]
    | Annotated[SeatRequest, Tag(_SEATS)],
    Discriminator(_kind),
]
"""Nodes by name, or so many of a pool."""


class TaskDocument(Document):
    """A task as posted."""

    test: TestChoice
    tools: tuple[Name, ...] = Field(
        (), max_length=16, description="Tools in order of preference; none: the best all have."
    )
    schedule: ScheduleDocument = ScheduleDocument()
    priority: int = Field(0, ge=-PRIORITY_MAX - 1, le=PRIORITY_MAX, strict=True)
    participants: Participants = Field(
        (),
        description="Names or addresses of nodes, in the order the test wants them "
        "(source, dest), instead of naming them in the spec. Or nodes of a pool: so many.",
    )
    contexts: dict[Host, ContextWord] = Field(
        default_factory=dict,
        max_length=PARTICIPANTS_MAX,
        description="From where on its host a participant measures, by the participant's name: "
        "namespace:NAME, interface:NAME or address:IP, if its owner allows it. Not edited.",
        examples=[{"b": "interface:eth1"}],
    )
    campaign: Name | None = Field(None, description="A label to group tasks by.")
    reference: Any = Field(None, description="Anything of yours; kept and shown, never read.")
    archives: tuple[ArchiveChoice, ...] = Field(
        (),
        max_length=ARCHIVES_MAX,
        description="Where results go, beside the node's own archives.",
    )

    @property
    def seats(self) -> SeatRequest | None:
        """What is asked of a pool; None where nodes are named."""
        return self.participants if isinstance(self.participants, SeatRequest) else None

    @property
    def named(self) -> tuple[str, ...]:
        """The participants that are named beside the spec."""
        return () if isinstance(self.participants, SeatRequest) else self.participants

    @model_validator(mode="after")
    def _contexts_are_of_somebody(self) -> Self:
        if self.contexts and self.seats is not None:
            msg = "contexts are of participants that are named; a pool's are chosen"
            raise ValueError(msg)
        return self


class TaskPatch(Patch):
    """Changes of a task, as a JSON merge patch (RFC 7396): null removes, what is absent stays.

    The whole of it is then checked like a new task. Not even null can change what is measured by
    whom: the test's type and the participants; that would be another task.
    """

    test: dict[str, Any] | None = Field(None, description="Fields of the test, that is its spec.")
    tools: tuple[Name, ...] | None = Field(None, max_length=16)
    schedule: dict[str, Any] | None = Field(None, description="Fields of the schedule.")
    priority: int | None = Field(None, ge=-PRIORITY_MAX - 1, le=PRIORITY_MAX, strict=True)
    campaign: Name | None = None
    reference: Any = None
    archives: tuple[ArchiveChoice, ...] | None = Field(
        None,
        max_length=ARCHIVES_MAX,
        description="All of them; what is '(secret)' stays as it is at the same place.",
    )
    participants: tuple[Host, ...] | dict[str, Any] | None = Field(
        None,
        description="Refused if others would take part. Of a pool task: fields of what it asks "
        "of its pool.",
    )


class Participant(Document):
    """A node that takes part in a task, as the task's participants see it."""

    node: str = Field(description="Identity: its public key.")
    name: str
    url: str | None
    address: str
    context: ContextWord | None = Field(
        None, description="From where on its host it measures; the address is then of that."
    )
    accepted: bool | None = Field(None, description="Null until it has answered.")
    reason: str | None = Field(None, description="Why it refused, or has not answered yet.")
    tools: tuple[str, ...] = Field((), description="Tools it has for this test.")
    lacks: dict[str, str] = Field(
        default_factory=dict, description="Why it has not the other tools that could measure this."
    )


PARTICIPANTS = TypeAdapter(tuple[Participant, ...])
"""Reads and writes the participants of a task as the database stores them."""


class Task(Document):
    """A task as the API shows it."""

    id: UUID
    state: str
    reason: str | None
    revision: int = Field(1, description="Counts its changes: edits, pauses, resumptions.")
    paused_at: Instant | None = Field(None, description="Since when it is paused, if it is.")
    test: TestChoice
    tool: str | None
    tool_reason: str | None = Field(
        None, description="Why it has that tool; told of a single task, by the node that leads it."
    )
    tools: tuple[str, ...]
    schedule: Schedule
    priority: int
    scheduling_class: SchedulingClass
    duration: Duration
    participants: tuple[Participant, ...]
    lead: str = Field(description="Name of the node that plans it.")
    led_here: bool
    campaign: str | None
    reference: Any
    created_at: Instant
    ended_at: Instant | None
    next_run_at: Instant | None = Field(description="When its next run starts, if one is booked.")
    planned: bool = Field(description="Whether a planning attempt has been made.")
    plan_at: Instant | None = Field(
        None,
        description="When it is planned next (at its lead); null when nothing is left to plan.",
    )
    runs: dict[str, int] = Field(
        description="How many runs it has, by state; of a pool task those of its seats."
    )
    pool: SeatRequest | None = Field(
        None, description="What it asks of a pool; null where its participants are named."
    )
    seats: SeatCount | None = Field(
        None, description="How the seats of a pool task stand, once nodes were chosen."
    )
    archives: tuple[ArchiveChoice, ...] | None = Field(
        None,
        description="Where its results go, beside the node's own archives (at its lead); what is "
        "secret is replaced. Only where one task is asked for.",
    )
    parent: UUID | None = Field(
        None, description="The pool task in which this ordinary task has seats, if it has."
    )
