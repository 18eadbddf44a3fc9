"""Alerts: the terms of rules in the reference of a task, and what the API shows."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import Field, FiniteFloat, StringConstraints, TypeAdapter, model_validator

from node.model.wire.fields import HEADLINE, Document, Instant

RULES_MAX = 40

RuleName = Annotated[
    str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}(\.[A-Za-z0-9_-]{1,63}){0,3}$")
]


class AlertTerms(Document):
    """The terms on which a rule is raised, and on which it is over."""

    count: int = Field(
        2,
        ge=0,
        le=100,
        strict=True,
        description="Hits among the last runs that raise it, and calm runs in a row after which it "
        "is over; 0: never.",
    )
    of: int = Field(3, ge=1, le=100, strict=True, description="How many of the last runs count.")
    at: Literal["fair", "bad"] = Field("bad", description="The threshold from which on it hits.")
    clear: FiniteFloat | None = Field(
        None, description="The value to which the figure has to return; the threshold by default."
    )
    change: Annotated[FiniteFloat, Field(gt=0, le=1000)] | None = Field(
        None,
        description="Hit also if the figure is further from what is usual at this hour of the day "
        "(the median of the last days) than so many of its usual deviations.",
    )

    @model_validator(mode="after")
    def _check_count(self) -> Self:
        if self.count > self.of:
            msg = f"count is {self.count}, more than the {self.of} runs that count (of)"
            raise ValueError(msg)
        return self


Alerts = Annotated[dict[RuleName, AlertTerms], Field(max_length=RULES_MAX)]
ALERTS: TypeAdapter[dict[str, AlertTerms]] = TypeAdapter(Alerts)


class Alert(Document):
    """An alert: a rule of a task that was raised, and is not over, or was."""

    id: UUID
    task: UUID
    headline: str = Field(description=HEADLINE)
    rule: str = Field(
        description="The figure as run list -o csv has it (loss.forward), with :change if it is "
        "unusual; or outcome, or path."
    )
    mesh: str | None = Field(None, description="The mesh of the task, if it is of one.")
    state: Literal["raised", "over"]
    raised_at: Instant
    over_at: Instant | None
    sentence: str = Field(description="What was measured, by the run that raised it.")
    value: float | None
    run: UUID = Field(description="The run that raised it.")
    acknowledged_at: Instant | None
    acknowledged_by: str | None
    silent_until: Instant | None = Field(
        None,
        description="Until then no webhook is told of it, nor of it again; null if that is over.",
    )


class AlertChangeDocument(Document):
    """A change of an alert by somebody who looks after it."""

    acknowledged: bool | None = Field(None, description="Whether somebody looks after it.")
    silent_until: Instant | None = Field(
        None, description="Until when webhooks are not told; a past instant ends the silence."
    )
