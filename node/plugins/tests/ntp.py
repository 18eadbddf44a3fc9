"""The clock of any NTP server against this host's: its offset with a bound, and what it says. Pure.

The offset and the round trip of a packet are those of RFC 5905, section 8. The packet with the
shortest round trip gives the tightest bound, half of that round trip: the offset is from the
server's clock. How far that may be from UTC is the server's root distance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from node.model.times import MILLISECOND, MINUTE, SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Metric, Result
from node.plugins.fields import (
    AnyPort,
    Asker,
    CountField,
    Finite,
    ForeignText,
    Fraction,
    IpVersion,
    NonNegative,
    between,
    check_packet_total,
    duration_field,
    whole_field,
)
from node.plugins.figures import DelayFigures, delay_metrics, metric
from node.plugins.oneway import HostClock
from node.plugins.outline import TargetTest

PACKET_BYTES = 48
"""The length of a packet without extensions (RFC 5905, section 7.3)."""

Leap = Literal["none", "insert", "delete", "unsynchronised"]
"""The leap second that a server announces, or that its clock is not synchronised."""


class NtpSpec(Document):
    """The server to ask, how often, and how long to wait for each answer."""

    source: Asker = None
    dest: Host = Field(description="The server to ask; any host, not only a node.")
    port: AnyPort = Field(default=123, description="The server's UDP port.")
    count: int = whole_field(4, 1, 100, "The number of packets.")
    interval: Annotated[Duration, between(SECOND, MINUTE)] = duration_field(
        2 * SECOND,
        "The time from one packet to the next, PT1S to PT1M; many servers refuse more than one in"
        " two seconds.",
    )
    timeout: Annotated[Duration, between(10 * MILLISECOND, MINUTE)] = duration_field(
        SECOND,
        "A packet that is not back after this is lost, PT0.01S to PT1M; the same limit applies to"
        " resolving dest's address.",
    )
    ip_version: IpVersion | None = Field(
        default=None, description="4 or 6; by default the version of dest's first address."
    )

    @model_validator(mode="after")
    def _check_fields(self) -> NtpSpec:
        check_packet_total(self.count, self.interval)
        return self


class NtpResult(Document):
    """The offset of the server's clock, and what the server says of it."""

    address: ForeignText | None = Field(description="The address of dest; null if none was found.")
    sent: CountField = Field(description="Packets sent.")
    received: CountField = Field(description="Packets that came back in time.")
    loss: Fraction = Field(description="Packets without an answer, as a fraction, 0 to 1.")
    offset_ms: Finite | None = Field(
        description="How far the server's clock is ahead of source's, in milliseconds, measured by"
        " the packet with the shortest round trip; below 0 if it is behind."
    )
    bound_ms: NonNegative | None = Field(
        description="The offset is wrong by at most this: half of the shortest round trip, in"
        " milliseconds."
    )
    offset_median_ms: Finite | None = Field(
        description="The median of the offsets by all packets, in milliseconds."
    )
    round_trip_ms: DelayFigures | None = Field(
        description="Round trips without the time that the server took, in milliseconds."
    )
    stratum: CountField | None = Field(
        description="1 if the server has a reference clock, one more with each server between."
    )
    reference: ForeignText | None = Field(
        description="What the server follows: the name of a reference clock, such as GPS, or the"
        " number of another server in hex."
    )
    leap: Leap | None = Field(
        description="The leap second that the server announces for the end of the day: none,"
        " insert, delete; or unsynchronised."
    )
    root_distance_ms: NonNegative | None = Field(
        description="How far the server's clock may be from its reference, as it says, in"
        " milliseconds: its dispersion and half of its delay to the reference."
    )
    precision_ms: NonNegative | None = Field(
        description="The precision of the server's clock, as it says, in milliseconds."
    )
    clock: HostClock = Field(description="The state of source's clock, as its kernel reports it.")
    kiss: ForeignText | None = Field(
        description="The code by which the server refused, such as RATE or DENY."
    )
    failure: ForeignText | None = Field(description="Why nothing was asked, or nothing answered.")


class NtpTest(TargetTest):
    """The clock of an NTP server."""

    name = "ntp"
    title = "Clock of an NTP server"
    example: Mapping[str, Any] = {"dest": "ntp.example"}
    spec_model: type[Document] = NtpSpec
    result_model: type[Document] = NtpResult
    part_models: tuple[type[Document], ...] = (NtpResult,)

    def expected_bytes(self, spec: NtpSpec, mbps: int | None) -> int:
        """Return its packets and their answers."""
        return 2 * spec.count * PACKET_BYTES

    def shortfall(self, spec: NtpSpec, result: NtpResult) -> str | None:
        """Return how the result falls short of the spec; None if it does not."""
        where = f"{result.address} port {spec.port}"
        if result.failure is not None:
            return result.failure
        if result.kiss is not None and not result.received:
            return f"{where} refuses to tell the time: {result.kiss}"
        if not result.received:
            return f"{where} answered none of {result.sent} packets"
        if result.leap == "unsynchronised" or not result.stratum:
            return f"{where} says that its own clock is not synchronised"
        return None

    def summary(self, result: Result) -> str:
        """Return ``+0.412 ms ± 10.200 ms, stratum 2``."""
        figures = NtpResult.model_validate(result)
        if figures.offset_ms is None or figures.bound_ms is None:
            return f"no answer: {figures.failure or figures.kiss or 'no packet came back'}"
        text = f"{figures.offset_ms:+.3f} ms ± {figures.bound_ms:.3f} ms"
        if figures.leap == "unsynchronised":
            return f"{text}, not synchronised"
        return text if figures.stratum is None else f"{text}, stratum {figures.stratum}"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return the offset, its bound, round trips, and what the server says of its clock."""
        figures = NtpResult.model_validate(result)
        return (
            *metric("offset_ms", figures.offset_ms, "ms"),
            *metric("bound_ms", figures.bound_ms, "ms"),
            *delay_metrics("round_trip", figures.round_trip_ms),
            *metric("loss", figures.loss, "1"),
            *metric("stratum", figures.stratum, "1"),
            *metric("root_distance_ms", figures.root_distance_ms, "ms"),
        )


TEST = NtpTest()
