"""How many bits per second get from one participant to another, by TCP or UDP. Pure.

Participant 0 (``source``) is the client and participant 1 (``dest``) the server. Data flows from
source to dest, with ``reverse`` from dest to source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from node.model.classes import SchedulingClass
from node.model.times import HOUR, MILLISECOND, MINUTE, SECOND
from node.model.wire.circumstances import Traffic
from node.model.wire.fields import Document, Host
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import (
    CountField,
    Fraction,
    IpVersion,
    NonNegative,
    WholeSeconds,
    between,
    duration_field,
)
from node.plugins.figures import delay_text, metric, percent_text, rate_text, traffic
from node.plugins.participation import joined, part_of
from node.plugins.two_participants import PairTest, check_two

UDP_RATE_BPS = 1_000_000
_OMIT_USUAL_MOST = 2 * SECOND
_OMIT_USUAL_SHARE = 5
_HOST = "host"
_USUAL = "cubic"
_SEGMENT_BYTES = 1448
"""What a segment carries over Ethernet: where more is, little is sent again."""


class ThroughputSpec(Document):
    """How to fill the path, and for how long."""

    source: Host | None = Field(
        default=None, description="The client, which sends; left out, the lead itself."
    )
    dest: Host | None = Field(
        default=None, description="The server, which receives; needed here or in `participants`."
    )
    duration: Annotated[WholeSeconds, between(SECOND, HOUR)] = duration_field(
        10 * SECOND, "How long to measure, in whole seconds, PT1S to PT1H."
    )
    omit: Annotated[WholeSeconds, between(0, MINUTE)] | None = Field(
        default=None,
        description="How long to send before measuring, to leave slow start out, in whole seconds "
        "up to PT1M; left out, a fifth of the duration, at most PT2S.",
    )
    protocol: Literal["tcp", "udp"] = Field(default="tcp", description="The transport protocol.")
    streams: int = Field(
        default=1, ge=1, le=64, strict=True, description="The number of parallel streams."
    )
    rate_bps: int | None = Field(
        default=None,
        ge=1_000,
        le=1_000_000_000_000,
        strict=True,
        description="The rate to send at, per stream, in bits per second; left out, as fast as TCP "
        "can, or 1000000 with UDP.",
    )
    congestion: str = Field(
        default=_USUAL,
        pattern=r"^[a-z][a-z0-9_]{0,14}$",
        description="TCP's congestion control; the result depends on it by an order of magnitude. "
        "`host`: what the sending host has by default.",
    )
    reverse: bool = Field(default=False, strict=True, description="Whether dest sends to source.")
    window_bytes: int | None = Field(
        default=None,
        ge=1_024,
        le=536_870_912,
        strict=True,
        description="The socket buffers in bytes; left out, the kernel tunes them.",
    )
    ip_version: IpVersion | None = Field(
        default=None, description="4 or 6; left out, what dest's address is."
    )

    @model_validator(mode="after")
    def _is_sound(self) -> ThroughputSpec:
        check_two(self)
        if self.protocol == "udp" and self.congestion not in (_USUAL, _HOST):
            msg = f"UDP has no congestion control, {self.congestion} or other; leave it out"
            raise ValueError(msg)
        return self

    @property
    def control(self) -> str | None:
        """The congestion control to set; ``None`` with UDP, and for the host's own."""
        return None if self.protocol == "udp" or self.congestion == _HOST else self.congestion

    @property
    def omitted(self) -> int:
        """How long to send before measuring, in microseconds (whole seconds)."""
        if self.omit is not None:
            return self.omit
        usual = min(_OMIT_USUAL_MOST, self.duration // _OMIT_USUAL_SHARE)
        return usual - usual % SECOND


class ThroughputInterval(Document):
    """A stretch of the measurement, all streams together."""

    start_ms: NonNegative = Field(description="Milliseconds since the measurement began.")
    end_ms: NonNegative = Field(description="Milliseconds since the measurement began.")
    rate_bps: NonNegative = Field(description="Bits per second.")
    retransmits: CountField | None = Field(
        description="TCP segments sent again; null if not known."
    )
    omitted: bool = Field(description="Whether it lies before the measurement proper.")


class Sent(Document):
    """What went in."""

    bytes: CountField = Field(description="Payload bytes.")
    duration_ms: NonNegative = Field(description="The time it took, in milliseconds.")
    rate_bps: NonNegative = Field(description="Bits per second.")
    retransmits: CountField | None = Field(description="TCP segments sent again; null with UDP.")


class Received(Document):
    """What came out."""

    bytes: CountField = Field(description="Payload bytes.")
    duration_ms: NonNegative = Field(description="The time it took, in milliseconds.")
    rate_bps: NonNegative = Field(description="Bits per second.")


class Datagrams(Document):
    """What UDP's receiver counted."""

    packets: CountField = Field(description="Packets expected from their numbers.")
    lost: CountField = Field(description="Packets that did not arrive.")
    loss: Fraction = Field(description="Lost packets as a fraction, 0 to 1.")
    jitter_ms: NonNegative | None = Field(
        description="The smoothed interarrival jitter of RFC 3550 section 6.4.1, milliseconds; "
        "null if the tool does not tell."
    )
    out_of_order: CountField | None = Field(
        description="Packets that arrived out of order; null if the tool does not tell."
    )


class TcpRtt(Document):
    """The round-trip time as the sending kernel estimated it, in milliseconds."""

    min: NonNegative = Field(description="The least.")
    mean: NonNegative = Field(description="The mean.")
    max: NonNegative = Field(description="The largest.")


class ThroughputPart(Document):
    """What one participant saw; what its end cannot know is null."""

    sent: Sent | None
    received: Received | None
    datagrams: Datagrams | None
    rtt_ms: TcpRtt | None
    congestion: str | None = Field(max_length=32)
    cpu: Fraction | None
    intervals: tuple[ThroughputInterval, ...]


class Cpu(Document):
    """How busy the measuring processes were, as fractions of one processor."""

    source: Fraction | None = Field(description="At source.")
    dest: Fraction | None = Field(description="At dest.")


class ThroughputResult(Document):
    """What went in and what came out."""

    protocol: Literal["tcp", "udp"] = Field(description="The transport protocol.")
    reverse: bool = Field(description="Whether dest sent to source.")
    streams: CountField = Field(description="The number of parallel streams.")
    congestion: str | None = Field(
        description="The congestion control that TCP's sender really used; null with UDP."
    )
    omitted_ms: CountField = Field(description="How long was sent before measuring, milliseconds.")
    rate_bps: NonNegative = Field(description="What came out, in bits per second.")
    sent: Sent | None = Field(description="What went in.")
    received: Received = Field(description="What came out.")
    datagrams: Datagrams | None = Field(description="Loss and jitter; null with TCP.")
    rtt_ms: TcpRtt | None = Field(description="TCP's own round-trip times; null with UDP.")
    cpu: Cpu = Field(description="How busy the measuring processes were.")
    intervals: tuple[ThroughputInterval, ...] = Field(
        description="The course of it, as the client saw it."
    )


class ThroughputTest(PairTest):
    """Bits per second from one participant to another."""

    name = "throughput"
    title = "Throughput by TCP or UDP"
    example: Mapping[str, Any] = MappingProxyType({"dest": "b.example"})
    resources: tuple[str, ...] = ("mbps",)
    spec_model: type[Document] = ThroughputSpec
    result_model: type[Document] = ThroughputResult

    def scheduling_class(self, spec: ThroughputSpec) -> SchedulingClass:  # noqa: ARG002 - all same
        """Exclusive: it fills the path, and is wrong if anything else does."""
        return SchedulingClass.EXCLUSIVE

    def needs(self, spec: ThroughputSpec) -> Mapping[str, int | None]:
        """The rate of all streams; of TCP without one all that there is, for it fills the path."""
        if spec.rate_bps is None and spec.protocol == "tcp":
            return {"mbps": None}
        return traffic(spec.streams * (spec.rate_bps or UDP_RATE_BPS))

    def merge(self, spec: ThroughputSpec, parts: Sequence[Part]) -> Merged:
        """Each end's own figures; the client's alone is a partial result, for it asks the server.

        The client comes first in the reason: why it failed is most often why the server did.
        """
        client, client_reason = part_of(parts, 0, ThroughputPart)
        server, server_reason = part_of(parts, 1, ThroughputPart)
        result = _result(spec, client, server) if client else None
        lacking = "no end says what was received" if client and not result else None
        reason = joined(client_reason, server_reason, lacking)
        return Merged(result.model_dump(mode="json") if result else None, reason)

    def summary(self, result: Result) -> str:
        """``47.4 Mb/s, 12 retransmits (cubic)``; UDP: ``9.9 Mb/s, loss 1 %, jitter 0.06 ms``."""
        figures = ThroughputResult.model_validate(result)
        text = rate_text(figures.rate_bps)
        if figures.datagrams:
            text += f", loss {percent_text(figures.datagrams.loss)}"
            jitter_ms = figures.datagrams.jitter_ms
            return text if jitter_ms is None else f"{text}, jitter {delay_text(jitter_ms)}"
        if figures.sent and figures.sent.retransmits is not None:
            text += f", {figures.sent.retransmits} retransmits"
        return f"{text} ({figures.congestion})" if figures.congestion else text

    def moved(self, spec: ThroughputSpec, participant: int, result: Result) -> Traffic | None:
        """What this end sent or received, what was left out at the beginning included.

        Of TCP's sender also what it sent again, which is none of its payload.
        """
        part = ThroughputPart.model_validate(result)
        known = part.sent or part.received
        if known is None:
            return None
        sends = participant == (1 if spec.reverse else 0)
        payload = known.bytes + _left_out_bytes(spec, part.intervals, known.rate_bps)
        if sends:
            payload += _SEGMENT_BYTES * _sent_again(part)
        return Traffic(sent_bytes=payload * sends, received_bytes=payload * (not sends))

    def doubts(self, spec: ThroughputSpec, result: Result) -> tuple[str, ...]:
        """``congestion control was bbr, not cubic as asked``."""
        used = ThroughputResult.model_validate(result).congestion
        if used is None or spec.control in (None, used):
            return ()
        return (f"congestion control was {used}, not {spec.congestion} as asked",)

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Rate; retransmits and TCP's round trip, or loss and jitter of UDP."""
        figures = ThroughputResult.model_validate(result)
        found = metric("throughput_bps", figures.rate_bps, "bit/s")
        if figures.sent:
            found += metric("retransmits", figures.sent.retransmits, "segments")
        if figures.rtt_ms:
            found += metric("tcp_rtt_mean_ms", figures.rtt_ms.mean, "ms")
        if figures.datagrams:
            found += metric("loss", figures.datagrams.loss, "1")
            found += metric("jitter_ms", figures.datagrams.jitter_ms, "ms")
        return found


def _left_out_bytes(
    spec: ThroughputSpec, intervals: Sequence[ThroughputInterval], rate_bps: float
) -> int:
    """What was moved before measuring: far more than in the same time later, after slow start.

    Of the time that no interval tells of, the most that is possible is taken: the highest rate.
    """
    told = [interval for interval in intervals if interval.omitted]
    spans_ms = [max(0.0, interval.end_ms - interval.start_ms) for interval in told]
    highest_bps = max([rate_bps, *(interval.rate_bps for interval in intervals)])
    rest_ms = max(0.0, spec.omitted / MILLISECOND - sum(spans_ms))
    bits = highest_bps * rest_ms
    bits += sum(it.rate_bps * span_ms for it, span_ms in zip(told, spans_ms, strict=True))
    return round(bits / 1000 / 8)


def _sent_again(part: ThroughputPart) -> int:
    """Segments, those of the time that was left out included."""
    measured = (part.sent and part.sent.retransmits) or 0
    return measured + sum(it.retransmits or 0 for it in part.intervals if it.omitted)


def _result(
    spec: ThroughputSpec, client: ThroughputPart, server: ThroughputPart | None
) -> ThroughputResult | None:
    """Prefer what an end saw itself to what it heard from the other over the control channel."""
    sender, receiver = (server, client) if spec.reverse else (client, server)
    received = (receiver and receiver.received) or client.received
    if received is None:
        return None
    return ThroughputResult(
        protocol=spec.protocol,
        reverse=spec.reverse,
        streams=spec.streams,
        congestion=(sender and sender.congestion) or client.congestion,
        omitted_ms=spec.omitted // MILLISECOND,
        rate_bps=received.rate_bps,
        sent=(sender and sender.sent) or client.sent,
        received=received,
        datagrams=(receiver and receiver.datagrams) or client.datagrams,
        rtt_ms=(sender and sender.rtt_ms) or client.rtt_ms,
        cpu=Cpu(source=client.cpu, dest=server.cpu if server else None),
        intervals=client.intervals,
    )


TEST = ThroughputTest()
