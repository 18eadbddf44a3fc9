"""Bits per second from one participant to another, by TCP or UDP. Pure.

Participant 0 (``source``) is the client and participant 1 (``dest``) the server. Data flows from
source to dest, with ``reverse`` from dest to source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    NonNegative,
    VersionOfDest,
    WholeSeconds,
    between,
    duration_field,
    flag_field,
    whole_field,
)
from node.plugins.figures import MEGABIT, delay_text, metric, percent_text, rate_text, traffic
from node.plugins.outline import PairTest, check_two
from node.plugins.participation import joined, part_of

UDP_RATE_BPS = 1_000_000
_OMIT_USUAL_MOST = 2 * SECOND
_OMIT_USUAL_SHARE = 5
_HOST = "host"
_WITH_FLOWS = 6
_SPECIAL = (
    "mss_bytes", "buffer_bytes", "no_delay", "zero_copy", "pacing_bps", "tos", "flow_label",
)  # fmt: skip
_USUAL = "cubic"
_SEGMENT_BYTES = 1448
"""The payload of a segment over Ethernet. Where segments are larger, few are retransmitted."""


class ThroughputSpec(Document):
    """The traffic to send, and for how long."""

    source: Host | None = Field(
        default=None, description="The client, which sends; by default the lead itself."
    )
    dest: Host | None = Field(
        default=None, description="The server, which receives; required here or in `participants`."
    )
    duration: Annotated[WholeSeconds, between(SECOND, HOUR)] = duration_field(
        10 * SECOND, "How long to measure, in whole seconds, PT1S to PT1H."
    )
    omit: Annotated[WholeSeconds, between(0, MINUTE)] | None = Field(
        default=None,
        description="How long to send before measuring, to exclude slow start, in whole seconds "
        "up to PT1M; by default a fifth of the duration, at most PT2S.",
    )
    protocol: Literal["tcp", "udp"] = Field(default="tcp", description="The transport protocol.")
    streams: int = whole_field(1, 1, 64, "The number of parallel streams.")
    rate_bps: int | None = whole_field(
        None,
        1_000,
        1_000_000_000_000,
        "The rate to send at, per stream, in bits per second; by default as fast as TCP can, "
        "or 1000000 with UDP.",
    )
    congestion: str = Field(
        default=_USUAL,
        pattern=r"^[a-z][a-z0-9_]{0,14}$",
        description="TCP's congestion control; the result depends on it by an order of magnitude. "
        "`host`: the sending host's default.",
    )
    reverse: bool = flag_field("Whether dest sends to source.")
    window_bytes: int | None = whole_field(
        None, 1_024, 536_870_912, "The socket buffers in bytes; by default the kernel tunes them."
    )
    ip_version: VersionOfDest = None
    mss_bytes: int | None = whole_field(
        None, 88, 9_216, "TCP's maximum segment size; by default the kernel's.", later=True
    )
    buffer_bytes: int | None = whole_field(
        None,
        16,
        1_048_576,
        "The bytes written at once, with UDP those of a packet; by default the tool's.",
        later=True,
    )
    no_delay: bool = flag_field("Whether TCP sends small segments at once.", later=True)
    zero_copy: bool = flag_field(
        "Whether the client sends without copying, which takes less of its processor.", later=True
    )
    pacing_bps: int | None = whole_field(
        None,
        1_000,
        1_000_000_000_000,
        "The rate at which the kernel lets packets out, per stream, bits per second.",
        later=True,
    )
    tos: int | None = whole_field(
        None, 0, 255, "The octet of IP's type of service; DSCP 46 is 184.", later=True
    )
    flow_label: int | None = whole_field(
        None, 1, 1_048_575, "The flow label of IPv6; needs ip_version 6.", later=True
    )

    @model_validator(mode="after")
    def _check_fields(self) -> ThroughputSpec:
        check_two(self)
        if self.protocol == "udp" and (self.mss_bytes or self.no_delay):
            raise ValueError("UDP has no segments; leave out mss_bytes and no_delay")
        if self.flow_label and self.ip_version != _WITH_FLOWS:
            raise ValueError("only IPv6 has flow labels; set ip_version to 6")
        if self.protocol == "udp" and self.congestion not in (_USUAL, _HOST):
            msg = f"UDP has no congestion control, neither {self.congestion} nor any; leave it out"
            raise ValueError(msg)
        return self

    @property
    def special(self) -> tuple[str, ...]:
        """The options that were set and that version 0.2 does not know; it is not sent others."""
        return tuple(name for name in _SPECIAL if getattr(self, name))

    @property
    def control(self) -> str | None:
        """The congestion control to set; ``None`` with UDP, and for the host's own."""
        return None if self.protocol == "udp" or self.congestion == _HOST else self.congestion

    @property
    def omitted(self) -> int:
        """The time to send before measuring, in microseconds (whole seconds)."""
        if self.omit is not None:
            return self.omit
        usual = min(_OMIT_USUAL_MOST, self.duration // _OMIT_USUAL_SHARE)
        return usual - usual % SECOND


class ThroughputInterval(Document):
    """An interval of the measurement, all streams together."""

    start_ms: NonNegative = Field(description="Milliseconds since the measurement began.")
    end_ms: NonNegative = Field(description="Milliseconds since the measurement began.")
    rate_bps: NonNegative = Field(description="Bits per second.")
    retransmits: CountField | None = Field(
        description="TCP segments retransmitted; null if unknown."
    )
    omitted: bool = Field(description="Whether it is before the measurement proper.")


class Sent(Document):
    """The traffic that was sent."""

    bytes: CountField = Field(description="Payload bytes.")
    duration_ms: NonNegative = Field(description="The time it took, in milliseconds.")
    rate_bps: NonNegative = Field(description="Bits per second.")
    retransmits: CountField | None = Field(description="TCP segments retransmitted; null with UDP.")


class Received(Document):
    """The traffic that was received."""

    bytes: CountField = Field(description="Payload bytes.")
    duration_ms: NonNegative = Field(description="The time it took, in milliseconds.")
    rate_bps: NonNegative = Field(description="Bits per second.")


class Datagrams(Document):
    """The counts of UDP's receiver."""

    packets: CountField = Field(description="Packets expected from their numbers.")
    lost: CountField = Field(description="Packets that did not arrive.")
    loss: Fraction = Field(description="Lost packets as a fraction, 0 to 1.")
    jitter_ms: NonNegative | None = Field(
        description="The smoothed interarrival jitter of RFC 3550 section 6.4.1, milliseconds; "
        "null if the tool does not report it."
    )
    out_of_order: CountField | None = Field(
        description="Packets that arrived out of order; null if the tool does not report it."
    )


class TcpRtt(Document):
    """The round-trip time as the sending kernel estimated it, in milliseconds."""

    min: NonNegative = Field(description="The smallest.")
    mean: NonNegative = Field(description="The mean.")
    max: NonNegative = Field(description="The largest.")


class ThroughputPart(Document):
    """One participant's part; null is what its end cannot know."""

    sent: Sent | None
    received: Received | None
    datagrams: Datagrams | None
    rtt_ms: TcpRtt | None
    congestion: str | None = Field(max_length=32)
    cpu: Fraction | None
    intervals: tuple[ThroughputInterval, ...]


class Cpu(Document):
    """The load of the measuring processes, as fractions of one processor."""

    source: Fraction | None = Field(description="At source.")
    dest: Fraction | None = Field(description="At dest.")


class ThroughputResult(Document):
    """The traffic that was sent and received."""

    protocol: Literal["tcp", "udp"] = Field(description="The transport protocol.")
    reverse: bool = Field(description="Whether dest sent to source.")
    streams: CountField = Field(description="The number of parallel streams.")
    congestion: str | None = Field(
        description="The congestion control that TCP's sender actually used; null with UDP."
    )
    omitted_ms: CountField = Field(description="How long it sent before measuring, milliseconds.")
    rate_bps: NonNegative = Field(description="The received rate, in bits per second.")
    sent: Sent | None = Field(description="The traffic that was sent.")
    received: Received = Field(description="The traffic that was received.")
    datagrams: Datagrams | None = Field(description="Loss and jitter; null with TCP.")
    rtt_ms: TcpRtt | None = Field(description="TCP's own round-trip times; null with UDP.")
    cpu: Cpu = Field(description="How busy the measuring processes were.")
    intervals: tuple[ThroughputInterval, ...] = Field(
        description="The course of the run, as the client saw it."
    )


class ThroughputTest(PairTest):
    """Bits per second from one participant to another."""

    name = "throughput"
    title = "Throughput by TCP or UDP"
    # It fills the path, and is wrong if anything else does.
    run_class = SchedulingClass.EXCLUSIVE
    example: Mapping[str, Any] = {"dest": "b.example"}
    resources: tuple[str, ...] = ("mbps",)
    spec_model: type[Document] = ThroughputSpec
    result_model: type[Document] = ThroughputResult
    part_models: tuple[type[Document], ...] = (ThroughputPart,)
    part_bytes_max = 640_000  # an hour, second by second

    def needs(self, spec: ThroughputSpec) -> Mapping[str, int | None]:
        """Return the rate of all streams; TCP without a rate takes everything."""
        if spec.rate_bps is None and spec.protocol == "tcp":
            return {"mbps": None}
        return traffic(spec.streams * (spec.rate_bps or UDP_RATE_BPS))

    def expected_bytes(self, spec: ThroughputSpec, mbps: int | None) -> int | None:
        """Return its rate times its time, with that before measuring.

        TCP without a rate is assumed to fill the slowest participant, and unknown if none states
        its rate.
        """
        if spec.rate_bps is not None or spec.protocol == "udp":
            rate_bps = spec.streams * (spec.rate_bps or UDP_RATE_BPS)
        elif mbps is not None:
            rate_bps = mbps * MEGABIT
        else:
            return None
        return rate_bps * (spec.duration + spec.omitted) // (8 * SECOND)

    def merge(self, spec: ThroughputSpec, parts: Sequence[Part]) -> Merged:
        """Merge each end's own figures; the client alone, which asks the server, gives a result.

        The reason begins with the client's: usually the server failed because the client did.
        """
        client, client_reason = part_of(parts, 0, ThroughputPart)
        server, server_reason = part_of(parts, 1, ThroughputPart)
        result = _result(spec, client, server) if client else None
        lacking = "neither end reports what was received" if client and not result else None
        reason = joined(client_reason, server_reason, lacking)
        return Merged(result.model_dump(mode="json") if result else None, reason)

    def summary(self, result: Result) -> str:
        """Return ``47.4 Mb/s, 12 retransmits (cubic)``, or for UDP loss and jitter instead."""
        figures = ThroughputResult.model_validate(result)
        text = rate_text(figures.rate_bps)
        if figures.datagrams:
            text += f", loss {percent_text(figures.datagrams.loss)}"
            jitter_ms = figures.datagrams.jitter_ms
            return text if jitter_ms is None else f"{text}, jitter {delay_text(jitter_ms)}"
        if figures.sent and figures.sent.retransmits is not None:
            count = figures.sent.retransmits
            text += f", {count} retransmit{'' if count == 1 else 's'}"
        return f"{text} ({figures.congestion})" if figures.congestion else text

    def moved(self, spec: ThroughputSpec, participant: int, result: Result) -> Traffic | None:
        """Return what this end sent or received, including the omitted time at the beginning.

        For TCP's sender this includes retransmissions, which are not part of its payload.
        """
        part = ThroughputPart.model_validate(result)
        own = part.sent or part.received
        if own is None:
            return None
        sends = participant == (1 if spec.reverse else 0)
        payload = own.bytes + _omitted_bytes(spec, part.intervals, own.rate_bps)
        if sends:
            payload += _SEGMENT_BYTES * _retransmits(part)
        return Traffic(sent_bytes=payload * sends, received_bytes=payload * (not sends))

    def doubts(self, spec: ThroughputSpec, result: Result) -> tuple[str, ...]:
        """Return ``congestion control was bbr, not cubic as requested``."""
        used = ThroughputResult.model_validate(result).congestion
        if used is None or spec.control in (None, used):
            return ()
        return (f"congestion control was {used}, not {spec.congestion} as requested",)

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return the rate; retransmits and TCP's round trip, or loss and jitter of UDP."""
        figures = ThroughputResult.model_validate(result)
        metrics = metric("throughput_bps", figures.rate_bps, "bit/s")
        if figures.sent:
            metrics += metric("retransmits", figures.sent.retransmits, "segments")
        if figures.rtt_ms:
            metrics += metric("tcp_rtt_mean_ms", figures.rtt_ms.mean, "ms")
        if figures.datagrams:
            metrics += metric("loss", figures.datagrams.loss, "1")
            metrics += metric("jitter_ms", figures.datagrams.jitter_ms, "ms")
        return metrics


def _omitted_bytes(
    spec: ThroughputSpec, intervals: Sequence[ThroughputInterval], rate_bps: float
) -> int:
    """Return the bytes moved before measuring; after slow start, they exceed the later rate.

    For omitted time that no interval covers, the maximum is assumed: the highest rate seen.
    """
    omitted = [interval for interval in intervals if interval.omitted]
    spans_ms = [max(0.0, interval.end_ms - interval.start_ms) for interval in omitted]
    highest_bps = max([rate_bps, *(interval.rate_bps for interval in intervals)])
    rest_ms = max(0.0, spec.omitted / MILLISECOND - sum(spans_ms))
    bits = highest_bps * rest_ms
    bits += sum(it.rate_bps * span_ms for it, span_ms in zip(omitted, spans_ms, strict=True))
    return round(bits / 1000 / 8)


def _retransmits(part: ThroughputPart) -> int:
    """Return the number of retransmitted segments, including those of the omitted time."""
    measured = (part.sent and part.sent.retransmits) or 0
    return measured + sum(it.retransmits or 0 for it in part.intervals if it.omitted)


def _result(
    spec: ThroughputSpec, client: ThroughputPart, server: ThroughputPart | None
) -> ThroughputResult | None:
    """Prefer what an end saw itself to what the other end told it over the control channel."""
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
