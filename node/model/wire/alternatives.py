"""Alternatives to a task that does not find its time: in plans, and in refusals."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from node.model.wire.fields import Document, Instant


class Alternative(Document):
    """Another task document that was tried with the same proposals."""

    kind: str = Field(description="later, shorter, tool, slip or less-often.")
    differs: str = Field(description="The difference, in one sentence.")
    distance: float = Field(
        description="Distance from the original task, 0 to 1, plus 1 if it places only some runs."
    )
    asked: int
    placed: int
    starts_at: Instant = Field(description="Start of its first run.")
    displacing: int = Field(description="Number of its runs that would displace others.")
    document: dict[str, Any] = Field(description="A task document, ready for POST /v1/tasks.")
