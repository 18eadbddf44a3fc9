"""One-way and round-trip delay, loss and delay variation between two participants. Pure.

Participant 0 (``source``) sends numbered packets, participant 1 (``dest``) sends each one back.
What was lost on the way there and what on the way back is told apart by the counts of both ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, model_validator

from node.model.classes import SchedulingClass
from node.model.times import HOUR, MILLISECOND, SECOND, format_duration
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import IpVersion, Port, between, duration_field
from node.plugins.figures import metric, traffic
from node.plugins.oneway import (
    LENGTH_BASE,
    LENGTH_LEAST_PADDED,
    DestPart,
    OneWayResult,
    SourcePart,
    both_ends,
    both_ways_metrics,
    contradiction,
    in_words,
)
from node.plugins.participation import fill, joined, part_of

_LONGEST = HOUR


class LatencySpec(Document):
    """What to send, how often, and how long to wait for it."""

    source: Host | None = Field(
        default=None, description="The host that sends; left out, the lead itself."
    )
    dest: Host | None = Field(
        default=None, description="The host that reflects; needed here or in `participants`."
    )
    count: int = Field(
        default=100, ge=1, le=36_000, strict=True, description="The number of packets."
    )
    interval: Annotated[Duration, between(MILLISECOND, 10 * SECOND)] = duration_field(
        100 * MILLISECOND, "The time from one packet to the next, PT0.001S to PT10S."
    )
    timeout: Annotated[Duration, between(10 * MILLISECOND, 60 * SECOND)] = duration_field(
        SECOND, "A packet that is not back after this is lost, PT0.01S to PT1M."
    )
    length: int = Field(
        default=LENGTH_BASE,
        ge=LENGTH_BASE,
        le=8952,
        strict=True,
        description="The UDP payload in bytes: 44, or 48 to 8952 with padding (RFC 8972).",
    )
    ip_version: IpVersion | None = Field(
        default=None, description="4 or 6; left out, what the addresses are."
    )
    port: Port | None = Field(
        default=None, description="The UDP port of dest; left out, its node gives one out."
    )

    @model_validator(mode="after")
    def _is_sound(self) -> LatencySpec:
        if self.source is not None and self.source == self.dest:
            raise ValueError(f"source and dest are the same host, {self.source}")
        if LENGTH_BASE < self.length < LENGTH_LEAST_PADDED:
            raise ValueError(f"length is 44 or at least 48, not {self.length}")
        if self.count * self.interval > _LONGEST:
            took = format_duration(self.count * self.interval)
            raise ValueError(f"count times interval is {took}, longer than PT1H")
        return self


class LatencyResult(OneWayResult):
    """Delay, loss and delay variation, each way."""


class LatencyTest:
    """Delay, loss and delay variation, each way."""

    name = "latency"
    title = "One-way and round-trip delay, loss and jitter"
    example: Mapping[str, Any] = MappingProxyType({"dest": "b.example"})
    resources: tuple[str, ...] = ("mbps",)
    spec_model: type[Document] = LatencySpec
    result_model: type[Document] = LatencyResult

    def scheduling_class(self, spec: LatencySpec) -> SchedulingClass:  # noqa: ARG002 - same for all
        """Normal: disturbed by a throughput test, but not by its like."""
        return SchedulingClass.NORMAL

    def participants(self, spec: LatencySpec) -> tuple[str | None, ...]:
        """Source and dest."""
        return (spec.source, spec.dest)

    def with_participants(self, spec: LatencySpec, names: Sequence[str]) -> LatencySpec:
        """The spec with source and dest filled in.

        :raises ValueError: not two, at odds with the spec, or no dest in either.
        """
        filled = fill(spec, self.name, ("source", "dest"), names)
        if filled.dest is None:
            raise ValueError("latency needs dest, in the spec or as the second of participants")
        return filled

    def hosts(self, spec: LatencySpec) -> tuple[str, ...]:
        """Source and dest, where given."""
        return tuple(host for host in (spec.source, spec.dest) if host is not None)

    def needs(self, spec: LatencySpec) -> Mapping[str, int | None]:
        """The payload of its packets."""
        return traffic(spec.length * 8, spec.interval)

    def merge(self, spec: LatencySpec, parts: Sequence[Part]) -> Merged:  # noqa: ARG002 - contract
        """Delays from the source, counts from both; the source's alone is a partial result."""
        source, source_reason = part_of(parts, 0, SourcePart)
        dest, dest_reason = part_of(parts, 1, DestPart)
        reason = joined(source_reason, dest_reason, contradiction(source, dest))
        result = both_ends(source, dest) if source else None
        return Merged(result.model_dump(mode="json") if result else None, reason)

    def summary(self, result: Result) -> str:
        """``20.41 ms there, 0.21 ms back, loss 1 % / 0 %, jitter 0.20 ms``."""
        figures = LatencyResult.model_validate(result)
        return in_words(
            figures.delay_ms,
            figures.loss,
            figures.jitter_ms.forward,
            synchronised=figures.clocks_synchronised,
        )

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Delay, loss and jitter of each direction, and of the round trip."""
        figures = LatencyResult.model_validate(result)
        found = both_ways_metrics(figures.delay_ms, figures.loss, figures.jitter_ms)
        return found + metric("clock_error_ms", figures.clock_error_ms, "ms")


TEST = LatencyTest()
