"""The limits of a host, as the API shows them, and refusals because of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.wire.fields import Document, Instant


class TaskLimit(Document):
    """The reason for which the limits of a host refuse a task."""

    node: str | None = Field(None, description="The node whose limits these are.")
    rule: str | None = Field(
        None, description="The rule that comes closest; null if none is for the node that asks."
    )
    pointer: Annotated[str, Field(max_length=200)] = Field(
        description="The field of the task that is not within the rule."
    )
    detail: Annotated[str, Field(max_length=1000)]
    allowed: Annotated[str, Field(max_length=1000)] | None = Field(
        None, description="What the rule allows there."
    )


class ShownLimits(Document):
    """The limits of this host that are in force, and whether its file could be read last."""

    file: str | None = Field(description="The file that they are from; null for the default.")
    digest: str = Field(description="SHA-256 of the text.")
    loaded_at: Instant
    fault: str | None = Field(
        None, description="Why the file was not taken when it was read last; null if it was."
    )
    fault_at: Instant | None = None
    refused_tasks: int = Field(
        description="Open tasks of other nodes that the present limits refuse: they get no time."
    )
    text: str = Field(description="The limits, as in the file.")
