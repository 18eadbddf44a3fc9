"""Throughput by nuttcp, for hosts that have no iperf3. Pure.

It cannot choose TCP's congestion control, so it measures only with the host's own; which one that
was is read from the kernel while the connection exists (``programs/attended.py``). It cannot omit
the beginning either, but reports each second: the omitted ones are subtracted. A client that finds
no server falls back to an obsolete mode without one; because that mode has no intervals, requesting
them makes the client fail instead. Its ``retrans=0`` is not trusted: version 6.1.2 printed it for
a path that lost one packet in a hundred. Its streams take turns, write by write, so they all send
as much as the slowest (bytes within 0.5 % were measured where iperf3's differed by 25 %). The
receiver takes turns as well, and a lost datagram makes it wait for a stream in vain: with a loss
of 5 % it counted 11 % in one second, and gave up another time. So several streams are for TCP only.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.figures import share
from node.plugins.outline import OwnTool
from node.plugins.ownprograms import attended_command, split_attendance
from node.plugins.plausibility import RATE_MAX_BPS, Sieve
from node.plugins.reading import failure, text_of
from node.plugins.tests.throughput import (
    UDP_RATE_BPS,
    Datagrams,
    Received,
    Sent,
    ThroughputInterval,
    ThroughputPart,
    ThroughputSpec,
    datagrams,
    plausible,
)

_CLIENT, _SERVER = 0, 1

_CLIENT_DELAY = SECOND
"""The client starts this much later than the server: it tries only once to connect."""
_EXCHANGE = 3 * SECOND
"""Time for its exchange with the server at 200 ms each way, with one packet of it lost."""
_ROUND_TRIP = 400 * MILLISECOND
"""Time for each further stream, which is opened after the one before it."""
_WRAP_UP = 750 * MILLISECOND
_MARGIN = 400 * MILLISECOND
"""The server is ended this long before the booked end, before the launcher does it."""
_DATAGRAM_BYTES = 1400
"""Fits every usual path unfragmented, IPv6 and tunnels included."""
_BLOCK_BYTES = 8192
"""The bytes that TCP's receiver reads at once. The bytes of a second are reported in whole blocks;
with the usual 64 KiB, half a block missing in the omitted second made 1 Mb/s look 7 % faster. At
10 Gb/s over loopback the shorter blocks made no measurable difference."""
_MEGABYTE = 1 << 20
_UNIT_BPS = 1000
_UNIT_BYTES = 1024

_FIGURE = re.compile(r"([A-Za-z_]{1,20})=(\S{1,400})", re.ASCII)
_BOUNDS = {
    "megabytes": (0.0, 1e9),
    "real_sec": (0.0, 1e5),
    "real_seconds": (0.0, 1e5),
    "rate_Mbps": (0.0, RATE_MAX_BPS / 1e6),
    "tx_cpu": (0.0, 1e5),
    "rx_cpu": (0.0, 1e5),
    "drop": (-1e12, 1e12),
    "pkt": (0.0, 1e12),
}
"""The figures that are read, and what they may be."""
_ERROR = re.compile(r"(?:Error: |error: ).{1,300}", re.ASCII)


class NuttcpTool(OwnTool):
    """The nuttcp by Bill Fink."""

    name = "nuttcp"
    tests: tuple[str, ...] = ("throughput",)
    preference = -1
    requirement: Requirement | None = Requirement("nuttcp", "nuttcp", ("nuttcp", "-V"))
    tried: tuple[str, ...] = ("6.1.2",)

    def can(self, spec: ThroughputSpec) -> str | None:
        """Refuse a choice of congestion control, UDP with several streams, and odd units."""
        if spec.control is not None:
            return (
                f"nuttcp cannot choose {spec.control}, only the host's own congestion control:"
                " --congestion host"
            )
        if spec.single_ended or spec.special:
            untold = ("single_ended", *spec.special) if spec.single_ended else spec.special
            return f"nuttcp is not told {', '.join(untold)}"
        if spec.streams > 1 and spec.protocol == "udp":
            return "nuttcp counts the datagrams of a single stream only"
        if (spec.rate_bps or 0) % _UNIT_BPS:
            return "nuttcp supports rates in whole kb/s only"
        if (spec.window_bytes or 0) % _UNIT_BYTES:
            return "nuttcp supports windows in whole KiB only"
        return None

    def duration(self, spec: ThroughputSpec) -> int:
        """Return the client's delay, exchange with the server and sending time, in microseconds."""
        exchange = _EXCHANGE + (spec.streams - 1) * _ROUND_TRIP
        return _CLIENT_DELAY + exchange + spec.omitted + spec.duration + _WRAP_UP

    def needs_port(self, spec: ThroughputSpec, participant: int) -> int:
        """Return the ports of the server: its own, and one per stream for the data.

        UDP in reverse needs a port of the client.
        """
        if participant == _SERVER:
            return 1 + spec.streams
        return spec.reverse and spec.protocol == "udp"

    def command(self, part: PartContext) -> Command:
        """Return ``nuttcp … HOST``, one second later than ``nuttcp -1`` at dest."""
        spec: ThroughputSpec = part.spec
        server = part.parties[_SERVER]
        port = int(server.data["port"])
        sends = part.participant == (_SERVER if spec.reverse else _CLIENT)
        # The listening end owns the port, whichever end sends.
        watched = (port + 1, part.participant == _SERVER)
        flow = watched if sends and spec.protocol == "tcp" else None
        shared = [f"-{_version(spec, server.address)}", "-P", str(port)]
        if part.participant == _SERVER:
            argv = ["nuttcp", "-1", *shared, "--nofork", "--no3rdparty"]
            return attended_command(argv, part.starts, part.ends - _MARGIN, flow)
        to_client = spec.reverse and spec.protocol == "udp"
        data_port = int(part.parties[_CLIENT].data["port"]) if to_client else port + 1
        options = [*shared, "-p", str(data_port), "-fparse", *_options(spec)]
        # nuttcp knows no "--"; an address, being a Host, never begins with a dash.
        argv = ["nuttcp", *options, server.address]
        return attended_command(argv, part.starts + _CLIENT_DELAY, None, flow)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the client's figures; of the server only the congestion control, if it sent.

        :raises ToolOutputError: nuttcp failed, or printed something else; its own reason first.
        """
        spec: ThroughputSpec = part.spec
        printed, report = split_attendance(output, "nuttcp")
        if part.participant == _SERVER:
            return _server_part(printed, report.congestion).model_dump(mode="json")
        sieve = Sieve()
        lines = [_line(sieve, line) for line in text_of(printed, "nuttcp").splitlines()]
        intervals = [line for line in lines if "real_sec" in line]
        total = next((line for line in lines if "real_seconds" in line), None)
        if total is None or printed.exit_code != 0:
            raise failure(printed, "nuttcp", "it printed no figures")
        if "megabytes" not in total:
            raise ToolOutputError(f"nuttcp: it told no bytes{_because(sieve)}")
        sends = not spec.reverse
        if spec.protocol == "tcp" and sends and report.congestion is None:
            raise ToolOutputError("nuttcp: its connection was not seen, nor its congestion control")
        lost = not _bytes_in(total) and any(map(_bytes_in, intervals))
        measured = _Measured.of(spec, intervals, _summed(intervals) if lost else total)
        result = _client_part(spec, measured, report.congestion, sieve).model_dump(mode="json")
        if lost:
            raise ToolOutputError("nuttcp: its server did not report the sums", result)
        return result


def _because(sieve: Sieve) -> str:
    return f" ({sieve.notes[0]})" if sieve.notes else ""


def _version(spec: ThroughputSpec, address: str) -> int:
    """Return the IP version for the server, which listens on one version only."""
    if spec.ip_version is not None:
        return spec.ip_version
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 4


def _options(spec: ThroughputSpec) -> list[str]:
    seconds = (spec.omitted + spec.duration) // SECOND
    # Intervals as long as the whole run are not reported, and would allow the obsolete mode.
    options = ["-T", str(seconds), "-i", "1" if seconds > 1 else "0.5"]
    options += ["-N", str(spec.streams)] if spec.streams > 1 else []
    if spec.protocol == "udp":
        options += ["-u", "-l", str(_DATAGRAM_BYTES)]
    else:
        options += ["-l", str(_BLOCK_BYTES)]
    rate_bps = spec.rate_bps or (UDP_RATE_BPS if spec.protocol == "udp" else None)
    # Its option is the rate of all streams together.
    options += ["-R", f"{spec.streams * rate_bps // _UNIT_BPS}k"] if rate_bps else []
    if spec.window_bytes:
        window = str(spec.window_bytes // _UNIT_BYTES)
        options += [f"-w{window}", f"-ws{window}"]
    # The client also opens the data connection if the server sends.
    opened = ["-F"] if spec.protocol == "tcp" else []
    return [*options, "-r", *opened] if spec.reverse else options


_Line = dict[str, float]


def _line(sieve: Sieve, line: str) -> _Line:
    """Return the figures of a line that can be true."""
    figures = ((name, sieve.number(name, value, *_BOUNDS[name])) for name, value in _found(line))
    return {name: value for name, value in figures if value is not None}


def _found(line: str) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in _FIGURE.findall(line) if name in _BOUNDS)


def _bytes_in(line: _Line) -> int:
    return round(line.get("megabytes", 0) * _MEGABYTE)


def _exact_seconds(line: _Line) -> float:
    """Return the time computed from the rate, which has more digits than the printed time."""
    rate_mbps = line.get("rate_Mbps", 0)
    rough = line.get("real_sec", line.get("real_seconds", 0))
    exact = _bytes_in(line) * 8 / (rate_mbps * 1e6) if rate_mbps else rough
    # A value that was rounded to 0 has a meaningless rate.
    return exact if abs(exact - rough) <= 0.01 * max(1.0, rough) else rough


@dataclass(frozen=True)
class _Measured:
    """The figures without the omitted beginning; ``packets`` and ``drops`` are None if unknown."""

    octets: int
    seconds: float
    packets: int | None
    drops: int | None
    total: _Line
    intervals: tuple[ThroughputInterval, ...]

    @classmethod
    def of(cls, spec: ThroughputSpec, lines: Sequence[_Line], total: _Line) -> _Measured:
        """Subtract the omitted seconds from the whole."""
        omitted = lines[: spec.omitted // SECOND]
        if len(omitted) < spec.omitted // SECOND:
            raise ToolOutputError(f"nuttcp reports {len(lines)} seconds, fewer than are omitted")
        octets = _bytes_in(total) - sum(map(_bytes_in, omitted))
        seconds = _exact_seconds(total) - sum(map(_exact_seconds, omitted))
        if not _bytes_in(total) and seconds <= 0:
            seconds = spec.duration / SECOND  # it knows no time where nothing arrived
        if octets < 0 or seconds <= 0:
            raise ToolOutputError("nuttcp's seconds exceed the whole")
        counted = {
            name: int(total[name] - sum(line.get(name, 0) for line in omitted))
            for name in ("pkt", "drop")
            if name in total
        }
        packets = counted.get("pkt", -1)
        return cls(
            octets=octets,
            seconds=seconds,
            packets=packets if packets >= 0 else None,
            # Duplicates make its count of drops negative.
            drops=max(0, counted["drop"]) if "drop" in counted else None,
            total=total,
            intervals=_intervals(lines, spec.omitted // SECOND),
        )

    @property
    def rate_bps(self) -> int:
        """Bits per second."""
        return round(self.octets * 8 / self.seconds)


def _summed(lines: Sequence[_Line]) -> _Line:
    """Return what the seconds add up to, for a run whose sums were lost."""
    names = ("megabytes", "pkt", "drop")
    sums = {name: sum(line[name] for line in lines if name in line) for name in names}
    return {**sums, "real_seconds": sum(map(_exact_seconds, lines))}


def _intervals(lines: Sequence[_Line], omitted: int) -> tuple[ThroughputInterval, ...]:
    intervals, at_ms = [], 0.0
    for number, line in enumerate(lines):
        if number == omitted:
            at_ms = 0.0
        end_ms = at_ms + _exact_seconds(line) * 1000
        if "rate_Mbps" in line:
            intervals.append(
                ThroughputInterval(
                    start_ms=round(at_ms, 3),
                    end_ms=round(end_ms, 3),
                    rate_bps=round(line["rate_Mbps"] * 1e6),
                    retransmits=None,
                    omitted=number < omitted,
                )
            )
        at_ms = end_ms
    return tuple(intervals)


def _client_part(
    spec: ThroughputSpec, measured: _Measured, congestion: str | None, sieve: Sieve
) -> ThroughputPart:
    duration_ms = round(measured.seconds * 1000, 3)
    udp = spec.protocol == "udp"
    # All that TCP sent has arrived; UDP's receiver counts what was sent by its numbers.
    sent_bytes = measured.octets
    if udp:
        sent_bytes = (measured.packets or 0) * _DATAGRAM_BYTES
        if not sent_bytes and not measured.octets:
            sent_bytes = round((spec.rate_bps or UDP_RATE_BPS) * measured.seconds / 8)
            sieve.say("nuttcp counted no packet: what was sent is taken from the rate")
    cpu = measured.total.get("rx_cpu" if spec.reverse else "tx_cpu")
    sent = Sent(
        bytes=sent_bytes,
        duration_ms=duration_ms,
        rate_bps=round(sent_bytes * 8 / measured.seconds),
        retransmits=None,  # see above
    )
    received = Received(bytes=measured.octets, duration_ms=duration_ms, rate_bps=measured.rate_bps)
    loss = _datagrams(sieve, sent, received, measured) if udp else None
    part = ThroughputPart(
        sent=sent if sent_bytes or not udp else None,
        received=received,
        datagrams=loss,
        rtt_ms=None,  # it reports only that of the connection's first packets
        congestion=congestion,
        cpu=None if cpu is None else share(round(cpu), 100),
        intervals=measured.intervals,
        notes=sieve.notes,
    )
    return plausible(spec, part)


def _datagrams(
    sieve: Sieve, sent: Sent, received: Received, measured: _Measured
) -> Datagrams | None:
    if measured.packets is None or measured.drops is None:
        sieve.leave_out("loss", "nuttcp did not tell packets and drops")
        return None
    counted = Datagrams.counted(measured.packets, measured.drops, None, None)
    return datagrams(sieve, sent, received, counted, _DATAGRAM_BYTES)


def _server_part(output: Output, congestion: str | None) -> ThroughputPart:
    error = _ERROR.search(output.stderr[:10_000].decode(errors="replace"))
    if output.exit_code < 0:
        raise ToolOutputError("nuttcp: no client connected")
    if output.exit_code != 0 or error:
        raise failure(output, "nuttcp", "it did not start: its port may be taken")
    return ThroughputPart(
        sent=None,
        received=None,
        datagrams=None,
        rtt_ms=None,
        congestion=congestion,
        cpu=None,
        intervals=(),
    )


TOOL = NuttcpTool()
