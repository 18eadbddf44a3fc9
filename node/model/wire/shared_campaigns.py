"""Questions between leads about what a campaign that they share has used."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import Field, StringConstraints

from node.model.wire.fields import Document, Instant, Name
from node.model.wire.participants import Micros

HOURS_MAX = 20_000
"""Maximum number of hours of nodes in an answer; the rest is asked for again."""
_AMOUNT_MAX = 2**46


class CampaignUseRequest(Document):
    """A question for what these campaigns have used and booked, from an hour on."""

    campaigns: tuple[Name, ...] = Field(max_length=1000)
    since: Micros


class ChargedHour(NamedTuple):
    """The charge of a campaign for an hour on one node, past or booked."""

    campaign: Name
    hour: Micros
    node: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]
    """Its key."""
    amount: Annotated[int, Field(ge=0, le=_AMOUNT_MAX)]
    """Thousandths of a seat times microseconds."""
    bytes: Annotated[int, Field(ge=0, le=_AMOUNT_MAX)]


class CampaignUse(Document):
    """The use of the campaigns that the answering lead shares with the one that asks."""

    campaigns: tuple[Name, ...] = Field(
        description="Those that it shares; what others use is not told."
    )
    hours: tuple[ChargedHour, ...] = Field(
        max_length=HOURS_MAX,
        description="By campaign, hour and node what was charged and is booked: thousandths of a "
        "seat times microseconds, and bytes.",
    )
    until: Micros | None = Field(
        None, description="The hours before this one are all there are; null if all are."
    )


class SharedUse(Document):
    """The state of another lead that shares a campaign: when it last told what it uses."""

    lead: str = Field(description="The lead: its name here, or its key.")
    told_at: Instant | None = Field(description="When it told it last; null if never.")
    reason: str | None = Field(description="Why it has told nothing since.")
