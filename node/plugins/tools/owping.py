"""One-way delay by perfSONAR's owping and owampd, where they are installed. Pure.

Never run here: neither Debian nor another registry has them. It is written after their manual pages
(``owping(1)``: ``-R`` prints ``SEQNO SENDTIME SSYNC SERR RECVTIME RSYNC RERR TTL`` of each packet,
times as numbers of 64 bits whose upper half are seconds; a packet that was lost has been received
at 0), so all other tools rank before it, and it is used only if a task names it.

OWAMP (RFC 4656) sends two streams, one each way, and nothing is sent back. Both have the same pace
here and begin within some milliseconds; packet n back counts as the answer to packet n, and the
round trip is their sum, in which the difference of the clocks cancels out. Reordered packets,
duplicates and strangers' packets are not distinguished.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import Document
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.oneway import DestPart, SourcePart, delays_and_jitter, histograms
from node.plugins.outline import OwnTool
from node.plugins.ownprograms import MICROSECOND_NS, ClockOutput, own_program
from node.plugins.reading import BYTES_MAX, document_of, failure
from node.plugins.tests.latency import LatencySpec

_SOURCE, _DEST = 0, 1
_SECOND_NS = 1_000_000_000

_CLIENT_DELAY = SECOND
"""Time for the server to start listening: its clock may be late, and its start slow."""
_OPENING = 6 * SECOND
"""Time for connecting and negotiating at 400 ms, and the second and more that owping then waits."""
_FETCHING = 4 * SECOND
"""Time for ending both sessions, and for fetching what dest has received."""
_WRAP_UP = SECOND
_MARGIN = 400 * MILLISECOND
"""The server is ended this long before the booked end, before the launcher does it."""
_PACKETS_MAX = 10_000
"""Maximum packets: some 90 bytes are printed for each packet and way."""
_HEADER_BYTES = 14
"""Header of a packet in open mode; the rest of the length is padding."""
_PORTS = 4
"""Ports per end: the server's own and a range for packets, or a range for each of two clients."""
_TTL_SENT = 255
_FRACTION_BITS = 32

_PACKET = re.compile(
    r"(?P<number>\d{1,9}) (?P<sent>\d{1,20}) [01] [-+.0-9a-z]{1,30} "
    r"(?P<received>\d{1,20}) [01] [-+.0-9a-z]{1,30} (?P<ttl>\d{1,3})",
    re.ASCII,
)

_ExitCode = Annotated[int, Field(ge=-256, le=256)]
_Said = Annotated[str, Field(max_length=10_000)]


class _Way(Document):
    exit_code: _ExitCode
    printed: str = Field(max_length=BYTES_MAX)
    said: _Said


class _ClientOutput(Document):
    forward: _Way
    backward: _Way
    clock: ClockOutput


class _ServerOutput(Document):
    early: bool
    exit_code: _ExitCode
    said: _Said
    clock: ClockOutput


class OwpingTool(OwnTool):
    """The owping of perfSONAR, with an owampd of its own at the other end."""

    name = "owping"
    tests: tuple[str, ...] = ("latency",)
    preference = -100
    requirement: Requirement | None = Requirement(
        "owping",
        "owamp-client, from perfSONAR's archive: Debian has none",
        ("owping", "-h"),
        r"[Vv]ersion:? (\d+(?:\.\d+)+)",
        others=(("owampd", "owamp-server, from perfSONAR's archive: Debian has none"),),
    )

    def can(self, spec: LatencySpec) -> str | None:
        """Refuse a port in the spec, and more packets than can be read."""
        if spec.port is not None:
            return "owping needs several consecutive ports; leave out port to have them assigned"
        if spec.count > _PACKETS_MAX:
            return f"owping prints more than can be read for more than {_PACKETS_MAX} packets"
        return None

    def duration(self, spec: LatencySpec) -> int:
        """Return opening, all packets, last timeout, fetching and wrap-up, in microseconds."""
        packets = spec.count * spec.interval + spec.timeout
        return _CLIENT_DELAY + _OPENING + packets + _FETCHING + _WRAP_UP

    def needs_port(self, spec: LatencySpec, participant: int) -> int:
        """Return some consecutive ports at both ends, so that a firewall can stay closed else."""
        return _PORTS

    def command(self, part: PartContext) -> Command:
        """Return both ``owping … HOST`` (``-t`` and ``-f``) at source, ``owampd -Z …`` at dest."""
        source, dest = part.parties
        own, port = int(source.data["port"]), int(dest.data["port"])
        if part.participant == _DEST:
            arguments: dict[str, object] = {
                "at_ns": part.starts * MICROSECOND_NS,
                "until_ns": (part.ends - _MARGIN) * MICROSECOND_NS,
                "address": dest.address,
                "port": port,
                "client": source.address,
                "ports": [port + 1, port + _PORTS - 1],
            }
            return own_program("owamp_server.py", arguments)
        arguments = {
            "at_ns": (part.starts + _CLIENT_DELAY) * MICROSECOND_NS,
            "options": _options(part.spec),
            "forward": ["-t", "-P", f"{own}-{own + 1}"],
            "backward": ["-f", "-P", f"{own + 2}-{own + 3}"],
            "source": source.address,
            "dest": dest.address,
            "port": port,
        }
        return own_program("owamp_client.py", arguments)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the client's delays and counts; of the server, only that it ran.

        :raises ToolOutputError: owping or owampd failed, or say what cannot be.
        """
        if part.participant == _DEST:
            server = document_of(output, "owampd", _ServerOutput)
            if server.early:
                raise _start_error("owampd", server.exit_code, server.said)
            return DestPart.without_figures(server.clock.clock).model_dump(mode="json")
        client = document_of(output, "owping", _ClientOutput)
        if output.ended_by != "itself":
            raise failure(output, "owping", "it was ended")
        return _source_part(part.spec, client).model_dump(mode="json")


def _options(spec: LatencySpec) -> list[str]:
    """Return the options for open mode at a fixed pace."""
    options = ["-R", "-A", "O", "-c", str(spec.count), "-i", f"{_seconds(spec.interval)}f"]
    options += ["-L", _seconds(spec.timeout), "-s", str(spec.length - _HEADER_BYTES)]
    return options + ([f"-{spec.ip_version}"] if spec.ip_version else [])


def _seconds(duration: int) -> str:
    return f"{duration / SECOND:.6f}".rstrip("0").rstrip(".")


def _start_error(program: str, exit_code: int, complaint: str) -> ToolOutputError:
    ended = Output(exit_code, b"", complaint.encode(errors="replace"))
    return failure(ended, program, "it ended without a reason")


_Arrival = tuple[int, int] | None
"""The nanoseconds that it took by both clocks, and the TTL; None: it was lost."""


def _packets(way: _Way, count: int) -> dict[int, _Arrival]:
    """Return the packets of one way by their numbers; of duplicates the first.

    :raises ToolOutputError: owping failed, or reports packets that were not sent.
    """
    if way.exit_code != 0:
        raise _start_error("owping", way.exit_code, way.said)
    arrivals: dict[int, _Arrival] = {}
    for line in filter(None, map(_PACKET.fullmatch, way.printed.splitlines())):
        number, sent, received = (int(line[name]) for name in ("number", "sent", "received"))
        if number >= count:
            raise ToolOutputError(f"owping reports packet {number} of {count}")
        if received:
            took_ns = (received - sent) * _SECOND_NS >> _FRACTION_BITS
            # The lines of a duplicated packet need not be in order.
            first = arrivals.get(number) or (took_ns, int(line["ttl"]))
            arrivals[number] = min(first, (took_ns, int(line["ttl"])))
        else:
            arrivals.setdefault(number, None)
    if not arrivals:
        raise _start_error("owping", way.exit_code, way.said or "it printed no packet")
    return arrivals


def _source_part(spec: LatencySpec, client: _ClientOutput) -> SourcePart:
    there = _packets(client.forward, spec.count)
    back = _packets(client.backward, spec.count)
    both = {
        number: (arrived[0], answer[0])
        for number, arrived in there.items()
        if arrived is not None and (answer := back.get(number)) is not None
    }
    if any(sum(ways) < 0 for ways in both.values()):
        raise ToolOutputError(
            "a round trip took less than zero time: a clock was set during the run"
        )
    timeout_ns = spec.timeout * MICROSECOND_NS
    in_time = {number: ways for number, ways in both.items() if sum(ways) <= timeout_ns}
    delays, jitters = delays_and_jitter(in_time)
    return SourcePart(
        sent=len(there),
        unsent=spec.count - len(there),
        received_back=len(in_time),
        received_at_dest=sum(arrived is not None for arrived in there.values()),
        late=len(both) - len(in_time),
        unreachable=None,
        duplicates_forward=None,
        duplicates_backward=None,
        reordered_backward=None,
        delay_ms=delays,
        jitter_ms=jitters,
        hops_forward=_router_count(there),
        hops_backward=_router_count(back),
        clock=client.clock.clock,
        histogram=histograms(in_time) if spec.histogram else None,
    )


def _router_count(packets: Mapping[int, _Arrival]) -> int | None:
    """Return the first packet's number of routers; 255, printed for unknown, counts as unknown."""
    first = next(filter(None, packets.values()), None)
    return (_TTL_SENT - first[1] or None) if first and first[1] <= _TTL_SENT else None


TOOL = OwpingTool()
