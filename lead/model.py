"""The lead's values: a claimed task, and what came of planning it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from node.model.classes import SchedulingClass


@dataclass(frozen=True)
class SeatWeights:
    """What a run is charged for on each of its nodes, in thousandths of a seat.

    ``normal`` None: a lane, which is the part of an exclusive run's that the node says.
    """

    exclusive: int = 1000
    normal: int | None = None
    background: int = 0

    def charges(self, scheduling_class: SchedulingClass) -> bool:
        """Whether runs of this class are charged for at all."""
        match scheduling_class:
            case SchedulingClass.EXCLUSIVE:
                return self.exclusive > 0
            case SchedulingClass.NORMAL:
                return self.normal != 0
            case SchedulingClass.BACKGROUND | SchedulingClass.BACKGROUND_MULTI:
                return self.background > 0


@dataclass(frozen=True)
class Claim:
    """A task that a worker holds the lease of."""

    task: UUID
    next_run_at: int
    planned_to: int | None
    failures: int
    lease_epoch: int
    state: str
    test: str
    spec: dict[str, Any]
    tool: str | None
    tools: list[str]
    scheduling_class: SchedulingClass
    duration: int
    priority: int
    participants: list[dict[str, Any]]
    participant: int | None
    addresses: dict[str, str]
    schedule: dict[str, Any]
    campaign: str | None
    reference: Any
    created_at: int
    revision: int = 1
    freeing: dict[str, Any] | None = None


@dataclass(frozen=True)
class UnplacedSlot:
    """A slot that found no time: it waits, or is given up, and says why."""

    run: UUID
    slot: int
    attempt: int
    state: str
    reason: str


@dataclass(frozen=True)
class WaitingSlot:
    """A slot that waits: which one, which attempt it is, and what stood in its way."""

    slot: int
    attempt: int
    reason: str


@dataclass(frozen=True)
class Decision:
    """One planning attempt, to be stored: the sentence for people and the trace behind it."""

    outcome: str
    sentence: str
    asked: int
    placed: int
    first_slot: int | None
    last_slot: int | None
    exchange: UUID | None = None
    trace: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Following:
    """What the agenda says after a planning attempt.

    ``waits_for`` is the participant that does not answer, ``waits_until`` when the task is planned
    even if that one is still silent.
    """

    planned_to: int | None
    next_run_at: int | None
    plan_at: int | None
    failures: int
    waits_for: str | None = None
    waits_until: int | None = None
