"""Plans of other policies for a pool: the hours to come under those of now, and under others."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from node.model.wire.fields import Document, Duration, Instant
from node.model.wire.pools import PolicyChoice

SHOWN_MAX = 20
"""The most runs that are named of each kind; all are counted."""


class PolicyPlanRequest(Document):
    """Other policies for a pool, to see what they would do; nothing is changed or booked."""

    policy: PolicyChoice
    hours: Annotated[int, Field(ge=1, le=24)] = Field(24, description="How far to look ahead.")
    anew: bool = Field(
        default=False,
        strict=True,
        description="Whether the runs of the pool that are booked already, and have not begun, are "
        "planned again; otherwise they stay, as they do when policies are changed.",
    )


class CampaignForecast(Document):
    """The part of the pool that a campaign would have in that time."""

    campaign: str
    runs: int
    seat_time: Duration = Field(description="The time of its runs, on all nodes together.")
    share: float = Field(description="Its part of the seat time of all campaigns, from 0 to 1.")
    wait_median: Duration = Field(description="From the nominal start to the start of a run.")
    wait_longest: Duration
    displaced: int = Field(description="Runs that would give way to others; they wait again.")
    missed: int = Field(description="Runs that would not start in time.")


class ForecastRun(Document):
    """A run that would give way, or would not start in time."""

    task: UUID | None = Field(None, description="Null in a file that is played.")
    campaign: str
    slot: Instant = Field(description="Its nominal start.")


class PolicyForecast(Document):
    """The time to come under one choice of policies."""

    policy: PolicyChoice
    campaigns: tuple[CampaignForecast, ...]
    displaced: tuple[ForecastRun, ...] = Field((), description="The first 20.")
    missed: tuple[ForecastRun, ...] = Field((), description="The first 20.")
    looked_until: Instant = Field(
        description="How far it came; earlier than asked for if there is too much to plan."
    )


class PolicyPlan(Document):
    """The consequences of a change of policies."""

    pool: str
    since: Instant
    until: Instant
    booked: int = Field(description="Runs of the pool that are booked already in that time.")
    before: PolicyForecast
    after: PolicyForecast
    notes: tuple[str, ...] = Field((), description="What could not be seen.")
