"""What nodes say to each other under ``/v1/participant/``, all of it signed.

Here instants and durations are plain integers of microseconds and spans are ``[start, end]``:
batches of hundreds of windows travel in each message and nobody reads them by eye.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Self, TypeVar
from uuid import UUID

from pydantic import Field, model_validator

from node.model import times
from node.model.classes import SchedulingClass
from node.model.reservations import ReservationSpan, in_words
from node.model.wire.circumstances import Circumstances
from node.model.wire.fields import Document
from node.model.wire.problems import Problem
from node.model.wire.seats import PARTICIPANTS_MAX
from node.model.wire.tasks import PRIORITY_MAX, Participant, Schedule

BATCH_MAX = 512
"""Most runs in one exchange."""

YIELDING_MAX = 1000
"""Most runs that are named because they may give way."""

FREED_MAX = 500
"""Most tasks in one message that time became free."""

DIGESTS_MAX = 1000
"""Most tasks in one comparison."""

DIFFERENCES_MAX = 100_000
"""Most runs in the answer to a comparison: what differs beyond that is told the next time."""

OUTPUT_LENGTH_MAX = 20_000
"""Most characters of what a program printed that are kept and sent: its beginning and its end."""

BATCH_ITEMS_MAX = 64
"""Most questions of one kind in one message."""

INTERVALS_PER_MESSAGE_MAX = 64
"""Most intervals in one message."""

Micros = Annotated[int, Field(ge=0, lt=times.LATEST, strict=True)]
Span = tuple[Micros, Micros]
Sentence = Annotated[str, Field(max_length=1000)]
Place = Annotated[int, Field(ge=0, lt=PARTICIPANTS_MAX)]
Length = Annotated[int, Field(gt=0, lt=times.LATEST, strict=True)]
Priority = Annotated[int, Field(ge=-PRIORITY_MAX - 1, le=PRIORITY_MAX, strict=True)]
Epoch = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Revision = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Attempt = Annotated[int, Field(ge=1, lt=2**15, strict=True)]


class FreedRuns(Document):
    """Which of its runs a task has given up.

    Those of a slot from ``slots_from`` on that start at or after ``starting`` and were booked under
    a lease epoch before ``before_epoch``. The epoch makes it safe to hear of it twice or late: what
    was booked since is not meant.
    """

    before_epoch: Epoch
    starting: Micros
    slots_from: Micros
    reason: Sentence


class Introduction(Document):
    """A task made known to a participant before anything is planned, and again at each change."""

    task: UUID
    test: str
    spec: dict[str, Any]
    tools: tuple[str, ...]
    tool: str | None
    scheduling_class: SchedulingClass
    duration: Length
    priority: Priority
    participants: tuple[Participant, ...]
    participant: Place
    addresses: dict[str, str]
    schedule: Schedule
    campaign: str | None
    reference: Any
    created_at: Micros
    revision: Revision = 1
    pool_task: UUID | None = Field(None, description="In which it has seats, if it has any.")
    paused_at: Micros | None = Field(None, description="Since when it is paused, if it is.")
    freeing: FreedRuns | None = None


class IntroductionAnswer(Document):
    """Whether it takes part, and with which tools."""

    accepted: bool
    reason: Sentence | None = None
    tools: tuple[str, ...] = ()
    lacks: dict[str, Sentence] = Field(
        default_factory=dict, description="Why it has not the other tools that could measure this."
    )


Yielding = Annotated[
    tuple[UUID, ...] | None,
    Field(
        max_length=YIELDING_MAX,
        description="The runs that may give way if their priority is lower; null is any.",
    ),
]


class ProposalRequest(Document):
    """When could you? Windows are sorted by start; each must hold one run of ``duration``."""

    task: UUID
    lease_epoch: Epoch
    scheduling_class: SchedulingClass
    duration: Length
    priority: Priority
    yielding: Yielding = None
    windows: Annotated[tuple[Span, ...], Field(min_length=1, max_length=BATCH_MAX)]
    test: Annotated[str, Field(max_length=100)] | None = None
    campaign: Annotated[str, Field(max_length=100)] | None = None
    pool_task: UUID | None = None


class Obstacle(Document):
    """A run that stands in a window's way."""

    window: int = Field(description="Index into the windows asked.")
    run: UUID
    task: UUID
    test: str
    scheduling_class: SchedulingClass
    priority: Priority
    starts_at: Micros
    ends_at: Micros

    def in_words(self) -> str:
        """``an exclusive throughput run of priority 5, 2026-…Z to 2026-…Z``."""
        article = "an" if self.scheduling_class is SchedulingClass.EXCLUSIVE else "a"
        start, end = times.to_the_second(self.starts_at), times.to_the_second(self.ends_at)
        kind = f"{self.scheduling_class} {self.test} run of priority {self.priority}"
        return f"{article} {kind}, {start} to {end}"

    def why(self) -> str:
        """``busy with an exclusive throughput run …``."""
        return f"busy with {self.in_words()}"


class Closure(Document):
    """Reserved time that stands in a window's way, because the reservation does not admit it."""

    window: int = Field(description="Index into the windows asked.")
    reservation: UUID
    kind: str
    name: str
    owner: str
    starts_at: Micros
    ends_at: Micros

    @classmethod
    def of(cls, window: int, each: ReservationSpan) -> Self:
        """This span, in the way of that window."""
        return cls(
            window=window,
            reservation=each.reservation,
            kind=each.kind,
            name=each.name,
            owner=each.owner,
            starts_at=each.starts_at,
            ends_at=each.ends_at,
        )

    def why(self) -> str:
        """``reserved for demo 'SC26' by alice until 2026-…Z, reservation 0b5e…``."""
        return in_words(self.kind, self.name, self.owner, self.reservation, self.ends_at)


class Proposal(Document):
    """The ranges inside the windows in which this node could run.

    ``free`` displaces nothing (pass 1). ``free_displacing`` is what would be free if runs of lower
    priority gave way (pass 2); null where it is the same. Each range lies inside one window.
    """

    now: Micros
    horizon: Micros = Field(description="No run may end later than this.")
    free: tuple[Span, ...]
    free_displacing: tuple[Span, ...] | None = None
    obstacles: tuple[Obstacle | Closure, ...] = ()
    reason: Sentence | None = Field(None, description="Why nothing is offered, if nothing is.")
    particular: bool = Field(
        default=False,
        description="Whether time is reserved here for some: another task may hear otherwise.",
    )


class RunRequest(Document):
    """One run to book."""

    run: UUID
    slot: Micros
    attempt: Attempt
    starts_at: Micros
    ends_at: Micros
    displacing: bool = Field(
        default=False, description="Whether runs of lower priority may be set aside for it."
    )

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if self.ends_at <= self.starts_at:
            msg = "ends before it starts"
            raise ValueError(msg)
        return self


class HoldRequest(Document):
    """Book these runs, for now."""

    task: UUID
    lease_epoch: Epoch
    revision: Revision = 1
    tool: Annotated[str, Field(pattern=r"^[!-~]{0,100}$")]
    priority: Priority
    yielding: Yielding = None
    life: Micros = Field(description="How long the hold lasts without a word from the lead.")
    runs: Annotated[tuple[RunRequest, ...], Field(min_length=1, max_length=BATCH_MAX)]


class Refusal(Document):
    """A run that could not be held, and by what."""

    run: UUID
    reason: Sentence
    obstacle: Obstacle | Closure | None = None


class HoldAnswer(Document):
    """What is held; ``data`` is what this participant adds, such as its port."""

    held: tuple[UUID, ...]
    refused: tuple[Refusal, ...] = ()
    data: dict[str, Any] = {}
    set_aside: int = 0


class CommitRequest(Document):
    """The decision: keep these runs of the exchange, drop the rest."""

    runs: tuple[UUID, ...]
    data: dict[str, dict[str, Any]] = Field(description="Participant data by place, as text.")


class CommitAnswer(Document):
    """``late``: the hold had already been dropped and nothing is booked."""

    late: bool = False


class ExchangeHold(Document):
    """One exchange to hold."""

    exchange: UUID
    hold: HoldRequest


class Ruling(Document):
    """The lead's decision on one exchange: commit these runs, or release all of them.

    A release names its task: it may come before the hold, and is remembered.
    """

    exchange: UUID
    commit: CommitRequest | None = None
    release: UUID | None = Field(None, description="The task whose exchange is released.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.commit is None) == (self.release is None):
            msg = "is either a commit or a release"
            raise ValueError(msg)
        return self


One = TypeVar("One", bound=Document)


class Batch(Document, Generic[One]):
    """Several questions of one kind in one message; each is answered for itself, in order."""

    items: Annotated[tuple[One, ...], Field(min_length=1, max_length=BATCH_ITEMS_MAX)]


class BatchReply(Document, Generic[One]):
    """The answer to one of them, or why there is none."""

    answer: One | None = None
    problem: Problem | None = None


class BatchReplies(Document, Generic[One]):
    """The answers to several questions, in their order."""

    items: tuple[BatchReply[One], ...]


class DecisionAnswer(Document):
    """The lead's word on an exchange; unknown exchanges are aborted."""

    state: str = Field(pattern="^(open|committed|aborted)$")
    commit: CommitRequest | None = None


class FreedTime(Document):
    """Time that was refused to these tasks has become free: their lead may plan them now."""

    tasks: Annotated[tuple[UUID, ...], Field(min_length=1, max_length=FREED_MAX)]


class RunEnd(Document):
    """A run is over before or instead of being measured."""

    run: UUID
    state: str = Field(pattern="^(cancelled|displaced)$")
    reason: Sentence
    displaced_by: UUID | None = None


class TaskEnd(Document):
    """A task is over: for everybody if its lead says so, for itself if a participant does."""

    task: UUID
    state: str = Field(pattern="^(cancelled|refused|finished)$")
    reason: Sentence


class PartMessage(Document):
    """One participant's part, sent to the lead, with what its program printed, size-limited."""

    run: UUID
    result: dict[str, Any] | None
    reason: Sentence | None
    started_at: Micros | None
    finished_at: Micros | None
    command: tuple[str, ...] | None
    output: Annotated[str, Field(max_length=OUTPUT_LENGTH_MAX)] | None = None
    circumstances: Circumstances | None = None


class IntervalShare(Document):
    """What one participant saw in one interval of a run, or why it saw nothing."""

    number: Annotated[int, Field(ge=0, lt=2**31, strict=True)]
    result: dict[str, Any] | None
    reason: Sentence | None


class IntervalsMessage(Document):
    """One participant's share of some intervals of a run that goes on, sent to the lead."""

    run: UUID
    intervals: Annotated[
        tuple[IntervalShare, ...], Field(min_length=1, max_length=INTERVALS_PER_MESSAGE_MAX)
    ]

    @model_validator(mode="after")
    def _are_in_order(self) -> Self:
        numbers = [each.number for each in self.intervals]
        if sorted(set(numbers)) != numbers:
            msg = "the intervals are not in their order, or one of them comes twice"
            raise ValueError(msg)
        return self


class Digest(Document):
    """The runs to come of one task as one side has them, for comparison."""

    task: UUID
    state: str
    count: int
    fingerprint: str = Field(description="SHA-256 over the sorted ids of its runs to come.")


class DigestRequest(Document):
    """Compare these tasks; the answer lists those that differ."""

    now: Micros
    until: Micros
    tasks: Annotated[tuple[Digest, ...], Field(max_length=DIGESTS_MAX)]


class Differences(Document):
    """What the other side has of each differing task: its state, and its runs to come."""

    tasks: dict[UUID, tuple[UUID, ...]] = {}
    ended: dict[UUID, str] = {}
