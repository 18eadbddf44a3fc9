"""The shares of leads in a node's time, as the API shows and takes them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.wire.fields import Document, Duration

LEADS_MAX = 1000
Share = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


class SharesDocument(Document):
    """The shares that the owner gives leads; without any lead nothing is restricted."""

    shares: Annotated[dict[str, Share], Field(max_length=LEADS_MAX)] = Field(
        description="By name or identity of the lead. A lead with 0 is served only with time that "
        "no other lead wants."
    )
    others: Share = Field(1, description="The share of all leads together that are not listed.")


class LeadShare(Document):
    """A lead's share, and what it had of this node; times are seat-time."""

    lead: str = Field(description="Its name; others: all leads together that are not listed.")
    identity: str | None = None
    share: int | None = Field(None, description="Null while no shares are set.")
    percent: float | None = Field(None, description="The share in percent of all shares.")
    had: Duration = Field(description="The runs here of the last 24 hours.")
    had_percent: float = Field(description="In percent of what all leads had.")
    booked: Duration = Field(description="The runs to come.")
