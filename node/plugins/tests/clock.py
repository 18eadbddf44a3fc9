"""The offset between the clocks of two participants, with a bound. Pure.

Participant 0 (``source``) and participant 1 (``dest``) exchange packets with the times of departure
and arrival at both ends; the packet with the shortest round trip gives the tightest bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from node.model.clocks import combined_bound_ms
from node.model.times import MILLISECOND, MINUTE, SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins import oneway
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import (
    Asker,
    CountField,
    Finite,
    NonNegative,
    between,
    check_packet_total,
    duration_field,
    whole_field,
)
from node.plugins.figures import metric
from node.plugins.oneway import LENGTH_BASE, HostClock, contradicting_counts, explain_no_packets
from node.plugins.outline import PairTest, check_two
from node.plugins.participation import joined_reasons, part_of


class ClockSpec(Document):
    """The packets to exchange: how many, how often, and how long to wait for them."""

    source: Asker = None
    dest: Host | None = Field(
        default=None, description="The host that answers; required here or in `participants`."
    )
    count: int = whole_field(20, 1, 1000, "The number of packets.")
    interval: Annotated[Duration, between(10 * MILLISECOND, 10 * SECOND)] = duration_field(
        100 * MILLISECOND, "The time from one packet to the next, PT0.01S to PT10S."
    )
    timeout: Annotated[Duration, between(10 * MILLISECOND, MINUTE)] = duration_field(
        SECOND, "A packet that is not back after this is lost, PT0.01S to PT1M."
    )
    ip_version: oneway.Version = None
    port: oneway.DestPort = None

    @model_validator(mode="after")
    def _check_fields(self) -> ClockSpec:
        check_two(self)
        check_packet_total(self.count, self.interval)
        return self


class ComparingPart(Document):
    """The asking participant's part."""

    sent: CountField
    received: CountField
    unreachable: CountField
    offset_ms: Finite | None
    round_trip_ms: NonNegative | None
    offset_median_ms: Finite | None
    clock: HostClock


class ReflectingPart(Document):
    """The answering participant's part."""

    received: CountField
    clock: HostClock


class BothClocks(Document):
    """The state of both clocks, as their kernels report it."""

    source: HostClock = Field(description="The clock of source.")
    dest: HostClock | None = Field(description="The clock of dest; null if its part is missing.")


class ClockResult(Document):
    """The offset of one clock against the other."""

    offset_ms: Finite | None = Field(
        description="How far dest's clock is ahead of source's, in milliseconds, measured by the"
        " packet with the shortest round trip; below 0 if it is behind."
    )
    bound_ms: NonNegative | None = Field(
        description="The offset is wrong by at most this: half of the shortest round trip, in"
        " milliseconds."
    )
    offset_median_ms: Finite | None = Field(
        description="The median of the offsets by all packets, in milliseconds."
    )
    sent: CountField = Field(description="Packets sent.")
    received: CountField = Field(description="Packets that came back in time.")
    same_clock: bool = Field(description="Whether both participants run on one and the same clock.")
    claimed_error_ms: NonNegative | None = Field(
        description="The largest difference of the clocks if both kernels are right, in"
        " milliseconds; null unless both consider their clocks synchronised."
    )
    plausible: bool | None = Field(
        description="Whether the offset is within what both kernels claim, given its bound; null if"
        " they claim nothing."
    )
    clocks: BothClocks = Field(description="The state of both clocks, as their kernels report it.")


class ClockTest(PairTest):
    """The offset between two clocks."""

    name = "clock"
    title = "Offset between two clocks"
    example: Mapping[str, Any] = {"dest": "b.example"}
    spec_model: type[Document] = ClockSpec
    result_model: type[Document] = ClockResult
    part_models: tuple[type[Document], ...] = (ComparingPart, ReflectingPart)

    def expected_bytes(self, spec: ClockSpec, mbps: int | None) -> int:
        """Return its packets and their answers."""
        return 2 * spec.count * LENGTH_BASE

    def merge(self, spec: ClockSpec, parts: Sequence[Part]) -> Merged:
        """Merge source's offset and both clocks; if no packet came back, the run failed."""
        source, source_reason = part_of(parts, 0, ComparingPart)
        dest, dest_reason = part_of(parts, 1, ReflectingPart)
        reason = joined_reasons(source_reason, dest_reason, _shortfall(source, dest))
        result = _result(source, dest) if source else None
        return Merged(result.model_dump(mode="json") if result else None, reason)

    def summary(self, result: Result) -> str:
        """Return ``+0.412 ms ± 10.200 ms``."""
        figures = ClockResult.model_validate(result)
        if figures.offset_ms is None or figures.bound_ms is None:
            return "no packet came back"
        text = f"{figures.offset_ms:+.3f} ms ± {figures.bound_ms:.3f} ms"
        if figures.same_clock:
            return f"{text} (one and the same clock)"
        if figures.plausible is None:
            return f"{text} (clocks not synchronised)"
        return text if figures.plausible else f"{text} (not what the kernels claim)"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return the offset and its bound."""
        figures = ClockResult.model_validate(result)
        return (
            *metric("offset_ms", figures.offset_ms, "ms"),
            *metric("bound_ms", figures.bound_ms, "ms"),
            *metric("claimed_error_ms", figures.claimed_error_ms, "ms"),
        )


def _shortfall(source: ComparingPart | None, dest: ReflectingPart | None) -> str | None:
    """Return why two parts do not compare the clocks; ``None`` if they do, or one is missing."""
    if source is None or dest is None:
        return None
    contradiction = contradicting_counts(source.sent, dest.received, source.received)
    if contradiction is not None:
        return contradiction
    if source.received and source.offset_ms is not None and source.round_trip_ms is not None:
        return None
    return explain_no_packets(source.unreachable, dest.received) or (
        f"no packet came back in time; {dest.received} of {source.sent} reached dest"
    )


def _result(source: ComparingPart, dest: ReflectingPart | None) -> ClockResult:
    round_trip_ms = source.round_trip_ms
    bound_ms = None if round_trip_ms is None else round(round_trip_ms / 2, 6)
    claimed_ms = combined_bound_ms(source.clock, dest.clock) if dest else None
    same = (
        dest is not None
        and bool(source.clock.identity)
        and (source.clock.identity == dest.clock.identity)
    )
    plausible = None
    if source.offset_ms is not None and bound_ms is not None and claimed_ms is not None:
        plausible = abs(source.offset_ms) <= bound_ms + claimed_ms
    return ClockResult(
        offset_ms=source.offset_ms,
        bound_ms=bound_ms,
        offset_median_ms=source.offset_median_ms,
        sent=source.sent,
        received=source.received,
        same_clock=same,
        claimed_error_ms=claimed_ms,
        plausible=plausible,
        clocks=BothClocks(source=source.clock, dest=dest.clock if dest else None),
    )


TEST = ClockTest()
