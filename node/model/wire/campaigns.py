"""Campaigns: whom tasks are for. They share by weight, and have levels, limits and promises."""

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

from node.model.limits import Limited
from node.model.wire.fields import FROM_OUTSIDE, Count, Document, Instant, Name, Patch
from node.model.wire.tasks import PRIORITY_MAX

DEFAULT: Final = "default"
"""The campaign of tasks that name none; it is always there."""

DEPTH_MAX: Final = 8
URGENT: Final = "urgent"
SUSPENDED: Final = 0
_HIGHEST: Final = 9
_WHOLE: Final = 100


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral() else float(value)


def _no_text(value: object) -> object:
    if isinstance(value, str):
        msg = "is text; give a number, without quotes"
        raise ValueError(msg)  # noqa: TRY004 - pydantic tells of these
    return value


Exact = Annotated[
    Decimal,
    BeforeValidator(_no_text),
    Field(ge=0, max_digits=12, decimal_places=6, allow_inf_nan=False),
    PlainSerializer(_number, return_type=float, when_used="json"),
]
"""A decimal number, taken literally."""

Share = Annotated[
    Decimal,
    BeforeValidator(_no_text),
    Field(gt=0, le=1, decimal_places=6, allow_inf_nan=False),
    PlainSerializer(_number, return_type=float, when_used="json"),
]
"""A part of a whole: more than 0, at most 1."""


def _level(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value != URGENT and not (whole and 0 <= value <= _HIGHEST):  # type: ignore[operator]
        msg = f"must be a number from 0 (suspended) to {_HIGHEST}, or {URGENT}"
        raise ValueError(msg)
    return value


Level = Annotated[
    int | str,
    PlainValidator(_level),
    WithJsonSchema({"enum": [*range(10), "urgent"], "default": 5}),
]
"""0 to 9, or urgent."""

Amount = Annotated[int, Field(ge=0, le=2**40, strict=True)]
Text = Annotated[str, StringConstraints(max_length=500)]
Resource = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class Limit(Document):
    """At most so much; ``soft`` while others want the pool, ``hard`` in any case."""

    soft: Amount | None = None
    hard: Amount | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.soft is None and self.hard is None:
            msg = "limits nothing; give soft, hard, or both"
            raise ValueError(msg)
        if self.soft is not None and self.hard is not None and self.soft > self.hard:
            msg = "soft is more than hard, so that it would never hold; exchange them"
            raise ValueError(msg)
        return self


class Target(Document):
    """What is promised: so many seats of a pool, or a part of its seats."""

    seats: Count | None = None
    share: Share | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.seats is None) == (self.share is None):
            msg = "is either seats or share; give one of them"
            raise ValueError(msg)
        return self


class Fairshare(Document):
    """The part of all that is delivered that it should get."""

    part: Share
    kind: Literal["target", "floor", "ceiling"] = Field(
        "target", description="To be met, not to be undercut, or not to be exceeded."
    )


class Queue(Document):
    """How its priority moves with each start, where seats are shared by counting starts."""

    floor: Exact = Decimal(0)
    ceiling: Exact = Decimal(100)
    gap: Exact = Field(
        Decimal(100), description="Campaigns so far below are held while this one is stuck."
    )
    gain: Exact = Field(Decimal(1), description="It rises by this whenever a run is started.")
    price: Exact = Field(Decimal(1), description="It falls by this when the run is its own.")
    passes: Count | None = Field(
        None, description="Later tasks of it may overtake one that waits so often."
    )

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.floor > self.ceiling:
            msg = "floor is above ceiling; exchange them"
            raise ValueError(msg)
        return self


class CampaignDocument(Document):
    """A campaign as posted."""

    name: Name = Field(description="What it is called, such as ops.")
    parent: Name | None = Field(
        None, description="It takes its share out of this one's; weights compare children of one."
    )
    weight: Exact = Field(
        Decimal(1), description="Its share is in proportion to it.", examples=[1, 2.5]
    )
    level: Level = Field(
        5,
        description="Higher ones go first where levels count; urgent is above 9. 0 suspends it: "
        "nothing new is booked for it, what is booked takes place.",
    )
    priority: int = Field(
        0,
        ge=-PRIORITY_MAX - 1,
        le=PRIORITY_MAX,
        strict=True,
        description="Added to that of its tasks where policies reckon priorities.",
    )
    preemptor: bool = Field(
        default=False, strict=True, description="May displace runs of those that are preemptee."
    )
    preemptee: bool = Field(default=False, strict=True)
    seats_max: Count | None = Field(None, description="Most seats it may hold at once.")
    target: Target | None = Field(None, description="What it is promised.")
    fairshare: Fairshare | None = None
    limits: dict[Limited, Limit] = Field(
        default_factory=dict,
        description="Of runs under way at once (runs, nodes, seats, seat_seconds, seconds), of "
        "those considered at all (due_…), or of what is delivered (delivered_…).",
        examples=[{"runs": {"soft": 10, "hard": 50}}],
    )
    quotas: dict[Resource, Amount] = Field(
        default_factory=dict,
        max_length=50,
        description="Most of a counted resource that its runs may use at once.",
        examples=[{"mbps": 1000}],
    )
    queue: Queue | None = None
    owner: Text | None = Field(None, description="Whose it is.")
    contact: Text | None = Field(None, description="How to reach them.")
    description: Text | None = None
    state: Literal["active", "closed"] = Field(
        "active", description="closed: takes no new tasks; those it has go on."
    )

    @field_validator("limits")
    @classmethod
    def _is_part(cls, limits: dict[Limited, Limit], info: ValidationInfo) -> dict[Limited, Limit]:
        """More than all would limit nothing; what is kept already may stay."""
        limit = limits.get("delivered_percent")
        if (
            info.context == FROM_OUTSIDE
            and limit
            and max(limit.soft or 0, limit.hard or 0) > _WHOLE
        ):
            msg = "delivered_percent is a part of all that is delivered: at most 100"
            raise ValueError(msg)
        return limits


class CampaignPatch(Patch):
    """Changes of a campaign, as a JSON merge patch (RFC 7396): null gives back the default."""

    name: Name | None = Field(None, description="Cannot be changed.")
    parent: Name | None = None
    weight: Exact | None = None
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
    owner: Text | None = None
    contact: Text | None = None
    description: Text | None = None
    state: Literal["active", "closed"] | None = None


class Waiting(Document):
    """Runs that have found no time yet, and seats of pool tasks that have found no node."""

    runs: int
    seats: int = Field(
        0, description="Of each pool task what the term lacks that lacks most, added up."
    )
    tasks: int
    reason: str | None = Field(description="What stands in the way of most of them.")


class Used(Document):
    """What a campaign, with those below it, has used and has booked.

    ``promised`` and the shares are parts of what all campaigns use in the same time.
    """

    promised: float | None = Field(
        description="Its part by weight of those that want something; null for urgent ones, "
        "which are served first."
    )
    by_weight: float | None = Field(
        None,
        description="Its part if all wanted something; null for urgent ones. A part includes "
        "those below, which divide it.",
    )
    delivered: float | None = Field(
        description="Its part of the seat-seconds of the last 24 hours; null where nobody had any."
    )
    booked: float | None = Field(description="The same of the hours to come.")
    delivered_seat_seconds: float
    booked_seat_seconds: float


class Campaign(CampaignDocument):
    """A campaign as the API shows it."""

    revision: int
    created_at: Instant
    changed_at: Instant
    tasks: dict[str, int] = Field(description="How many tasks it has, by state.")
    waiting: Waiting
    used: Used
    warnings: tuple[str, ...] = Field(
        (),
        description="What is allowed as it stands and hardly meant: a promise that no pool can "
        "keep.",
    )


class UsageHour(Document):
    """What a campaign was charged for within one hour, itself without those below it."""

    campaign: Name
    starts_at: Instant
    nodes: int
    seat_seconds: float = Field(
        description="3600 are one exclusive run on one node over the whole hour."
    )
    share: float = Field(description="Its part of all that was charged in this hour.")
