"""Bits per second from one participant to another, by TCP or UDP. Pure.

Participant 0 (``source``) is the client and participant 1 (``dest``) the server. Data flows from
source to dest, with ``reverse`` from dest to source. With ``single_ended`` dest is no participant
but a target: a server that somebody else runs there, and that tells the client what it saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, model_validator

from node.model.classes import SchedulingClass
from node.model.times import HOUR, MILLISECOND, MINUTE, SECOND
from node.model.wire.circumstances import Traffic
from node.model.wire.fields import Document, Host, is_absent
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import (
    AnyPort,
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
from node.plugins.figures import (
    MEGABIT,
    delay_text,
    metric,
    percent_text,
    rate_text,
    share,
    traffic,
)
from node.plugins.outline import PairTest, check_two
from node.plugins.participation import fill, joined_reasons, part_of
from node.plugins.plausibility import RATE_MAX_BPS, Notes, Sieve

UDP_RATE_BPS = 1_000_000
SERVER_PORT = 5201
"""The port at which servers of iperf3 listen by default."""
_OMIT_USUAL_MOST = 2 * SECOND
_OMIT_USUAL_SHARE = 5
_HOST = "host"
_WITH_FLOWS = 6
_SPECIAL = (
    "mss_bytes", "buffer_bytes", "no_delay", "zero_copy", "pacing_bps", "tos", "flow_label",
)  # fmt: skip
USUAL_CONTROL = "cubic"
_SEGMENT_BYTES = 1448
"""The payload of a segment over Ethernet. Where segments are larger, few are retransmitted."""

# What a figure can be
_LONGER_MS = 60_000
"""The time by which a run of a tool may be longer than its spec: it waits for what is under way."""
_ROUNDED = 0.05
"""Share by which bytes, time and rate of one direction may differ: tools round each of them."""
_SEGMENT_BYTES_LEAST = 36
_RETRANSMITS_OF_NOTHING = 1000
_SURPLUS, _SURPLUS_BYTES = 2, 1 << 30
"""Multiple of what was sent, and bytes, beyond which no more can arrive: earlier ones come, too."""
_UNDER_WAY_MS = 500
"""Time before the end: packets sent then may be under way when the receiver stops counting."""
_LONG_PACKETS = (
    ", though the connection opened: longer packets may vanish on the path (parley mtu tells)"
)
_UNNOTED, _UNNOTED_PACKETS = 0.02, 20


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
        default=USUAL_CONTROL,
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

    single_ended: bool = flag_field(
        "Whether dest is no node but a server of iperf3 that runs there: source measures alone.",
        later=True,
    )
    port: AnyPort | None = Field(
        default=None,
        description="The TCP and UDP port of that server, 5201 by default; needs single_ended.",
        exclude_if=is_absent,
    )

    @model_validator(mode="after")
    def _check_fields(self) -> ThroughputSpec:
        check_two(self)
        if self.port and not self.single_ended:
            raise ValueError("a node assigns its port itself; leave port out, or set single_ended")
        if self.single_ended and self.dest is None:
            raise ValueError("single_ended needs dest, the host of the server")
        if self.protocol == "udp" and (self.mss_bytes or self.no_delay):
            raise ValueError("UDP has no segments; leave out mss_bytes and no_delay")
        if self.flow_label and self.ip_version != _WITH_FLOWS:
            raise ValueError("only IPv6 has flow labels; set ip_version to 6")
        if self.protocol == "udp" and self.congestion not in (USUAL_CONTROL, _HOST):
            msg = f"UDP has no congestion control, neither {self.congestion} nor any; leave it out"
            raise ValueError(msg)
        return self

    @property
    def server_port(self) -> int:
        """The port of a server that is no node."""
        return self.port or SERVER_PORT

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
    """The loss of UDP, and what its receiver noticed."""

    packets: CountField = Field(description="Packets sent, from their numbers or bytes.")
    lost: CountField = Field(description="Packets that did not arrive.")
    loss: Fraction = Field(description="Lost packets as a fraction, 0 to 1.")
    jitter_ms: NonNegative | None = Field(
        description="The smoothed interarrival jitter of RFC 3550 section 6.4.1, milliseconds; "
        "null if the tool does not report it."
    )
    out_of_order: CountField | None = Field(
        description="Packets that arrived out of order; null if the tool does not report it."
    )

    @classmethod
    def counted(
        cls,
        packets: int | None,
        lost: int | None,
        jitter_ms: float | None,
        out_of_order: int | None,
    ) -> Datagrams:
        """Return what a receiver counted; what is not known counts as no packet."""
        return cls(
            packets=packets or 0,
            lost=lost or 0,
            loss=share(lost or 0, packets or 0),
            jitter_ms=None if jitter_ms is None else round(jitter_ms, 4),
            out_of_order=out_of_order,
        )


class TcpRtt(Document):
    """The round-trip time as the sending kernel estimated it, in milliseconds."""

    min: NonNegative = Field(description="The smallest.")
    mean: NonNegative = Field(description="The mean.")
    max: NonNegative = Field(description="The largest.")


Traffics = TypeVar("Traffics", Sent, Received)


class ThroughputPart(Document):
    """One participant's part; null is what its end cannot know."""

    sent: Sent | None
    received: Received | None
    datagrams: Datagrams | None
    rtt_ms: TcpRtt | None
    congestion: str | None = Field(max_length=32)
    cpu: Fraction | None
    intervals: tuple[ThroughputInterval, ...]
    notes: Notes = ()


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
    notes: Notes = ()


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

    def participants(self, spec: ThroughputSpec) -> tuple[str | None, ...]:
        """Return source and dest; source alone if dest is a server that is no node."""
        return (spec.source,) if spec.single_ended else super().participants(spec)

    def with_participants(self, spec: ThroughputSpec, names: Sequence[str]) -> ThroughputSpec:
        """Return the spec with the participants filled in.

        :raises ValueError: another number of names, a conflict with the spec, or no dest in either.
        """
        if spec.single_ended:
            return fill(spec, self.name, ("source",), names)
        filled: ThroughputSpec = super().with_participants(spec, names)
        return filled

    def target_port(self, spec: ThroughputSpec) -> int | None:
        """Return the port of a server that is no node."""
        return spec.server_port if spec.single_ended else None

    def telling(self, spec: ThroughputSpec) -> str | None:
        """Return None: the traffic has no content."""
        return None

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
        server, server_reason = (
            (None, None) if spec.single_ended else part_of(parts, 1, ThroughputPart)
        )
        client = client and plausible(spec, client)
        server = server and plausible(spec, server)
        result, lack = _result(spec, client, server) if client else (None, None)
        if client_reason is not None and lack is not None:
            lack = lack.removesuffix(_LONG_PACKETS)  # the client has asked the path itself
        reason = joined_reasons(client_reason, server_reason, lack)
        return Merged(result.model_dump(mode="json") if result else None, reason)

    def summary(self, result: Result) -> str:
        """Return ``47.4 Mb/s, 12 retransmits (cubic)``, or for UDP loss and jitter instead."""
        figures = ThroughputResult.model_validate(result)
        text = rate_text(figures.rate_bps) if figures.received.bytes else "nothing arrived"
        if figures.protocol == "udp" and figures.datagrams is None:
            return f"{text}, loss unknown"
        if figures.datagrams:
            text += f", loss {percent_text(figures.datagrams.loss)}"
            jitter_ms = figures.datagrams.jitter_ms
            return text if jitter_ms is None else f"{text}, jitter {delay_text(jitter_ms)}"
        if figures.sent and figures.sent.retransmits is not None:
            count = figures.sent.retransmits
            text += f", {count} retransmit{'' if count == 1 else 's'}"
        return f"{text} ({figures.congestion})" if figures.congestion else text

    def stalls_towards(
        self, spec: ThroughputSpec, participant: int, result: Result | None
    ) -> int | None:
        """Return the server, at the client of a TCP connection through which no byte came."""
        if spec.protocol != "tcp" or participant != 0 or spec.single_ended:
            return None
        part = None if result is None else ThroughputPart.model_validate(result)
        return 1 if part is None or part.received is None or not part.received.bytes else None

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


def plausible(spec: ThroughputSpec, part: ThroughputPart) -> ThroughputPart:
    """Return a part without the figures that do not fit the run, or each other."""
    sieve = Sieve(part.notes)
    longest_ms = (spec.omitted + spec.duration) / MILLISECOND + _LONGER_MS
    sent = _plausible_traffic(sieve, "sent", part.sent, longest_ms)
    if sent and sent.retransmits is not None:
        most = sent.bytes // _SEGMENT_BYTES_LEAST + _RETRANSMITS_OF_NOTHING
        sent = sent.model_copy(
            update={"retransmits": sieve.count("retransmits", sent.retransmits, most)}
        )
    packets, rtt_ms = part.datagrams, part.rtt_ms
    if packets and packets.lost > packets.packets:
        sieve.leave_out("loss", f"{packets.lost} lost of {packets.packets} packets")
        packets = None
    if packets:
        jitter_ms = sieve.number("jitter", packets.jitter_ms, most=longest_ms)
        disorder = sieve.count("out_of_order", packets.out_of_order, packets.packets)
        packets = packets.model_copy(update={"jitter_ms": jitter_ms, "out_of_order": disorder})
    if rtt_ms and not (
        sieve.ordered("TCP's round trip", rtt_ms.min, rtt_ms.mean, rtt_ms.max)
        and sieve.number("TCP's round trip", rtt_ms.max, most=longest_ms) is not None
    ):
        rtt_ms = None
    intervals = tuple(it for it in part.intervals if _is_plausible(sieve, it, longest_ms))
    return part.model_copy(
        update={
            "sent": sent,
            "received": _plausible_traffic(sieve, "received", part.received, longest_ms),
            "datagrams": packets,
            "rtt_ms": rtt_ms,
            "intervals": intervals,
            "notes": sieve.notes,
        }
    )


def _plausible_traffic(
    sieve: Sieve, name: str, traffic: Traffics | None, longest_ms: float
) -> Traffics | None:
    if traffic is None:
        return None
    octets, lasted_ms, rate_bps = traffic.bytes, traffic.duration_ms, traffic.rate_bps
    if lasted_ms > longest_ms:
        sieve.leave_out(name, f"it took {lasted_ms:g} ms of a run of {longest_ms:g} ms")
    elif rate_bps > RATE_MAX_BPS:
        sieve.leave_out(name, f"{rate_bps:g} b/s is more than any host moves")
    elif abs(octets * 8000 - rate_bps * lasted_ms) > _ROUNDED * max(octets, _SEGMENT_BYTES) * 8000:
        sieve.leave_out(name, f"{octets} bytes in {lasted_ms:g} ms are not {rate_bps:g} b/s")
    else:
        return traffic
    return None


def _is_plausible(sieve: Sieve, interval: ThroughputInterval, longest_ms: float) -> bool:
    if not 0 <= interval.start_ms <= interval.end_ms <= longest_ms:
        sieve.leave_out("an interval", f"from {interval.start_ms:g} to {interval.end_ms:g} ms")
    elif interval.rate_bps > RATE_MAX_BPS:
        sieve.leave_out("an interval", f"{interval.rate_bps:g} b/s is more than any host moves")
    else:
        return True
    return False


def datagrams(
    sieve: Sieve,
    sent: Received | Sent | None,
    received: Received | None,
    counted: Datagrams | None,
    packet_bytes: int | None = None,
) -> Datagrams | None:
    """Return UDP's loss from the bytes that were sent and received.

    ``counted`` is what the receiver knows by the numbers of the packets that came: it does not see
    those that were to come after the last one. What may have been under way when it stopped
    counting is not lost. ``packet_bytes`` is the length of a packet, unless the counts tell it.
    """
    if sent is None or received is None or not sent.bytes:
        return counted
    if counted and counted.lost > counted.packets:
        sieve.say(f"the count of {counted.lost} lost of {counted.packets} packets is left out")
        counted = None
    arrived = counted.packets - counted.lost if counted else 0
    if received.bytes and arrived:
        packet_bytes = max(1, round(received.bytes / arrived))
    size = packet_bytes or _SEGMENT_BYTES
    packets = max(1, round(sent.bytes / size))
    if not received.bytes:
        return Datagrams(packets=packets, lost=packets, loss=1, jitter_ms=None, out_of_order=None)
    missing = packets - (counted.packets if counted and arrived else 0)
    under_way = packets * _UNDER_WAY_MS / max(sent.duration_ms, _UNDER_WAY_MS)
    if missing <= under_way and counted:
        if missing > max(_UNNOTED * packets, _UNNOTED_PACKETS):
            sieve.say(f"{missing} of {packets} packets were under way at the end, or were lost")
        if -missing > under_way:
            sieve.say(f"{received.bytes} bytes arrived of {sent.bytes}: packets were duplicated")
        return counted
    lost = max(0, packets - (arrived or round(received.bytes / size)))
    return Datagrams(
        packets=packets,
        lost=lost,
        loss=share(lost, packets),
        jitter_ms=counted.jitter_ms if counted else None,
        out_of_order=counted.out_of_order if counted else None,
    )


def _lack(spec: ThroughputSpec, sent: Sent | None, received: Received) -> str | None:
    """Return why what was received is no measurement; None if it is one."""
    if spec.protocol == "udp":
        return None  # nothing of UDP is a loss of 100 %, which is told as such
    if not received.bytes:
        return "not a byte arrived" + (_LONG_PACKETS if sent and sent.bytes else "")
    if sent and received.bytes > _SURPLUS * sent.bytes + _SURPLUS_BYTES:
        return f"what was received cannot be: {received.bytes} bytes of {sent.bytes} sent"
    return None


def _result(
    spec: ThroughputSpec, client: ThroughputPart, server: ThroughputPart | None
) -> tuple[ThroughputResult | None, str | None]:
    """Return the result, and why it is none or no whole one.

    Prefer what an end saw itself to what the other end told it over the control channel.
    """
    sender, receiver = (server, client) if spec.reverse else (client, server)
    received = (receiver and receiver.received) or client.received
    notes = [*client.notes, *(server.notes if server else ())]
    if received is None:
        why = f" ({notes[0]})" if notes else ""
        return None, f"neither end reports what was received{why}"
    sent = (sender and sender.sent) or client.sent
    lack = _lack(spec, sent, received)
    sieve = Sieve(notes)
    counted = (receiver and receiver.datagrams) or client.datagrams
    if spec.protocol == "udp":
        size = spec.buffer_bytes
        if client.datagrams and client.datagrams.packets and sent:
            size = round(sent.bytes / client.datagrams.packets) or size
        counted = datagrams(sieve, sent, received, counted, size)
    if lack and received.bytes:
        return None, lack
    result = ThroughputResult(
        protocol=spec.protocol,
        reverse=spec.reverse,
        streams=spec.streams,
        congestion=(sender and sender.congestion) or client.congestion,
        omitted_ms=spec.omitted // MILLISECOND,
        rate_bps=received.rate_bps,
        sent=sent,
        received=received,
        datagrams=counted,
        rtt_ms=(sender and sender.rtt_ms) or client.rtt_ms,
        cpu=Cpu(source=client.cpu, dest=server.cpu if server else None),
        intervals=client.intervals,
        notes=sieve.notes,
    )
    return result, lack


TEST = ThroughputTest()
