"""What would happen if a task were posted: the question of a user, and its answer."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import Field

from node.model.classes import SchedulingClass
from node.model.wire.fields import Document, Duration, Instant
from node.model.wire.participants import BATCH_MAX
from node.model.wire.tasks import TaskDocument

RUNS = 10


class Outcome(StrEnum):
    """What would come of the task."""

    FOUND = "found"
    PARTLY = "partly"
    NO_TIME = "no-time"
    LATER = "beyond-horizon"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    CLOCK = "clock"


class PlanRequest(TaskDocument):
    """A task as it would be posted; nothing is booked or kept."""

    runs: int = Field(
        RUNS, ge=1, le=BATCH_MAX, strict=True, description="How many next starts to show."
    )


class PlannedStart(Document):
    """When a run would start."""

    slot: Instant = Field(description="Its nominal start.")
    starts_at: Instant
    ends_at: Instant
    displacing: bool = Field(description="Whether runs of lower priority would give way to it.")
    nodes: tuple[str, ...] = Field(
        (), description="Of a pool task: who would have the seat, or with together the seats."
    )


class UnplacedStart(Document):
    """A run that would have to wait, and why."""

    slot: Instant
    reason: str


class ParticipantAnswer(Document):
    """What a participant says."""

    name: str
    node: str = Field(description="Identity: its public key.")
    answer: str = Field(
        description="accepts, refuses, unreachable, or clock: its clock is too far off; "
        "not-chosen: another node of the pool would have the seat."
    )
    reason: str | None = Field(description="Why not, or what stands in the way of some runs.")
    tools: tuple[str, ...] = Field((), description="Tools it offers for this test.")
    windows_free: int | None = Field(
        None, description="In so many of the windows asked for it has time; null if not asked."
    )


class PlannedSeat(Document):
    """Who would have a seat of a pool task in one of the terms for which nodes are chosen now."""

    term: Instant = Field(description="The first slot of the term.")
    until: Instant = Field(description="No slot of the term lies then or later.")
    number: int = Field(description="From 1 to k.")
    node: str | None = Field(description="By name; null if it would stay empty.")
    asked: int | None = Field(
        None,
        description="Its runs in the first term; null for later ones, which are not asked for.",
    )
    placed: int | None = Field(None, description="Those of them that would find time.")
    reason: str | None = Field(None, description="Why it is empty, or some runs would wait.")


class Displaced(Document):
    """A run that would give way."""

    name: str = Field(description="The node on which it would.")
    run: UUID
    task: UUID
    test: str
    scheduling_class: SchedulingClass
    priority: int
    starts_at: Instant
    ends_at: Instant
    by: Instant = Field(description="Start of the run it would give way to.")


class HourShare(Document):
    """The share of one hour in which any run is booked, 0 to 1: as it is, and as it would be."""

    starts_at: Instant
    before: float
    after: float


class Occupancy(Document):
    """How much fuller a node would be in the next 24 hours."""

    name: str
    added_s: float = Field(
        description="Seconds more in which any run is booked; less than the runs last where they "
        "overlap others, and below zero where they displace longer ones."
    )
    before: float = Field(description="Share of the 24 hours, 0 to 1.")
    after: float
    others: float = Field(
        0.0,
        description="Share of them in which exclusive or normal runs are booked, without those of "
        "the mesh that the task would belong to.",
    )
    hours: tuple[HourShare, ...] = Field(description="Hour by hour from now on.")


class Alternative(Document):
    """Another task document, tried by the same proposals."""

    kind: str = Field(description="later, shorter, tool, slip or less-often.")
    differs: str = Field(description="What differs, in one sentence.")
    distance: float = Field(
        description="How far it is from what was asked, 0 to 1; 1 more if it places some runs only."
    )
    asked: int
    placed: int
    starts_at: Instant = Field(description="When its first run would start.")
    displacing: int = Field(description="How many of its runs would displace others.")
    document: dict[str, Any] = Field(description="A task document, ready for POST /v1/tasks.")


class NoAlternative(Document):
    """A kind of alternative that there is not."""

    kind: str
    reason: str


class Plan(Document):
    """What would happen; nothing is booked or kept."""

    outcome: Outcome
    sentence: str
    now: Instant = Field(description="The node's time at which this was so.")
    test: str
    tool: str | None
    scheduling_class: SchedulingClass
    duration: Duration = Field(description="How long each run occupies its participants.")
    priority: int
    asked: int = Field(description="Runs that would be planned now, up to the horizon.")
    placed: int = Field(description="Those of them that would find time.")
    starts: tuple[PlannedStart, ...] = Field(description="The next starts, as many as asked for.")
    drawn: bool = Field(
        description="Whether starts are drawn at random: the task itself will draw others."
    )
    unplaced: tuple[UnplacedStart, ...] = Field(
        description="The next runs without a time, as many as starts were asked for."
    )
    seats: tuple[PlannedSeat, ...] = Field(
        (),
        description="Of a pool task: which nodes would be chosen now, for all terms within the "
        "horizon. What is asked and placed is then that of the first term.",
    )
    displaced: tuple[Displaced, ...]
    displaced_count: int = Field(description="How many would give way, should not all be listed.")
    participants: tuple[ParticipantAnswer, ...]
    occupancy: tuple[Occupancy, ...]
    alternatives: tuple[Alternative, ...] = Field(description="At most three, the nearest first.")
    no_alternatives: tuple[NoAlternative, ...] = Field(
        description="Why there is none of a kind, if the task as posted does not find all its time."
    )
