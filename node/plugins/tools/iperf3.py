"""Throughput by iperf3, 3.11 or newer: the server at dest, the client at source. Pure.

A server that is no node (``single_ended``) serves one client after the other: it may be busy, which
passes. It may want a user and a password, which no client of ours has; and what listens there may
be something else. Its version is not told: results come in a form that has not changed since 3.0.

Surprises in its JSON (recorded in ``tests/golden/tools/iperf3``): a failure has exit code 0 or 1
and an ``error`` key; a server whose client went away before measuring prints no error at all;
figures that a server did not itself send or receive may be negative numbers printed as unsigned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from node.model.errors import ToolOutputError
from node.model.reasons import server_busy
from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import is_address
from node.plugins.binding import EITHER, binding_arguments
from node.plugins.contracts import Command, Output, PartContext, Party, Requirement, Result
from node.plugins.figures import share
from node.plugins.outline import OwnTool
from node.plugins.plausibility import COUNT_MAX, FIGURE_MAX, Sieve, tree
from node.plugins.reading import failure, parsed
from node.plugins.tests.throughput import (
    UDP_RATE_BPS,
    Datagrams,
    Received,
    Sent,
    TcpRtt,
    ThroughputInterval,
    ThroughputPart,
    ThroughputSpec,
    datagrams,
    plausible,
)

LEAST = "3.11"
"""The oldest version whose result over UDP tells what arrived, and that has all our options."""

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
_BUSY = "the server is busy running a test"
_UNAUTHORISED = "test authorization failed"
_GUESSES = " - server may have stopped running or use a different port, firewall issue, etc."
"""The text that newer versions print before the reason why there was no connection."""
_PRINTED_ERROR = re.compile(r"^iperf3: (?:error - )?(.{1,300})", re.MULTILINE)
"""The cause of a failure as it is printed behind the document, if it is not in it."""
_BUSY_MAX = 100_000
"""Percent: a thousand processors."""
_SECONDS_MAX = 1e9
"""Seconds: no run lasts thirty years."""
_ENTRIES_MAX = 10_000
"""Maximum entries in the JSON's course (one per stream and interval, 450 bytes each)."""


_Json = Mapping[str, Any]


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
        least=LEAST,
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
        spec: ThroughputSpec = part.spec
        if spec.single_ended:
            return _foreign_server_command(part, spec)
        client, server = part.parties
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
        document, behind = parsed(output, "iperf3")
        if not isinstance(document, dict):
            raise failure(output, "iperf3", "it printed no JSON object")
        if spec.protocol == "udp" and output.ended_by != "itself":
            _check_open(spec, document, is_client=is_client)
        ends = _Ends(spec, is_client, tree(document, "end"))
        fault = _fault(output, document, behind, is_client=is_client)
        if fault is not None and spec.single_ended:
            fault = _fault_at_server(fault, document, spec)
        if fault is not None:
            raise ToolOutputError(fault, _saved(spec, document, ends))
        if not ends.sent and not ends.received:
            if tree(document, "end", "sum"):
                raise ToolOutputError(_too_old(document))
            raise failure(output, "iperf3", "the other end went away before anything was measured")
        return _part(spec, document, ends).model_dump(mode="json")


@dataclass(frozen=True)
class _Ends:
    """The sums of what was sent and received, as far as this end can know them; else empty.

    What a server has of the client is garbage; the client also has what the server told it.
    """

    spec: ThroughputSpec
    is_client: bool
    end: _Json

    @property
    def sends(self) -> bool:
        """True at the end that sent."""
        return self.is_client != self.spec.reverse

    @property
    def sent(self) -> _Json:
        """The sums of the sender."""
        return tree(self.end, "sum_sent") if self.is_client or self.sends else {}

    @property
    def received(self) -> _Json:
        """The sums of the receiver."""
        return tree(self.end, "sum_received") if self.is_client or not self.sends else {}

    def own(self) -> _Ends:
        """Return only what this end itself has counted."""
        other = "sum_received" if self.sends else "sum_sent"
        return replace(self, end={key: it for key, it in self.end.items() if key != other})


def _fault(output: Output, document: _Json, behind: str, *, is_client: bool) -> str | None:
    """Return why the run has failed, iperf3's own words first; None if it has not."""
    told = document.get("error")
    error = told if isinstance(told, str) else None
    # Since 3.19 the exit code is 0 even if it was terminated.
    interrupted = error is not None and _INTERRUPTED in error
    if output.ended_by != "itself" and (output.exit_code != 0 or interrupted):
        begun = is_client or document.get("intervals")
        return (
            f"iperf3 {'had not finished' if begun else 'had seen no client'} at the end of the run"
        )
    if error is None and (printed := _PRINTED_ERROR.search(behind)):
        error = printed[1]
    if error is not None:
        return f"iperf3: {error.removeprefix('error - ').replace(_GUESSES, '')[:300]}"
    if output.exit_code != 0:
        return failure(output, "iperf3", "it failed without a reason").detail
    return None


def _fault_at_server(fault: str, document: _Json, spec: ThroughputSpec) -> str:
    """Return a fault in words that help with a server that is no node."""
    where = f"{spec.dest} port {spec.server_port}"
    if _BUSY in fault:
        return server_busy(where)
    if _UNAUTHORISED in fault:
        return (
            f"iperf3: the server at {where} wants a user and a password, which no test has; ask "
            "its owner for one without"
        )
    if document.get("intervals") or tree(document, "start").get("test_start"):
        return fault
    return f"{fault}; what listens at {where} may be no server of iperf3, or one that is too old"


def _too_old(document: _Json) -> str:
    version = tree(document, "start").get("version")
    named = version[:30] if isinstance(version, str) else "iperf3"
    return (
        f"iperf3: this is {named}, older than {LEAST}: what it prints of UDP does not tell what "
        "arrived; install a newer one"
    )


def _saved(spec: ThroughputSpec, document: _Json, ends: _Ends) -> Result | None:
    """Return what a failed run has of a result: what its own end counted, if it counted any.

    The other end's sums are zero unless it told them before the run failed.
    """
    has_both = ends.sent.get("bytes") and ends.received.get("bytes")
    part = _part(spec, document, ends if has_both else ends.own())
    own = part.sent if ends.sends else part.received
    return part.model_dump(mode="json") if own is not None and own.bytes else None


def _check_open(spec: ThroughputSpec, document: _Json, *, is_client: bool) -> None:
    """Refuse a run that was ended because a stream had not opened: its sums are meaningless.

    A stream over UDP opens with one datagram each way. Neither is retransmitted if it is lost
    (3.12), and both ends then wait until they are terminated.
    """
    start = tree(document, "start")
    # The streams; the server lists them once it has received their opening.
    connected = start.get("connected")
    if isinstance(connected, list) and len(connected) == spec.streams:
        return
    opening = "iperf3: the datagram that opens a stream, sent only once,"
    if is_client:
        raise ToolOutputError(f"{opening} was not answered")
    if start.get("accepted_connection") is not None:
        raise ToolOutputError(f"{opening} did not arrive")


def _foreign_server_command(part: PartContext, spec: ThroughputSpec) -> Command:
    """Return the client of a server that is no node, and runs already."""
    address = part.addresses.get(str(spec.dest), str(spec.dest))
    options = ["-J", "-p", str(spec.server_port), "-i", str(_interval_s(spec))]
    options += binding_arguments(part, "--bind-dev", "-B")
    return Command(("iperf3", "-c", address, *options, *_client_options(spec)))


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


def _part(spec: ThroughputSpec, document: _Json, ends: _Ends) -> ThroughputPart:
    sieve = Sieve()
    sent, received = _Sum(sieve, "sent", ends.sent), _Sum(sieve, "received", ends.received)
    cpu = tree(ends.end, "cpu_utilization_percent").get("host_total")
    busy = sieve.number("cpu", cpu, most=_BUSY_MAX)
    congestion = ends.end.get("sender_tcp_congestion")
    streams = [each for each in _list(ends.end, "streams") if isinstance(each, dict)]
    part = ThroughputPart(
        sent=sent.as_sent(),
        received=received.as_received(),
        datagrams=_datagrams(sieve, document, sent, received, streams)
        if received.printed and spec.protocol == "udp"
        else None,
        rtt_ms=_rtt_ms(sieve, streams),
        congestion=congestion[:32] if isinstance(congestion, str) else None,
        cpu=None if busy is None else share(round(busy * 1000), 100_000),
        intervals=tuple(_intervals(sieve, _list(document, "intervals"))),
        notes=sieve.notes,
    )
    return plausible(spec, part)


def _list(document: _Json, key: str) -> list[Any]:
    value = document.get(key)
    return value if isinstance(value, list) else []


class _Sum:
    def __init__(self, sieve: Sieve, name: str, printed: _Json) -> None:
        self.printed = printed
        self._sieve, self._name = sieve, name
        self.bytes = self.count("bytes")
        self.seconds = self._number("seconds", printed.get("seconds"), _SECONDS_MAX)
        self.rate_bps = self.number("bits_per_second")

    def number(self, key: str) -> float | None:
        """Return one of the figures, if it can be true."""
        return self._number(key, self.printed.get(key))

    def count(self, key: str) -> int | None:
        """Return one of the counts, if it can be true."""
        return self._count(key, self.printed.get(key))

    def _number(self, key: str, value: object, most: float = FIGURE_MAX) -> float | None:
        return self._sieve.number(f"{self._name} {key}", value, most=most)

    def _count(self, key: str, value: object) -> int | None:
        return self._sieve.count(f"{self._name} {key}", value)

    def as_sent(self) -> Sent | None:
        """Return what was sent."""
        base = self.as_received()
        retransmits = self.count("retransmits")
        return None if base is None else Sent(**base.model_dump(), retransmits=retransmits)

    def as_received(self) -> Received | None:
        """Return what was received; of bytes, time and rate one may be missing."""
        octets, seconds, rate_bps = self.bytes, self.seconds, self.rate_bps
        if octets is None and seconds is not None and rate_bps is not None:
            octets = self._count("bytes", round(rate_bps * seconds / 8))
        elif rate_bps is None and seconds and octets is not None:
            rate_bps = self._number("bits_per_second", octets * 8 / seconds)
        elif seconds is None and rate_bps and octets is not None:
            seconds = self._number("seconds", octets * 8 / rate_bps, _SECONDS_MAX)
        if octets is None or seconds is None or rate_bps is None:
            return None
        return Received(bytes=octets, duration_ms=_ms(seconds), rate_bps=round(rate_bps))


def _datagrams(
    sieve: Sieve, document: _Json, sent: _Sum, received: _Sum, streams: Sequence[_Json]
) -> Datagrams | None:
    """Return loss from what was sent and received, and what the receiver noticed.

    The receiver of iperf3 counts only gaps between packets that have come.
    """
    size = sieve.count("packet size", tree(document, "start", "test_start").get("blksize"))
    lost = received.printed.get("lost_packets")
    if isinstance(lost, int) and lost > COUNT_MAX:
        lost -= 2**64  # a negative number, printed as unsigned
    lost = sieve.number("lost packets", lost, least=-COUNT_MAX)
    out_of_order = [tree(each, "udp").get("out_of_order") for each in streams]
    counts = [sieve.count("out_of_order", each) for each in out_of_order]
    counted = Datagrams.counted(
        packets=received.count("packets"),
        # Duplicates can make iperf3's count of lost packets negative.
        lost=None if lost is None else max(0, round(lost)),
        jitter_ms=received.number("jitter_ms"),
        out_of_order=None if None in counts else sum(each or 0 for each in counts),
    )
    both = (sent.as_received(), received.as_received())
    return datagrams(sieve, *both, counted, packet_bytes=size)


def _rtt_ms(sieve: Sieve, streams: Sequence[_Json]) -> TcpRtt | None:
    """Return the figures of all streams; ``None`` at the receiving end, which prints zeros."""
    figures = []
    for sender in (tree(each, "sender") for each in streams):
        named = [(key, sender.get(key)) for key in ("min_rtt", "mean_rtt", "max_rtt")]
        values = [sieve.number(key, value) for key, value in named]
        if all(values):
            figures.append([value / MILLISECOND for value in values if value])
    if not figures:
        return None
    least, mean, most = zip(*figures, strict=True)
    return TcpRtt(min=min(least), mean=round(sum(mean) / len(mean), 3), max=max(most))


def _intervals(sieve: Sieve, entries: list[Any]) -> Iterator[ThroughputInterval]:
    """Yield the intervals whose time and rate can be true."""
    for entry in entries:
        total = tree(entry, "sum")
        start, end = (
            sieve.number("time of an interval", total.get(key), -1, _SECONDS_MAX)
            for key in ("start", "end")
        )
        rate_bps = sieve.number("rate of an interval", total.get("bits_per_second"))
        retransmits = sieve.count("retransmits of an interval", total.get("retransmits"))
        if start is None or end is None or rate_bps is None:
            sieve.leave_out("an interval", "its time or rate is not known")
            continue
        yield ThroughputInterval(
            start_ms=_ms(max(0.0, start)),
            end_ms=_ms(max(0.0, end)),
            rate_bps=round(rate_bps),
            retransmits=retransmits,
            omitted=total.get("omitted") is True,
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


TOOL = Iperf3Tool()
