"""The lead's values: a claimed task, and what came of planning it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.outcomes import PlanningOutcome
from node.model.runstate import RunState
from node.model.task_terms import TaskTerms
from node.model.taskstate import TaskState
from node.model.terms import Term
from node.model.wire.campaigns import DEFAULT


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
    """A task that a worker holds the lease of.

    Of a task that has seats, ``parent`` is the pool task and ``pool`` its pool.
    """

    task: UUID
    next_run_at: int
    planned_to: int | None
    failures: int
    lease_epoch: int
    state: TaskState
    terms: TaskTerms
    participant: int | None
    freeing: dict[str, Any] | None = None
    parent: UUID | None = None
    pool: str | None = None
    yielding: list[UUID] | None = None
    """The runs that may give way to its own; None is any of lower priority."""
    starts: list[int] | None = None
    """When its runs start if that time is still free: it was found when the seat was given."""
    suspended: str | None = None
    """Its campaign, if that is suspended."""


@dataclass(frozen=True)
class UnplacedSlot:
    """A slot that found no time: it waits, or is given up, and says why."""

    run: UUID
    slot: int
    attempt: int
    state: RunState
    reason: str


@dataclass(frozen=True)
class WaitingSlot:
    """A slot that waits: which one, which attempt it is, and what stood in its way."""

    slot: int
    attempt: int
    reason: str


@dataclass(frozen=True)
class PlanningDecision:
    """One planning attempt, to be stored: the sentence for people and the trace behind it."""

    outcome: PlanningOutcome
    sentence: str
    asked: int
    placed: int
    first_slot: int | None
    last_slot: int | None
    exchange: UUID | None = None
    trace: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AgendaUpdate:
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


Key = tuple[UUID, int]
"""A term: its pool task and its first slot."""


@dataclass(frozen=True)
class PoolTask:
    """A pool task with something to do for it."""

    id: UUID
    terms: TaskTerms
    pool: str
    request: dict[str, Any]
    next_slot: int | None
    due_at: int | None
    rounds_left: int | None

    @property
    def campaign(self) -> str:
        """The campaign that pays for its seats."""
        return self.terms.campaign or DEFAULT

    @property
    def criteria(self) -> PoolTaskCriteria:
        """What it asks of the nodes that could have its seats."""
        terms = self.terms
        return PoolTaskCriteria(
            self.id, terms.test, terms.spec, terms.tools, self.pool, self.request
        )


@dataclass(frozen=True)
class NextTerm:
    """With which slot the next term begins, when it is due, and how many rounds are left.

    No ``next_slot``: there are no more terms. No ``rounds_left``: as many as there are slots.
    """

    next_slot: int | None
    due_at: int | None
    rounds_left: int | None


@dataclass(frozen=True)
class OpenTerm:
    """A term; no run of it can start later than ``over_at``.

    Nodes were looked for ``tries`` times in a row and not found, for this ``reason``; they were to
    be looked for again at ``try_at``.
    """

    task: UUID
    term: Term
    over_at: int
    seats: int
    tries: int = 0
    reason: str | None = None
    try_at: int | None = None

    @property
    def key(self) -> Key:
        """What it is known by."""
        return self.task, self.term.starts_at


@dataclass(frozen=True)
class FinishedTerm:
    """A term of which nothing is to be given any more, as it was read with its task's revision.

    Its time is over, and so many of its seats stayed ``empty``; or none is, and so many are held.
    """

    open: OpenTerm
    revision: int
    empty: int
    held: int


@dataclass(frozen=True)
class PoolTaskCriteria:
    """A pool task as far as it says who could have its seats, and what its pool lacks."""

    task: UUID
    test: str
    spec: dict[str, Any]
    tools: Sequence[str]
    pool: str
    request: dict[str, Any]
    reason: str | None = None


@dataclass(frozen=True)
class HeldSeat:
    """A seat that is held: of which pool task, by whom (its identity), and its ordinary task."""

    task: UUID
    node: str
    seat_task: UUID


@dataclass(frozen=True)
class LostSeat:
    """A seat that somebody (by name) has lost, and why."""

    task: UUID
    term: int
    number: int
    name: str
    reason: str


@dataclass(frozen=True)
class BookedRun:
    """A run that is booked; nodes by identity."""

    id: UUID
    task_id: UUID
    campaign: str
    starts_at: int
    ends_at: int
    scheduling_class: str
    priority: int
    running: bool
    nodes: list[str]


@dataclass(frozen=True)
class UnplannedSeatTask:
    """An ordinary task that has seats and of which nothing is planned yet; nodes by identity.

    Its runs are to start at ``starts``, as far as that is known.
    """

    task: UUID
    campaign: str
    schedule: dict[str, Any]
    duration: int
    created_at: int
    scheduling_class: str
    priority: int
    nodes: list[str]
    starts: list[int]


@dataclass(frozen=True)
class SeatGrant:
    """A seat that is given to a node (its identity), and the ordinary task for its runs.

    ``yielding`` are the runs that may give way to these; None is any of lower priority. They start
    at ``starts`` if that time is still free.
    """

    number: int
    node: str
    task: UUID
    yielding: Sequence[UUID] | None = None
    starts: Sequence[int] = ()


@dataclass(frozen=True)
class PolicyMemory:
    """What the policies of a pool remember, and how often that was changed."""

    state: Mapping[str, Any]
    revision: int
