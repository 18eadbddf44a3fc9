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
from node.model.clocks import combined_bound_ms
from node.model.times import HOUR, MILLISECOND, SECOND, format_duration
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import (
    Counted,
    Finite,
    Fraction,
    IpVersion,
    NonNegative,
    Port,
    between,
    duration_field,
)
from node.plugins.figures import (
    DelayFigures,
    delay_metrics,
    delay_text,
    metric,
    percent_text,
    share,
    traffic,
)
from node.plugins.participation import fill, joined, part_of

LENGTH_BASE = 44  # octets of a STAMP packet without extensions, RFC 8762 section 4
LENGTH_LEAST_PADDED = 48  # padding is a TLV with a header of four octets, RFC 8972 section 4.1
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


class Clock(Document):
    """What a host's kernel says of its clock."""

    synchronised: bool | None = Field(
        description="Whether the kernel holds its clock for synchronised; null if it does not tell."
    )
    error_bound_ms: NonNegative | None = Field(
        description="The kernel's bound of the clock's error in milliseconds, if synchronised."
    )
    stepped_ms: Finite = Field(
        description="By how much the clock moved against steady time during the run, milliseconds."
    )
    identity: str = Field(
        max_length=64, description="Equal on two participants that share one and the same clock."
    )


class DelaysBothWays(Document):
    """Delays of the packets that came back in time, in milliseconds."""

    forward: DelayFigures | None = Field(description="From source to dest.")
    backward: DelayFigures | None = Field(description="From dest to source.")
    round_trip: DelayFigures | None = Field(
        description="There and back, without the time spent in dest."
    )


class JitterBothWays(Document):
    """Mean absolute inter-packet delay variation (RFC 3393, RFC 5481 section 4.1), milliseconds."""

    forward: NonNegative | None = Field(description="From source to dest.")
    backward: NonNegative | None = Field(description="From dest to source.")
    round_trip: NonNegative | None = Field(description="There and back.")


class CountsBothWays(Document):
    """Numbers of packets; null for a direction whose counting end is missing."""

    forward: Counted | None = Field(description="On the way from source to dest.")
    backward: Counted | None = Field(description="On the way from dest to source.")


class LossBothWays(Document):
    """Lost packets as fractions, 0 to 1."""

    forward: Fraction | None = Field(description="Of those sent: did not reach dest.")
    backward: Fraction | None = Field(description="Of those that reached dest: did not come back.")
    round_trip: Fraction = Field(description="Of those sent: did not come back in time.")


class SourcePart(Document):
    """What the sending participant saw."""

    sent: Counted
    unsent: Counted
    received_back: Counted
    late: Counted
    unreachable: Counted
    duplicates_forward: Counted
    duplicates_backward: Counted
    reordered_backward: Counted
    delay_ms: DelaysBothWays
    jitter_ms: JitterBothWays
    hops_forward: Counted | None
    hops_backward: Counted | None
    clock: Clock


class DestPart(Document):
    """What the reflecting participant saw."""

    received: Counted
    duplicates: Counted
    reordered: Counted
    strays: Counted
    unsent: Counted
    clock: Clock


class Clocks(Document):
    """The clocks of both participants."""

    source: Clock = Field(description="The clock of source.")
    dest: Clock | None = Field(description="The clock of dest; null if its part is missing.")


class LatencyResult(Document):
    """Delay, loss and delay variation, each way."""

    sent: Counted = Field(description="Packets sent by source.")
    received_at_dest: Counted | None = Field(description="Different packets that reached dest.")
    received_back: Counted = Field(description="Different packets that came back in time.")
    late: Counted = Field(description="Packets that came back after the timeout; they are lost.")
    loss: LossBothWays = Field(description="Lost packets as fractions, 0 to 1.")
    delay_ms: DelaysBothWays = Field(description="Delays in milliseconds.")
    jitter_ms: JitterBothWays = Field(
        description="Mean absolute delay variation of consecutive packets (RFC 3393), milliseconds."
    )
    duplicates: CountsBothWays = Field(description="Packets that arrived more than once.")
    reordered: CountsBothWays = Field(description="Packets that arrived out of order (RFC 4737).")
    hops: CountsBothWays = Field(description="Routers passed, from the packets' TTL of 255.")
    unreachable: Counted = Field(description="ICMP errors: nothing listened at dest.")
    strays: Counted | None = Field(description="Packets at dest that were not of this run.")
    clocks: Clocks = Field(description="How far the one-way delays can be trusted.")
    clocks_synchronised: bool = Field(
        description="Whether both clocks are synchronised, or are the same clock."
    )
    clock_error_ms: NonNegative | None = Field(
        description="The bound of the one-way delays' error in milliseconds; null if unknown."
    )


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
        reason = joined(source_reason, dest_reason, _nonsense(source, dest))
        result = _result(source, dest) if source else None
        return Merged(result.model_dump(mode="json") if result else None, reason)

    def summary(self, result: Result) -> str:
        """``20.41 ms there, 0.21 ms back, loss 1 % / 0 %, jitter 0.20 ms``."""
        figures = LatencyResult.model_validate(result)
        loss = _loss_text(figures.loss)
        there, back = figures.delay_ms.forward, figures.delay_ms.backward
        if there is None or back is None:
            return f"no packet came back, {loss}"
        text = f"{delay_text(there.median)} there, {delay_text(back.median)} back, {loss}"
        if figures.jitter_ms.forward is not None:
            text += f", jitter {delay_text(figures.jitter_ms.forward)}"
        return text if figures.clocks_synchronised else f"{text} (clocks not synchronised)"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Delay, loss and jitter of each direction, and of the round trip."""
        figures = LatencyResult.model_validate(result)
        found: tuple[Metric, ...] = ()
        for direction in ("forward", "backward", "round_trip"):
            labels = {"direction": direction}
            found += delay_metrics("delay", getattr(figures.delay_ms, direction), labels)
            found += metric("loss", getattr(figures.loss, direction), "1", labels)
            found += metric("jitter_ms", getattr(figures.jitter_ms, direction), "ms", labels)
        return found + metric("clock_error_ms", figures.clock_error_ms, "ms")


def _nonsense(source: SourcePart | None, dest: DestPart | None) -> str | None:
    """Why two parts are no measurement together; ``None`` if they are one, or one is missing."""
    if source is None or dest is None:
        return None
    if not source.received_back <= dest.received <= source.sent:
        counts = f"{source.sent} sent, {dest.received} at dest, {source.received_back} back"
        return f"the participants' counts contradict each other: {counts}"
    if source.unreachable and not dest.received:
        return "dest's port was unreachable: a firewall, or the reflector was not running then"
    return None


def _result(source: SourcePart, dest: DestPart | None) -> LatencyResult:
    arrived = dest.received if dest else None
    error_ms = combined_bound_ms(source.clock, dest.clock) if dest else None
    return LatencyResult(
        sent=source.sent,
        received_at_dest=arrived,
        received_back=source.received_back,
        late=source.late,
        loss=_loss(source.sent, arrived, source.received_back),
        delay_ms=source.delay_ms,
        jitter_ms=source.jitter_ms,
        duplicates=CountsBothWays(
            # The reflector also counts the duplicates whose answers were lost on the way back.
            forward=dest.duplicates if dest else source.duplicates_forward,
            backward=source.duplicates_backward,
        ),
        reordered=CountsBothWays(
            forward=dest.reordered if dest else None, backward=source.reordered_backward
        ),
        hops=CountsBothWays(forward=source.hops_forward, backward=source.hops_backward),
        unreachable=source.unreachable,
        strays=dest.strays if dest else None,
        clocks=Clocks(source=source.clock, dest=dest.clock if dest else None),
        clocks_synchronised=error_ms is not None,
        clock_error_ms=error_ms,
    )


def _loss(sent: int, arrived: int | None, back: int) -> LossBothWays:
    return LossBothWays(
        forward=None if arrived is None else share(sent - arrived, sent),
        backward=None if arrived is None else share(arrived - back, arrived),
        round_trip=share(sent - back, sent),
    )


def _loss_text(loss: LossBothWays) -> str:
    if loss.forward is None or loss.backward is None:
        return f"loss {percent_text(loss.round_trip)}"
    return f"loss {percent_text(loss.forward)} / {percent_text(loss.backward)}"


TEST = LatencyTest()
