"""Throughput by iperf3, 3.12 or newer: the server at dest, the client at source. Pure.

Surprises in its JSON (recorded in ``tests/golden/tools/iperf3``): a failure has exit code 0 or 1
and an ``error`` key; a server whose client went away before measuring prints no error at all;
figures that a server did not itself send or receive may be negative numbers printed as unsigned.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import is_address
from node.plugins.binding import EITHER
from node.plugins.contracts import Command, Output, PartContext, Party, Requirement, Result
from node.plugins.fields import CountField, Finite, NonNegative
from node.plugins.figures import share
from node.plugins.outline import OwnTool
from node.plugins.reading import document_of, failure
from node.plugins.tests.throughput import (
    UDP_RATE_BPS,
    Datagrams,
    Received,
    Sent,
    TcpRtt,
    ThroughputInterval,
    ThroughputPart,
    ThroughputSpec,
)

_CLIENT, _SERVER = 0, 1

_CLIENT_DELAY = SECOND
"""The client starts this much later than the server: it tries only once to connect, and the server
may be late by the difference of the clocks (some 100 ms) and by a slow start."""
_ROUND_TRIP = 250 * MILLISECOND
_ROUND_TRIPS = 7
"""iperf3's own exchange (connecting, parameters; results, goodbye) takes seven round trips and one
more for each stream: 1.42 s and 2.85 s were measured for one stream and eight, at 200 ms."""
_RETRANSMISSION = SECOND
"""Time for one packet of that exchange lost at the worst moment: RFC 6298's first timeout."""
_WRAP_UP = 250 * MILLISECOND
"""The launcher ends what still runs this long before the booked end."""
_CONNECT_TIMEOUT_MS = 2000
_IDLE_TIMEOUT_S = 10
"""After this long without a client the server gives up, instead of blocking a long run's time."""
_INTERRUPTED = "interrupt - "
_GUESSES = " - server may have stopped running or use a different port, firewall issue, etc."
"""The text that newer versions print before the reason why there was no connection."""
_ENTRIES_MAX = 10_000
"""Maximum entries in the JSON's course (one per stream and interval, 450 bytes each)."""


class _Lenient(BaseModel):
    """A part of iperf3's JSON; versions add keys, so unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Sum(_Lenient):
    start: Finite = 0
    end: NonNegative = 0
    seconds: NonNegative = 0
    bytes: CountField = 0
    bits_per_second: NonNegative = 0
    retransmits: CountField | None = None
    omitted: bool = False
    jitter_ms: NonNegative | None = None
    lost_packets: int = Field(default=0, ge=-(2**63), lt=2**63)
    packets: CountField = 0


class _IntervalEntry(_Lenient):
    sum: _Sum


class _StreamSender(_Lenient):
    min_rtt: NonNegative = 0
    mean_rtt: NonNegative = 0
    max_rtt: NonNegative = 0


class _StreamUdp(_Lenient):
    out_of_order: CountField = 0


class _Stream(_Lenient):
    sender: _StreamSender | None = None
    udp: _StreamUdp | None = None


class _Cpu(_Lenient):
    host_total: NonNegative = 0


class _End(_Lenient):
    streams: tuple[_Stream, ...] = ()
    cpu_utilization_percent: _Cpu | None = None
    sender_tcp_congestion: str | None = Field(default=None, max_length=32)


class _SendingEnd(_End):
    sum_sent: _Sum | None = None


class _ReceivingEnd(_End):
    sum_received: _Sum | None = None


class _ClientEnd(_SendingEnd, _ReceivingEnd):
    """The client's figures and the server's; those that a server has of the client are garbage."""


class _Socket(_Lenient):
    """One end of a connection; only its presence matters."""


class _Start(_Lenient):
    connected: tuple[_Socket, ...] = ()
    """The streams; the server lists them once it has received their opening."""
    accepted_connection: _Socket | None = None


class _Beginning(_Lenient):
    start: _Start = _Start()


class _Document(_Lenient):
    error: str | None = None
    intervals: tuple[_IntervalEntry, ...] = ()
    end: _End


class _SendingDocument(_Document):
    end: _SendingEnd


class _ReceivingDocument(_Document):
    end: _ReceivingEnd


class _ClientDocument(_Document):
    end: _ClientEnd


class Iperf3Tool(OwnTool):
    """iperf3."""

    name = "iperf3"
    tests: tuple[str, ...] = ("throughput",)
    listener = _SERVER
    requirement: Requirement | None = Requirement(
        # Both ends set it, whichever of them sends the data.
        "iperf3",
        "iperf3",
        ("iperf3", "--version"),
        congestion=lambda spec: spec.control,
    )
    tried: tuple[str, ...] = ("3.12", "3.18", "3.22")
    binds = EITHER

    def duration(self, spec: ThroughputSpec) -> int:
        """Return the client's delay, exchange with the server and sending time, in microseconds."""
        exchange = (_ROUND_TRIPS + spec.streams) * _ROUND_TRIP + _RETRANSMISSION
        return _CLIENT_DELAY + exchange + spec.omitted + spec.duration + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return ``iperf3 -c …``, one second later than ``iperf3 -s -1 …`` at dest."""
        client, server = part.parties
        spec: ThroughputSpec = part.spec
        shared = ["-J", "-p", str(int(server.data["port"])), "-i", str(_interval_s(spec))]
        if part.participant == _CLIENT:
            options = [*shared, *_binding_options(client), *_client_options(spec)]
            return Command(("iperf3", "-c", server.address, *options), delay=_CLIENT_DELAY)
        idle = ["--idle-timeout", str(_IDLE_TIMEOUT_S)]
        return Command(("iperf3", "-s", "-1", *shared, *_binding_options(server), *idle))

    def read(self, part: PartContext, output: Output) -> Result:
        """Read what this end moved; the client also reports what the server told it.

        :raises ToolOutputError: iperf3 failed, or printed something else; its own reason first.
        """
        spec: ThroughputSpec = part.spec
        is_client = part.participant == _CLIENT
        if not is_client and not output.stderr and not output.stdout.strip():
            raise ToolOutputError(f"iperf3: no client came within {_IDLE_TIMEOUT_S} s")
        printed = replace(output, stdout=_without_warnings(output.stdout))
        if spec.protocol == "udp" and output.ended_by != "itself":
            _check_open(spec, printed, is_client=is_client)
        document = document_of(printed, "iperf3", _kind_of(spec, is_client=is_client))
        # Since 3.19 the exit code is 0 even if it was terminated.
        interrupted = document.error is not None and _INTERRUPTED in document.error
        if output.ended_by != "itself" and (output.exit_code != 0 or interrupted):
            late = "had not finished" if is_client or document.intervals else "had seen no client"
            raise ToolOutputError(f"iperf3 {late} at the end of the run")
        if document.error:
            message = document.error.removeprefix("error - ").replace(_GUESSES, "")
            raise ToolOutputError(f"iperf3: {message[:300]}")
        end = document.end
        sent = end.sum_sent if isinstance(end, _SendingEnd) else None
        received = end.sum_received if isinstance(end, _ReceivingEnd) else None
        if output.exit_code != 0:
            raise failure(output, "iperf3", "it failed without a reason")
        if sent is None and received is None:
            raise failure(output, "iperf3", "the other end went away before anything was measured")
        return _part(spec, document, sent, received)


def _kind_of(spec: ThroughputSpec, *, is_client: bool) -> type[_Document]:
    if is_client:
        return _ClientDocument
    return _SendingDocument if spec.reverse else _ReceivingDocument


def _check_open(spec: ThroughputSpec, printed: Output, *, is_client: bool) -> None:
    """Refuse a run that was ended because a stream had not opened: its sums are meaningless.

    A stream over UDP opens with one datagram each way. Neither is retransmitted if it is lost
    (3.12), and both ends then wait until they are terminated.
    """
    start = document_of(printed, "iperf3", _Beginning).start
    if len(start.connected) == spec.streams:
        return
    opening = "iperf3: the datagram that opens a stream, sent only once,"
    if is_client:
        raise ToolOutputError(f"{opening} was not answered")
    if start.accepted_connection is not None:
        raise ToolOutputError(f"{opening} did not arrive")


def _without_warnings(stdout: bytes) -> bytes:
    """Drop the lines before the document; any other output is left as it is."""
    at = stdout.find(b"\n{")
    return stdout[at + 1 :] if at >= 0 and not stdout.lstrip().startswith(b"{") else stdout


def _binding_options(party: Party) -> list[str]:
    """Return options to use the agreed address; a name may resolve differently on this host."""
    device = [] if party.device is None else ["--bind-dev", party.device]
    if not is_address(party.address):
        return device
    return ["-B", party.address, *device]


def _client_options(spec: ThroughputSpec) -> list[str]:
    options = ["-t", str(spec.duration // SECOND), "-O", str(spec.omitted // SECOND)]
    options += ["-P", str(spec.streams), "--connect-timeout", str(_CONNECT_TIMEOUT_MS)]
    if spec.protocol == "udp":
        options += ["-u", "-b", str(spec.rate_bps or UDP_RATE_BPS)]
    else:
        options += ["-C", spec.control] if spec.control else []
        options += ["-b", str(spec.rate_bps)] if spec.rate_bps else []
    options += ["-w", str(spec.window_bytes)] if spec.window_bytes else []
    options += [f"-{spec.ip_version}"] if spec.ip_version else []
    options += _special_options(spec)
    return [*options, "-R"] if spec.reverse else options


def _special_options(spec: ThroughputSpec) -> list[str]:
    """Return options that both ends learn from the client."""
    numbers = {
        "-M": spec.mss_bytes,
        "-l": spec.buffer_bytes,
        "--fq-rate": spec.pacing_bps,
        "-S": spec.tos,
        "-L": spec.flow_label,
    }
    options = [word for option, value in numbers.items() if value for word in (option, str(value))]
    options += ["-N"] if spec.no_delay else []
    return [*options, "-Z"] if spec.zero_copy else options


def _interval_s(spec: ThroughputSpec) -> int:
    """Return the interval in seconds: 1, or more where the output would be too long to read."""
    entries = (spec.omitted + spec.duration) // SECOND * (spec.streams + 1)
    return -(-entries // _ENTRIES_MAX)


def _part(
    spec: ThroughputSpec, document: _Document, sent: _Sum | None, received: _Sum | None
) -> Result:
    end = document.end
    cpu = end.cpu_utilization_percent
    part = ThroughputPart(
        sent=_traffic_sent(sent) if sent else None,
        received=_traffic_received(received) if received else None,
        datagrams=_datagrams(received, end) if received and spec.protocol == "udp" else None,
        rtt_ms=_rtt_ms(end.streams),
        congestion=end.sender_tcp_congestion,
        cpu=share(round(cpu.host_total * 1000), 100_000) if cpu else None,
        intervals=tuple(_interval(entry.sum) for entry in document.intervals),
    )
    return part.model_dump(mode="json")


def _traffic_sent(total: _Sum) -> Sent:
    return Sent(
        bytes=total.bytes,
        duration_ms=_ms(total.seconds),
        rate_bps=round(total.bits_per_second),
        retransmits=total.retransmits,
    )


def _traffic_received(total: _Sum) -> Received:
    return Received(
        bytes=total.bytes,
        duration_ms=_ms(total.seconds),
        rate_bps=round(total.bits_per_second),
    )


def _datagrams(total: _Sum, end: _End) -> Datagrams:
    # Duplicates can make iperf3's count of lost packets negative.
    lost = max(0, total.lost_packets)
    return Datagrams(
        packets=total.packets,
        lost=lost,
        loss=share(lost, total.packets),
        jitter_ms=round(total.jitter_ms or 0, 4),
        out_of_order=sum(stream.udp.out_of_order for stream in end.streams if stream.udp),
    )


def _rtt_ms(streams: tuple[_Stream, ...]) -> TcpRtt | None:
    """Return the figures of all streams; ``None`` at the receiving end, which prints zeros."""
    senders = [stream.sender for stream in streams if stream.sender and stream.sender.mean_rtt]
    if not senders:
        return None
    return TcpRtt(
        min=min(sender.min_rtt for sender in senders) / MILLISECOND,
        mean=round(sum(sender.mean_rtt for sender in senders) / len(senders) / MILLISECOND, 3),
        max=max(sender.max_rtt for sender in senders) / MILLISECOND,
    )


def _interval(entry: _Sum) -> ThroughputInterval:
    return ThroughputInterval(
        start_ms=_ms(max(0.0, entry.start)),
        end_ms=_ms(entry.end),
        rate_bps=round(entry.bits_per_second),
        retransmits=entry.retransmits,
        omitted=entry.omitted,
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


TOOL = Iperf3Tool()
