"""The shares of leads in a node's time, as the API shows them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.wire.fields import Document, Duration

LEADS_MAX = 1000
Share = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


class LeadShare(Document):
    """A lead's share, and what it had of this node; times are seat-time."""

    lead: str = Field(description="Its name; others: all leads together that are not listed.")
    identity: str | None = None
    share: int | None = Field(None, description="Null while no shares are set.")
    percent: float | None = Field(None, description="The share in percent of all shares.")
    had: Duration = Field(description="The runs here of the last 24 hours.")
    had_percent: float = Field(description="In percent of what all leads had.")
    booked: Duration = Field(description="The runs to come.")
