"""Nothing at all, for a while, in any scheduling class: for trying and testing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from node.model.classes import SchedulingClass
from node.model.times import DAY, MILLISECOND, SECOND, format_duration
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import CountField, NonNegative, between, duration_field
from node.plugins.participation import joined, part_of, revalidated


class IdleSpec(Document):
    """How long to do nothing, and what to keep away meanwhile."""

    # "class" is no Python name; both spellings are read, the JSON one is written.
    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    duration: Annotated[Duration, between(SECOND, DAY)] = duration_field(
        SECOND, "How long the run occupies its participants, exactly, PT1S to P1D."
    )
    scheduling_class: SchedulingClass = Field(
        default=SchedulingClass.BACKGROUND,
        alias="class",
        description="The scheduling class of the runs.",
    )
    participants: tuple[Host, ...] = Field(
        default=(), max_length=100, description="The hosts that idle; none, the lead alone."
    )

    @model_validator(mode="after")
    def _is_sound(self) -> IdleSpec:
        if len(set(self.participants)) < len(self.participants):
            raise ValueError("a host is named twice among the participants")
        return self


class IdlePart(Document):
    """What one participant did."""

    slept_ms: NonNegative


class IdleResult(Document):
    """That all participants idled."""

    participants: CountField = Field(description="How many hosts idled.")
    duration_ms: NonNegative = Field(description="How long they were occupied, milliseconds.")


class IdleTest:
    """Nothing at all, for a while."""

    name = "idle"
    title = "Nothing, for trying and testing"
    example: Mapping[str, Any] = MappingProxyType({"duration": "PT2S"})
    resources: tuple[str, ...] = ()
    spec_model: type[Document] = IdleSpec
    result_model: type[Document] = IdleResult

    def scheduling_class(self, spec: IdleSpec) -> SchedulingClass:
        """The one asked for."""
        return spec.scheduling_class

    def participants(self, spec: IdleSpec) -> tuple[str | None, ...]:
        """The hosts named, else the lead."""
        return spec.participants or (None,)

    def with_participants(self, spec: IdleSpec, names: Sequence[str]) -> IdleSpec:
        """The spec with the participants filled in, any number of them.

        :raises ValueError: the spec names others, or one is named twice.
        """
        if not names or spec.participants == tuple(names):
            return spec
        if spec.participants:
            raise ValueError("the participants of the task and of its spec differ; give them once")
        return revalidated(spec, {"participants": tuple(names)})

    def hosts(self, spec: IdleSpec) -> tuple[str, ...]:
        """The hosts named."""
        return spec.participants

    def needs(self, spec: IdleSpec) -> Mapping[str, int | None]:  # noqa: ARG002 - contract
        """Nothing."""
        return {}

    def merge(self, spec: IdleSpec, parts: Sequence[Part]) -> Merged:
        """All must have idled."""
        count = len(self.participants(spec))
        reasons = [part_of(parts, index, IdlePart)[1] for index in range(count)]
        reason = joined(*reasons)
        result = IdleResult(
            participants=reasons.count(None), duration_ms=spec.duration / MILLISECOND
        )
        return Merged(None if reason else result.model_dump(mode="json"), reason)

    def summary(self, result: Result) -> str:
        """``occupied for PT3M``, with the number of hosts if more than one."""
        figures = IdleResult.model_validate(result)
        text = f"occupied for {format_duration(round(figures.duration_ms * MILLISECOND))}"
        return text if figures.participants == 1 else f"{text} on {figures.participants} hosts"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """How long the hosts were occupied."""
        return (Metric("idle_ms", IdleResult.model_validate(result).duration_ms, "ms"),)


TEST = IdleTest()
