"""Tasks: the document that a user posts, and what the API shows."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)

from node.model import times
from node.model.classes import SchedulingClass
from node.model.conditions import parse_condition
from node.model.contexts import ContextWord
from node.model.resources import NUMBER_MAX, RESOURCE, TAKING
from node.model.secrets import has_sealed
from node.model.wire.archives import ArchiveChoice
from node.model.wire.fields import (
    FROM_OUTSIDE,
    HEADLINE,
    KIND,
    Count,
    Document,
    Duration,
    Host,
    Instant,
    Moment,
    Name,
    Patch,
    instant_of,
)
from node.model.wire.outcomes import JudgedOutcome
from node.model.wire.seats import PARTICIPANTS_MAX, SeatCount, SeatRequest

PRIORITY_MAX = 2**31 - 1
ARCHIVES_MAX = 16
_WITHIN_MAX, _WITHIN_WHEN = 30 * times.DAY, 10 * times.MINUTE
PER_HOUR, PER_HOUR_MAX = 2, 60
"""The number of runs for which a condition may ask in an hour, by default and at most."""
_RETRY_AFTER, _RETRY_AFTER_MIN = 10 * times.SECOND, times.SECOND


class TestChoice(Document):
    """The test to run, with its parameters."""

    type: Name
    spec: dict[str, Any] = Field(
        default_factory=dict, description="The test's own fields; see /v1/tests."
    )

    @field_validator("spec")
    @classmethod
    def _refuse_sealed(cls, spec: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Refuse what is sealed: it would be opened for whoever has seen it somewhere."""
        if info.context == FROM_OUTSIDE and has_sealed(spec):
            msg = 'has a sealed text, which only the node writes; write the value, or {"secret": …}'
            raise ValueError(msg)
        return spec


class RetryTerms(Document):
    """The terms of further attempts of a slot whose run was missed, or failed for the moment."""

    times: int = Field(
        2, ge=0, le=20, strict=True, description="How often a slot is tried again; 0 is never."
    )
    after: Annotated[Duration, Field(ge=_RETRY_AFTER_MIN, le=_WITHIN_MAX)] = Field(
        _RETRY_AFTER, description="How much later than the end of the run before, at least."
    )
    within: Annotated[Duration, Field(gt=0)] | None = Field(
        None,
        description="How much later than the nominal start of the slot; the slip by default, and "
        "never more.",
    )


_BUDGET = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,3})", re.ASCII)


def _displacement_budget(written: object) -> object:
    """Return a budget of displacements such as ``1/20`` as it was written."""
    match = _BUDGET.fullmatch(written) if isinstance(written, str) else None
    if match is None or int(match[1]) >= int(match[2]):
        msg = "is no budget such as 1/20: at most one of any twenty runs in a row gives way"
        raise ValueError(msg)
    return written


_RHYTHM = ("repeat", "cron", "timezone", "slip", "max_runs")
"""Fields of a schedule that follow from a number of runs by a deadline."""


class ScheduleTerms(Document):
    """The times of a task, or of tasks of a mesh; empty means once, as soon as possible."""

    start: Moment | None = Field(
        None,
        description="Nominal start of the first run, and the anchor of the interval: an instant, "
        "10m for ten minutes after the task is created, or @1h for the next full hour.",
    )
    repeat: Duration | None = Field(
        None, description="Interval from nominal start to nominal start."
    )
    cron: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="Five cron fields, instead of repeat.", examples=["*/10 8-18 * * 1-5"]
    )
    timezone: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        None, description="Zone of the cron fields; UTC by default.", examples=["Europe/Berlin"]
    )
    until: Moment | None = Field(
        None, description="No run has its nominal start then or later; same forms as start."
    )
    max_runs: Count | None = Field(
        None, description="Number of runs; displaced, cancelled and unplaced ones do not count."
    )
    slip: Duration | None = Field(
        None,
        description="How much later than its nominal start a run may start. The default is a tenth "
        "of the interval, at least 30 s and at most 5 min; 5 min for a single run. It is cut so "
        "that a run never reaches into its next interval.",
    )
    slip_random: bool = Field(
        default=False,
        strict=True,
        description="Start at random within the slip instead of as early as possible.",
    )
    retry: RetryTerms | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="How slots are tried again within their slip; by default twice, each 10 s "
        "after the run before ended. Where the owner of a host does not want it, it does not book "
        "them again.",
    )
    displacement_budget: Annotated[str, BeforeValidator(_displacement_budget)] | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="How many runs may give way to others: of any twenty in a row at most one with "
        "1/20. A run that is placed again within its slip is not lost.",
        examples=["1/20"],
    )

    def at(self, now: int, after: Dependency | None = None) -> Schedule:
        """Return the schedule of a task that is created at ``now``, with relative times fixed.

        ``after`` is the task whose runs it follows, if any.
        """
        moments = {"start": self.start, "until": self.until}
        fixed = {
            name: None if moment is None else instant_of(moment, now)
            for name, moment in moments.items()
        }
        terms = self.model_dump(exclude={"samples"})
        return Schedule.model_validate(terms | fixed | {"after": after})


class ScheduleDocument(ScheduleTerms):
    """The times of a new task as posted: those of any task, or a number of runs by a deadline."""

    samples: Count | None = Field(
        None,
        description="So many runs until `until`, spread evenly, instead of an interval: each has "
        "an equal part of the time, and may start whenever it ends within that. The task is shown "
        "with the interval, the slip and the number of runs that follow from it.",
    )

    @classmethod
    def of(cls, schedule: ScheduleTerms) -> Self:
        """Return a schedule as it would be posted, without samples."""
        return cls(**{name: getattr(schedule, name) for name in ScheduleTerms.model_fields})

    @model_validator(mode="after")
    def _check_samples(self) -> Self:
        """Refuse what contradicts a number of runs by a deadline."""
        if self.samples is None:
            return self
        if self.until is None:
            msg = "samples are spread until a deadline; add until"
            raise ValueError(msg)
        if beside := [name for name in _RHYTHM if getattr(self, name) is not None]:
            msg = f"samples decide {', '.join(beside)}; remove {beside[0]}, or samples"
            raise ValueError(msg)
        return self


class RunOutcome(StrEnum):
    """The outcome that a run must have so that another task's run follows it."""

    SUCCEEDED = "succeeded"
    ENDED = "ended"


def _checked_condition(text: str) -> str:
    """Return a condition as written.

    :raises ValueError: it is none.
    """
    parse_condition(text)
    return text


ConditionText = Annotated[
    str, StringConstraints(min_length=1, max_length=200), AfterValidator(_checked_condition)
]


class DependencyTerms(Document):
    """The runs of another task that a task follows, and how soon."""

    outcome: RunOutcome = Field(
        RunOutcome.SUCCEEDED,
        description="succeeded: after each of its runs that has a result. ended: also after those "
        "that failed. A run that never took place is not followed.",
    )
    within: Annotated[Duration, Field(gt=0, le=_WITHIN_MAX)] = Field(
        times.HOUR,
        description="How much later than the booked end of that run the following run may start; "
        "with when, PT10M by default.",
    )
    when: ConditionText | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="Follow only runs of which this holds: a figure as run list -o csv has it "
        "(loss.forward > 1 %), a judgement (no-answer, failed, missed, bad), or alert NAME, joined "
        "by and, or. It decides instead of outcome. Others leave no trace, and no run follows "
        "while an earlier one is to come or in progress.",
        examples=["loss.forward > 1 % or no-answer"],
    )
    per_hour: int | None = Field(
        None,
        ge=1,
        le=PER_HOUR_MAX,
        strict=True,
        exclude_if=lambda value: value is None,
        description="With when: how many runs may follow in an hour; 2 by default.",
    )

    @model_validator(mode="before")
    @classmethod
    def _follow_soon(cls, value: Any) -> Any:
        """Fill in that what is measured because of a fault is measured while it is there."""
        if isinstance(value, dict) and value.get("when") is not None:
            usual = {"within": times.format_duration(_WITHIN_WHEN), "per_hour": PER_HOUR}
            return usual | value
        return value

    @model_validator(mode="after")
    def _check_condition(self) -> Self:
        if self.per_hour is not None and self.when is None:
            msg = "per_hour is for runs that follow on a condition; add when, or remove per_hour"
            raise ValueError(msg)
        return self


class Dependency(DependencyTerms):
    """The task that a task follows: a run of it leads to a run of the task that has this."""

    task: UUID = Field(description="The task that is followed; this node must lead it.")


class ScheduleTimes(ScheduleTerms):
    """The times of a task as shown: start and until are instants."""

    start: Instant | None = Field(
        None, description="Nominal start of the first run, and the anchor of the interval."
    )
    until: Instant | None = Field(None, description="No run has its nominal start then or later.")


class Schedule(ScheduleTimes):
    """The schedule of a task as stored: its own times, or the runs of another task."""

    after: Dependency | None = Field(
        None, description="The task whose runs it follows, instead of times of its own."
    )

    @property
    def times(self) -> ScheduleTimes:
        """The times alone, as the API shows them beside ``after``; none with it."""
        if self.after is not None:
            return ScheduleTimes()
        return ScheduleTimes.model_validate(self.model_dump(exclude={"after"}))


def _kind(value: object) -> str:
    return _SEATS if isinstance(value, dict | SeatRequest) else _NAMES


_SEATS, _NAMES = f"{KIND}seats", f"{KIND}names"
Participants = Annotated[
    Annotated[tuple[Host, ...], Field(max_length=PARTICIPANTS_MAX), Tag(_NAMES)]
    | Annotated[SeatRequest, Tag(_SEATS)],
    Discriminator(_kind),
]
"""Nodes by name, or a number of nodes of a pool."""


TAKES_MAX = 8
"""Maximum number of resources that a task takes."""

Taking = Annotated[str, Field(pattern=TAKING)]
Takes = Annotated[
    dict[
        Annotated[str, Field(pattern=RESOURCE)],
        Annotated[int, Field(gt=0, le=NUMBER_MAX, strict=True)],
    ],
    Field(min_length=1, max_length=TAKES_MAX),
]
"""Amounts by the names of resources of one keeper."""


class TaskDocument(Document):
    """A task as posted."""

    test: TestChoice
    tools: tuple[Name, ...] = Field(
        (),
        max_length=16,
        description="Tools in order of preference; empty for the best common one.",
    )
    schedule: ScheduleDocument = ScheduleDocument()
    after: Dependency | None = Field(
        None,
        description="Another task whose runs this one follows, instead of a schedule: each run of "
        "that task leads to one run of this task.",
    )
    priority: int = Field(0, ge=-PRIORITY_MAX - 1, le=PRIORITY_MAX, strict=True)
    participants: Participants = Field(
        (),
        description="Names or addresses of nodes, in the order the test wants them "
        "(source, dest), instead of naming them in the spec. Or a request for nodes of a pool.",
    )
    contexts: dict[Host, ContextWord] = Field(
        default_factory=dict,
        max_length=PARTICIPANTS_MAX,
        description="Where on its host a participant measures, by the participant's name: "
        "namespace:NAME, interface:NAME or address:IP, if its owner allows it. Cannot be edited.",
        examples=[{"b": "interface:eth1"}],
    )
    campaign: Name | None = Field(None, description="The campaign that the task measures for.")
    takes: tuple[Taking, ...] = Field(
        (),
        max_length=TAKES_MAX,
        description="Counted resources that each of its runs takes: the name, the node that keeps "
        "it, and the amount if it is not 1. Cannot be edited.",
        examples=[["link-x@hub", "licence@hub:2"]],
    )
    reference: Any = Field(
        None,
        description="Any JSON value; stored and shown, never interpreted. Lists leave it out if it "
        "is longer than 4 kB. A task with other nodes has at most 48 kB in all.",
    )
    archives: tuple[ArchiveChoice, ...] = Field(
        (),
        max_length=ARCHIVES_MAX,
        description="Destinations of its results, in addition to the node's own archives.",
    )

    @property
    def seats(self) -> SeatRequest | None:
        """The request to a pool; None if nodes are named."""
        return self.participants if isinstance(self.participants, SeatRequest) else None

    @property
    def named_participants(self) -> tuple[str, ...]:
        """The participants that are named outside the spec."""
        return () if isinstance(self.participants, SeatRequest) else self.participants

    @model_validator(mode="after")
    def _check_contexts(self) -> Self:
        if self.contexts and self.seats is not None:
            msg = "contexts are for named participants; nodes of a pool are chosen later"
            raise ValueError(msg)
        return self


class TaskPatch(Patch):
    """Changes of a task, as a JSON merge patch (RFC 7396): null removes, what is absent stays.

    The result is then validated like a new task. The test's type and the participants cannot be
    changed, not even with null: that would be another task.
    """

    test: dict[str, Any] | None = Field(None, description="Fields of the test, that is its spec.")
    tools: tuple[Name, ...] | None = Field(None, max_length=16)
    schedule: dict[str, Any] | None = Field(None, description="Fields of the schedule to change.")
    after: dict[str, Any] | None = Field(
        None, description="Fields of the dependency to change; null ends it."
    )
    priority: int | None = Field(None, ge=-PRIORITY_MAX - 1, le=PRIORITY_MAX, strict=True)
    campaign: Name | None = None
    reference: Any = None
    archives: tuple[ArchiveChoice, ...] | None = Field(
        None,
        max_length=ARCHIVES_MAX,
        description="All of them; '(secret)' keeps the stored value at the same place.",
    )
    participants: tuple[Host, ...] | dict[str, Any] | None = Field(
        None,
        description="Refused if it names other nodes. For a pool task: fields of its request to "
        "change.",
    )


class Participant(Document):
    """A node that takes part in a task, as the participants see it."""

    node: str = Field(description="Identity: its public key.")
    name: str
    url: str | None
    address: Host
    context: ContextWord | None = Field(
        None, description="Where on its host it measures; the address is then the context's."
    )
    accepted: bool | None = Field(None, description="Null until it has answered.")
    reason: str | None = Field(
        None,
        description="Why it refused, or has not answered yet; if it has not refused the task, why "
        "it refuses what was changed since.",
    )
    tools: tuple[str, ...] = Field((), description="Tools it has for this test.")
    lacks: dict[str, str] = Field(
        default_factory=dict, description="By tool, why this node lacks it."
    )


PARTICIPANTS = TypeAdapter(tuple[Participant, ...])
"""Reads and writes the participants of a task as the database stores them."""


class Keeper(Participant):
    """A node that keeps resources which the runs of a task take, whether it measures or not."""

    takes: Takes = Field(description="The amount that each run takes, by resource.")


KEEPERS = TypeAdapter(tuple[Keeper, ...])
"""Reads and writes the keepers of a task as the database stores them."""


class LatestRun(Document):
    """The latest run of a task that has a result."""

    run: UUID
    ends_at: Instant
    summary: str = Field(description="Its result in one line.")
    verdict: str | None = Field(description="Whether anything on the hosts has changed the result.")


class Task(Document):
    """A task as the API shows it."""

    id: UUID
    headline: str = Field(description=HEADLINE)
    state: str
    reason: str | None
    waiting: str | None = Field(
        None, description="Why its next run has no time yet, if one waits for time."
    )
    revision: int = Field(1, description="Counts its changes: edits, pauses, resumptions.")
    paused_at: Instant | None = Field(None, description="When it was paused, if it is paused.")
    test: TestChoice
    tool: str | None
    tool_reason: str | None = Field(
        None, description="Why this tool was chosen; only for a single task, at its lead."
    )
    tools: tuple[str, ...]
    schedule: ScheduleTimes
    after: Dependency | None = Field(
        None, description="The task whose runs it follows, if it has no times of its own."
    )
    priority: int
    scheduling_class: SchedulingClass
    duration: Duration
    participants: tuple[Participant, ...]
    lead: str = Field(description="Name of the node that plans it.")
    led_here: bool
    takes: tuple[str, ...] = Field(
        (), description="Counted resources that each of its runs takes, as far as known here."
    )
    campaign: str | None
    reference: Any = Field(description="As it was posted. A list leaves out those beyond 4 kB.")
    reference_left_out: bool = Field(
        default=False,
        description="Whether the reference was left out, because it is longer than 4 kB and this "
        "is an item of a list; GET /v1/tasks/{id} has it.",
    )
    created_at: Instant
    ended_at: Instant | None
    next_run_at: Instant | None = Field(description="When its next run starts, if one is booked.")
    planned: bool = Field(description="Whether a planning attempt has been made.")
    plan_at: Instant | None = Field(
        None,
        description="When it is planned next (at its lead); null when nothing is left to plan.",
    )
    runs: dict[str, int] = Field(
        description="Number of its runs by state; for a pool task, those of its seats."
    )
    judgements: dict[str, int] = Field(
        default_factory=dict, description="Number of those that are over, by judgement."
    )
    latest: LatestRun | None = Field(
        None,
        description="Its latest run with a result; null if none of its last 50 runs has one.",
    )
    outcome: JudgedOutcome | None = Field(
        None, description="That of its newest slot that is over; stale if that is old."
    )
    pool: SeatRequest | None = Field(
        None, description="The request to a pool; null if its participants are named."
    )
    seats: SeatCount | None = Field(
        None, description="The seats of a pool task, once nodes have been chosen."
    )
    archives: tuple[ArchiveChoice, ...] | None = Field(
        None,
        description="Destinations of its results in addition to the node's own archives (at its "
        "lead), with secrets replaced. Only for a single task.",
    )
    parent: UUID | None = Field(
        None, description="The pool task whose seats this ordinary task has, if any."
    )
    requester: str | None = Field(
        None,
        description="The label of the token with which it was created here, or pscheduler:ADDRESS "
        "for a client of pScheduler; null for tasks that other nodes lead.",
    )
