"""Runs, and why they are where they are, as the API shows them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from node.model.classes import SchedulingClass
from node.model.verdict import Level
from node.model.wire.archives import Archiving
from node.model.wire.circumstances import Circumstances
from node.model.wire.fields import Document, Instant


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
        None, description="What the program printed; of long output the beginning and the end."
    )
    circumstances: Circumstances | None = Field(
        None, description="What its host was doing meanwhile; null if its node told nothing."
    )


class MetricView(Document):
    """One figure of a result, of which series are made."""

    name: str = Field(description="The same in all results of a test.")
    value: float
    unit: str = Field(description="ms, bit/s, 1 (a fraction or plain number), or what is counted.")
    labels: dict[str, str] = Field(description="What tells figures of one name apart.")


class Run(Document):
    """A run as this node knows it; the lead knows it whole, a participant its own part."""

    id: UUID
    task: UUID
    test: str
    tool: str | None
    state: str = Field(
        description="waiting, held, scheduled, set-aside, running, merging, finished, failed, "
        "missed, cancelled, displaced or unplaced."
    )
    reason: str | None = Field(description="Why it did not happen, in one sentence.")
    scheduling_class: SchedulingClass
    priority: int
    starts_at: Instant
    ends_at: Instant
    slot: Instant = Field(description="Nominal start.")
    attempt: int
    participants: tuple[str, ...]
    participant: int | None = Field(description="This node's place among them.")
    lead: str
    started_at: Instant | None
    finished_at: Instant | None
    start_error_ms: float | None = Field(
        description="How late this node's part started, in milliseconds."
    )
    displaced_by: UUID | None
    summary: str | None
    result: dict[str, Any] | None
    verdict: Level | None = Field(
        None, description="How far the result can be trusted (at the lead); null without a result."
    )
    verdict_reasons: tuple[str, ...] = Field(
        (), description="Why it is not clean: sentences, the worst first."
    )
    metrics: tuple[MetricView, ...] = Field(
        (), description="The figures of a finished run's result; what a chart shows first is first."
    )
    parts: tuple[PartView, ...] | None = Field(
        None, description="Each participant's part; only where one run is asked for."
    )


class RunInterval(Document):
    """One interval of a run that lasts long; the lead knows them while the run lasts."""

    number: int = Field(description="Counted from 0.")
    starts_at: Instant
    ends_at: Instant
    result: dict[str, Any] | None = Field(description="What was measured; null is a gap.")
    summary: str | None
    reason: str | None = Field(description="Why it is a gap, or what the result lacks.")
    metrics: tuple[MetricView, ...] = Field(
        (), description="The figures of its result, named as those of a run are."
    )


class Decision(Document):
    """One planning attempt, or several in a row with the same outcome for the same reason."""

    id: int
    task: UUID
    decided_at: Instant = Field(description="The last time.")
    first_at: Instant = Field(description="The first time; differs if it was more than once.")
    times: int = Field(description="How often in a row; the trace is that of the last time.")
    outcome: str
    sentence: str
    asked: int
    placed: int
    first_slot: Instant | None
    last_slot: Instant | None
    trace: dict[str, Any]


class Explanation(Document):
    """Why a task or a run is as it is: one sentence first, then every decision, newest first."""

    task: UUID
    run: UUID | None
    state: str
    sentence: str
    tool: str | None = Field(None, description="With what it measures.")
    tool_reason: str | None = Field(None, description="Why with that.")
    decisions: tuple[Decision, ...]
    archivings: tuple[Archiving, ...] = Field(
        (), description="Of a run that is over: where its outcome went, or why not yet."
    )


class ScheduleEntry(Document):
    """One span on this node's time line."""

    run: UUID
    task: UUID
    test: str
    state: str
    scheduling_class: SchedulingClass
    priority: int
    starts_at: Instant
    ends_at: Instant
    participants: tuple[str, ...]
    reason: str | None
    summary: str | None
