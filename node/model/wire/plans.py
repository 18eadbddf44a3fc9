"""Previews of tasks: a user's question about what would happen, and its answer."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from node.model.classes import SchedulingClass
from node.model.wire.fields import Document, Duration, Instant
from node.model.wire.participants import BATCH_MAX
from node.model.wire.problems import Alternative, Problem
from node.model.wire.tasks import TaskDocument

RUNS = 10

PLANS_MAX = 64
"""Maximum number of tasks that are previewed together in one list."""


class Outcome(StrEnum):
    """The outcome that a task would have."""

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
        RUNS, ge=1, le=BATCH_MAX, strict=True, description="Number of upcoming starts to show."
    )
    instead_of: UUID | None = Field(
        None,
        description="An open task led here that this one would replace, as an edit of it would: "
        "the time of its booked runs counts as free, and they do not count toward limits of "
        "hosts. They still count toward quotas of campaigns.",
    )


class PlannedStart(Document):
    """The planned start of a run."""

    slot: Instant = Field(description="Its nominal start.")
    starts_at: Instant
    ends_at: Instant
    displacing: bool = Field(description="Whether runs of lower priority would give way to it.")
    nodes: tuple[str, ...] = Field(
        (), description="For a pool task: the nodes that would have the seats of this run."
    )


class UnplacedStart(Document):
    """A run that would have to wait, and why."""

    slot: Instant
    reason: str


class ParticipantAnswer(Document):
    """The answer of one participant."""

    name: str
    node: str = Field(description="Identity: its public key.")
    answer: str = Field(
        description="accepts, refuses, unreachable, clock (its clock differs too much), or "
        "not-chosen (another node of the pool would have the seat)."
    )
    reason: str | None = Field(description="Why it does not take part, or why some runs wait.")
    tools: tuple[str, ...] = Field((), description="Tools it offers for this test.")
    windows_free: int | None = Field(
        None, description="Number of requested windows in which it has time; null if not asked."
    )


class PlannedSeat(Document):
    """A seat of a pool task in one of the terms for which nodes would be chosen now."""

    term: Instant = Field(description="The first slot of the term.")
    until: Instant = Field(description="End of the term, excluded.")
    number: int = Field(description="From 1 to k.")
    node: str | None = Field(description="Name of the node; null if the seat would stay empty.")
    asked: int | None = Field(
        None,
        description="Number of its runs in the first term; null for later terms, for which nodes "
        "are not asked.",
    )
    placed: int | None = Field(None, description="Number of those runs that would find time.")
    reason: str | None = Field(
        None, description="Why it would stay empty, or some runs would wait."
    )


class Displaced(Document):
    """A run that would give way; of one that another node leads only class and time are known."""

    name: str = Field(description="Name of the node whose run it is.")
    run: UUID | None
    task: UUID | None
    test: str | None
    scheduling_class: SchedulingClass
    priority: int | None
    starts_at: Instant
    ends_at: Instant
    by: Instant = Field(description="Start of the run that it would give way to.")


class HourShare(Document):
    """The share of one hour in which any run is booked, 0 to 1: before and after the task."""

    starts_at: Instant
    before: float
    after: float


class Occupancy(Document):
    """The effect of the task on a node's occupancy in the next 24 hours."""

    name: str
    added_s: float = Field(
        description="Additional seconds in which any run is booked; less than the runs' duration "
        "if they overlap others, and negative if they displace longer ones."
    )
    before: float = Field(description="Share of the 24 hours, 0 to 1.")
    after: float
    others: float = Field(
        0.0,
        description="Share of the 24 hours in which exclusive or normal runs are booked, without "
        "those of the mesh that the task would belong to.",
    )
    hours: tuple[HourShare, ...] = Field(description="The share of each hour from now on.")


class NoAlternative(Document):
    """A kind of alternative for which there is none, and why."""

    kind: str
    reason: str


class Plan(Document):
    """The preview of a task; nothing is booked or kept."""

    outcome: Outcome
    sentence: str
    now: Instant = Field(description="The node's time of the preview.")
    test: str
    tool: str | None
    scheduling_class: SchedulingClass
    duration: Duration = Field(description="How long each run occupies its participants.")
    priority: int
    expected_bytes: int | None = Field(
        None,
        description="The payload that a run would move on each participant, sent and received; "
        "null if that is unknown.",
    )
    asked: int = Field(description="Number of runs that would be planned now, up to the horizon.")
    placed: int = Field(description="Number of those runs that would find time.")
    starts: tuple[PlannedStart, ...] = Field(description="The next starts, as many as requested.")
    drawn: bool = Field(
        description="Whether starts are drawn at random, so that the real task will get others."
    )
    unplaced: tuple[UnplacedStart, ...] = Field(
        description="The next runs without a time, as many as starts were requested."
    )
    seats: tuple[PlannedSeat, ...] = Field(
        (),
        description="For a pool task: the nodes that would be chosen now, for all terms within the "
        "horizon. `asked` and `placed` are then those of the first term.",
    )
    displaced: tuple[Displaced, ...]
    displaced_count: int = Field(description="Number of runs that would give way, listed or not.")
    participants: tuple[ParticipantAnswer, ...]
    occupancy: tuple[Occupancy, ...]
    alternatives: tuple[Alternative, ...] = Field(description="At most three, the nearest first.")
    no_alternatives: tuple[NoAlternative, ...] = Field(
        description="Why a kind has none, if the task as posted does not find all its time."
    )


class ListedPlan(Document):
    """The plan of one task of a list, or why there is none.

    Each is planned beside those before it, as their lead plans them after they were created
    together: what these take of time and of limits is not there for it. None has alternatives.
    """

    plan: Plan | None = None
    problem: Problem | None = None
