"""Campaigns, for whom tasks measure: they share by weight, and have levels, limits, promises."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from node.model import times
from node.model.byte_quotas import BYTES, parse_byte_quota
from node.model.host_limits.closed import Opening
from node.model.limits import Limited
from node.model.wire.fields import FROM_OUTSIDE, Count, Document, Duration, Instant, Name, Patch
from node.model.wire.shared_campaigns import SharedUse
from node.model.wire.tasks import PRIORITY_MAX

DEFAULT: Final = "default"
"""The campaign of tasks that name none; it always exists."""

DEPTH_MAX: Final = 8
URGENT: Final = "urgent"
SUSPENDED: Final = 0
_HIGHEST: Final = 9
_WHOLE: Final = 100


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral() else float(value)


def _refuse_text(value: object) -> object:
    if isinstance(value, str):
        msg = "is text; give a number, without quotes"
        raise ValueError(msg)  # noqa: TRY004 - pydantic reports only ValueError
    return value


Exact = Annotated[
    Decimal,
    BeforeValidator(_refuse_text),
    Field(ge=0, max_digits=12, decimal_places=6, allow_inf_nan=False),
    PlainSerializer(_number, return_type=float, when_used="json"),
]
"""A decimal number that is kept exactly."""

Share = Annotated[
    Decimal,
    BeforeValidator(_refuse_text),
    Field(gt=0, le=1, decimal_places=6, allow_inf_nan=False),
    PlainSerializer(_number, return_type=float, when_used="json"),
]
"""A part of a whole: more than 0, at most 1."""

Part = Annotated[
    Decimal,
    BeforeValidator(_refuse_text),
    Field(ge=0, le=1, decimal_places=6, allow_inf_nan=False),
    PlainSerializer(_number, return_type=float, when_used="json"),
]
"""A part of a whole, which may be nothing: 0 to 1."""


def _level(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value != URGENT and not (whole and 0 <= value <= _HIGHEST):  # type: ignore[operator]
        msg = f"must be a number from 0 (suspended) to {_HIGHEST}, or {URGENT}"
        raise ValueError(msg)
    return value


Level = Annotated[
    int | str,
    PlainValidator(_level),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "enum": list(range(_HIGHEST + 1))},
                {"type": "string", "enum": [URGENT]},
            ],
            "default": 5,
        }
    ),
]
"""The level of a campaign: 0 to 9, or urgent."""

Amount = Annotated[int, Field(ge=0, le=2**40, strict=True)]


def _quota(value: object) -> object:
    if isinstance(value, str):
        return str(parse_byte_quota(value))
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 0 <= value <= 2**40:  # type: ignore[operator]
        msg = "must be a whole number from 0 to 2^40; for bytes, an amount per period: 50G/P1D"
        raise ValueError(msg)
    return value


QuotaAmount = Annotated[
    int | str,
    PlainValidator(_quota),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 2**40},
                {"type": "string", "examples": ["50G/P1D"]},
            ]
        }
    ),
]
"""The quota of a counted resource, or of bytes per period."""
Text = Annotated[str, StringConstraints(max_length=500)]
Resource = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


LeadWord = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""The name or the key of a node that leads tasks."""


class Limit(Document):
    """A limit: ``soft`` applies while others want the pool, ``hard`` always."""

    soft: Amount | None = None
    hard: Amount | None = None

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        if self.soft is None and self.hard is None:
            msg = "has no effect; give soft, hard, or both"
            raise ValueError(msg)
        if self.soft is not None and self.hard is not None and self.soft > self.hard:
            msg = "the soft limit exceeds the hard limit and would never apply; swap them"
            raise ValueError(msg)
        return self


class Target(Document):
    """A promise: a number of seats of a pool, or a share of its seats; and what goes beyond it."""

    seats: Count | None = None
    share: Share | None = None
    borrow: Amount | None = Field(
        None,
        description="Maximum seats that it may hold at once beyond its promise, while others do "
        "not want them; as many as there are without it.",
    )
    lend: Part | None = Field(
        None,
        description="Maximum part of its promise that others may hold while it does not want it; "
        "all of it without it.",
        examples=[0.5],
    )

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        if (self.seats is None) == (self.share is None):
            msg = "needs either seats or share; give exactly one of them"
            raise ValueError(msg)
        return self


class Fairshare(Document):
    """The part of everything delivered that a campaign should get."""

    part: Share
    kind: Literal["target", "floor", "ceiling"] = Field(
        "target", description="A target to meet, a floor to stay above, or a ceiling."
    )


class Queue(Document):
    """Settings for sharing by counted starts: how a campaign's priority moves with each start."""

    floor: Exact = Decimal(0)
    ceiling: Exact = Decimal(100)
    gap: Exact = Field(
        Decimal(100),
        description="Campaigns this far below it are held back while this one is stuck.",
    )
    gain: Exact = Field(Decimal(1), description="Increase of its priority with every start.")
    price: Exact = Field(Decimal(1), description="Decrease of its priority with its own start.")
    passes: Count | None = Field(
        None, description="Its later tasks may overtake one that has waited this many times."
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.floor > self.ceiling:
            msg = "floor is above ceiling; swap them"
            raise ValueError(msg)
        return self


class SeatTimeBudget(Document):
    """A budget of seat-time until an instant, of a campaign and those below it together.

    What is used and what is booked counts; what does not take place is given back.
    """

    seat_hours: Annotated[Exact, Field(gt=0, le=10_000_000)] = Field(
        description="How many seat-hours: one is an exclusive run on one node for an hour.",
        examples=[200],
    )
    since: Instant | None = Field(
        None,
        description="Runs from this hour on count; by default from the one in which the budget is "
        "given.",
    )
    until: Instant = Field(description="Runs that start then or later do not count.")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.since is not None and self.since >= self.until:
            msg = "until is not later than since; the budget would be for no time"
            raise ValueError(msg)
        return self


class TimedWeight(Document):
    """Another weight of a campaign at recurring times."""

    weight: Annotated[Exact, Field(gt=0)] = Field(examples=[1])
    cron: Annotated[str, StringConstraints(max_length=200)] = Field(
        description="When it begins to count: five cron fields.", examples=["0 20 * * *"]
    )
    duration: Annotated[Duration, Field(gt=0, le=31 * times.DAY)] = Field(
        description="How long it counts each time.", examples=["PT10H"]
    )
    timezone: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        None, description="Zone of the cron fields; UTC by default.", examples=["Europe/Berlin"]
    )

    @property
    def opening(self) -> Opening:
        """The times at which it counts."""
        return Opening(self.cron, self.duration, self.timezone)

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        for fault in self.opening.faults():
            msg = f"{fault.pointer.removeprefix('/')} {fault.detail}"
            raise ValueError(msg)
        return self


class CampaignDocument(Document):
    """A campaign as posted."""

    name: Name = Field(description="Its name, such as ops.")
    parent: Name | None = Field(
        None, description="The campaign whose share it divides; siblings compare their weights."
    )
    weight: Exact = Field(
        Decimal(1), description="Its share is proportional to its weight.", examples=[1, 2.5]
    )
    timed_weights: tuple[TimedWeight, ...] = Field(
        (),
        max_length=20,
        description="Other weights at recurring times. One counts in each hour (of UTC) at whose "
        "beginning it applies; of several, the first.",
    )
    leads: tuple[LeadWord, ...] = Field(
        (),
        max_length=20,
        description="Other leads, by name or key, whose campaign of this name counts as one with "
        "it, if it names this lead: what each has used and booked counts toward budgets, quotas of "
        "bytes and shares of all.",
    )
    level: Level = Field(
        5,
        description="Higher levels go first where policies use levels; urgent is above 9. 0 "
        "suspends the campaign and those below it: they book nothing new, but runs already booked "
        "take place.",
    )
    priority: int = Field(
        0,
        ge=-PRIORITY_MAX - 1,
        le=PRIORITY_MAX,
        strict=True,
        description="Added to the priority of its tasks where policies compute priorities.",
    )
    preemptor: bool = Field(
        default=False, strict=True, description="May displace runs of preemptee campaigns."
    )
    preemptee: bool = Field(default=False, strict=True)
    seats_max: Count | None = Field(None, description="Maximum seats that it may hold at once.")
    target: Target | None = Field(None, description="What the campaign is promised.")
    fairshare: Fairshare | None = None
    limits: dict[Limited, Limit] = Field(
        default_factory=dict,
        description="Limits on running work (runs, nodes, seats, seat_seconds, seconds), on the "
        "due runs that are considered (due_…), or on what is delivered (delivered_…).",
        examples=[{"runs": {"soft": 10, "hard": 50}}],
    )
    quotas: dict[Resource, QuotaAmount] = Field(
        default_factory=dict,
        max_length=50,
        description="Maximum of a counted resource that its runs may use at once; for `bytes`, of "
        "the payload that it and the campaigns below it may move on all nodes together within a "
        "period of whole hours (1 h to 31 d).",
        examples=[{"mbps": 1000, "bytes": "50G/P1D"}],
    )
    queue: Queue | None = None
    budget: SeatTimeBudget | None = Field(
        None, description="The seat-time that it and the campaigns below it may have in all."
    )
    owner: Text | None = Field(None, description="The owner of the campaign.")
    contact: Text | None = Field(None, description="How to reach the owner.")
    description: Text | None = None
    state: Literal["active", "closed"] = Field(
        "active", description="closed: it takes no new tasks; its existing tasks continue."
    )

    @field_validator("quotas")
    @classmethod
    def _check_quota_kinds(cls, quotas: dict[Resource, int | str]) -> dict[Resource, int | str]:
        for what, most in quotas.items():
            if isinstance(most, str) != (what == BYTES):
                form = "an amount per period: 50G/P1D" if what == BYTES else "a whole number"
                msg = f"the quota of {what} must be {form}"
                raise ValueError(msg)
        return quotas

    @field_validator("limits")
    @classmethod
    def _check_percentages(
        cls, limits: dict[Limited, Limit], info: ValidationInfo
    ) -> dict[Limited, Limit]:
        """Refuse percentages above 100, which would not limit anything; keep stored ones."""
        limit = limits.get("delivered_percent")
        if (
            info.context == FROM_OUTSIDE
            and limit
            and max(limit.soft or 0, limit.hard or 0) > _WHOLE
        ):
            msg = "delivered_percent is a percentage of all that is delivered; give at most 100"
            raise ValueError(msg)
        return limits


class CampaignPatch(Patch):
    """Changes of a campaign, as a JSON merge patch (RFC 7396): null restores the default."""

    name: Name | None = Field(None, description="Cannot be changed.")
    parent: Name | None = None
    weight: Exact | None = None
    timed_weights: list[dict[str, Any]] | None = None
    leads: list[LeadWord] | None = None
    level: Level | None = None
    priority: int | None = Field(None, ge=-PRIORITY_MAX - 1, le=PRIORITY_MAX, strict=True)
    preemptor: bool | None = Field(None, strict=True)
    preemptee: bool | None = Field(None, strict=True)
    seats_max: Count | None = None
    target: dict[str, Any] | None = None
    fairshare: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None
    quotas: dict[str, Any] | None = None
    queue: dict[str, Any] | None = None
    budget: dict[str, Any] | None = None
    owner: Text | None = None
    contact: Text | None = None
    description: Text | None = None
    state: Literal["active", "closed"] | None = None


class Waiting(Document):
    """Runs without a time so far, and seats of pool tasks without a node."""

    runs: int
    seats: int = Field(
        0, description="The missing seats, summed over pool tasks; of each its worst term counts."
    )
    tasks: int
    reason: str | None = Field(description="The most frequent obstacle.")


class Used(Document):
    """The usage and the bookings of a campaign and its descendants.

    ``promised`` and the shares are parts of what all campaigns use in the same period.
    """

    promised: float | None = Field(
        description="Its share by weight among the campaigns with demand; null for urgent "
        "campaigns, which are served first."
    )
    by_weight: float | None = Field(
        None,
        description="Its share if all campaigns had demand; null for urgent campaigns. A share "
        "includes the descendants, which divide it.",
    )
    delivered: float | None = Field(
        description="Its part of the seat-seconds of the last 24 hours; null if nobody had any."
    )
    booked: float | None = Field(description="Its part of the seat-seconds booked ahead.")
    delivered_seat_seconds: float
    booked_seat_seconds: float
    delivered_bytes: int = Field(
        0,
        description="The payload of its runs of the last 24 hours, sent and received, on each "
        "node: measured where the test tells, otherwise as expected.",
    )
    booked_bytes: int = Field(0, description="The payload that runs booked ahead will move.")


class Budget(Document):
    """The use that a campaign makes of one of its limits or quotas."""

    what: str = Field(description="Its name in `limits` or `quotas`, seats_max, or seat_hours.")
    soft: float | None
    hard: float | None
    used: float = Field(description="The use of now: booked, running, or within the period.")
    peak: float = Field(description="The most at any time from now on, by what is booked so far.")
    period: Duration | None = Field(None, description="Of the quota of bytes.")
    until: Instant | None = Field(None, description="Of the budget of seat-hours.")


class Campaign(CampaignDocument):
    """A campaign as the API shows it."""

    revision: int
    created_at: Instant
    changed_at: Instant
    tasks: dict[str, int] = Field(description="Number of tasks by state.")
    waiting: Waiting
    used: Used
    budgets: tuple[Budget, ...] = Field(
        (),
        description="The use of its limits and quotas, but for limits on due runs; only if asked "
        "for with `budgets`.",
    )
    shared: tuple[SharedUse, ...] = Field(
        (), description="What is known of the leads that share it."
    )
    warnings: tuple[str, ...] = Field(
        (),
        description="Settings that are allowed but probably unintended, such as a promise that no "
        "pool can keep.",
    )


class ContestedPart(Document):
    """The part that a campaign and those below it have, want, and are due of contested time."""

    campaign: str = Field(description="Or the level, where campaigns of a level count as one.")
    weight: float
    had: float = Field(description="What it has of the time: seats that are given, and runs.")
    due: float = Field(description="What its weight gives it of all that is given there.")
    wanted: float = Field(description="What it has, and what waits.")


class ContestedTime(ContestedPart):
    """The standing of a campaign, or one above it, in time of a pool that others want, too."""

    pool: Name
    starts_at: Instant
    ends_at: Instant
    unit: Literal["seat-seconds", "starts"] = Field(description="What the pool's set divides.")
    depth: int = Field(description="0 is the topmost level: the one where its parents divide.")
    behind: float = Field(description="By how much the campaign has less than it is due.")
    caught_up_at: Instant | None = Field(
        description="From when on it is within a run of its part of what all have had by then; "
        "null if not by the end of this time, as things are."
    )
    others: tuple[ContestedPart, ...] = Field(description="Those with which it divides there.")


class UsageHour(Document):
    """The charge of a campaign for one hour, without its descendants."""

    campaign: Name
    starts_at: Instant
    nodes: int
    seat_seconds: float = Field(
        description="3600 are one exclusive run on one node for the whole hour."
    )
    share: float = Field(description="Its part of everything charged in this hour.")
    bytes: int = Field(0, description="The payload of the runs that start in this hour.")
