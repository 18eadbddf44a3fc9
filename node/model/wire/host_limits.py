"""The limits of a host, as the API shows them, and refusals because of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.wire.fields import Document, Instant
from node.model.wire.tasks import TaskDocument


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


class QuotaLeft(Document):
    """A quota in its present period, and what is left of it."""

    name: str = Field(description="The rule or the cap.")
    quota: str = Field(description="The quota in words, such as 24 runs per day.")
    used: str
    left: str
    free_at: Instant = Field(description="When the next period begins.")


class GrantedRule(Document):
    """A rule that is for the node that asks."""

    rule: str
    what: str = Field(description="Which tasks it fits.")
    most: str = Field(description="How much they may have.")
    left: tuple[QuotaLeft, ...] = ()


class GrantedLimits(Document):
    """The limits of a host for the node that asks: rules in their order, then caps of targets."""

    node: str
    rules: tuple[GrantedRule, ...]
    caps: tuple[str, ...] = Field((), description="What one target gets, of all nodes together.")


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
    given: tuple[GrantedLimits, ...] = Field(
        (), description="For each other node that is known here, what it may have and has used."
    )


class LimitTrialRequest(Document):
    """A task to try against the limits, as if another node or a user asked for it here."""

    as_: Annotated[str, Field(alias="as", max_length=200)] = Field(
        description="The node that would lead it, its name or its key; or token:LABEL, a user, "
        "with the lowest role of their tokens here that may post, or run without one."
    )
    task: TaskDocument


class LimitTrial(Document):
    """The verdict of the limits on a task, and what its lead or user has left."""

    allowed: bool
    rule: str | None = Field(
        description="The rule that admits it; null also for a user without limits."
    )
    refusal: TaskLimit | None = None
    counted_priority: int = Field(description="The priority as which that of the task counts here.")
    left: tuple[QuotaLeft, ...] = ()
