"""Runs, and the reasons for their state, as the API shows them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import ConfigDict, Field

from node.model.classes import SchedulingClass
from node.model.verdict import Level
from node.model.wire.archives import Archiving
from node.model.wire.circumstances import Circumstances
from node.model.wire.fields import HEADLINE, Document, Instant
from node.model.wire.outcomes import JudgedOutcome
from node.model.wire.reservations import ReservedSpan


class PartView(Document):
    """One participant's part of a run."""

    participant: int
    name: str
    result: dict[str, Any] | None
    reason: str | None
    started_at: Instant | None
    finished_at: Instant | None
    command: tuple[str, ...] | None
    output: str | None = Field(
        None, description="Output of the program; of long output the beginning and the end."
    )
    circumstances: Circumstances | None = Field(
        None, description="What its host did meanwhile; null if its node did not report it."
    )
    signature: str | None = Field(
        None,
        description="The participant's signed statement about it; null if its node signs none.",
    )


class MetricView(Document):
    """One figure of a result; time series are made of these."""

    name: str = Field(description="The same in all results of a test.")
    value: float
    unit: str = Field(description="ms, bit/s, 1 (a fraction or plain number), or what is counted.")
    labels: dict[str, str] = Field(description="Labels that distinguish figures of one name.")


class AttemptView(Document):
    """Another attempt of the slot of a run."""

    run: UUID
    attempt: int
    state: str
    reason: str | None = Field(description="Why it came to nothing.")
    starts_at: Instant


class FollowUp(Document):
    """A run that follows another one: what was measured because of it, or why nothing was."""

    run: UUID
    task: UUID
    headline: str = Field(description=HEADLINE)
    test: str
    state: str
    starts_at: Instant
    summary: str | None
    reason: str | None
    outcome: JudgedOutcome | None


class Run(Document):
    """A run as this node knows it: the lead knows all of it, a participant its own part."""

    id: UUID
    task: UUID
    headline: str = Field(description=HEADLINE)
    mesh: str | None = Field(None, description="The mesh of its task, if it is of one.")
    test: str
    tool: str | None
    state: str = Field(
        description="waiting, held, scheduled, set-aside, running, merging, finished, failed, "
        "missed, cancelled, displaced or unplaced."
    )
    reason: str | None = Field(description="Why it did not take place, in one sentence.")
    outcome: JudgedOutcome | None = Field(
        None, description="What is to be thought of it; null while it is not over."
    )
    scheduling_class: SchedulingClass
    priority: int
    starts_at: Instant
    ends_at: Instant
    slot: Instant = Field(description="Nominal start.")
    attempt: int = Field(description="Counted from 1; 0 for a gap.")
    attempts: tuple[AttemptView, ...] = Field(
        (), description="The other attempts of its slot, in their order."
    )
    slots: int = Field(
        1,
        description="More than 1 only for a gap: slots that were never planned, told as one.",
    )
    last_slot: Instant | None = Field(None, description="The last slot of a gap; null for a run.")
    participants: tuple[str, ...]
    participant: int | None = Field(description="This node's index among them.")
    lead: str
    started_at: Instant | None
    finished_at: Instant | None
    start_error_ms: float | None = Field(
        description="Delay of the start of this node's part, in milliseconds."
    )
    displaced_by: UUID | None
    summary: str | None
    result: dict[str, Any] | None
    verdict: Level | None = Field(
        None, description="How far the result can be trusted (at the lead); null without a result."
    )
    verdict_reasons: tuple[str, ...] = Field(
        (), description="Why the verdict is not clean: sentences, the worst first."
    )
    metrics: tuple[MetricView, ...] = Field(
        (), description="The figures of a finished run's result, in the order for charts."
    )
    total_loss: bool = Field(
        default=False,
        description="Whether its outcome is no-answer: all packets were lost, in one direction at "
        "least.",
    )
    requester: str | None = Field(None, description="Who requested its task, as there.")
    asked_by: UUID | None = Field(
        None,
        description="The run that it follows, as its task follows that one's. Only for a single "
        "run, and in lists that name it in `fields`.",
    )
    followed_by: tuple[FollowUp, ...] | None = Field(
        None, description="The runs that follow it, as above."
    )
    parts: tuple[PartView, ...] | None = Field(
        None, description="The parts of all participants; present only for a single run."
    )


class RunInterval(Document):
    """One interval of a long run; the lead knows the intervals while the run lasts."""

    number: int = Field(description="Counted from 0.")
    starts_at: Instant
    ends_at: Instant
    result: dict[str, Any] | None = Field(description="The measurement; null for a gap.")
    summary: str | None
    reason: str | None = Field(description="Why it is a gap, or why the result is incomplete.")
    metrics: tuple[MetricView, ...] = Field(
        (), description="The figures of its result, named like those of a run."
    )


class Decision(Document):
    """One planning attempt, or several in a row with the same outcome for the same reason."""

    id: int
    task: UUID
    decided_at: Instant = Field(description="Time of the last attempt.")
    first_at: Instant = Field(description="Time of the first attempt of the row.")
    times: int = Field(description="Number of attempts in the row; the trace is of the last one.")
    outcome: str
    sentence: str
    asked: int
    placed: int
    first_slot: Instant | None
    last_slot: Instant | None
    trace: dict[str, Any]


class Explanation(Document):
    """The explanation of a task's or run's state: a sentence, then all decisions, newest first."""

    task: UUID
    run: UUID | None
    headline: str = Field(description=HEADLINE)
    state: str
    sentence: str
    requester: str | None = Field(None, description="Who requested the task, as there.")
    tool: str | None = Field(None, description="The tool that it measures with.")
    tool_reason: str | None = Field(None, description="Why this tool was chosen.")
    decisions: tuple[Decision, ...]
    archivings: tuple[Archiving, ...] = Field(
        (), description="For a run that is over: where its outcome was delivered, or why not yet."
    )


class ScheduleEntry(Document):
    """A run on this node's time line."""

    run: UUID
    task: UUID
    headline: str = Field(description=HEADLINE)
    test: str
    state: str
    scheduling_class: SchedulingClass
    priority: int
    starts_at: Instant
    ends_at: Instant
    participants: tuple[str, ...]
    reason: str | None
    outcome: JudgedOutcome | None = Field(
        None, description="What is to be thought of it; null while it is not over, or with as_of."
    )
    summary: str | None


class ScheduleChangeKind(StrEnum):
    """A kind of change of the schedule between two instants."""

    ADDED = "added"
    MOVED = "moved"
    """The same slot of the task was booked at another time."""
    DISPLACED = "displaced"
    CANCELLED = "cancelled"
    MISSED = "missed"


class ScheduleChange(Document):
    """A run that was booked at one of two instants only, or at another time."""

    run: UUID = Field(description="The run that is booked at the later instant, or was lost.")
    task: UUID
    headline: str = Field(description=HEADLINE)
    test: str
    change: ScheduleChangeKind
    changed_at: Instant = Field(description="When it was booked, or lost.")
    scheduling_class: SchedulingClass
    priority: int
    starts_at: Instant
    ends_at: Instant
    was_starts_at: Instant | None = Field(description="The start at the earlier instant, if moved.")
    participants: tuple[str, ...]
    reason: str | None = Field(description="Why the run of the earlier instant was lost.")
    displaced_by: UUID | None = Field(
        description="The run that displaced it, if it is known here; null for users with the role "
        "run."
    )


class ScheduleDifference(Document):
    """The changes of the schedule between two instants, in the order of starts."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    since: Instant
    until: Instant
    from_: Annotated[Instant, Field(alias="from")] = Field(description="Where the span begins.")
    to: Instant = Field(description="Where the span ends.")
    complete: bool = Field(description="Whether these are all; if not, choose a shorter span.")
    kept_since: Instant = Field(
        description="Runs that ended before this may have been deleted; they are missing here."
    )
    items: tuple[ScheduleChange, ...]


class ScheduleBucket(Document):
    """A piece of a node's time line in one class."""

    starts_at: Instant
    scheduling_class: SchedulingClass
    runs: dict[str, int] = Field(description="The number of runs that overlap it, by state.")
    judgements: dict[str, int] = Field(
        default_factory=dict, description="The number of those that are over, by judgement."
    )
    busy: float = Field(
        description="Its share, 0 to 1, in which at least one of them occupies time of this node, "
        "or of the participant that was asked for: they are held or scheduled, or they ran."
    )


class SchedulePage(Document):
    """A page of a node's time line; the first one has its reserved time, too."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    now: Instant = Field(description="The node's time.")
    from_: Annotated[Instant, Field(alias="from")] = Field(description="Where the span begins.")
    to: Instant = Field(description="Where the span ends.")
    complete: bool = Field(description="Whether no page follows.")
    items: tuple[ScheduleEntry, ...] = Field(description="Runs, in the order of their starts.")
    next: str | None = Field(description="The cursor of the next page; null on the last one.")
    reserved: tuple[ReservedSpan, ...] = ()
    as_of: Instant | None = Field(
        None,
        description="The instant whose schedule it is. Such a schedule has no reserved time, and "
        "no run that was deleted since.",
    )
    buckets: tuple[ScheduleBucket, ...] = Field(
        (), description="With a resolution, in place of items: pieces that have runs, by start."
    )
