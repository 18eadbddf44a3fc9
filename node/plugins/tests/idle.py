"""Doing nothing for a while, in any scheduling class: for trials and tests. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from node.model.classes import SchedulingClass
from node.model.times import DAY, MILLISECOND, SECOND, duration_text
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import CountField, NonNegative, between, duration_field
from node.plugins.outline import OwnTest
from node.plugins.participation import joined_reasons, part_of, revalidated


class IdleSpec(Document):
    """The length of the idling, its class, and the hosts."""

    # "class" is a Python keyword; both spellings are read, the JSON one is written.
    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    duration: Annotated[Duration, between(SECOND, DAY)] = duration_field(
        SECOND, "How long exactly the run occupies its participants, PT1S to P1D."
    )
    scheduling_class: SchedulingClass = Field(
        default=SchedulingClass.BACKGROUND,
        alias="class",
        description="The scheduling class of the runs.",
    )
    participants: tuple[Host, ...] = Field(
        default=(), max_length=100, description="The hosts that idle; by default the lead alone."
    )

    @model_validator(mode="after")
    def _check_fields(self) -> IdleSpec:
        if len(set(self.participants)) < len(self.participants):
            raise ValueError("a host is named twice among the participants")
        return self


class IdlePart(Document):
    """One participant's part."""

    slept_ms: NonNegative


class IdleResult(Document):
    """The result after all participants idled."""

    participants: CountField = Field(description="The number of hosts that idled.")
    duration_ms: NonNegative = Field(description="How long they were occupied, in milliseconds.")


class IdleTest(OwnTest):
    """Doing nothing for a while."""

    name = "idle"
    title = "Nothing, for trying and testing"
    example: Mapping[str, Any] = {"duration": "PT2S"}
    spec_model: type[Document] = IdleSpec
    result_model: type[Document] = IdleResult
    part_models: tuple[type[Document], ...] = (IdlePart,)

    def scheduling_class(self, spec: IdleSpec) -> SchedulingClass:
        """Return the class in the spec."""
        return spec.scheduling_class

    def participants(self, spec: IdleSpec) -> tuple[str | None, ...]:
        """Return the hosts in the spec, or else the lead."""
        return spec.participants or (None,)

    def with_participants(self, spec: IdleSpec, names: Sequence[str]) -> IdleSpec:
        """Return the spec with the participants filled in, any number of them.

        :raises ValueError: the spec names others, or a host occurs twice.
        """
        if not names or spec.participants == tuple(names):
            return spec
        if spec.participants:
            raise ValueError("the participants of the task and of its spec differ; set only one")
        return revalidated(spec, {"participants": tuple(names)})

    def hosts(self, spec: IdleSpec) -> tuple[str, ...]:
        """Return the hosts in the spec."""
        return spec.participants

    def merge(self, spec: IdleSpec, parts: Sequence[Part]) -> Merged:
        """Merge the parts; all participants must have idled."""
        count = len(self.participants(spec))
        reasons = [part_of(parts, index, IdlePart)[1] for index in range(count)]
        reason = joined_reasons(*reasons)
        result = IdleResult(
            participants=reasons.count(None), duration_ms=spec.duration / MILLISECOND
        )
        return Merged(None if reason else result.model_dump(mode="json"), reason)

    def summary(self, result: Result) -> str:
        """Return ``occupied for PT3M``, with the number of hosts if more than one."""
        figures = IdleResult.model_validate(result)
        text = f"occupied for {duration_text(round(figures.duration_ms * MILLISECOND))}"
        return text if figures.participants == 1 else f"{text} on {figures.participants} hosts"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return how long the hosts were occupied."""
        return (Metric("idle_ms", IdleResult.model_validate(result).duration_ms, "ms"),)


TEST = IdleTest()
