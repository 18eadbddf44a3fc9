"""The lead's values: claimed tasks, pool tasks, their seats, and the outcomes of planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from node.model.host_limits.standing import LimitStanding
from node.model.outcomes import PlanningOutcome
from node.model.reason import Reason
from node.model.runstate import RunState
from node.model.task_terms import TaskTerms
from node.model.taskstate import TaskState
from node.model.terms import Term
from node.model.wire.campaigns import DEFAULT


@dataclass(frozen=True)
class Claim:
    """A task that a worker has leased.

    For the ordinary task of a seat, ``parent`` is the pool task and ``pool`` its pool.
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
    """The runs that its own may displace; None is any run of lower priority."""
    starts: list[int] | None = None
    """The starts that were found when the seat was given, to be used if still free."""
    suspended: str | None = None
    """The name of its campaign, if that is suspended."""
    limited: bool = False
    """True if its campaign, or one above that, has limits."""
    privileged: bool = False
    """True if its campaign is urgent, or a preemptor."""
    level: int = 0
    """The level of its campaign."""
    limit: LimitStanding = field(default_factory=LimitStanding)
    """Its standing with the limits of this host, which may bind the user whose task it is."""
    taken_from: str | None = None
    """The process whose lease on it ran out, so that what that one held is still held."""
    lead: str = ""
    """The identity of this node."""

    @property
    def others(self) -> list[str]:
        """The other nodes that book its runs, by identity."""
        return [party.node for party in self.terms.parties if party.node != self.lead]

    @property
    def is_held_here(self) -> bool:
        """Return whether this node books its runs as well, and does not only decide on them."""
        return len(self.others) < len(self.terms.parties)


@dataclass(frozen=True)
class UnplacedSlot:
    """A slot that found no time: it waits or is given up, with the reason."""

    run: UUID
    slot: int
    attempt: int
    state: RunState
    reason: Reason


@dataclass(frozen=True)
class WaitingSlot:
    """A slot that waits for time, the number of its attempt, and what is in its way.

    ``failed_at`` is when an earlier attempt came to nothing, if one did.
    """

    slot: int
    attempt: int
    reason: str
    failed_at: int | None = None


@dataclass(frozen=True)
class PlanningDecision:
    """One planning attempt as it is stored: a sentence for people, and the trace behind it."""

    outcome: PlanningOutcome
    sentence: Reason
    asked: int
    placed: int
    first_slot: int | None
    last_slot: int | None
    exchange: UUID | None = None
    trace: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def broken_off(cls, sentence: Reason) -> PlanningDecision:
        """Return the decision of an attempt that an unexpected error ended."""
        return cls(PlanningOutcome.BROKEN_OFF, sentence, 0, 0, None, None)


@dataclass(frozen=True)
class AgendaUpdate:
    """The agenda of a task after a planning attempt.

    ``waits_for`` is the participant that does not answer. At ``waits_until`` the task is planned
    even if that participant is still silent. ``wants_room``: limits of its campaign left less time
    for the slots that wait. ``known_epoch`` is the highest lease epoch that a participant knows.
    """

    planned_to: int | None
    next_run_at: int | None
    plan_at: int | None
    failures: int
    waits_for: str | None = None
    waits_until: int | None = None
    wants_room: bool = False
    known_epoch: int = 0


Key = tuple[UUID, int]
"""A term: its pool task and its first slot."""


@dataclass(frozen=True)
class PoolTask:
    """A pool task whose terms are to be opened, or whose seats are to be given."""

    id: UUID
    terms: TaskTerms
    pool: str
    request: dict[str, Any]
    next_slot: int | None
    due_at: int | None
    rounds_left: int | None
    limit: LimitStanding = field(default_factory=LimitStanding)
    """Its standing with the limits of this host, which may bind the user whose task it is."""

    @property
    def campaign(self) -> str:
        """The campaign that pays for the seats."""
        return self.terms.campaign or DEFAULT

    @property
    def criteria(self) -> PoolTaskCriteria:
        """The criteria for the nodes that could have its seats."""
        terms = self.terms
        return PoolTaskCriteria(
            self.id, terms.test, terms.spec, terms.tools, self.pool, self.request
        )


@dataclass(frozen=True)
class NextTerm:
    """The first slot of the next term, when that term is due, and how many rounds are left.

    Without a ``next_slot`` there are no more terms. Without ``rounds_left`` there are as many
    rounds as slots.
    """

    next_slot: int | None
    due_at: int | None
    rounds_left: int | None


@dataclass(frozen=True)
class NextTry:
    """The next search for a term's empty seats, after ``tries`` without success; None is never.

    ``reason`` says why they are empty, ``wants_room`` whether a limit of the campaign is among the
    reasons. ``misses`` are the latest starts that runs of the term are expected to miss, in order.
    """

    tries: int
    at: int | None
    reason: Reason | None
    wants_room: bool = False
    misses: Sequence[int] = ()


@dataclass(frozen=True)
class OpenTerm:
    """A term of a pool task; no run of it can start later than ``over_at``.

    The search for nodes failed ``tries`` times in a row, for this ``reason``, and was to be
    repeated at ``try_at``.
    """

    task: UUID
    term: Term
    over_at: int
    seats: int
    tries: int = 0
    reason: str | None = None
    try_at: int | None = None
    blocked: bool = False
    """True if it takes part only so that others wait for it: it is not to be tried again yet."""

    @property
    def key(self) -> Key:
        """The pool task, and the first slot of the term."""
        return self.task, self.term.starts_at


@dataclass(frozen=True)
class FinishedTerm:
    """A term whose seats need no more nodes, read at this revision of its task.

    Either its time is over and ``empty`` seats stayed empty, or none is empty and ``held`` are
    taken.
    """

    open: OpenTerm
    revision: int
    empty: int
    held: int


@dataclass(frozen=True)
class PoolTaskCriteria:
    """The part of a pool task that decides which nodes could have its seats.

    ``reason`` is what its pool lacks for it, if it lacks anything.
    """

    task: UUID
    test: str
    spec: dict[str, Any]
    tools: Sequence[str]
    pool: str
    request: dict[str, Any]
    reason: str | None = None


@dataclass(frozen=True)
class HeldSeat:
    """A held seat: its pool task, the identity of its node, and its ordinary task."""

    task: UUID
    node: str
    seat_task: UUID


@dataclass(frozen=True)
class TurnedDown:
    """The refusals of a pool task's seats by a node: their number, the last one, and its reason."""

    times: int
    last_at: int
    reason: str


@dataclass(frozen=True)
class LostSeat:
    """A seat that a node (by name) has lost, and the reason."""

    task: UUID
    term: int
    number: int
    name: str
    reason: str


@dataclass(frozen=True)
class LedRun:
    """A booked run that this node leads; nodes by identity."""

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
    """An ordinary task of seats that was not planned yet; nodes by identity.

    Its runs are to start at ``starts``, as far as these are known.
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
    """A seat given to a node (its identity), and the ordinary task for its runs.

    ``yielding`` are the runs that these may displace; None is any run of lower priority. The runs
    start at ``starts`` if that time is still free.
    """

    number: int
    node: str
    task: UUID
    yielding: Sequence[UUID] | None = None
    starts: Sequence[int] = ()


@dataclass(frozen=True)
class PolicyMemory:
    """The state that the policies of a pool keep between episodes, and its revision."""

    state: Mapping[str, Any]
    revision: int
