"""The limits of a host, as the API shows them, and refusals because of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from node.model import times
from node.model.reason import Reason
from node.model.reasons import (
    cap_of_tasks_reached,
    introduced_too_fast,
    limit_of_lead_reached,
    too_many_tasks_of_lead,
)
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


class TaskRoom(Document):
    """A bound on the tasks of other nodes, and how much of it there is already.

    It is open tasks: of the lead, under a rule, or under a cap; or the rate of new ones, in
    microseconds of which each new task takes ``step``.
    """

    kind: Literal["lead", "rule", "rate", "cap"]
    name: Annotated[str, Field(max_length=100)] = Field("", description="The rule or the cap.")
    holder: Annotated[str, Field(max_length=200)] = Field(
        "", description="For whom a cap counts, if not for all nodes together."
    )
    used: Annotated[int, Field(ge=0, strict=True)]
    most: Annotated[int, Field(ge=0, strict=True)]
    step: Annotated[int, Field(ge=1, strict=True)] = 1

    def lacks(self, further: int = 0) -> int:
        """Return how much is missing for one task beside ``further`` ones; 0 if there is room."""
        free = self.most - self.used - further * self.step
        return max(0, -free if self.kind == "rate" else 1 - free)

    @property
    def retry_s(self) -> int | None:
        """Return when to ask again (s) if there is no room; None if it depends on others."""
        return -(-self.lacks() // times.SECOND) if self.kind == "rate" else None

    def why_full(self, further: int = 0) -> Reason:
        """Return why there is no room for a task beside ``further`` ones."""
        count = self.used + further
        match self.kind:
            case "lead":
                return too_many_tasks_of_lead(count, self.most)
            case "rule":
                return limit_of_lead_reached(self.name, count, self.most)
            case "rate":
                return introduced_too_fast(-(-self.lacks(further) // times.SECOND))
            case "cap":
                return cap_of_tasks_reached(self.name, count, self.most, together=not self.holder)


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


class ResourceState(Document):
    """A counted resource that this node keeps, and what is taken of it."""

    name: str
    number: int = Field(description="How much there is.")
    taken: int = Field(description="How much is taken now.")
    peak: int = Field(description="The most that is taken at an instant from now on.")
    runs: int = Field(description="Number of runs that take of it, from now on.")


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
    resources: tuple[ResourceState, ...] = Field(
        (), description="The counted resources that this node keeps for the whole fleet."
    )
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
