"""Delay each way by irtt: its server at dest, its client at source. Pure.

The server prints no figures; it tells the client in its answers what it received, which is how
irtt's client knows on which way a packet was lost. That knowledge comes with later answers, so a
few more packets are sent than are counted. Null is what neither end reports: packets reordered or
duplicated on the way there, hops, strangers' packets, ICMP errors. As a stream it is started anew
for each interval: :mod:`node.plugins.irttstream`.
"""

from __future__ import annotations

from typing import Any

from pydantic import RootModel

from node.model.errors import ToolOutputError
from node.model.intervals import Interval
from node.model.times import MILLISECOND, SECOND
from node.plugins import irttprogram, irttstream
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.irttprogram import PACKETS_MAX
from node.plugins.oneway import (
    DestPart,
    SourcePart,
    delays_and_jitter,
    histograms,
    not_between_nodes,
)
from node.plugins.outline import OwnTool
from node.plugins.ownprograms import (
    MICROSECOND_NS,
    AttendanceReport,
    attended_command,
    split_attendance,
)
from node.plugins.reading import document_of, text_of
from node.plugins.tests.latency import LatencySpec
from node.plugins.tests.latencybg import LatencyBgSpec

_SOURCE, _DEST = 0, 1

_CLIENT_DELAY = SECOND
"""Time for the server to start listening: its clock may be late, and its start slow."""
_OPENING_MS = (500, 500, 1000, 1000, 1000)
"""Waits of the client for the server's reply to its first packet, its second …"""
_EXTRA = 4
"""Extra packets after the counted ones: their answers show what became of the last ones."""
_SENT_SHARE = 2
"""Part of the packets, one of so many, that it must have sent; with fewer it is no measurement."""
_WRAP_UP = SECOND
"""Time for the output; the launcher ends what still runs 250 ms before the booked end."""
_MARGIN = 400 * MILLISECOND
"""The server is ended this long before the booked end, before the launcher does it."""

_Document = RootModel[dict[str, Any]]


class IrttTool(OwnTool):
    """The irtt by Pete Heist."""

    name = "irtt"
    tests: tuple[str, ...] = ("latency", "latencybg")
    listener = _DEST
    preference = -1
    requirement: Requirement | None = Requirement(
        "irtt", "irtt", ("irtt", "version"), r"irtt version: (\d+(?:\.\d+)+)"
    )
    tried: tuple[str, ...] = ("0.9.0",)
    binds = frozenset({"address"})

    def can(self, spec: LatencySpec | LatencyBgSpec) -> str | None:
        """Refuse more packets than can be read, streams with short intervals, and other targets."""
        if (reason := not_between_nodes(self.name, spec)) is not None:
            return reason
        if isinstance(spec, LatencyBgSpec):
            return irttstream.refusal(spec)
        if spec.count > PACKETS_MAX:
            return f"irtt prints more than can be read for more than {PACKETS_MAX} packets"
        return None

    def duration(self, spec: LatencySpec | LatencyBgSpec) -> int:
        """Return opening, all packets, the last one's timeout and wrap-up, in microseconds.

        A stream lasts exactly as its spec says: the next run begins when this one ends.
        """
        if isinstance(spec, LatencyBgSpec):
            return spec.duration
        opening = _CLIENT_DELAY + sum(_OPENING_MS) * MILLISECOND
        return opening + (spec.count + _EXTRA) * spec.interval + spec.timeout + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return ``irtt client … ADDRESS:PORT``, one second later ``irtt server`` at dest."""
        if isinstance(part.spec, LatencyBgSpec):
            return irttstream.command(part)
        spec: LatencySpec = part.spec
        source, dest = part.parties
        port = spec.port or int(dest.data["port"])
        if part.participant == _DEST:
            argv = irttprogram.server_command(dest, port, spec)
            return attended_command(argv, part.starts, part.ends - _MARGIN)
        lasts_ns = (spec.count + _EXTRA) * spec.interval * MICROSECOND_NS
        argv = irttprogram.with_sending_time(
            irttprogram.client_command(source, dest, port, spec, _OPENING_MS), lasts_ns
        )
        return attended_command(argv, part.starts + _CLIENT_DELAY)

    def read_interval(self, part: PartContext, record: bytes) -> Interval:
        """Read what this end saw in one interval of a stream.

        :raises ToolOutputError: it is not a record of this end, or is impossible.
        """
        return irttstream.read_interval(part, record)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the client's delays and counts; of the server, only that it ran.

        :raises ToolOutputError: irtt failed, or contradicts itself; its own reason first.
        """
        if isinstance(part.spec, LatencyBgSpec):
            return irttstream.read(part, output)
        printed, report = split_attendance(output, "irtt")
        if part.participant == _DEST:
            if "[ListenerStart] starting " not in text_of(printed, "irtt"):
                raise irttstream.failure_of(printed, "its server did not start")
            return DestPart.without_figures(report.clock.clock).model_dump(mode="json")
        if printed.exit_code != 0:
            raise irttstream.failure_of(printed, "it failed without a reason")
        document = document_of(printed, "irtt", _Document)
        return _source_part(part.spec, document.root, report).model_dump(mode="json")


def _source_part(
    spec: LatencySpec, document: dict[str, Any], report: AttendanceReport
) -> SourcePart:
    try:
        packets = irttprogram.parse_irtt_document(
            document, spec.interval * MICROSECOND_NS, spec.length
        )
    except ValueError as reason:
        raise ToolOutputError(str(reason)) from None
    counted = packets.trips[: spec.count]
    if len(counted) * _SENT_SHARE < spec.count:
        # It gives up at an answer that it does not expect, as where packets are duplicated.
        raise ToolOutputError(f"irtt ended by itself after {len(counted)} of {spec.count} packets")
    seen = irttprogram.observe_trips(counted, spec.timeout * MICROSECOND_NS)
    delays, jitters = delays_and_jitter(seen.in_time)
    return SourcePart(
        sent=len(counted),
        unsent=spec.count - len(counted),
        received_back=len(seen.in_time),
        received_at_dest=seen.at_dest,
        late=seen.late,
        unreachable=None,
        duplicates_forward=None,
        # It counts them without saying on which way they were duplicated.
        duplicates_backward=None if packets.duplicates else 0,
        reordered_backward=seen.reordered,
        delay_ms=delays,
        jitter_ms=jitters,
        hops_forward=None,
        hops_backward=None,
        clock=report.clock.clock,
        histogram=histograms(seen.in_time) if spec.histogram else None,
    )


TOOL = IrttTool()
